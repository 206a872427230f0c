/* Timers by a loop and virtual ones behave alike; the heap keeps order among thousands that start and stop. */
#include "loop/timeline.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

#define MANY 2000

struct alarm {
	struct timer timer;
	int number;
};

static int fired[MANY], count;

static void due(struct timer *t)
{
	fired[count++] = ((struct alarm *)t)->number;
}

static void keeps_order(void)
{
	static struct alarm alarms[MANY];
	static double at[MANY];
	struct timeline l;
	double now = 100, last = 0;
	int stopped = 0, late = 0;

	timeline_init_virtual(&l, &now);
	srand(7);
	for (int i = 0; i < MANY; i++) {
		alarms[i].number = i;
		timer_init(&l, &alarms[i].timer, due);
		at[i] = rand() % 100;
		timer_start(&l, &alarms[i].timer, at[i]);
	}
	for (int i = 0; i < MANY; i += 3) {
		timer_stop(&l, &alarms[i].timer);
		timer_stop(&l, &alarms[i].timer);
		stopped++;
	}
	for (int i = 1; i < MANY; i += 3) {
		at[i] = rand() % 100;
		timer_start(&l, &alarms[i].timer, at[i]);
	}
	count = 0;
	while (timeline_first(&l) < HUGE_VAL) {
		late += timeline_first(&l) < now;
		now = timeline_first(&l);
		timeline_fire(&l);
	}
	ok(count == MANY - stopped, "every timer that was not stopped fires, once");
	for (int i = 0; i < count; i++) {
		late += at[fired[i]] < last || fired[i] % 3 == 0;
		last = at[fired[i]];
	}
	ok(late == 0, "in the order of their times, and no stopped one among them");
	timeline_fini(&l);
}

static void equal_times(void)
{
	struct alarm a[3];
	struct timeline l;
	double now = 0;

	timeline_init_virtual(&l, &now);
	for (int i = 0; i < 3; i++) {
		a[i].number = i;
		timer_init(&l, &a[i].timer, due);
		timer_start(&l, &a[i].timer, 1);
	}
	timer_start(&l, &a[0].timer, 1);
	count = 0;
	while (timeline_first(&l) < HUGE_VAL)
		timeline_fire(&l);
	ok(count == 3 && fired[0] == 1 && fired[1] == 2 && fired[2] == 0,
	   "at one moment they fire in the order in which they were started");
	timeline_fini(&l);
}

static void by_a_loop(void)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	struct timeline l;
	struct alarm a = { .number = 5 }, b = { .number = 6 };

	timeline_init(&l, loop);
	timer_init(&l, &a.timer, due);
	timer_init(&l, &b.timer, due);
	double before = timeline_now(&l);
	timer_start(&l, &a.timer, 100);
	timer_start(&l, &a.timer, 0.02);
	timer_start(&l, &b.timer, 0.01);
	timer_stop(&l, &b.timer);
	count = 0;
	ev_run(loop, 0);
	ok(count == 1 && fired[0] == 5,
	   "a loop's timer that is started again is due at the new time, and a stopped one never");
	ok(timeline_now(&l) - before >= 0.02, "and not before it");
	timeline_fini(&l);
	ev_loop_destroy(loop);
}

int main(void)
{
	keeps_order();
	equal_times();
	by_a_loop();
	return tap_done();
}
