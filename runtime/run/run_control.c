#include "run/run_control.h"

#include "base/json_out.h"
#include "program/exit_status.h"
#include "program/standing.h"
#include "run/candidate.h"
#include "run/run.h"

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
static void run_pause(void *arg, const char *name, bool pause)
{
	struct run *r = arg;
	struct life_event e = { .kind = pause ? LIFE_EV_PAUSE : LIFE_EV_RESUME, .candidate = LIFE_NONE };

	if (!*name) {
		run_tell(r, &e);
		return;
	}
	for (e.candidate = 0; e.candidate < r->life.candidate_count; e.candidate++)
		if (candidate_is_named(r->candidates[e.candidate], name))
			run_tell(r, &e);
}

static void run_resign(void *arg, const char *name, nsec sit_out)
{
	struct run *r = arg;

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
		run_resign(r, "", NSEC_NEVER);
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
		elector_look(r->candidates[i]->campaign.elector);
}

/* The script's whole path, by which `ctl` finds it; "-e" for a text; or the crontabs. */
static void add_script(const struct run *r, struct buf *reply)
{
	if (r->crontab_count) {
		json_out_list(reply, "cron", r->crontabs, r->crontab_count);
		return;
	}
	char *path = r->is_text ? NULL : realpath(r->script, NULL);
	json_out_text(reply, "script", r->is_text ? "-e" : path ? path : r->script);
	free(path);
}

static bool run_is_ending(const void *arg)
{
	return ((const struct run *)arg)->life.ending;
}

static void run_add_head(const void *arg, struct buf *out)
{
	add_script(arg, out);
}

static void run_add_lines(const void *arg, struct buf *out)
{
	const struct run *r = arg;

	if (r->reload_failed)
		buf_printf(out, "The last reload failed, and what it was before goes on: %s\n", r->wrong);
	state_file_tell(r->program.state_file, out);
}

static struct candidate *run_candidate(const struct run *r, const struct standing *e)
{
	uint32_t i = 0;

	while (r->candidates[i]->campaign.elector != e->elector)
		i++;
	return r->candidates[i];
}

static int run_hand_over(void *arg, const struct standing *e, const struct control_request *q, nsec timeout,
                         struct err *err)
{
	return candidate_hand_over(run_candidate(arg, e), q->ticket, q->to, timeout, err);
}

static int run_begin_job(void *arg, const struct standing *e, const struct control_request *q, struct err *err)
{
	return candidate_ask(run_candidate(arg, e), q, err);
}

static void run_list_elections(void *arg, void (*each)(void *each_arg, const struct standing *e), void *each_arg)
{
	struct run *r = arg;

	for (uint32_t i = 0; i < r->life.candidate_count; i++) {
		struct elector_status st;
		struct standing e;
		candidate_list(r->candidates[i], &e, &st);
		e.leaves = r->life.candidate[i].leaves;
		each(each_arg, &e);
	}
}

static void run_reload_for(void *arg, uint64_t ticket)
{
	run_reload(arg, ticket);
}

static const struct orders_ops orders = {
	.what = "a script",
	.list = run_list_elections,
	.ending = run_is_ending,
	.head = run_add_head,
	.tell = run_add_lines,
	.resign = run_resign,
	.pause = run_pause,
	.hand_over = run_hand_over,
	.run = run_begin_job,
	.reload = run_reload_for,
};

const struct program_ops run_control_ops = { .signal = run_on_signal, .look = run_on_look, .orders = &orders };
