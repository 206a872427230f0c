#include "program/orders.h"

#include "base/json_out.h"
#include "election/elector.h"
#include "program/order_table.h"

#include <string.h>
#include <unistd.h>

/* ---- the elections that are meant ---- */

struct inquiry { /* of the elections, one after the other */
	const struct control_request *q;
	struct buf *out;
	const struct orders *orders;
	bool any, all_lead, one_leads;
	int stay; /* how many of them do not leave */
};

/* An order without a name is for all. */
static bool is_named(const struct control_request *q, const struct standing *e)
{
	return !*q->election || strcmp(q->election, e->name) == 0;
}

static struct inquiry ask(const struct orders *o, const struct control_request *q, struct buf *out,
                          void (*each)(void *arg, const struct standing *e))
{
	struct inquiry a = { .q = q, .out = out, .all_lead = true, .orders = o };

	o->ops->list(o->arg, each, &a);
	return a;
}

static void look(void *arg, const struct standing *e)
{
	struct inquiry *a = arg;

	if (!is_named(a->q, e))
		return;
	a->any = true;
	a->all_lead = a->all_lead && e->status->leading;
	a->one_leads = a->one_leads || e->status->leading;
	a->stay += !e->leaves;
}

/* ---- questions ---- */

static void add_standing(void *arg, const struct standing *e)
{
	struct inquiry *a = arg;

	if (is_named(a->q, e))
		standing_json(a->out, e);
}

static void answer_status(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	control_agree(reply);
	json_out_int(reply, "pid", getpid());
	o->ops->head(o->arg, reply);
	json_out_open(reply, "elections", "[");
	ask(o, q, reply, add_standing);
	buf_adds(reply, "]}");
}

static void answer_leading(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	struct inquiry a = ask(o, q, NULL, look);

	control_agree(reply);
	json_out_bool(reply, "leading", a.any && a.all_lead);
	buf_adds(reply, "}");
}

static void add_deadline(void *arg, const struct standing *e)
{
	const struct inquiry *a = arg;

	if (is_named(a->q, e) && !e->leaves)
		standing_deadline(a->out, e);
}

static void add_lines(void *arg, const struct standing *e)
{
	struct inquiry *a = arg;

	if (!is_named(a->q, e))
		return;
	buf_adds(a->out, a->out->len ? "\n" : "");
	standing_tell(a->out, e);
}

static void answer_why(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	struct buf text = { 0 };

	ask(o, q, &text, add_lines);
	if (o->ops->tell)
		o->ops->tell(o->arg, &text);
	control_agree(reply);
	json_out_text(reply, "text", text.len ? text.data : "no election runs here yet: the script is being loaded\n");
	buf_adds(reply, "}");
	buf_fini(&text);
}

/* ---- orders ---- */

static void agree(struct buf *reply)
{
	control_agree(reply);
	buf_adds(reply, "}");
}

static void add_not_resigned(void *arg, const struct standing *e)
{
	struct inquiry *a = arg;

	if (!is_named(a->q, e))
		return;
	buf_drop(a->out, a->out->len);
	standing_not_resigned(a->out, e, a->q->seconds);
}

static nsec seconds_of(double seconds)
{
	return (nsec)(seconds * (double)NSEC_PER_SEC);
}

/* Where nobody leads there is nothing to hand over. A candidate still sits out for a time that was named: who asks for
 * it does not want this machine to lead in that time. */
static void answer_resign(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	bool leads = ask(o, q, NULL, look).one_leads;
	struct buf text = { 0 };

	ask(o, q, &text, add_not_resigned);
	if (leads || q->seconds >= 0)
		o->ops->resign(o->arg, q->election, q->seconds < 0 ? NSEC_NEVER : seconds_of(q->seconds));
	if (leads)
		agree(reply);
	else
		control_refuse(reply, "%s", text.len ? text.data : "no election runs here yet");
	buf_fini(&text);
}

/* Whether one election alone is meant: of several, what came of an order could not be told apart in one answer. */
static bool is_one(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	int stay = ask(o, q, NULL, look).stay;

	if (stay == 0)
		control_refuse(reply, "no election runs here yet");
	else if (stay > 1)
		control_refuse(reply, "several elections run here: say which of them with --election NAME");
	return stay == 1;
}

static void answer_deadline(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	if (is_one(o, q, reply))
		ask(o, q, reply, add_deadline);
}

static void hand_over_one(void *arg, const struct standing *e)
{
	const struct inquiry *a = arg;
	const struct orders *o = a->orders;
	nsec timeout = a->q->seconds < 0 ? HAND_OVER_TIMEOUT : seconds_of(a->q->seconds);
	struct err err;

	if (is_named(a->q, e) && !e->leaves && standing_may_hand_over(a->out, e) &&
	    o->ops->hand_over(o->arg, e, a->q, timeout, &err) < 0)
		control_refuse(a->out, "%s", err.text);
}

static void answer_hand_over(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	if (o->ops->ending(o->arg))
		control_refuse(reply, "it is shutting down");
	else if (is_one(o, q, reply))
		ask(o, q, reply, hand_over_one);
}

static void run_one(void *arg, const struct standing *e)
{
	const struct inquiry *a = arg;
	const struct orders *o = a->orders;
	struct err err;

	if (is_named(a->q, e) && !e->leaves && standing_may_run(a->out, e) && o->ops->run(o->arg, e, a->q, &err) < 0)
		control_refuse(a->out, "%s", err.text);
}

static bool is_for(const struct orders *o, bool has, const struct control_request *q, struct buf *reply)
{
	if (!has)
		control_refuse(reply, "\"%s\" is not for %s", q->command, o->ops->what);
	return has;
}

static void answer_run(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	if (!is_for(o, o->ops->run, q, reply))
		return;
	if (!*q->job)
		control_refuse(reply, "which job?");
	else if (is_one(o, q, reply))
		ask(o, q, reply, run_one);
}

static void answer_pause(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	if (!is_for(o, o->ops->pause, q, reply))
		return;
	o->ops->pause(o->arg, q->election, *q->command == 'p');
	agree(reply);
}

static void answer_reload(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	if (!is_for(o, o->ops->reload, q, reply))
		return;
	if (o->ops->ending(o->arg))
		control_refuse(reply, "it is shutting down");
	else
		o->ops->reload(o->arg, q->ticket);
}

/* ---- the table ---- */

static void (*const answers[ORDERS])(const struct orders *o, const struct control_request *q, struct buf *reply) = {
	[ORDER_DEADLINE] = answer_deadline, [ORDER_STATUS] = answer_status, [ORDER_IS_LEADING] = answer_leading,
	[ORDER_WHY] = answer_why,           [ORDER_RESIGN] = answer_resign, [ORDER_HANDOVER] = answer_hand_over,
	[ORDER_PAUSE] = answer_pause,       [ORDER_RESUME] = answer_pause,  [ORDER_RELOAD] = answer_reload,
	[ORDER_RUN] = answer_run,
};

void orders_answer(const struct orders *o, const struct control_request *q, struct buf *reply)
{
	const struct order *order = order_find(q->command);
	bool any = ask(o, q, NULL, look).any;

	if (!any && o->ops->ending(o->arg))
		control_refuse(reply, "it is shutting down");
	else if (!any && *q->election)
		control_refuse(reply, "there is no election named \"%s\" here", q->election);
	else if (!order)
		control_refuse(reply, "unknown command \"%s\"", q->command);
	else
		answers[order - order_table](o, q, reply);
}
