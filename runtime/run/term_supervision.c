#include "run/term_supervision.h"

#include "base/log.h"

#include <string.h>

#define CHECKPOINT_SENT_MAX (4 * RECORD_CHECKPOINT_MAX) /* numbers may get longer on their way through a store */

static struct page_slot *supervision_slot(const struct term_supervision *t)
{
	return &t->ops->page(t->arg)->slot[t->slot];
}

static struct log_about supervision_about(const struct term_supervision *t)
{
	struct elector_status st;

	elector_status(t->campaign->elector, &st);
	return (struct log_about){ .lock = st.lock,
		                   .identity = st.identity,
		                   .election = st.name,
		                   .term = t->hooks.term,
		                   .token = t->hooks.token };
}

const char *term_checkpoint(const char *checkpoint, const struct log_about *about)
{
	if (!checkpoint || strlen(checkpoint) <= CHECKPOINT_SENT_MAX)
		return checkpoint;
	log_event(LOG_WARN, about, "checkpoint_too_long",
	          "the record's checkpoint has %zu bytes, at most %d are given to a script: it is "
	          "kept until the script saves one",
	          strlen(checkpoint), CHECKPOINT_SENT_MAX);
	return NULL;
}

/* ---- the life of the script ---- */

static const char *const bar_texts[] = {
	[LIFE_BAR_PAUSED] = "by an operator",
	[LIFE_BAR_OTHERS] = "the elections that it takes the place of have not released their locks yet",
	[LIFE_BAR_WORKER] = "there is no worker",
};

struct term_context term_context_of(const struct life *l, uint32_t candidate, bool once)
{
	return (struct term_context){
		.ready = life_ready(l, candidate),
		.moves = life_moves(l, candidate),
		.running = life_running(l, candidate),
		.ending = l->ending || l->candidate[candidate].leaves,
		.killing = l->killing,
		.once = once,
		.bar = bar_texts[life_bar(l, candidate)],
	};
}

enum life_term term_supervision_life(const struct term_supervision *t)
{
	if (term_supervision_finished(t))
		return LIFE_FINISHED;
	if (t->hooks.state == TERM_OWED)
		return LIFE_OWES;
	if (t->hooks.state != TERM_NONE)
		return LIFE_BUSY;
	return t->next.state == ON_NEXT_IDLE ? LIFE_IDLE : LIFE_NEXT;
}

void term_supervision_configure(struct term_supervision *t, const struct election_settings *s)
{
	const struct options *o = t->campaign->options;
	const struct lease_times *times = &t->campaign->times;

	t->may_lead.timeout = election_time(o, s, OPTION_MAY_LEAD_TIMEOUT);
	t->priority_given = options_set(o, OPTION_PRIORITY);
	term_hooks_configure(&t->hooks, times, election_time(o, s, OPTION_SHUTDOWN_GRACE),
	                     s->flags & WIRE_ELECTION_ON_STOPPING, s->flags & WIRE_ELECTION_ON_STOPPED);
	t->hooks.answer_timeout = election_time(o, NULL, OPTION_START_TIMEOUT);
	next_hooks_configure(&t->next, s->flags & (WIRE_ELECTION_ON_NEXT | WIRE_ELECTION_ON_NEXT_OVER), times->grace);
}

/* ---- actions ---- */

static struct page *supervision_page(void *arg)
{
	const struct term_supervision *t = arg;

	return t->ops->page(t->arg);
}

static void supervision_page_changed(void *arg, enum term_page_news what)
{
	const struct term_supervision *t = arg;

	if (t->ops->page_changed)
		t->ops->page_changed(t->arg, what);
}

static void supervision_log_silence(const struct term_supervision *t, bool killed, nsec since)
{
	struct log_about of = supervision_about(t);
	struct worker_doing doing = { 0 };
	struct buf text = { 0 };

	if (t->ops->doing)
		t->ops->doing(t->arg, &doing);
	worker_doing_tell(&doing, &text);
	log_event(LOG_WARN, &of, "worker_silent",
	          "the worker was told to lead %.0f s ago, and has not answered%s%s: %s", (double)since / NSEC_PER_SEC,
	          text.len ? "; " : "", text.len ? text.data : "",
	          killed ? "it is killed" : "it is waited for, since it leads another election");
	buf_fini(&text);
}

