#include "runner/run_control.h"

#include "runner/candidate.h"
#include "runner/exit_status.h"
#include "runner/run.h"
#include "admin/standing.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* timeout(1) and terminals signal a process, and then its group: within this time a second signal is the same one. */
#define SAME_SIGNAL (250 * NSEC_PER_MS)

/* name "": every election. */
static bool candidate_is_named(const struct candidate *p, const char *name)
{
	return !*name || strcmp(p->settings->name, name) == 0;
}

/* An order without a name is for the elections of later versions, too. */
static void run_pause(struct run *r, const char *name, bool pause)
{
	struct life_event e = { .kind = pause ? LIFE_EV_PAUSE : LIFE_EV_RESUME, .candidate = LIFE_NONE };

	if (!*name) {
		run_tell(r, &e);
		return;
	}
	for (e.candidate = 0; e.candidate < r->life.candidate_count; e.candidate++)
		if (candidate_is_named(r->candidates[e.candidate], name))
			run_tell(r, &e);
}

static void run_resign(struct run *r, nsec sit_out, const char *name)
{
	if (!*name && sit_out != NSEC_NEVER)
		r->out_until = instant_add(clock_now(), sit_out);
	r->out_for_lease = r->out_for_lease || (!*name && sit_out == NSEC_NEVER && !r->loads);
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		if (candidate_is_named(r->candidates[i], name))
			candidate_resign(r->candidates[i], sit_out);
}

static void run_on_signal(void *arg, int signal)
{
	struct run *r = arg;

	if (signal == SIGHUP && !r->life.ending)
		run_reload(r, 0);
	else if (signal == SIGUSR1)
		run_resign(r, NSEC_NEVER, "");
	else if ((signal == SIGTERM || signal == SIGINT) && r->life.ending &&
	         elapsed_holder(r->asked_at, clock_now()) > SAME_SIGNAL)
		run_kill(r);
	else if (signal == SIGTERM || signal == SIGINT)
		run_end(r, EXIT_DONE, LEASE_SHUTDOWN);
}

static void run_on_look(void *arg)
{
	struct run *r = arg;

	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		elector_look(r->candidates[i]->elector);
}

static void reply_done(struct buf *reply)
{
	buf_adds(reply, "{\"ok\":true}");
}

static void reply_text(struct buf *reply, const char *field, const char *text)
{
	buf_printf(reply, "{\"ok\":true,\"%s\":", field);
	buf_json(reply, text);
	buf_adds(reply, "}");
}

static void add_crontabs(const struct run *r, struct buf *reply)
{
	buf_adds(reply, "\"cron\":[");
	for (int i = 0; i < r->crontab_count; i++) {
		buf_adds(reply, i ? "," : "");
		buf_json(reply, r->crontabs[i]);
	}
	buf_adds(reply, "],");
}

/* The script's whole path, by which `ctl` finds it; "-e" for a text; or the crontabs. */
static void add_script(const struct run *r, struct buf *reply)
{
	if (r->crontab_count) {
		add_crontabs(r, reply);
		return;
	}
	char *path = r->is_text ? NULL : realpath(r->script, NULL);
	buf_adds(reply, "\"script\":");
	buf_json(reply, r->is_text ? "-e" : path ? path : r->script);
	buf_adds(reply, ",");
	free(path);
}

static void reply_status(struct run *r, const char *name, struct buf *reply)
{
	struct elector_status st;
	struct standing e;
	const char *comma = "";

	buf_printf(reply, "{\"ok\":true,\"pid\":%d,", (int)getpid());
	add_script(r, reply);
	buf_adds(reply, "\"elections\":[");
	for (uint32_t i = 0; i < r->life.candidate_count; i++) {
		if (!candidate_is_named(r->candidates[i], name))
			continue;
		buf_adds(reply, comma);
		candidate_list(r->candidates[i], &e, &st);
		standing_json(reply, &e);
		comma = ",";
	}
	buf_adds(reply, "]}");
}

static void reply_leading(struct run *r, const char *name, struct buf *reply)
{
	struct elector_status st;
	bool all = r->life.candidate_count > 0;

	for (uint32_t i = 0; i < r->life.candidate_count; i++) {
		elector_status(r->candidates[i]->elector, &st);
		if (candidate_is_named(r->candidates[i], name))
			all = all && st.leading;
	}
	buf_printf(reply, "{\"ok\":true,\"leading\":%s}", all ? "true" : "false");
}

static void reply_why(struct run *r, const char *name, struct buf *reply)
{
	struct buf text = { 0 };
	struct elector_status st;
	struct standing e;

	for (uint32_t i = 0; i < r->life.candidate_count; i++) {
		if (!candidate_is_named(r->candidates[i], name))
			continue;
		candidate_list(r->candidates[i], &e, &st);
		buf_adds(&text, text.len ? "\n" : "");
		standing_tell(&text, &e);
	}
	if (r->reload_failed)
		buf_printf(&text, "The last reload failed, and what it was before goes on: %s\n", r->wrong);
	state_file_tell(r->program.state_file, &text);
	reply_text(reply, "text", text.len ? text.data : "no election runs here yet: the script is being loaded\n");
	buf_fini(&text);
}

