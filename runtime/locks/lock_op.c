#include "locks/lock_op.h"

#include "base/mem.h"
#include "locks/lock_link.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void end(struct lock_op *op, struct lock_result *r)
{
	lock_done_fn *done = op->done;
	void *arg = op->arg;

	ev_timer_stop(op->loop, &op->timer);
	op->active = false;
	free(op->early);
	free(op->text);
	op->early = NULL;
	op->text = NULL;
	r->sent_at = op->sent_at;
	if (r->outcome == LOCK_UNKNOWN && !op->writing)
		r->outcome = LOCK_FAILED;
	if (r->err.code != ERR_NONE)
		err_wrap(&r->err, "%s %s", op->writing ? "writing" : "reading", op->url);
	done(arg, r);
}

bool lock_op_is_late(const struct lock_op *op)
{
	return instant_passed(op->by, clock_now());
}

static void detach(struct lock_op *op)
{
	if (op->detach)
		op->detach(op);
	if (op->link)
		lock_link_forget(op->link, op->call, lock_op_is_late(op));
}

static void end_early(struct lock_op *op)
{
	struct lock_result r = { .outcome = op->early_outcome, .err = *op->early };

	end(op, &r);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct lock_op *op = w->data;

	(void)loop;
	(void)revents;
	if (op->early)
		end_early(op);
	else
		lock_op_give_up(op, ERR_TIMEOUT,
		                op->sent ? "no answer before the deadline" : "no connection before the deadline");
}

static void arm(struct lock_op *op, nsec after)
{
	ev_now_update(op->loop);
	ev_timer_stop(op->loop, &op->timer);
	ev_timer_set(&op->timer, (double)after / NSEC_PER_SEC, 0.);
	ev_timer_start(op->loop, &op->timer);
}

void lock_op_begin(struct lock_op *op, struct lock_env *env, const struct lock *l,
                   void (*on_detach)(struct lock_op *op), bool writing, struct instant by, lock_done_fn *done,
                   void *arg)
{
	*op = (struct lock_op){
		.loop = env->loop,
		.detach = on_detach,
		.url = l->url,
		.writing = writing,
		.by = by,
		.done = done,
		.arg = arg,
		.active = true,
		.sent_at = clock_now(),
	};
	ev_timer_init(&op->timer, on_timer, 0., 0.);
	op->timer.data = op;
	arm(op, instant_until(by, op->sent_at));
}

void lock_op_ask(struct lock_op *op, struct lock_link *link, struct lock_call *call)
{
	op->link = link;
	op->call = call;
	lock_link_want(link, call);
}

bool lock_op_repeat(struct lock_op *op, bool sent)
{
	if (op->writing || !sent || op->again || lock_op_left_ms(op) <= 1)
		return false;
	op->again = true;
	return true;
}

void lock_op_sent(struct lock_op *op)
{
	if (!op->sent)
		op->sent_at = clock_now(); /* of the first try: a term is counted from there */
	op->sent = true;
}

void lock_op_finish(struct lock_op *op, struct lock_result *r)
{
	if (op->active)
		end(op, r);
}

void lock_op_fail(struct lock_op *op, enum lock_outcome outcome, enum err_code code, const char *fmt, ...)
{
	struct lock_result r = { .outcome = outcome };
	va_list ap;

	va_start(ap, fmt);
	err_vset(&r.err, code, fmt, ap);
	va_end(ap);
	lock_op_finish(op, &r);
}

void lock_op_give_up(struct lock_op *op, enum err_code code, const char *fmt, ...)
{
	struct lock_result r = { .outcome = LOCK_FAILED };
	va_list ap;

	if (!op->active)
		return;
	va_start(ap, fmt);
	err_vset(&r.err, code, fmt, ap);
	va_end(ap);
	detach(op);
	if (op->writing && op->sent)
		r.outcome = LOCK_UNKNOWN;
	end(op, &r);
}

void lock_op_fail_soon(struct lock_op *op, enum lock_outcome outcome, enum err_code code, const char *fmt, ...)
{
	va_list ap;

	if (!op->active || op->early)
		return;
	op->early = mem_zero(sizeof *op->early);
	va_start(ap, fmt);
	err_vset(op->early, code, fmt, ap);
	va_end(ap);
	op->early_outcome = outcome;
	arm(op, 0);
}

void lock_op_cancel(struct lock_op *op)
{
	if (op->active && op->early)
		end_early(op);
	else
		lock_op_give_up(op, ERR_CANCELLED, "cancelled");
}

int lock_op_left_ms(const struct lock_op *op)
{
	nsec left = instant_until(op->by, clock_now()) / NSEC_PER_MS;

	return left < 1 ? 1 : left > 3600 * 1000 ? 3600 * 1000 : (int)left;
}

void lock_op_found(struct lock_op *op, const char *what, const char *text, size_t len, const char *version,
                   int64_t token)
{
	struct lock_result r = { .outcome = LOCK_OK, .token = token };
	struct record record;
	struct err why;

	record_init(&record);
	snprintf(r.version.text, sizeof r.version.text, "%s", version);
	if (len <= RECORD_MAX_BYTES && record_parse(&record, text, len, &why) == 0) {
		r.record = &record;
		if (op->doubt) {
			lock_failover_lease(op->doubt, record.lease_ms * NSEC_PER_MS);
			lock_failover_found(op->doubt, &r.version);
		}
		/* A store's revision cannot be in the write that makes it, which is this one. */
		if (record.token == 0 && record.term && record.state == RECORD_LEADING)
			record.token = token;
	} else {
		if (len > RECORD_MAX_BYTES)
			err_set(&why, ERR_INVALID, "it has %zu bytes, at most %d are allowed", len, RECORD_MAX_BYTES);
		r.outcome = LOCK_FOREIGN;
		r.version.text[0] = '\0';
		err_set(&r.err, why.code,
		        "%s is no election record: %s. It is not overwritten: repair it, choose another name, or remove it if nothing uses it",
		        what, why.text);
	}
	lock_op_finish(op, &r);
	record_fini(&record);
}

bool lock_op_print(struct lock_op *op, const struct record *r)
{
	op->text = record_print(r);
	size_t len = strlen(op->text);
	if (len <= RECORD_MAX_BYTES)
		return true;
	lock_op_fail_soon(op, LOCK_INVALID, ERR_INVALID,
	                  "the record would have %zu bytes, at most %d are allowed: nothing was changed", len,
	                  RECORD_MAX_BYTES);
	return false;
}
