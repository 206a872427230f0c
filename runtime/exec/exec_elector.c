#include "exec/exec_internal.h"

#include "base/log.h"
#include "base/mem.h"
#include "program/sd_notify.h"

/* Two slots may be acquired at once: nothing is started in the second one, which is released. */
static void exec_decline(struct exec_slot *s)
{
	exec_bar(s->x);
	elector_end(s->campaign.elector, LEASE_DECLINED, 0, 0);
}

static void exec_on_lead(void *arg, const struct elector_term *t)
{
	struct exec_slot *s = arg;
	struct exec *x = s->x;

	if (s != x->at && x->hooks.state != TERM_NONE) {
		exec_decline(s);
		return;
	}
	x->at = s;
	ev_timer_stop(x->program.loop, &x->patience);
	x->of.of = (struct supervisor_term){ .term = t->term, .token = t->token, .end = t->end, .kill = t->kill };
	x->of.slot = s->number;
	x->began = clock_now();
	mem_replace(&x->of.lock, t->lock);
	mem_replace(&x->of.identity, t->identity);
	mem_replace(&x->of.address, t->address);
	sd_notify_send("STATUS=leading");
	exec_tell(x,
	          (struct term_event){
			  .kind = TERM_EV_LEAD, .term = t->term, .token = t->token, .end = t->end, .kill = t->kill });
}

static void exec_on_deadline(void *arg, struct instant end, struct instant kill)
{
	struct exec_slot *s = arg;
	struct exec *x = s->x;

	if (s != x->at)
		return;
	x->of.of.end = end;
	x->of.of.kill = kill;
	exec_tell(x, (struct term_event){ .kind = TERM_EV_DEADLINE, .end = end, .kill = kill });
}

static void exec_on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct exec_slot *s = arg;
	struct exec *x = s->x;

	if (s != x->at) { /* nothing was started in it */
		elector_stopped(s->campaign.elector, true);
		return;
	}
	exec_tell(x, (struct term_event){ .kind = TERM_EV_STOP, .reason = reason, .held = held, .stop_by = stop_by });
	if (!x->supervisor && !held)
		exec_lost_status(x, reason);
}

/* Whether another holds every slot, or may. doubt: how long it may take to find out. */
static bool exec_all_held(const struct exec *x, nsec *doubt)
{
	*doubt = 0;
	for (uint32_t i = 0; i < x->slot_count; i++) {
		if (!x->slots[i].held)
			return false;
		if (x->slots[i].doubt > *doubt)
			*doubt = x->slots[i].doubt;
	}
	return true;
}

static void exec_on_leader(void *arg, const struct elector_leader *l)
{
	struct exec_slot *s = arg;
	struct exec *x = s->x;
	nsec doubt;

	if (l->self || x->ran)
		return;
	if (l->above) {
		exec_leave(x, EXIT_USAGE, LEASE_SHUTDOWN);
		return;
	}
	s->held = true;
	s->doubt = l->doubt;
	if (!exec_waits_not(x) || !exec_all_held(x, &doubt))
		return;
	if (doubt == 0) {
		ev_feed_event(x->program.loop, &x->patience, EV_TIMER);
	} else if (!ev_is_active(&x->patience)) {
		log_event(LOG_INFO, NULL, "in_doubt",
		          "%s may be dead: this waits for at most %.3g s to find out, although it is not to wait",
		          l->identity, (double)doubt / NSEC_PER_SEC);
		exec_begin_timer(x, &x->patience, doubt);
	}
}

static void exec_on_next(void *arg, bool is, bool leads)
{
	struct exec *x = ((struct exec_slot *)arg)->x;

	x->is_next = is;
	x->spent = false;
	if (is)
		exec_warm_up(x);
	else if (!leads && x->stage == STAGE_WARM)
		exec_end_early(x);
}

/* Hands over as if an operator had asked for it. */
static void exec_on_hand_over(void *arg, enum next_why)
{
	struct exec_slot *s = arg;

	if (s == s->x->at)
		exec_tell(s->x, (struct term_event){ .kind = TERM_EV_RESIGN });
}

static void exec_on_no_leader(void *arg, const char *)
{
	((struct exec_slot *)arg)->held = false;
}

static void exec_on_ask(void *arg)
{
	elector_answer(((struct exec_slot *)arg)->campaign.elector, true, NULL, NULL);
}

/* With -n, exec does not wait for a store to recover. */
static void exec_on_trouble(void *arg, const char *why)
{
	struct exec *x = ((struct exec_slot *)arg)->x;

	mem_replace(&x->trouble, why);
	if (why && !x->ran && exec_waits_not(x))
		ev_feed_event(x->program.loop, &x->patience, EV_TIMER);
}

static void exec_on_hopeless(void *arg, const char *why)
{
	struct exec *x = ((struct exec_slot *)arg)->x;

	(void)why; /* it is in x->trouble */
	x->hopeless = true;
	ev_feed_event(x->program.loop, &x->patience, EV_TIMER);
}

static void exec_on_finished(void *arg, bool left)
{
	struct exec_slot *s = arg;
	struct exec *x = s->x;

	if (left)
		log_event(LOG_WARN, NULL, "left_to_expire", "the lease was not released: others wait it out");
	s->finished = true;
	for (uint32_t i = 0; i < x->slot_count; i++)
		if (!x->slots[i].finished)
			return;
	exec_tell(x, (struct term_event){ .kind = TERM_EV_FINISHED });
}

static void exec_on_renewed(void *arg, nsec took)
{
	campaign_renewed(&((struct exec_slot *)arg)->campaign, took);
}

static void exec_on_handed_over(void *arg, uint64_t ticket, const struct handover_result *result)
{
	campaign_handed_over(&((struct exec_slot *)arg)->campaign, ticket, result);
}

const struct elector_callbacks exec_elector_callbacks = {
	.lead = exec_on_lead,
	.deadline = exec_on_deadline,
	.stop = exec_on_stop,
	.leader = exec_on_leader,
	.no_leader = exec_on_no_leader,
	.ask = exec_on_ask,
	.renewed = exec_on_renewed,
	.trouble = exec_on_trouble,
	.hopeless = exec_on_hopeless,
	.next = exec_on_next,
	.hand_over = exec_on_hand_over,
	.handed_over = exec_on_handed_over,
	.finished = exec_on_finished,
};

/* ---- how long it waits to lead ---- */

void exec_on_patience(struct ev_loop *, ev_timer *w, int)
{
	struct exec *x = w->data;
	struct elector_status st;

	if (x->ran)
		return;
	if (x->hopeless) {
		if (!x->leaving)
			log_event(LOG_ERROR, NULL, "cannot_run", "%s", x->trouble);
		exec_leave(x, EXIT_USAGE, LEASE_SHUTDOWN);
		return;
	}
	elector_status(x->at->campaign.elector, &st);
	log_event(LOG_WARN, NULL, "not_acquired", "%s %s was not acquired in time: %s%s",
	          x->slot_count > 1 ? "none of the slots beside" : "the lock", st.lock,
	          x->trouble || !*st.leader ? "" : "held by ",
	          x->trouble   ? x->trouble
	          : *st.leader ? st.leader
	                       : "the store does not answer");
	exec_leave(x,
	           *st.leader && !x->trouble ? (int)x->options->value[OPTION_CONFLICT_EXIT_CODE].number
	                                     : EXIT_UNREACHABLE,
	           LEASE_SHUTDOWN);
}