/* The others have more to say. */
static const struct {
	enum log_level level;
	const char *event, *text;
} notes[] = {
	[TERM_NOTE_LEFTOVER] = { LOG_WARN, "leftover",
	                         "a process left behind cannot be attributed to a term: the worker is ended" },
	[TERM_NOTE_DRAINS] = { LOG_INFO, "draining", "on_stopping runs, and the lease is held meanwhile" },
	[TERM_NOTE_DRAIN_CUT] = { LOG_WARN, "on_stopping_slow",
	                          "on_stopping has taken all of its time: the term's tasks are cancelled" },
	[TERM_NOTE_LATE] = { LOG_WARN, "on_stopped_late",
	                     "there is no replacement for the worker yet: the lease is released, and on_stopped runs "
	                     "when there is one" },
	[TERM_NOTE_DROPPED] = { LOG_WARN, "on_stopped_dropped",
	                        "there is no replacement for the worker yet: the lease is released, and on_stopped "
	                        "does not run" },
	[TERM_NOTE_GIVEN_UP] = { LOG_WARN, "on_stopped_dropped",
	                         "the second replacement has died in on_stopped, too: it does not run again" },
};

static void supervision_log_note(void *arg, struct term_actions *a)
{
	struct term_supervision *t = arg;
	const struct term_event *e = a->event;
	struct log_about of = supervision_about(t);
	const char *text = e->text ? e->text : "";

	if (a->note == TERM_NOTE_MAY_NOT_LEAD)
		may_lead_answered(&t->may_lead, false, text, &of, e->at);
	else if (a->note == TERM_NOTE_SCRIPT_ENDS)
		log_event(e->reason == LEASE_ERROR ? LOG_ERROR : LOG_INFO, &of, "script_ends_term", "%s: %s",
		          lease_reason_name(e->reason), *text ? text : "no reason given");
	else if (a->note == TERM_NOTE_SILENT)
		supervision_log_silence(t, a->set & TERM_DO_KILL, elapsed_standby(t->hooks.began, e->at));
	else if (a->note == TERM_NOTE_OWED)
		log_event(LOG_WARN, &of, "on_stopped_owed", "the worker is gone (%s): its replacement runs on_stopped",
		          lease_reason_name(t->hooks.reason));
	else
		log_event(notes[a->note].level, &of, notes[a->note].event, "%s", notes[a->note].text);
}

/* Sends the message, and frees it. */
static void supervision_send(const struct term_supervision *t, struct buf *m)
{
	t->ops->send(t->arg, m);
	buf_fini(m);
}

static void supervision_send_lead(void *arg, struct term_actions *a)
{
	const struct term_supervision *t = arg;
	struct buf m = { 0 };
	struct log_about of = supervision_about(t);

	wire_lead_put(&m, &(struct wire_lead){
				  .slot = t->slot,
				  .next = next_hooks_takes(&t->next),
				  .term = t->hooks.term,
				  .token = t->hooks.token,
				  .address = a->event->address,
				  .checkpoint = term_checkpoint(elector_checkpoint(t->campaign->elector), &of) });
	supervision_send(t, &m);
}

static void supervision_send_stop(void *arg, struct term_actions *a)
{
	const struct term_supervision *t = arg;
	struct buf m = { 0 };

	wire_stop_put(&m, &(struct wire_stop){ .slot = t->slot,
	                                       .term = t->hooks.term,
	                                       .reason = (uint8_t)a->reason,
	                                       .grace_ms = instant_until(a->kill, clock_now()) / NSEC_PER_MS });
	supervision_send(t, &m);
}

static void supervision_send_drain(void *arg, struct term_actions *a)
{
	const struct term_supervision *t = arg;
	struct buf m = { 0 };

	wire_drain_put(&m,
	               &(struct wire_drain){ .slot = t->slot, .term = t->hooks.term, .reason = (uint8_t)a->reason });
	supervision_send(t, &m);
}

static void supervision_send_clean_up(void *arg, struct term_actions *a)
{
	const struct term_supervision *t = arg;
	struct buf m = { 0 };
	struct log_about of = supervision_about(t);

	wire_cleanup_put(&m, &(struct wire_cleanup){
				     .slot = t->slot,
				     .term = t->hooks.term,
				     .token = t->hooks.token,
				     .reason = (uint8_t)a->reason,
				     .grace_ms = a->after / NSEC_PER_MS,
				     .checkpoint = term_checkpoint(elector_checkpoint(t->campaign->elector), &of) });
	supervision_send(t, &m);
}

