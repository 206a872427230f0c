#include "exec/exec_command.h"

#include "base/log.h"
#include "base/mem.h"
#include "config/options.h"
#include "exec/exec_warm.h"
#include "process/guard_wire.h"
#include "program/program.h"
#include "term/term_hooks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define SLOT "0"
#define SLOT_ENV "LUNARCH_SLOT" /* of --slots; SLOT is the place in the page */
#define WARM_ENV "LUNARCH_WARM_FD"

void exec_term_fini(struct exec_term *t)
{
	free(t->lock);
	free(t->identity);
	free(t->address);
}

/* ---- environment ---- */

#define SHARED 2 /* entries that every command has, and that are the program's */
#define ENTRIES 10

/* What a command has for its term, or in place of it; NULL-terminated. */
static void term_entries(char **entry, const struct exec_term *t, const char *mark)
{
	*entry++ = mem_printf(TERM_MARK_ENV "=%s", mark);
	*entry++ = mem_printf("LUNARCH_TERM_LOCK=%s", t->lock ? t->lock : "");
	*entry++ = mem_printf("LUNARCH_TERM_IDENTITY=%s", t->identity ? t->identity : "");
	*entry++ = mem_printf("LUNARCH_TERM_ADDRESS=%s", t->address ? t->address : "");
	*entry = NULL;
}

static char **end_of(char **entry)
{
	while (*entry)
		entry++;
	return entry;
}

/* The environment of a held command has a place for each of them. */
static void leading_entries(char **entry, const struct exec_term *t, bool slots)
{
	char mark[32];

	snprintf(mark, sizeof mark, SLOT ".%" PRIu64, t->of.term);
	term_entries(entry, t, t->of.term ? mark : "-");
	entry = end_of(entry);
	*entry++ = mem_printf("LUNARCH_TOKEN=%" PRId64, t->of.token);
	if (slots)
		*entry++ = mem_printf(SLOT_ENV "=%u", t->slot);
	*entry = NULL;
}

static void warm_entries(char **entry, const struct exec_term *t, const struct exec_warm *w)
{
	term_entries(entry, t, "-");
	entry = end_of(entry);
	*entry++ = mem_printf("LUNARCH_NEXT=" SLOT ".%u", w->number);
	*entry++ = mem_printf(WARM_ENV "=%d", w->descriptor);
	*entry = NULL;
}

static void free_entries(char **entry)
{
	for (; *entry; entry++)
		free(*entry);
}

/* ---- start ---- */

static struct exec_tty find_tty(void)
{
	return (struct exec_tty){ .front = isatty(STDIN_FILENO) && tcgetpgrp(STDIN_FILENO) == getpgrp(),
		                  .away = program_in_background() };
}

static void tell_of_stdin(struct exec_command *c)
{
	if (c->tty.away && !c->told_of_stdin)
		log_event(LOG_WARN, NULL, "in_background",
		          "the command reads /dev/null: in the background it must not take what is typed for others");
	c->told_of_stdin |= c->tty.away;
}

/* The variables of options are for this program, and are removed. So are those in `lacks`, in which a lunarch above
 * us has told us of its own term or warm start. */
static char **list_unset(char *const *lacks)
{
	size_t n = 0, more = 0;

	while (option_variables[n])
		n++;
	while (lacks[more])
		more++;
	char **names = mem_zero((n + more + 1) * sizeof *names);
	for (size_t i = 0; i < n; i++)
		names[i] = (char *)option_variables[i];
	for (size_t i = 0; i < more; i++)
		names[n + i] = lacks[i];
	return names;
}

/* env: its first SHARED entries are ours to fill in. */
static struct supervisor *spawn(struct exec_command *c, struct supervisor_spec *spec, char **env, char *const *lacks,
                                struct err *err)
{
	static char no_control[] = "LUNARCH_CONTROL=";
	char **unset = list_unset(lacks);

