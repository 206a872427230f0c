#include "commands/seat.h"

#include "base/mem.h"
#include "loop/offload.h"

#include <ev.h>

#define PATIENCE (5 * NSEC_PER_SEC)
#define QUIET (NSEC_PER_SEC / 20)

int seat_open(struct seat *s, struct ev_loop *loop, const char *url, struct err *err)
{
	s->loop = s->env.loop = loop;
	record_init(&s->record);
	s->env.offload = offload_new(loop, 1, err);
	if (!s->env.offload)
		return -1;
	s->lock = lock_open(&s->env, url, err);
	return s->lock ? 0 : -1;
}

void seat_close(struct seat *s)
{
	if (!s->loop)
		return;
	if (s->lock)
		s->lock->ops->close(s->lock);
	lock_env_fini(&s->env);
	if (s->env.offload)
		offload_free(s->env.offload);
	record_fini(&s->record);
}

/* ---- operations ---- */

static void answer(struct seat *s, const struct lock_result *r)
{
	s->answered = clock_now();
	s->result = *r;
	s->result.record = NULL;
	s->busy = false;
}

static void on_done(void *arg, const struct lock_result *r)
{
	struct seat *s = arg;

	if (r->record)
		record_copy(&s->record, r->record);
	answer(s, r);
}

static struct instant begin(struct seat *s)
{
	s->busy = true;
	s->asked = clock_now();
	return instant_add(s->asked, PATIENCE);
}

enum lock_outcome seat_wait(struct seat *s)
{
	while (s->busy)
		ev_run(s->loop, EVRUN_ONCE);
	return s->result.outcome;
}

enum lock_outcome seat_read(struct seat *s)
{
	s->lock->ops->read(s->lock, begin(s), on_done, s);
	return seat_wait(s);
}

enum lock_outcome seat_about(struct seat *s)
{
	s->lock->ops->about(s->lock, &s->about, begin(s), on_done, s);
	return seat_wait(s);
}

enum lock_outcome seat_remove(struct seat *s, const struct version *expected)
{
	s->expected = *expected;
	s->lock->ops->remove(s->lock, &s->expected, begin(s), on_done, s);
	return seat_wait(s);
}

void seat_start_write(struct seat *s, const struct version *expected, bool durable)
{
	s->expected = *expected;
	s->lock->ops->write(s->lock, &s->record, &s->expected, durable, begin(s), on_done, s);
}

int64_t seat_took_us(const struct seat *s)
{
	return (s->answered.raw - s->asked.raw) / 1000;
}

/* ---- notices ---- */

static void on_changed(void *arg)
{
	struct seat *s = arg;

	s->changed = true;
	s->changed_at = clock_now();
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)w, (void)revents; /* that the loop has turned is enough */
}

bool seat_watch(struct seat *s)
{
	return s->lock->ops->watch && s->lock->ops->watch(s->lock, on_changed, s);
}

bool seat_told(struct seat *s, nsec within)
{
	struct instant by = instant_add(clock_now(), within);
	ev_timer timer;
	nsec left;

	ev_timer_init(&timer, on_timer, 0., 0.);
	while (!s->changed && (left = instant_until(by, clock_now())) > 0) {
		ev_now_update(s->loop);
		ev_timer_set(&timer, (double)left / NSEC_PER_SEC, 0.);
		ev_timer_start(s->loop, &timer);
		ev_run(s->loop, EVRUN_ONCE);
		ev_timer_stop(s->loop, &timer);
	}
	return s->changed;
}

void seat_quiet(struct seat *s)
{
	do
		s->changed = false;
	while (seat_told(s, QUIET));
}