static void supervision_send_ask(void *arg, struct term_actions *a)
{
	struct term_supervision *t = arg;
	struct buf m = { 0 };

	may_lead_asked(&t->may_lead, clock_now());
	wire_ask_put(&m, &(struct wire_ask){ .slot = t->slot, .ask = a->ask });
	supervision_send(t, &m);
}

static void supervision_send_saved(void *arg, struct term_actions *a)
{
	static const enum wire_save_result how[] = { [TERM_SAVED_NOT] = WIRE_SAVED_NOT,
		                                     [TERM_SAVED_GOOD] = WIRE_SAVED_GOOD,
		                                     [TERM_SAVED_REFUSED] = WIRE_SAVED_REFUSED };
	const struct term_supervision *t = arg;
	struct buf m = { 0 };

	wire_saved_put(&m, &(struct wire_saved){ .slot = t->slot,
	                                         .term = a->saved_term,
	                                         .save = a->save,
	                                         .how = (uint8_t)how[a->how],
	                                         .why = a->event->text ? a->event->text : "" });
	supervision_send(t, &m);
}

static void supervision_kill(void *arg, struct term_actions *)
{
	const struct term_supervision *t = arg;

	t->ops->kill(t->arg);
}

static void supervision_sweep(void *arg, struct term_actions *a)
{
	const struct term_supervision *t = arg;

	a->swept = t->ops->sweep(t->arg, t->hooks.term, next_hooks_swept_with_term(&t->next));
}

static void supervision_stop_timer(void *arg, struct term_actions *)
{
	struct term_supervision *t = arg;

	timer_stop(t->timeline, &t->timer);
}

static void supervision_begin_timer(void *arg, struct term_actions *a)
{
	struct term_supervision *t = arg;

	timer_start(t->timeline, &t->timer, (double)a->after / NSEC_PER_SEC);
}

/* ---- on_next ---- */

static void supervision_log_next(const struct term_supervision *t, enum on_next_note note)
{
	struct log_about of = supervision_about(t);

	switch (note) {
	case ON_NEXT_NOTE_NONE:
		return;
	case ON_NEXT_NOTE_LATE:
		log_event(LOG_WARN, &of, "on_next_slow",
		          "the worker has not begun the term for all of the stop grace, since on_next does not wait "
		          "for anything: on_next is interrupted, and the term begins without it");
		return;
	case ON_NEXT_NOTE_KILLS:
		log_event(LOG_WARN, &of, "on_next_killed",
		          "what on_next and on_next_over do has not ended in the stop grace: the worker is killed");
		return;
	case ON_NEXT_NOTE_LEFTOVER:
		log_event(LOG_WARN, &of, "leftover",
		          "a process left behind cannot be attributed to a term: the worker is ended");
		return;
	}
}

static void supervision_send_next(const struct term_supervision *t)
{
	struct buf m = { 0 };

	wire_next_put(&m, &(struct wire_next){
				  .slot = t->slot, .number = t->next.number, .grace_ms = t->next.grace / NSEC_PER_MS });
	supervision_send(t, &m);
}

/* A worker that has just died does not hear it. */
static void supervision_end_next(struct term_supervision *t)
{
	struct buf m = { 0 };

	if (!t->ops->context(t->arg).ready)
		return;
	page_end_next(supervision_slot(t), t->next.number);
	supervision_page_changed(t, TERM_PAGE_INTERRUPT);
	wire_next_over_put(&m, &(struct wire_next_over){ .slot = t->slot,
	                                                 .number = t->next.number,
	                                                 .grace_ms = t->next.grace / NSEC_PER_MS });
	supervision_send(t, &m);
}

static void supervision_next_is_idle(struct term_supervision *t)
{
	bool finished = t->finishing && term_supervision_finished(t);

	t->finishing = t->finishing && !finished;
	t->ops->tell(t->arg, finished ? TERM_NEWS_FINISHED : TERM_NEWS_IDLE);
}

