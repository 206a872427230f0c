/* A store of --service that answers when the test says so: the table of its calls, and what was asked last.
 * Not a cluster: tests/cluster/kubernetes/service.py has one.
 * Used by tests/unit/service and tests/unit/term. */
#pragma once

#include "service/service.h"
#include "tap.h"

struct service_store {
	int asked, closed;
	bool busy;
	struct service_wish wish;
	service_done_fn *done;
	void *arg;
};
static struct service_store store;

static struct service_store *store_open(struct lock_env *env, struct service_target *t, const char *lock,
                                        struct err *err)
{
	(void)env, (void)t, (void)lock, (void)err;
	store = (struct service_store){ 0 };
	return &store;
}

static void store_apply(struct service_store *s, const struct service_wish *w, struct instant by, service_done_fn *done,
                        void *arg)
{
	(void)by;
	if (s->busy)
		ok(0, "one attempt at a time");
	s->busy = true;
	s->asked++;
	s->wish = *w;
	s->done = done;
	s->arg = arg;
}

static void store_close(struct service_store *s)
{
	s->busy = false;
	s->closed++;
}

static const struct service_ops ops = { .open = store_open, .apply = store_apply, .close = store_close };

static void answer(enum service_outcome outcome, bool wrote, const char *why)
{
	struct service_result r = { .outcome = outcome, .wrote = wrote };

	if (why)
		err_set(&r.err, ERR_INVALID, "%s", why);
	store.busy = false;
	store.done(store.arg, &r);
}
