#include "commands/seat.h"

#include "base/mem.h"
#include "loop/offload.h"

#include <ev.h>

#define PATIENCE (5 * NSEC_PER_SEC)
#define QUIET (NSEC_PER_SEC / 20)

int lock_client_open(struct lock_client *s, struct ev_loop *loop, const char *url, struct err *err)
{
	s->loop = s->env.loop = loop;
	record_init(&s->record);
	s->env.offload = offload_new(loop, 1, err);
	if (!s->env.offload)
		return -1;
	s->lock = lock_open(&s->env, url, err);
	return s->lock ? 0 : -1;
}

void lock_client_close(struct lock_client *s)
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

static void answer(struct lock_client *s, const struct lock_result *r)
{
	s->answered = clock_now();
	s->result = *r;
	s->result.record = NULL;
	s->busy = false;
}

static void on_done(void *arg, const struct lock_result *r)
{
	struct lock_client *s = arg;

	if (r->record)
		record_copy(&s->record, r->record);
	answer(s, r);
}

static struct instant begin(struct lock_client *s)
{
	s->busy = true;
	s->asked = clock_now();
	return instant_add(s->asked, PATIENCE);
}

enum lock_outcome lock_client_wait(struct lock_client *s)
{
	while (s->busy)
		ev_run(s->loop, EVRUN_ONCE);
	return s->result.outcome;
}

enum lock_outcome lock_client_read(struct lock_client *s)
{
	s->lock->ops->read(s->lock, begin(s), on_done, s);
	return lock_client_wait(s);
}

enum lock_outcome lock_client_about(struct lock_client *s)
{
	s->lock->ops->about(s->lock, &s->about, begin(s), on_done, s);
	return lock_client_wait(s);
}

enum lock_outcome lock_client_remove(struct lock_client *s, const struct version *expected)
{
	s->expected = *expected;
	s->lock->ops->remove(s->lock, &s->expected, begin(s), on_done, s);
	return lock_client_wait(s);
}

void lock_client_start_write(struct lock_client *s, const struct version *expected, bool durable)
{
	s->expected = *expected;
	s->lock->ops->write(s->lock, &s->record, &s->expected, durable, begin(s), on_done, s);
}

int64_t lock_client_took_us(const struct lock_client *s)
{
	return (s->answered.raw - s->asked.raw) / 1000;
}

/* ---- notices ---- */

static void on_changed(void *arg)
{
	struct lock_client *s = arg;

	s->changed = true;
	s->changed_at = clock_now();
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)w, (void)revents; /* that the loop has turned is enough */
}

bool lock_client_watch(struct lock_client *s)
{
	return s->lock->ops->watch && s->lock->ops->watch(s->lock, on_changed, s);
}

bool lock_client_told(struct lock_client *s, nsec within)
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

void lock_client_quiet(struct lock_client *s)
{
	do
		s->changed = false;
	while (lock_client_told(s, QUIET));
}
