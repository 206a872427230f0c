#include "client/lock_client.h"

#include "base/mem.h"
#include "lease/next_record.h"
#include "loop/offload.h"

#include <ev.h>

#define TIMEOUT (5 * NSEC_PER_SEC)
#define QUIET (NSEC_PER_SEC / 20) /* without a notice for so long, none is on its way */

static int lock_client_prepare(struct lock_client *c, struct ev_loop *loop, struct err *err)
{
	c->owns_loop = !loop;
	c->loop = loop ? loop : ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	if (!c->loop)
		return err_set(err, ERR_SYSTEM, "cannot make an event loop");
	c->env.loop = c->loop;
	record_init(&c->record);
	c->env.offload = offload_new(c->loop, 1, err);
	return c->env.offload ? 0 : -1;
}

int lock_client_open(struct lock_client *c, struct ev_loop *loop, const char *url, struct err *err)
{
	if (lock_client_prepare(c, loop, err) < 0)
		return -1;
	c->lock = lock_open(&c->env, url, err);
	return c->lock ? 0 : -1;
}

int lock_client_open_prefix(struct lock_client *c, const char *url, char **prefix, struct err *err)
{
	*prefix = NULL;
	if (lock_client_prepare(c, NULL, err) < 0)
		return -1;
	c->place = lock_open_prefix(&c->env, url, prefix, err);
	return c->place ? 0 : -1;
}

/* The place stays open, and so does what its locks share. */
int lock_client_turn_to(struct lock_client *c, const char *url, struct err *err)
{
	if (c->lock)
		c->lock->ops->close(c->lock);
	c->lock = lock_open(&c->env, url, err);
	c->watches = c->watched = false;
	return c->lock ? 0 : -1;
}

void lock_client_close(struct lock_client *c)
{
	if (!c->loop)
		return;
	if (c->lock)
		c->lock->ops->close(c->lock);
	if (c->place)
		c->place->ops->close(c->place);
	record_fini(&c->record);
	lock_env_fini(&c->env);
	if (c->env.offload)
		offload_free(c->env.offload);
	if (c->owns_loop)
		ev_loop_destroy(c->loop);
}

const char *lock_client_url(const struct lock_client *c)
{
	return c->lock->url;
}

/* ---- operations ---- */

static void lock_client_on_done(void *arg, const struct lock_result *r)
{
	struct lock_client *c = arg;

	c->answered = clock_now();
	c->odd_answers += c->starting || !c->busy;
	if (r->record)
		record_copy(&c->record, r->record);
	c->result = *r;
	c->result.record = NULL;
	c->busy = false;
}

/* The deadline of an operation that begins now. */
static struct instant lock_client_begin(struct lock_client *c)
{
	c->busy = c->starting = true;
	c->asked = clock_now();
	return instant_add(c->asked, c->within ? c->within : TIMEOUT);
}

enum lock_outcome lock_client_wait(struct lock_client *c)
{
	while (c->busy)
		ev_run(c->loop, EVRUN_ONCE);
	return c->result.outcome;
}

void lock_client_cancel(struct lock_client *c)
{
	if (c->busy)
		c->lock->ops->cancel(c->lock);
}

void lock_client_start_read(struct lock_client *c)
{
	if (c->watches)
		lock_client_watch(c);
	c->changed = false; /* what changes while it is read may be newer than what was read */
	c->lock->ops->read(c->lock, lock_client_begin(c), lock_client_on_done, c);
	c->starting = false;
}

enum lock_outcome lock_client_read(struct lock_client *c)
{
	lock_client_start_read(c);
	return lock_client_wait(c);
}

enum lock_outcome lock_client_about(struct lock_client *c)
{
	c->lock->ops->about(c->lock, &c->about, lock_client_begin(c), lock_client_on_done, c);
	c->starting = false;
	return lock_client_wait(c);
}

enum lock_outcome lock_client_list(struct lock_client *c, struct lock_listing *out)
{
	c->place->ops->list(c->place, out, lock_client_begin(c), lock_client_on_done, c);
	c->starting = false;
	return lock_client_wait(c);
}

enum lock_outcome lock_client_remove(struct lock_client *c, const struct version *expected)
{
	c->expected = *expected;
	c->lock->ops->remove(c->lock, &c->expected, lock_client_begin(c), lock_client_on_done, c);
	c->starting = false;
	return lock_client_wait(c);
}

void lock_client_start_write(struct lock_client *c, const struct version *expected, bool durable)
{
	c->expected = *expected;
	c->lock->ops->write(c->lock, &c->record, &c->expected, durable, lock_client_begin(c), lock_client_on_done, c);
	c->starting = false;
}

bool lock_client_found_next(const struct lock_client *c)
{
	return next_record_is(&c->record);
}

int64_t lock_client_took_us(const struct lock_client *c)
{
	return (c->answered.raw - c->asked.raw) / 1000;
}

/* ---- notices ---- */

static void lock_client_on_changed(void *arg)
{
	struct lock_client *c = arg;

	c->changed = true;
	c->changed_at = clock_now();
}

static void lock_client_on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)w, (void)revents; /* it only ends ev_run */
}

bool lock_client_watch(struct lock_client *c)
{
	c->watches = c->lock->ops->watch != NULL;
	c->watched = c->watches && c->lock->ops->watch(c->lock, lock_client_on_changed, c);
	return c->watched;
}

bool lock_client_wait_change(struct lock_client *c, nsec most, nsec poll)
{
	struct instant by = instant_add(clock_now(), !c->watched && poll < most ? poll : most);
	ev_timer timer;
	nsec left;

	ev_timer_init(&timer, lock_client_on_timer, 0., 0.);
	while (!c->changed && (left = instant_until(by, clock_now())) > 0) {
		ev_now_update(c->loop);
		ev_timer_set(&timer, (double)left / NSEC_PER_SEC, 0.);
		ev_timer_start(c->loop, &timer);
		ev_run(c->loop, EVRUN_ONCE);
		ev_timer_stop(c->loop, &timer);
	}
	return c->changed;
}

enum lock_outcome lock_client_watch_record(struct lock_client *c, nsec most, nsec poll, bool *changed)
{
	struct instant by = instant_add(clock_now(), most);
	uint64_t before = record_sight_id(&c->record);
	enum lock_outcome o = LOCK_OK;
	nsec left;

	*changed = false;
	while (o == LOCK_OK && !*changed && (left = instant_until(by, clock_now())) > 0) {
		lock_client_wait_change(c, left, poll);
		o = lock_client_read(c);
		*changed = o == LOCK_ABSENT || (o == LOCK_OK && record_sight_id(&c->record) != before);
	}
	return o;
}

void lock_client_drain(struct lock_client *c)
{
	do
		c->changed = false;
	while (lock_client_wait_change(c, QUIET, QUIET));
}
