/* No store at all: every process has a record of its own, and so always leads. For --leader-elect=false, where every
 * replica shall work, and for development. */
#include "locks/lock.h"

#include "base/mem.h"

#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct none {
	struct lock lock;
	struct ev_loop *loop;
	ev_timer later; /* done is never called from inside read or write */
	struct record record;
	uint64_t version; /* 0 = there is no record */
	struct lock_result result;
	lock_done_fn *done; /* NULL: nothing is under way */
	void *arg;
};

static struct none *none_of(struct lock *l)
{
	return (struct none *)l;
}

static void none_finish(struct none *n)
{
	lock_done_fn *done = n->done;

	ev_timer_stop(n->loop, &n->later);
	n->done = NULL;
	if (done)
		done(n->arg, &n->result);
}

static void none_on_later(struct ev_loop *, ev_timer *w, int)
{
	none_finish(w->data);
}

static void none_begin(struct none *n, enum lock_outcome outcome, lock_done_fn *done, void *arg)
{
	n->result = (struct lock_result){ .outcome = outcome, .sent_at = clock_now() };
	if (outcome == LOCK_OK) {
		n->result.record = &n->record;
		snprintf(n->result.version.text, sizeof n->result.version.text, "%llu", (unsigned long long)n->version);
	}
	n->done = done;
	n->arg = arg;
	ev_timer_set(&n->later, 0., 0.);
	ev_timer_start(n->loop, &n->later);
}

static void none_read(struct lock *l, struct instant, lock_done_fn *done, void *arg)
{
	none_begin(none_of(l), none_of(l)->version ? LOCK_OK : LOCK_ABSENT, done, arg);
}

static void none_write(struct lock *l, const struct record *r, const struct version *expected, bool, struct instant,
                       lock_done_fn *done, void *arg)
{
	struct none *n = none_of(l);
	char now[32] = "";

	if (n->version)
		snprintf(now, sizeof now, "%llu", (unsigned long long)n->version);
	bool equal = strcmp(now, expected->text) == 0;
	if (equal) {
		record_copy(&n->record, r);
		n->version++;
	}
	none_begin(n, equal ? LOCK_OK : LOCK_CONFLICT, done, arg);
}

/* What was written was written at once: the outcome is known. */
static void none_cancel(struct lock *l)
{
	none_finish(none_of(l));
}

static void none_close(struct lock *l)
{
	struct none *n = none_of(l);

	none_cancel(l);
	record_fini(&n->record);
	free(l->url);
	free(n);
}

static struct lock *none_open(struct lock_env *env, const char *url, struct err *)
{
	struct none *n = mem_zero(sizeof *n);

	n->lock = (struct lock){ .ops = &lock_none, .url = mem_printf("none:%s", url) };
	n->loop = env->loop;
	record_init(&n->record);
	ev_timer_init(&n->later, none_on_later, 0., 0.);
	n->later.data = n;
	return &n->lock;
}

const struct lock_ops lock_none = {
	.scheme = "none",
	.token_in_record = true,
	.open = none_open,
	.read = none_read,
	.write = none_write,
	.cancel = none_cancel,
	.close = none_close,
};