static void supervision_tell_next(struct term_supervision *t, struct on_next_event e)
{
	struct term_context now = t->ops->context(t->arg);
	e.ready = now.ready;
	e.moves = now.moves;
	struct on_next_actions a = next_hooks_step(&t->next, &e);
	if (a.set & ON_NEXT_DO_TIMER_OFF)
		timer_stop(t->timeline, &t->next_timer);
	if (a.set & ON_NEXT_DO_BEGIN)
		supervision_send_next(t);
	if (a.set & ON_NEXT_DO_OVER)
		supervision_end_next(t);
	supervision_log_next(t, a.note);
	bool swept = a.set & ON_NEXT_DO_SWEEP && t->ops->sweep(t->arg, 0, t->next.number);
	if (a.set & ON_NEXT_DO_KILL)
		t->ops->kill(t->arg);
	if (a.set & ON_NEXT_DO_TIMER)
		timer_start(t->timeline, &t->next_timer, (double)t->next.grace / NSEC_PER_SEC);
	if (a.set & ON_NEXT_DO_IDLE)
		supervision_next_is_idle(t);
	if (swept)
		supervision_tell_next(
			t, (struct on_next_event){ .kind = ON_NEXT_EV_SWEPT, .number = t->next.number, .clean = true });
}

void term_supervision_swept(struct term_supervision *t, uint64_t term, uint32_t next, bool clean)
{
	if (next)
		supervision_tell_next(
			t, (struct on_next_event){ .kind = ON_NEXT_EV_SWEPT, .number = next, .clean = clean });
	if (term)
		term_supervision_tell(t, (struct term_event){ .kind = TERM_EV_SWEPT, .term = term, .clean = clean });
}

static void supervision_on_next_timer(struct timer *timer)
{
	supervision_tell_next(
		(struct term_supervision *)((char *)timer - offsetof(struct term_supervision, next_timer)),
		(struct on_next_event){ .kind = ON_NEXT_EV_TIMER });
}

void term_supervision_move(struct term_supervision *t)
{
	supervision_tell_next(t, (struct on_next_event){ .kind = ON_NEXT_EV_MOVE });
}

bool term_supervision_finished(const struct term_supervision *t)
{
	return t->hooks.finished && t->hooks.state == TERM_NONE && t->next.state == ON_NEXT_IDLE;
}

/* Tells the supervision of on_next what the elector has said, before the worker is told anything. */
static void supervision_pass_to_next(struct term_supervision *t, const struct term_actions *a,
                                     const struct term_event *e)
{
	if (a->set & TERM_DO_LEAD)
		supervision_tell_next(t, (struct on_next_event){ .kind = ON_NEXT_EV_LEAD });
	else if (e->kind == TERM_EV_LEAD || a->set & TERM_DO_FINISHED)
		supervision_tell_next(t, (struct on_next_event){ .kind = ON_NEXT_EV_NOT_NEXT });
}

/* ---- whether it may campaign ---- */

static bool supervision_elsewhere(const struct term_supervision *t)
{
	return t->ops->elsewhere && t->ops->elsewhere(t->arg);
}

/* What keeps it from campaigning. Nothing of this is stored, so nothing can forget to change it. */
static const char *supervision_bar(const struct term_supervision *t, const struct term_context *now)
{
	if (now->bar)
		return now->bar;
	if (supervision_elsewhere(t))
		return "it leads in another slot";
	return t->hooks.let_go ? "on_stopped of its last term has not run" : NULL;
}

void term_supervision_look(struct term_supervision *t)
{
	struct term_context now = t->ops->context(t->arg);

	elector_ready(t->campaign->elector, now.ready);
	if (!now.ending && !t->hooks.finished)
		elector_bar(t->campaign->elector, supervision_bar(t, &now));
}

/* If this candidate may no longer campaign, the elector hears that before it hears that a term is over, since it
 * might then begin another. */
static void supervision_look_first(struct term_supervision *t)
{
	struct term_context now = t->ops->context(t->arg);

	if (supervision_bar(t, &now))
		term_supervision_look(t);
}

/* ---- for the owner ---- */

static void supervision_allow(void *arg, struct term_actions *)
{
	const struct term_supervision *t = arg;

	t->ops->tell(t->arg, TERM_NEWS_ALLOW);
}

