#include "program/fence.h"

#include "base/log.h"
#include "base/mem.h"
#include "config/options.h"
#include "lease/debt.h"
#include "lease/record_time.h"
#include "process/guard_wire.h"
#include "process/supervisor.h"
#include "program/program.h"
#include "term/term_hooks.h"

#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#define SLOT 0
#define ENTRIES 16

struct fence {
	struct program *program;
	struct elector *const *elector;
	const struct lease_times *times;
	nsec timeout;
	char *argv[4];                 /* /bin/sh -c COMMAND */
	struct supervisor *supervisor; /* NULL: nothing of it runs */
	struct debt debt;
	int at; /* the debtor that is being fenced */
	char *lock, *identity;
	struct supervisor_term of;
	bool stopping, late; /* stopping: the elector has said stop. late: the time is over */
	unsigned failures;   /* in a row */
	ev_timer timer;
};

/* ---- what comes of it ---- */

static void fence_end(struct fence *f)
{
	ev_timer_stop(f->program->loop, &f->timer);
	debt_fini(&f->debt);
}

/* This candidate sits out for longer each time, so that another one may try. */
static void fence_fail(struct fence *f, const char *why)
{
	const char *who = f->debt.of[f->at].identity;
	nsec pause = term_back_off(++f->failures) + lease_longest_poll(f->times);

	log_event(LOG_ERROR, NULL, "fence_failed",
	          "%.200s could not be fenced: %s. The lock is released, and this candidate sits out for %.3g s", who,
	          why, (double)pause / NSEC_PER_SEC);
	elector_end(*f->elector, LEASE_FENCE_FAILED, pause, 0);
}

/* What names a debtor comes from the record, so from whoever may write that, and goes to a command that has power over
 * machines. It must be no option of that command, and nothing that a shell or a terminal takes for something else. */
static bool is_plain(const char *text)
{
	for (const char *c = text; *c; c++)
		if ((unsigned char)*c < 0x20 || *c == 0x7f)
			return false;
	return *text != '-';
}

static void next_debtor(struct fence *f);

static void fence_done(struct fence *f, int wait_status)
{
	char why[80];

	if (wait_status == 0) {
		log_event(LOG_WARN, NULL, "fenced", "%.200s is fenced: --fence says that it does nothing any more",
		          f->debt.of[f->at].identity);
		f->at++;
		next_debtor(f);
		return;
	}
	if (f->late)
		snprintf(why, sizeof why, "the command did not end within --fence-timeout");
	else if (wait_status == -1)
		snprintf(why, sizeof why, "nobody knows how the command ended");
	else if (WIFSIGNALED(wait_status))
		snprintf(why, sizeof why, "the command was ended by signal %d", WTERMSIG(wait_status));
	else
		snprintf(why, sizeof why, "the command ended with status %d", WEXITSTATUS(wait_status));
	fence_fail(f, why);
}

static void fence_on_gone(void *arg, bool reaped, int wait_status)
{
	struct fence *f = arg;

	supervisor_free(f->supervisor);
	f->supervisor = NULL;
	if (f->stopping || !reaped) {
		fence_end(f);
		elector_stopped(*f->elector, reaped);
	} else {
		fence_done(f, f->late && wait_status == 0 ? -1 : wait_status);
	}
}

static void fence_on_late(struct ev_loop *, ev_timer *t, int)
{
	struct fence *f = (struct fence *)((char *)t - offsetof(struct fence, timer));

	f->late = true;
	if (f->supervisor)
		supervisor_kill(f->supervisor);
}

static const struct supervisor_callbacks callbacks = { .gone = fence_on_gone };

/* ---- the command ---- */

static void make_entries(const struct fence *f, const struct debtor *o, char **entry)
{
	char since[32];

	record_time_print(o->since_us, since, sizeof since);
	*entry++ = mem_dup(f->program->tree_var);
	*entry++ = mem_printf(TERM_MARK_ENV "=%d.%" PRIu64, SLOT, f->of.term);
	*entry++ = mem_printf("LUNARCH_TERM_LOCK=%s", f->lock);
	*entry++ = mem_printf("LUNARCH_TERM_IDENTITY=%s", f->identity);
	*entry++ = mem_printf("LUNARCH_TOKEN=%" PRId64, f->of.token);
	*entry++ = mem_printf("LUNARCH_PREVIOUS_IDENTITY=%s", o->identity);
	*entry++ = mem_printf("LUNARCH_PREVIOUS_ADDRESS=%s", o->address);
	*entry++ = mem_printf("LUNARCH_PREVIOUS_TOKEN=%" PRId64, o->token);
	*entry++ = mem_printf("LUNARCH_PREVIOUS_SINCE=%s", since);
	*entry++ = mem_printf("LUNARCH_PREVIOUS_WHY=%s", o->why);
	*entry = NULL;
}

