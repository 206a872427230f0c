/* Turns among file locks: in order, a few at a time, never from inside the asking; who leaves is not called. */
#include "locks/file/file_turn.h"
#include "locks/lock.h"
#include "tap.h"

#include <ev.h>
#include <stddef.h>

#define MANY 100

struct waiter {
	struct file_turn turn;
	int number;
};

static struct {
	struct lock_env env;
	struct waiter waiters[MANY];
	int order[2 * MANY], begun;
	bool at_once; /* a turn is over before begin returns */
} t;

static void begin(struct file_turn *turn)
{
	struct waiter *w = (struct waiter *)((char *)turn - offsetof(struct waiter, turn));

	t.order[t.begun++] = w->number;
	if (t.at_once)
		file_turn_over(&t.env);
}

static void ask(int i)
{
	t.waiters[i].turn.begin = begin;
	t.waiters[i].number = i;
	file_turn_ask(&t.env, &t.waiters[i].turn);
}

/* Until nothing more begins by itself. */
static void settle(void)
{
	ev_run(t.env.loop, 0);
}

static bool in_order(int from, int n, int first)
{
	for (int i = 0; i < n; i++)
		if (t.order[from + i] != first + i)
			return false;
	return true;
}

static void test_limit(void)
{
	t.begun = 0;
	for (int i = 0; i < MANY; i++)
		ask(i);
	is_int(t.begun, 0, "nothing begins inside the call that asks");
	settle();
	int limit = t.begun;
	ok(limit > 0 && limit < MANY, "some begin, the others wait");
	file_turn_over(&t.env);
	is_int(t.begun, limit, "nor inside the call that ends a turn");
	settle();
	is_int(t.begun, limit + 1, "one turn over, one more begins");
	for (int over = 1; over < MANY; over++) {
		file_turn_over(&t.env);
		settle();
	}
	is_int(t.begun, MANY, "in the end all have had theirs");
	ok(in_order(0, MANY, 0), "in the order in which they asked");
}

static void test_leave(void)
{
	t.begun = 0;
	t.at_once = true;
	for (int i = 0; i < 5; i++)
		ask(i);
	file_turn_leave(&t.env, &t.waiters[4].turn);
	file_turn_leave(&t.env, &t.waiters[0].turn);
	file_turn_leave(&t.env, &t.waiters[0].turn);
	ask(5);
	settle();
	is_int(t.begun, 4, "who has left, first or last, is not called; leaving twice is as good");
	ok(in_order(0, 3, 1) && t.order[3] == 5, "the others are, and who asked after the last had left");
	file_turn_leave(&t.env, &t.waiters[1].turn);
	ask(1);
	settle();
	is_int(t.order[t.begun - 1], 1, "leaving after the turn does nothing, and one may ask again");
	t.at_once = false;
}

int main(void)
{
	t.env.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	test_limit();
	test_leave();
	lock_env_fini(&t.env);
	ev_loop_destroy(t.env.loop);
	return tap_done();
}
