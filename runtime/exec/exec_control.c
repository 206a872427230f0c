#include "exec/exec_internal.h"

#include "admin/standing.h"

#include <string.h>
#include <unistd.h>

static void exec_reply_hand_over(struct exec *x, const struct control_request *q, const struct standing *e,
                                 struct buf *reply)
{
	nsec timeout = q->seconds < 0 ? HAND_OVER_TIMEOUT : (nsec)(q->seconds * (double)NSEC_PER_SEC);
	struct err err;

	if (x->leaving)
		control_refuse(reply, "it is shutting down");
	else if (standing_may_hand_over(reply, e) &&
	         handover_begin(&x->handover, x->elector, q->ticket, q->to, timeout, &err) < 0)
		control_refuse(reply, "%s", err.text);
}

static const char *exec_warmth(const struct exec *x)
{
	bool to_tell = x->warm.asked && x->is_next && x->hooks.state == TERM_NONE;

	return to_tell ? exec_warm_standing(&x->warm) : NULL;
}

static void exec_tell_restarts(const void *arg, struct buf *out)
{
	exec_restart_why(arg, out);
}

static void exec_stand(const struct exec *x, struct standing *out, struct elector_status *status)
{
	elector_status(x->elector, status);
	*out = (struct standing){
		.name = "",
		.elector = x->elector,
		.status = status,
		.lease = x->times.lease,
		.preempt_after = x->next.preempt_after,
		.warm = exec_warmth(x),
		.renewals = &x->renewals,
		.service = service_order_service(x->service),
		.tell_more = exec_tell_restarts,
		.tell_more_arg = &x->restart,
	};
}

void exec_on_control(void *arg, const struct control_request *q, struct buf *reply)
{
	struct exec *x = arg;
	struct elector_status st;
	struct standing e;
	struct buf text = { 0 };

	if (!x->elector) {
		control_refuse(reply, "it is shutting down");
		return;
	}
	exec_stand(x, &e, &st);
	if (strcmp(q->command, "status") == 0) {
		buf_printf(reply, "{\"ok\":true,\"pid\":%d,\"command\":", (int)getpid());
		buf_json(reply, *x->shell ? "sh -c" : x->options->rest[0]);
		buf_adds(reply, ",\"elections\":[");
		standing_json(reply, &e);
		buf_adds(reply, "]}");
	} else if (strcmp(q->command, "is-leading") == 0) {
		buf_printf(reply, "{\"ok\":true,\"leading\":%s}", st.leading ? "true" : "false");
	} else if (strcmp(q->command, "why") == 0) {
		standing_tell(&text, &e);
		state_file_tell(x->program.state_file, &text);
		buf_adds(reply, "{\"ok\":true,\"text\":");
		buf_json(reply, text.data ? text.data : "");
		buf_adds(reply, "}");
		buf_fini(&text);
	} else if (strcmp(q->command, "resign") == 0) {
		standing_not_resigned(&text, &e, q->seconds);
		if (st.leading)
			buf_adds(reply, "{\"ok\":true}");
		else
			control_refuse(reply, "%s", text.data);
		buf_fini(&text);
		if (!st.leading && q->seconds < 0)
			return;
		exec_tell(x,
		          (struct term_event){ .kind = TERM_EV_RESIGN,
		                               .sit_out = q->seconds < 0 ? NSEC_NEVER
		                                                         : (nsec)(q->seconds * (double)NSEC_PER_SEC) });
	} else if (strcmp(q->command, "handover") == 0) {
		exec_reply_hand_over(x, q, &e, reply);
	} else {
		control_refuse(reply, "\"%s\" is not for a command under `lunarch exec`", q->command);
	}
}

void exec_list_elections(void *arg, void (*each)(void *each_arg, const struct standing *e), void *each_arg)
{
	struct exec *x = arg;
	struct elector_status st;
	struct standing e;

	if (!x->elector)
		return;
	exec_stand(x, &e, &st);
	each(each_arg, &e);
}