static int fence_spawn(struct fence *f, const struct debtor *o, struct err *err)
{
	char *env[ENTRIES];
	struct supervisor_spec spec = { .argv = f->argv,
		                        .command = true,
		                        .no_stdin = true,
		                        .no_privileges = f->program->no_privileges,
		                        .ignored = &f->program->ignored,
		                        .env = env,
		                        .unset = (char *const *)option_variables,
		                        .tree_fd = f->program->self.tree_fd,
		                        .first = f->of,
		                        .kill_allowance = f->times->kill };

	make_entries(f, o, env);
	f->supervisor = supervisor_spawn(f->program->reaper, &spec, &callbacks, f, err);
	for (char **e = env; *e; e++)
		free(*e);
	return f->supervisor ? 0 : -1;
}

static void next_debtor(struct fence *f)
{
	struct err err;

	while (f->at < f->debt.count && strcmp(f->debt.of[f->at].identity, f->identity) == 0)
		f->at++; /* nobody fences himself */
	if (f->at == f->debt.count) {
		f->failures = 0;
		fence_end(f);
		elector_fenced(*f->elector);
		return;
	}
	const struct debtor *o = &f->debt.of[f->at];
	if (f->late)
		fence_fail(f, "--fence-timeout is over");
	else if (!is_plain(o->identity) || !is_plain(o->address))
		fence_fail(
			f,
			"the record gives it a name that begins with '-' or has a control character, which no command "
			"gets to see. Look who wrote it, and pay it by hand");
	else if (fence_spawn(f, o, &err) < 0)
		fence_fail(f, err.text);
}

/* ---- the elector ---- */

static void fence_begin(void *arg, const struct elector_term *t, const char *unfenced)
{
	struct fence *f = arg;

	debt_fini(&f->debt);
	debt_parse(&f->debt, unfenced);
	f->at = 0;
	f->stopping = f->late = false;
	f->of = (struct supervisor_term){ .term = t->term, .token = t->token, .end = t->end, .kill = t->kill };
	mem_replace(&f->lock, t->lock);
	mem_replace(&f->identity, t->identity);
	ev_now_update(f->program->loop);
	ev_timer_set(&f->timer, (double)f->timeout / NSEC_PER_SEC, 0.);
	ev_timer_start(f->program->loop, &f->timer);
	next_debtor(f);
}

static void fence_deadline(void *arg, struct instant end, struct instant kill)
{
	struct fence *f = arg;

	f->of.end = end;
	f->of.kill = kill;
	if (!f->supervisor)
		return;
	if (page_extend(&supervisor_page(f->supervisor)->slot[SLOT], f->of.term, end, kill))
		supervisor_poke(f->supervisor);
	else
		supervisor_listen(f->supervisor);
}

static void fence_stop(void *arg, struct instant)
{
	struct fence *f = arg;

	f->stopping = true;
	if (f->supervisor) {
		supervisor_kill(f->supervisor);
		return;
	}
	fence_end(f);
	elector_stopped(*f->elector, true);
}

const struct elector_fence fence_of_elector = {
	.begin = fence_begin,
	.deadline = fence_deadline,
	.stop = fence_stop,
};

/* ---- set-up ---- */

struct fence *fence_new(struct program *p, const struct lease_times *times, struct elector *const *elector)
{
	static char shell[] = "/bin/sh", option[] = "-c";
	const char *command = options_text(p->options, OPTION_FENCE, NULL);

	if (!command || !*command)
		return NULL;
	struct fence *f = mem_zero(sizeof *f);
	f->program = p;
	f->elector = elector;
	f->times = times;
	f->timeout = p->options->value[OPTION_FENCE_TIMEOUT].number * NSEC_PER_MS;
	f->argv[0] = shell;
	f->argv[1] = option;
	f->argv[2] = mem_dup(command);
	ev_timer_init(&f->timer, fence_on_late, 0., 0.);
	return f;
}

void fence_free(struct fence *f)
{
	if (!f)
		return;
	fence_end(f);
	free(f->argv[2]);
	free(f->lock);
	free(f->identity);
	free(f);
}
