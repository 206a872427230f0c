/* One operation of a lock, without anything that is asked: how it ends, when, and what is said of it. Beside
 * test_lock_link.c, where it asks a server. */
#include "locks/lock_op.h"

#include "tap.h"

#include <ev.h>
#include <string.h>

static struct {
	struct lock_env env;
	struct lock lock;
	struct lock_op op;
	int ended, detached, steps;
	enum lock_outcome outcome;
	struct err why;
} t;

static void told_on_done(void *arg, const struct lock_result *r)
{
	(void)arg;
	t.ended++;
	t.outcome = r->outcome;
	t.why = r->err;
}

static void op_on_detach(struct lock_op *op)
{
	(void)op;
	t.detached++;
}

/* As of a request that was a look before the write, and says so when it is taken back. */
static void op_on_detach_look(struct lock_op *op)
{
	op->writing = false;
	op->sent = true;
}

static void op_begin(bool writing, struct instant by, void (*detach)(struct lock_op *op))
{
	t.ended = t.detached = 0;
	lock_op_begin(&t.op, &t.env, &t.lock, detach, writing, by, told_on_done, NULL);
}

static bool said(const char *text)
{
	return strcmp(t.why.text, text) == 0;
}

static void op_then(struct lock_op *op)
{
	lock_op_finish(op, &(struct lock_result){ .outcome = LOCK_CONFLICT });
}

static struct instant in_ms(int64_t ms)
{
	return instant_add(clock_now(), ms * NSEC_PER_MS);
}

#define HOUR in_ms(INT64_C(3600) * 1000)

static void test_soon(void)
{
	op_begin(true, HOUR, op_on_detach);
	lock_op_soon(&t.op, op_then);
	is_int(t.ended, 0, "a result that is known at once is not given from inside the call");
	ev_run(t.env.loop, 0);
	ok(t.ended == 1 && t.outcome == LOCK_CONFLICT && t.detached == 0, "but in the next turn of the loop");
	op_begin(true, HOUR, op_on_detach);
	lock_op_soon(&t.op, op_then);
	lock_op_cancel(&t.op);
	ev_run(t.env.loop, 0);
	ok(t.ended == 1 && t.outcome == LOCK_FAILED && t.detached == 1, "or not at all, if it is cancelled before");
	op_begin(true, HOUR, NULL);
	lock_op_fail_soon(&t.op, LOCK_INVALID, ERR_INVALID, "%s", "the first");
	lock_op_fail_soon(&t.op, LOCK_FAILED, ERR_SYSTEM, "%s", "the second");
	is_int(t.ended, 0, "nor is a failure");
	ev_run(t.env.loop, 0);
	ok(t.ended == 1 && t.outcome == LOCK_INVALID && said("writing x:1: the first"), "of two the first one counts");
	op_begin(true, HOUR, NULL);
	lock_op_fail_soon(&t.op, LOCK_INVALID, ERR_INVALID, "%s", "the first");
	lock_op_cancel(&t.op);
	ok(t.ended == 1 && t.outcome == LOCK_INVALID, "a cancel gives it at once");
}

static void test_deadline(void)
{
	op_begin(false, (struct instant){ 0 }, op_on_detach);
	ev_run(t.env.loop, 0);
	is_int(t.ended, 0, "an operation without a deadline keeps no loop running, and waits");
	lock_op_cancel(&t.op);
	ok(t.ended == 1 && t.detached == 1 && said("reading x:1: cancelled"), "until it is cancelled");
	op_begin(true, in_ms(10), op_on_detach);
	ev_run(t.env.loop, 0);
	ok(t.detached == 1 && t.outcome == LOCK_FAILED && said("writing x:1: no connection before the deadline"),
	   "a write that was not sent by its deadline has failed");
	op_begin(true, in_ms(10), op_on_detach);
	lock_op_sent(&t.op);
	ev_run(t.env.loop, 0);
	ok(t.outcome == LOCK_UNKNOWN && said("writing x:1: no answer before the deadline"),
	   "one that was sent is unknown");
	op_begin(true, in_ms(10), op_on_detach);
	t.op.name = "/a/b";
	t.op.late = "too late";
	t.op.removing = true;
	ev_run(t.env.loop, 0);
	ok(said("removing /a/b: too late"), "a backend can say it in its own words");
}

static void op_step(struct lock_op *op)
{
	(void)op;
	t.steps++;
}

static void op_step_again(struct lock_op *op)
{
	t.steps++;
	lock_op_after(op, NSEC_PER_MS, op_step);
}

static void test_after(void)
{
	t.steps = 0;
	op_begin(true, in_ms(50), op_on_detach);
	lock_op_after(&t.op, 2 * NSEC_PER_MS, op_step_again);
	is_int(t.steps, 0, "what is to be done after a while is not done at once");
	ev_run(t.env.loop, 0);
	ok(t.steps == 2 && t.ended == 1 && t.detached == 1 && t.why.code == ERR_TIMEOUT,
	   "it is done, and again, and the operation ends at its deadline all the same");
	t.steps = 0;
	op_begin(true, in_ms(50), NULL);
	lock_op_after(&t.op, 2 * NSEC_PER_MS, op_step);
	lock_op_after(&t.op, 0, NULL);
	ev_run(t.env.loop, 0);
	ok(t.steps == 0 && t.ended == 1 && t.why.code == ERR_TIMEOUT,
	   "not if it was taken back; then the deadline counts");
	op_begin(true, HOUR, NULL);
	lock_op_after(&t.op, 2 * NSEC_PER_MS, op_step);
	lock_op_cancel(&t.op);
	ev_run(t.env.loop, 0);
	is_int(t.steps, 0, "nor after the end of the operation");
}

static void test_giving_up(void)
{
	op_begin(true, HOUR, op_on_detach);
	lock_op_sent(&t.op);
	lock_op_give_up(&t.op, ERR_UNREACHABLE, "%s", "no line");
	ok(t.detached == 1 && t.outcome == LOCK_UNKNOWN && said("writing x:1: no line"),
	   "without an answer a write that was sent is unknown");
	lock_op_give_up(&t.op, ERR_UNREACHABLE, "%s", "no line");
	lock_op_cancel(&t.op);
	ok(t.ended == 1 && t.detached == 1, "and ends once");
	op_begin(true, HOUR, op_on_detach_look);
	lock_op_cancel(&t.op);
	ok(t.outcome == LOCK_FAILED && said("reading x:1: cancelled"),
	   "unless what was under way turns out to have been a look before it");
	op_begin(true, HOUR, NULL);
	lock_op_finish(&t.op, &(struct lock_result){ .outcome = LOCK_REFUSED, .err = { ERR_DENIED, "as it is" } });
	ok(t.outcome == LOCK_REFUSED && said("as it is"), "what a result says is passed on as it is");
}

int main(void)
{
	t.env.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	t.lock.url = (char[]){ "x:1" };
	test_soon();
	test_deadline();
	test_after();
	test_giving_up();
	ev_loop_destroy(t.env.loop);
	return tap_done();
}