static void supervision_began(void *arg, struct term_actions *)
{
	const struct term_supervision *t = arg;

	t->ops->tell(t->arg, TERM_NEWS_BEGAN);
}

static void supervision_over(void *arg, struct term_actions *)
{
	struct term_supervision *t = arg;

	supervision_tell_next(t, (struct on_next_event){ .kind = ON_NEXT_EV_TERM_OVER });
	t->ops->tell(t->arg, TERM_NEWS_OVER);
}

static void supervision_finished(void *arg, struct term_actions *)
{
	struct term_supervision *t = arg;

	t->finishing = !term_supervision_finished(t);
	if (!t->finishing)
		t->ops->tell(t->arg, TERM_NEWS_FINISHED);
}

/* ---- for the elector ---- */

static void supervision_answer(void *arg, struct term_actions *a)
{
	struct term_supervision *t = arg;
	const struct term_event *e = a->event;
	struct log_about of = supervision_about(t);

	supervision_look_first(t);
	if (a->yes)
		may_lead_answered(&t->may_lead, true, NULL, &of, e->at);
	elector_answer(t->campaign->elector, a->yes, e->address,
	               e->has_priority && !t->priority_given ? &e->priority : NULL);
}

static void supervision_save(void *arg, struct term_actions *a)
{
	struct term_supervision *t = arg;
	struct err err;

	if (elector_save(t->campaign->elector, a->save, a->event->checkpoint, &err) < 0)
		term_supervision_tell(t, (struct term_event){ .kind = TERM_EV_SAVE_FAILED, .text = err.text });
}

static void supervision_end(void *arg, struct term_actions *a)
{
	struct term_supervision *t = arg;

	supervision_look_first(t);
	elector_end(t->campaign->elector, a->reason, a->sit_out, a->grace);
}

static void supervision_next_term(void *arg, struct term_actions *a)
{
	struct term_supervision *t = arg;

	supervision_look_first(t);
	elector_next_term(t->campaign->elector, a->grace);
}

static void supervision_report(void *arg, struct term_actions *a)
{
	struct term_supervision *t = arg;

	supervision_look_first(t);
	elector_stopped(t->campaign->elector, a->reaped);
}

static void supervision_follow(void *arg, struct term_event e)
{
	term_supervision_tell(arg, e);
}

static const struct term_effects effects = {
	.timer_off = supervision_stop_timer,
	.allow = supervision_allow,
	.page = supervision_page,
	.page_changed = supervision_page_changed,
	.lead = supervision_send_lead,
	.drain = supervision_send_drain,
	.stop = supervision_send_stop,
	.clean_up = supervision_send_clean_up,
	.ask = supervision_send_ask,
	.saved = supervision_send_saved,
	.log = supervision_log_note,
	.kill = supervision_kill,
	.sweep = supervision_sweep,
	.timer = supervision_begin_timer,
	.began = supervision_began,
	.over = supervision_over,
	.answer = supervision_answer,
	.save = supervision_save,
	.end = supervision_end,
	.next_term = supervision_next_term,
	.report = supervision_report,
	.finished = supervision_finished,
	.tell = supervision_follow,
};

/* ---- the term ---- */

void term_supervision_tell(struct term_supervision *t, struct term_event e)
{
	e.at = clock_now();
	e.now = t->ops->context(t->arg);
	struct term_actions a = term_hooks_step(&t->hooks, &e);
	supervision_pass_to_next(t, &a, &e);
	term_carry_out(&t->hooks, t->slot, &a, &effects, t);
	if (e.kind == TERM_EV_READY)
		supervision_tell_next(t, (struct on_next_event){ .kind = ON_NEXT_EV_READY });
	term_supervision_look(t);
}

/* ---- the elector ---- */

/* Two slots may be acquired at once: nothing was started in the second one, which is released. */
static void supervision_decline(struct term_supervision *t)
{
	supervision_tell_next(t, (struct on_next_event){ .kind = ON_NEXT_EV_NOT_NEXT });
	term_supervision_look(t);
	elector_end(t->campaign->elector, LEASE_DECLINED, 0, 0);
}

static void supervision_on_lead(void *arg, const struct elector_term *term)
{
	struct term_supervision *t = arg;

	if (supervision_elsewhere(t)) {
		supervision_decline(t);
		return;
	}
	term_supervision_tell(arg, (struct term_event){ .kind = TERM_EV_LEAD,
	                                                .term = term->term,
	                                                .token = term->token,
	                                                .end = term->end,
	                                                .kill = term->kill,
	                                                .address = term->address });
}

