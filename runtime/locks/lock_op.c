#include "locks/lock_op.h"

#include "base/mem.h"
#include "locks/lock_link.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void op_end(struct lock_op *op, struct lock_result *r)
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
	if (op->advice)
		r->token = 0;
	if (r->outcome == LOCK_UNKNOWN && !op->writing)
		r->outcome = LOCK_FAILED;
	done(arg, r);
}

__attribute__((format(printf, 4, 0))) static void op_explain(const struct lock_op *op, struct lock_result *r,
                                                             enum err_code code, const char *fmt, va_list ap)
{
	err_vset(&r->err, code, fmt, ap);
	err_wrap(&r->err, "%s %s", op->removing ? "removing" : op->writing ? "writing" : "reading", op->name);
}

bool lock_op_is_late(const struct lock_op *op)
{
	return instant_passed(op->by, clock_now());
}

static void op_detach(struct lock_op *op)
{
	if (op->detach)
		op->detach(op);
	if (op->link)
		lock_link_forget(op->link, op->call, lock_op_is_late(op));
}

static void op_end_early(struct lock_op *op)
{
	struct lock_result r = *op->early;

	op_end(op, &r);
}

static void op_start_timer(struct lock_op *op, nsec after)
{
	ev_now_update(op->loop);
	ev_timer_stop(op->loop, &op->timer);
	ev_timer_set(&op->timer, (double)after / NSEC_PER_SEC, 0.);
	ev_timer_start(op->loop, &op->timer);
}

static void op_await_deadline(struct lock_op *op)
{
	if (op->by.boot || op->by.raw)
		op_start_timer(op, instant_until(op->by, clock_now()));
}

static void op_on_timer(struct ev_loop *, ev_timer *w, int)
{
	struct lock_op *op = w->data;
	void (*then)(struct lock_op *) = op->soon;

	op->soon = NULL;
	if (then) {
		op_await_deadline(op);
		then(op);
	} else {
		lock_op_give_up(op, ERR_TIMEOUT, "%s",
		                op->late   ? op->late
		                : op->sent ? "no answer before the deadline"
		                           : "no connection before the deadline");
	}
}

void lock_op_begin(struct lock_op *op, struct lock_env *env, const struct lock *l, void (*detach)(struct lock_op *op),
                   bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	*op = (struct lock_op){
		.loop = env->loop,
		.detach = detach,
		.name = l->url,
		.writing = writing,
		.by = by,
		.done = done,
		.arg = arg,
		.active = true,
		.advice = l->advice,
		.sent_at = clock_now(),
	};
	ev_init(&op->timer, op_on_timer);
	op->timer.data = op;
	op_await_deadline(op);
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
	struct instant now = clock_now();

	if (!op->sent)
		op->sent_at = now; /* the first try counts: a term is counted from when it was sent */
	op->sent = true;
	if (op->writing && op->doubt)
		lock_failover_sends(op->doubt, op->leads, op->lease, now);
}

void lock_op_finish(struct lock_op *op, struct lock_result *r)
{
	if (!op->active)
		return;
	if (op->writing && op->doubt && r->outcome == LOCK_OK)
		lock_failover_wrote(op->doubt, &r->version, op->leads, op->lease, op->sent_at);
	op_end(op, r);
}

void lock_op_fail(struct lock_op *op, enum lock_outcome outcome, enum err_code code, const char *fmt, ...)
{
	struct lock_result r = { .outcome = outcome };
	va_list ap;

	if (!op->active)
		return;
	va_start(ap, fmt);
	op_explain(op, &r, code, fmt, ap);
	va_end(ap);
	op_end(op, &r);
}

static enum lock_outcome without_answer(const struct lock_op *op)
{
	return op->writing && op->sent ? LOCK_UNKNOWN : LOCK_FAILED;
}

void lock_op_give_up(struct lock_op *op, enum err_code code, const char *fmt, ...)
{
	struct lock_result r = { .outcome = LOCK_FAILED };
	va_list ap;

	if (!op->active)
		return;
	op_detach(op);
	va_start(ap, fmt);
	op_explain(op, &r, code, fmt, ap);
	va_end(ap);
	r.outcome = without_answer(op);
	op_end(op, &r);
}

void lock_op_after(struct lock_op *op, nsec after, void (*then)(struct lock_op *op))
{
	if (!then && !op->soon)
		return;
	op->soon = then;
	if (then)
		op_start_timer(op, after);
	else
		op_await_deadline(op);
}

void lock_op_soon(struct lock_op *op, void (*then)(struct lock_op *op))
{
	lock_op_after(op, 0, then);
}

void lock_op_fail_soon(struct lock_op *op, enum lock_outcome outcome, enum err_code code, const char *fmt, ...)
{
	va_list ap;

	if (!op->active || op->early)
		return;
	op->early = mem_zero(sizeof *op->early);
	op->early->outcome = outcome;
	va_start(ap, fmt);
	op_explain(op, op->early, code, fmt, ap);
	va_end(ap);
	lock_op_soon(op, op_end_early);
}

void lock_op_cancel(struct lock_op *op)
{
	if (op->active && op->early)
		op_end_early(op);
	else
		lock_op_give_up(op, ERR_CANCELLED, "cancelled");
}

int lock_op_left_ms(const struct lock_op *op)
{
	nsec left = instant_until(op->by, clock_now()) / NSEC_PER_MS;

	return left < 1 ? 1 : left > 3600 * 1000 ? 3600 * 1000 : (int)left;
}

void lock_op_found_record(struct lock_op *op, struct record *record, const char *version, int64_t token)
{
	struct lock_result r = { .outcome = LOCK_OK, .record = record, .token = token };

	snprintf(r.version.text, sizeof r.version.text, "%s", version);
	if (op->doubt) {
		lock_failover_lease(op->doubt, record->lease_ms * NSEC_PER_MS);
		lock_failover_found(op->doubt, &r.version);
	}
	if (!op->advice && record->token == 0 && record->term && record->state == RECORD_LEADING)
		record->token = token;
	lock_op_finish(op, &r);
}

void lock_op_found(struct lock_op *op, const char *what, const char *text, size_t len, const char *version,
                   int64_t token)
{
	struct record record;
	struct err why;

	record_init(&record);
	if (len > RECORD_MAX_BYTES)
		err_set(&why, ERR_INVALID, "it has %zu bytes, at most %d are allowed", len, RECORD_MAX_BYTES);
	if (len <= RECORD_MAX_BYTES && record_parse(&record, text, len, &why) == 0)
		lock_op_found_record(op, &record, version, token);
	else
		lock_op_fail(
			op, LOCK_FOREIGN, why.code,
			"%s is no election record: %s. It is not overwritten: repair it, choose another name, or remove it if nothing uses it",
			what, why.text);
	record_fini(&record);
}

bool lock_op_print(struct lock_op *op, const struct record *r)
{
	op->leads = r->state == RECORD_LEADING && *r->holder;
	op->lease = r->lease_ms * NSEC_PER_MS;
	op->text = record_print(r);
	size_t len = strlen(op->text);
	if (len <= RECORD_MAX_BYTES)
		return true;
	lock_op_fail_soon(op, LOCK_INVALID, ERR_INVALID,
	                  "the record would have %zu bytes, at most %d are allowed: nothing was changed", len,
	                  RECORD_MAX_BYTES);
	return false;
}
