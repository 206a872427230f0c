#include "exec/exec_internal.h"

#include "base/json_out.h"
#include "program/standing.h"

static const char *exec_warmth(const struct exec *x)
{
	bool to_tell = x->warm.asked && x->is_next && x->hooks.state == TERM_NONE;

	return to_tell ? exec_warm_standing(&x->warm) : NULL;
}

static void exec_tell_restarts(const void *arg, struct buf *out)
{
	exec_restart_why(arg, out);
}

static void exec_stand(const struct exec_slot *s, struct standing *out, struct elector_status *status)
{
	const struct exec *x = s->x;

	campaign_stand(&s->campaign, out, status);
	out->warm = exec_warmth(x);
	if (s == x->at) {
		out->tell_more = exec_tell_restarts;
		out->tell_more_arg = &x->restart;
	}
}

static bool exec_is_ending(const void *arg)
{
	return ((const struct exec *)arg)->leaving;
}

static void exec_add_head(const void *arg, struct buf *out)
{
	const struct exec *x = arg;

	json_out_text(out, "command", *x->shell ? "sh -c" : x->options->rest[0]);
}

static void exec_add_lines(const void *arg, struct buf *out)
{
	state_file_tell(((const struct exec *)arg)->program.state_file, out);
}

static void exec_resign(void *arg, const char *, nsec sit_out)
{
	exec_tell(arg, (struct term_event){ .kind = TERM_EV_RESIGN, .sit_out = sit_out });
}

static int exec_hand_over(void *arg, const struct standing *e, const struct control_request *q, nsec timeout,
                          struct err *err)
{
	struct exec_slot *s = ((struct exec *)arg)->slots;

	while (s->campaign.elector != e->elector)
		s++;
	return elector_hand_over(s->campaign.elector, q->ticket, q->to, timeout, err);
}

static void exec_list_elections(void *arg, void (*each)(void *each_arg, const struct standing *e), void *each_arg)
{
	struct exec *x = arg;
	struct elector_status st;
	struct standing e;

	for (uint32_t i = 0; i < x->slot_count && x->slots[i].campaign.elector; i++) {
		exec_stand(&x->slots[i], &e, &st);
		each(each_arg, &e);
	}
}

const struct orders_ops exec_orders = {
	.what = "a command under `lunarch exec`",
	.list = exec_list_elections,
	.ending = exec_is_ending,
	.head = exec_add_head,
	.tell = exec_add_lines,
	.resign = exec_resign,
	.hand_over = exec_hand_over,
};
