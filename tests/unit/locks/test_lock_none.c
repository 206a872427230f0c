/* The lock without a store, which must keep the promises of lock.h, too: the elector makes no exception for it. */
#include "locks/lock.h"

#include "base/mem.h"
#include "tap.h"

#include <ev.h>
#include <stdlib.h>

struct end {
	int count;
	enum lock_outcome outcome;
	struct version version;
	char holder[20];
};

static void end_on_done(void *arg, const struct lock_result *r)
{
	struct end *e = arg;

	e->count++;
	e->outcome = r->outcome;
	e->version = r->version;
	snprintf(e->holder, sizeof e->holder, "%s", r->record ? r->record->holder : "");
}

static struct end reads(const struct lock_env *env, struct lock *l)
{
	struct end e = { .count = 0 };

	l->ops->read(l, clock_now(), end_on_done, &e);
	is_int(e.count, 0, "a look does not end inside the call");
	ev_run(env->loop, 0);
	return e;
}

static struct end writes(const struct lock_env *env, struct lock *l, const char *holder, const char *expected)
{
	struct end e = { .count = 0 };
	struct version version = { .text = "" };
	struct record r;

	record_init(&r);
	free(r.holder);
	r.holder = mem_dup(holder);
	snprintf(version.text, sizeof version.text, "%s", expected);
	l->ops->write(l, &r, &version, true, clock_now(), end_on_done, &e);
	is_int(e.count, 0, "nor does a write");
	ev_run(env->loop, 0);
	record_fini(&r);
	return e;
}

int main(void)
{
	struct lock_env env = { .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV) };
	struct err err;
	struct lock *l = lock_none.open(&env, "", &err), *other = lock_none.open(&env, "", &err);

	struct end e = reads(&env, l);
	ok(e.count == 1 && e.outcome == LOCK_ABSENT && !*e.version.text, "at first there is no record");
	struct end first = writes(&env, l, "a", "");
	ok(first.outcome == LOCK_OK && *first.version.text, "one is written where none is expected");
	e = reads(&env, l);
	ok(e.outcome == LOCK_OK && strcmp(e.holder, "a") == 0, "and read");
	is_str(e.version.text, first.version.text, "with the version that the write had");
	is_int(writes(&env, l, "b", "").outcome, LOCK_CONFLICT, "none is not expected any more");
	struct end second = writes(&env, l, "c", first.version.text);
	ok(second.outcome == LOCK_OK && strcmp(second.version.text, first.version.text) != 0,
	   "what was read last is replaced, by another version");
	is_int(writes(&env, l, "d", first.version.text).outcome, LOCK_CONFLICT, "what was replaced is not expected");
	e = reads(&env, l);
	ok(strcmp(e.holder, "c") == 0 && strcmp(e.version.text, second.version.text) == 0,
	   "a write in conflict changes nothing");
	is_int(reads(&env, other).outcome, LOCK_ABSENT, "another lock has a record of its own");

	e.count = 0;
	l->ops->read(l, clock_now(), end_on_done, &e);
	l->ops->cancel(l);
	ok(e.count == 1 && e.outcome == LOCK_FAILED, "a cancel ends it");
	ev_run(env.loop, 0);
	l->ops->cancel(l);
	is_int(e.count, 1, "once");
	l->ops->read(l, clock_now(), end_on_done, &e);
	l->ops->close(l);
	is_int(e.count, 2, "closing cancels, too");
	struct record r;
	record_init(&r);
	other->ops->write(other, &r, &(struct version){ "" }, true, clock_now(), end_on_done, &e);
	other->ops->cancel(other);
	is_int(e.outcome, LOCK_FAILED, "a write that is cancelled has failed");
	is_int(reads(&env, other).outcome, LOCK_ABSENT, "and has changed nothing");
	record_fini(&r);
	ev_run(env.loop, 0);
	other->ops->close(other);
	is_int(e.count, 3, "and nothing comes afterwards");
	ev_loop_destroy(env.loop);
	return tap_done();
}