/* Where nobody leads there is nothing to hand over. A candidate still sits out for a time that was named: who asks for
 * it does not want this machine to lead in that time. */
static void reply_resign(struct run *r, const struct control_request *q, struct buf *reply)
{
	struct elector_status st;
	struct standing e;
	struct buf text = { 0 };
	bool leads = false;

	for (uint32_t i = 0; i < r->life.candidate_count; i++) {
		candidate_list(r->candidates[i], &e, &st);
		if (!candidate_is_named(r->candidates[i], q->election))
			continue;
		leads = leads || st.leading;
		buf_drop(&text, text.len);
		standing_not_resigned(&text, &e, q->seconds);
	}
	if (leads || q->seconds >= 0)
		run_resign(r, q->seconds < 0 ? NSEC_NEVER : (nsec)(q->seconds * (double)NSEC_PER_SEC), q->election);
	if (leads)
		reply_done(reply);
	else
		control_refuse(reply, "%s", text.len ? text.data : "no election runs here yet");
	buf_fini(&text);
}

/* The one election that is meant: of several, what came of an order could not be told apart in one answer. NULL: it is
 * refused. */
static struct candidate *run_only(struct run *r, const struct control_request *q, struct buf *reply)
{
	struct candidate *found = NULL;

	for (uint32_t i = 0; i < r->life.candidate_count; i++) {
		if (!candidate_is_named(r->candidates[i], q->election) || r->life.candidate[i].leaves)
			continue;
		if (found) {
			control_refuse(reply, "several elections run here: say which of them with --election NAME");
			return NULL;
		}
		found = r->candidates[i];
	}
	if (!found)
		control_refuse(reply, "no election runs here yet");
	return found;
}

static void reply_hand_over(struct run *r, const struct control_request *q, struct buf *reply)
{
	nsec timeout = q->seconds < 0 ? HAND_OVER_TIMEOUT : (nsec)(q->seconds * (double)NSEC_PER_SEC);
	struct candidate *found = run_only(r, q, reply);
	struct elector_status st;
	struct standing e;
	struct err err;

	if (!found)
		return;
	candidate_list(found, &e, &st);
	if (standing_may_hand_over(reply, &e) && candidate_hand_over(found, q->ticket, q->to, timeout, &err) < 0)
		control_refuse(reply, "%s", err.text);
}

static void reply_run(struct run *r, const struct control_request *q, struct buf *reply)
{
	struct candidate *found = run_only(r, q, reply);
	struct elector_status st;
	struct standing e;
	struct err err;

	if (!found)
		return;
	candidate_list(found, &e, &st);
	if (!*q->job)
		control_refuse(reply, "which job?");
	else if (standing_may_run(reply, &e) && candidate_ask(found, q, &err) < 0)
		control_refuse(reply, "%s", err.text);
}

static bool run_has_election(const struct run *r, const char *name)
{
	for (uint32_t i = 0; i < r->life.candidate_count; i++)
		if (candidate_is_named(r->candidates[i], name))
			return true;
	return !*name;
}

static void run_on_control(void *arg, const struct control_request *q, struct buf *reply)
{
	struct run *r = arg;

	if (!run_has_election(r, q->election)) {
		control_refuse(reply, "there is no election named \"%s\" here", q->election);
	} else if (strcmp(q->command, "status") == 0) {
		reply_status(r, q->election, reply);
	} else if (strcmp(q->command, "is-leading") == 0) {
		reply_leading(r, q->election, reply);
	} else if (strcmp(q->command, "why") == 0) {
		reply_why(r, q->election, reply);
	} else if (strcmp(q->command, "resign") == 0) {
		reply_resign(r, q, reply);
	} else if (strcmp(q->command, "handover") == 0 && r->life.ending) {
		control_refuse(reply, "it is shutting down");
	} else if (strcmp(q->command, "handover") == 0) {
		reply_hand_over(r, q, reply); /* the answer follows when it is known who leads: candidate_handed_over */
	} else if (strcmp(q->command, "run") == 0) {
		reply_run(r, q, reply); /* the answer follows when the script has begun the job: candidate_replied */
	} else if (strcmp(q->command, "pause") == 0 || strcmp(q->command, "resume") == 0) {
		run_pause(r, q->election, *q->command == 'p');
		reply_done(reply);
	} else if (strcmp(q->command, "reload") == 0 && r->life.ending) {
		control_refuse(reply, "it is shutting down");
	} else if (strcmp(q->command, "reload") == 0) {
		/* the answer follows when it is known whether the new version comes into force: run_answer_reload */
		run_reload(r, q->ticket);
	} else {
		control_refuse(reply, "unknown command \"%s\"", q->command);
	}
}

static void run_list_elections(void *arg, void (*each)(void *each_arg, const struct standing *e), void *each_arg)
{
	struct run *r = arg;

	for (uint32_t i = 0; i < r->life.candidate_count; i++) {
		struct elector_status st;
		struct standing e;
		candidate_list(r->candidates[i], &e, &st);
		each(each_arg, &e);
	}
}

const struct program_ops run_control_ops = {
	.signal = run_on_signal,
	.look = run_on_look,
	.control = run_on_control,
	.elections = run_list_elections,
};