static void supervision_on_deadline(void *arg, struct instant end, struct instant kill)
{
	term_supervision_tell(arg, (struct term_event){ .kind = TERM_EV_DEADLINE, .end = end, .kill = kill });
}

static void supervision_on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	term_supervision_tell(
		arg, (struct term_event){ .kind = TERM_EV_STOP, .reason = reason, .held = held, .stop_by = stop_by });
}

static void supervision_on_leader(void *arg, const struct elector_leader *l)
{
	struct term_supervision *t = arg;
	struct buf m = { 0 };

	if (!t->ops->context(t->arg).ready)
		return;
	wire_leader_put(&m, &(struct wire_leader){ .slot = t->slot,
	                                           .identity = l->identity,
	                                           .address = l->address,
	                                           .token = l->token,
	                                           .is_self = l->self,
	                                           .previous = l->previous });
	supervision_send(t, &m);
}

static void supervision_on_no_leader(void *arg, const char *previous)
{
	struct term_supervision *t = arg;
	struct buf m = { 0 };

	if (!t->ops->context(t->arg).ready)
		return;
	wire_no_leader_put(&m, &(struct wire_no_leader){ .slot = t->slot, .previous = previous });
	supervision_send(t, &m);
}

/* The elector asks again after each retry period. A hook that is still at work is not asked a second time before its
 * own time is up. */
static void supervision_on_ask(void *arg)
{
	struct term_supervision *t = arg;
	struct log_about of = supervision_about(t);

	if (!may_lead_to_ask(&t->may_lead, &of, clock_now()))
		return;
	if (t->may_lead.last == MAY_LEAD_LATE)
		elector_answer_late(t->campaign->elector);
	term_supervision_tell(t, (struct term_event){ .kind = TERM_EV_ASK });
}

void term_supervision_ask(struct term_supervision *t)
{
	supervision_on_ask(t);
}

static void supervision_on_saved(void *arg, uint64_t number, bool good)
{
	term_supervision_tell(arg, (struct term_event){ .kind = TERM_EV_SAVED, .save = number, .good = good });
}

static void supervision_on_renewed(void *arg, nsec took)
{
	struct term_supervision *t = arg;

	campaign_renewed(t->campaign, took);
}

static void supervision_on_finished(void *arg, bool left)
{
	struct log_about of = supervision_about(arg);

	if (left)
		log_event(LOG_WARN, &of, "left_to_expire", "the lease was not released: others wait it out");
	term_supervision_tell(arg, (struct term_event){ .kind = TERM_EV_FINISHED });
}

/* leads: it no longer comes next because it leads. TERM_EV_LEAD follows, and on_next goes over into that term. */
static void supervision_on_next(void *arg, bool is, bool leads)
{
	if (is || !leads)
		supervision_tell_next(arg,
		                      (struct on_next_event){ .kind = is ? ON_NEXT_EV_NEXT : ON_NEXT_EV_NOT_NEXT });
}

static void supervision_on_hand_over(void *arg, enum next_why)
{
	term_supervision_tell(arg, (struct term_event){ .kind = TERM_EV_RESIGN, .sit_out = 0 });
}

static void supervision_on_handed_over(void *arg, uint64_t ticket, const struct handover_result *r)
{
	struct term_supervision *t = arg;

	campaign_handed_over(t->campaign, ticket, r);
}

static void supervision_on_hopeless(void *arg, const char *why)
{
	struct term_supervision *t = arg;

	if (t->ops->hopeless)
		t->ops->hopeless(t->arg, why);
}

const struct elector_callbacks term_elector_callbacks = {
	.lead = supervision_on_lead,
	.deadline = supervision_on_deadline,
	.stop = supervision_on_stop,
	.leader = supervision_on_leader,
	.no_leader = supervision_on_no_leader,
	.ask = supervision_on_ask,
	.saved = supervision_on_saved,
	.renewed = supervision_on_renewed,
	.next = supervision_on_next,
	.hand_over = supervision_on_hand_over,
	.handed_over = supervision_on_handed_over,
	.finished = supervision_on_finished,
	.hopeless = supervision_on_hopeless,
};