	env[0] = c->program->tree_var;
	env[1] = c->program->control_var ? c->program->control_var : no_control;
	c->tty = find_tty();
	spec->argv = c->argv;
	spec->command = true;
	spec->foreground = c->tty.front;
	spec->no_stdin = c->tty.away;
	spec->no_privileges = c->program->no_privileges;
	spec->ignored = &c->program->ignored;
	spec->env = env;
	spec->unset = unset;
	spec->tree_fd = c->program->self.tree_fd;
	spec->kill_allowance = c->kill_allowance;
	spec->fork = c->fork;
	struct supervisor *s = supervisor_spawn(c->program->reaper, spec, c->callbacks, c->arg, err);
	free(unset);
	return s;
}

static char *const outside_a_warm_start[] = { "LUNARCH_NEXT", WARM_ENV, SLOT_ENV, NULL };

struct supervisor *exec_command_start(struct exec_command *c, const struct exec_term *t, struct err *err)
{
	struct supervisor_spec spec = { .first = t->of };
	char *env[ENTRIES];

	leading_entries(env + SHARED, t, c->slots);
	struct supervisor *s = spawn(c, &spec, env, outside_a_warm_start, err);
	free_entries(env + SHARED);
	tell_of_stdin(c);
	return s;
}

struct supervisor *exec_command_hold(struct exec_command *c, struct err *err)
{
	struct supervisor_spec spec = { .held = true };
	char *env[ENTRIES];

	leading_entries(env + SHARED, &(struct exec_term){ 0 }, c->slots);
	struct supervisor *s = spawn(c, &spec, env, outside_a_warm_start, err);
	free_entries(env + SHARED);
	return s;
}

bool exec_command_begin(struct exec_command *c, struct supervisor *held, const struct exec_term *t)
{
	struct exec_tty now = find_tty();
	char *env[ENTRIES];

	if (now.front != c->tty.front || now.away != c->tty.away)
		return false;
	leading_entries(env, t, c->slots);
	bool begun = supervisor_begin(held, &t->of, env);
	free_entries(env);
	if (begun)
		tell_of_stdin(c);
	return begun;
}

struct supervisor *exec_command_warm(struct exec_command *c, const struct exec_term *t, struct exec_warm *w,
                                     struct err *err)
{
	static char *const lacks[] = { "LUNARCH_TOKEN", SLOT_ENV, NULL };
	struct supervisor_spec spec = { .passed = exec_warm_open(w, c->program->loop, err),
		                        .passed_as = w->descriptor };
	char *env[ENTRIES];

	if (spec.passed < 0)
		return NULL;
	warm_entries(env + SHARED, t, w);
	struct supervisor *s = spawn(c, &spec, env, lacks, err);
	free_entries(env + SHARED);
	close(spec.passed);
	if (!s)
		exec_warm_close(w);
	tell_of_stdin(c);
	return s;
}

/* ---- starting it again ---- */

#define LASTED (60 * NSEC_PER_SEC) /* a run that went on for longer was no failed start */

const char *exec_restart_status(int wait_status, char *out, size_t size)
{
	if (wait_status == -1)
		snprintf(out, size, "its status is not known");
	else if (WIFSIGNALED(wait_status))
		snprintf(out, size, "signal %d, %s", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
	else
		snprintf(out, size, "status %d", WEXITSTATUS(wait_status));
	return out;
}

nsec exec_restart_ended(struct exec_restart *r, int wait_status, nsec ran, nsec longest)
{
	char how[64];

	exec_restart_status(wait_status, how, sizeof how);
	r->failures = ran > LASTED ? 1 : r->failures + 1;
	nsec pause = term_back_off(r->failures);
	if (pause > longest)
		pause = longest;
	r->next = instant_add(clock_now(), pause);
	snprintf(r->last, sizeof r->last, "the command ended after %.3g s (%s)", (double)ran / NSEC_PER_SEC, how);
	log_event(LOG_WARN, NULL, "command_ended", "%s: it is started again in %.3g s", r->last,
	          (double)pause / NSEC_PER_SEC);
	return pause;
}

void exec_restart_started(struct exec_restart *r)
{
	*r->last = '\0';
}

void exec_restart_why(const struct exec_restart *r, struct buf *out)
{
	if (*r->last)
		buf_printf(out, "%s: it is started again in %.1f s (it has ended %u times in a row)\n", r->last,
		           (double)instant_until(r->next, clock_now()) / NSEC_PER_SEC, r->failures);
}