/* ---- the worker ---- */

/* false: malformed, or not about a term. */
static bool read_event(enum wire_type type, struct wire *w, struct term_event *e)
{
	struct wire_answer answer;
	struct wire_leads leads;
	struct wire_drained drained;
	struct wire_stopped stopped;
	struct wire_end end;
	struct wire_save save;

	if (type == WIRE_ANSWER && wire_answer_get(w, &answer))
		*e = (struct term_event){ .kind = TERM_EV_ANSWER,
			                  .ask = answer.ask,
			                  .yes = answer.yes,
			                  .text = answer.why,
			                  .priority = answer.priority,
			                  .has_priority = answer.priority != WIRE_PRIORITY_UNSET,
			                  .address = answer.address };
	else if (type == WIRE_LEADS && wire_leads_get(w, &leads))
		*e = (struct term_event){ .kind = TERM_EV_LEADS, .term = leads.term };
	else if (type == WIRE_DRAINED && wire_drained_get(w, &drained))
		*e = (struct term_event){ .kind = TERM_EV_DRAINED, .term = drained.term };
	else if (type == WIRE_STOPPED && wire_stopped_get(w, &stopped))
		*e = (struct term_event){ .kind = TERM_EV_STOPPED, .term = stopped.term };
	else if (type == WIRE_END && wire_end_get(w, &end) && end.reason < LEASE_REASONS)
		*e = (struct term_event){ .kind = TERM_EV_ENDS,
			                  .term = end.term,
			                  .reason = end.reason,
			                  .sit_out_ms = end.sit_out_ms,
			                  .text = end.text };
	else if (type == WIRE_SAVE && wire_save_get(w, &save))
		*e = (struct term_event){
			.kind = TERM_EV_SAVE, .term = save.term, .save = save.save, .checkpoint = save.checkpoint
		};
	else
		return false;
	return true;
}

static bool supervision_next_message(struct term_supervision *t, struct wire *w)
{
	struct wire_next_stopped m;

	if (!wire_next_stopped_get(w, &m) || m.how > WIRE_NEXT_TAKEN)
		return false;
	supervision_tell_next(t, (struct on_next_event){ .kind = ON_NEXT_EV_STOPPED,
	                                                 .number = m.number,
	                                                 .end = (enum on_next_end)m.how });
	return true;
}

bool term_supervision_message(struct term_supervision *t, enum wire_type type, struct wire *w)
{
	struct term_event e;

	if (type == WIRE_NEXT_STOPPED)
		return supervision_next_message(t, w);
	if (!read_event(type, w, &e))
		return false;
	term_supervision_tell(t, e);
	return true;
}

/* ---- processes ---- */

void term_supervision_dead(struct term_supervision *t, bool reaped)
{
	struct term_event e = { .kind = TERM_EV_DEAD, .reaped = reaped };

	may_lead_forget(&t->may_lead);
	if (t->hooks.state == TERM_DRAINING || t->hooks.state == TERM_STOPPING) {
		struct page_slot *s = supervision_slot(t);
		struct instant kill = { .boot = s->kill_boot, .raw = s->kill_raw };
		e.late = kill.boot && instant_passed(kill, clock_now());
	}
	term_supervision_tell(t, e);
	supervision_tell_next(t, (struct on_next_event){ .kind = ON_NEXT_EV_DEAD });
	term_supervision_look(t);
}

/* ---- life ---- */

static void supervision_on_timer(struct timer *timer)
{
	struct term_supervision *t =
		(struct term_supervision *)((char *)timer - offsetof(struct term_supervision, timer));

	term_supervision_tell(
		t, (struct term_event){ .kind = TERM_EV_TIMER,
	                                .leads_another = t->ops->leads_another && t->ops->leads_another(t->arg) });
}

void term_supervision_init(struct term_supervision *t, struct timeline *timeline)
{
	t->timeline = timeline;
	timer_init(timeline, &t->timer, supervision_on_timer);
	timer_init(timeline, &t->next_timer, supervision_on_next_timer);
}

void term_supervision_fini(struct term_supervision *t)
{
	timer_stop(t->timeline, &t->timer);
	timer_stop(t->timeline, &t->next_timer);
	may_lead_fini(&t->may_lead);
}
