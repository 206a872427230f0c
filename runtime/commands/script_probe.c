#include "commands/script_probe.h"

#include "base/mem.h"
#include "loop/reaper.h"
#include "process/kernel.h"
#include "process/supervisor.h"

#include <ev.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#define LOAD_TIMEOUT_S 10

struct probe {
	struct script_probe *script_probe;
	struct ev_loop *loop;
	struct reaper *reaper;
	struct supervisor *supervisor;
	ev_timer timer;
	bool loaded;
	char *problem; /* the first */
};

static void __attribute__((format(printf, 2, 3))) probe_fail(struct probe *l, const char *fmt, ...)
{
	char text[8192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (!l->problem)
		l->problem = mem_dup(text);
}

static void probe_quit(struct probe *l)
{
	struct buf m = { 0 };

	wire_quit_put(&m, &(struct wire_quit){});
	supervisor_send(l->supervisor, &m);
	buf_fini(&m);
}

static bool probe_on_election(struct probe *l, struct wire *w)
{
	struct script_probe *s = l->script_probe;
	struct wire_election e;

	if (!wire_election_get(w, &e) || l->loaded || e.index != s->count || e.index >= PAGE_SLOTS) {
		probe_fail(l, "the worker's description of an election makes no sense");
		return false;
	}
	s->settings = mem_resize(s->settings, sizeof *s->settings * (s->count + 1));
	return election_settings_copy(&s->settings[s->count++], &e);
}

/* Only what a worker says before WIRE_GO, which it never gets here. */
static bool probe_on_message(void *arg, enum wire_type type, struct wire *w)
{
	struct probe *l = arg;
	struct wire_loaded loaded;
	struct wire_load_failed failed;
	struct wire_exit exit;

	if (type == WIRE_ELECTION)
		return probe_on_election(l, w);
	if (type == WIRE_LOADED && wire_loaded_get(w, &loaded) && loaded.count == l->script_probe->count) {
		l->loaded = true;
		probe_quit(l);
	} else if (type == WIRE_LOAD_FAILED && wire_load_failed_get(w, &failed)) {
		probe_fail(l, "%s", failed.text);
		if (*failed.lock_file && !l->script_probe->lock_file) {
			l->script_probe->lock_file = mem_dup(failed.lock_file);
			l->script_probe->schemes = mem_dup(failed.schemes);
		}
		probe_quit(l);
	} else if (type == WIRE_EXIT && wire_exit_get(w, &exit)) {
		probe_fail(l, "the script left with exit status %u while it was being loaded", exit.code);
		supervisor_kill(l->supervisor);
	} else {
		return false;
	}
	return true;
}

static void probe_on_gone(void *arg, bool, int status)
{
	struct probe *l = arg;

	if (!l->loaded && WIFSIGNALED(status))
		probe_fail(l, "the script died of signal %d while it was being loaded", WTERMSIG(status));
	else if (!l->loaded)
		probe_fail(l, "the script's process ended while it was being loaded");
	ev_break(l->loop, EVBREAK_ALL);
}

static void probe_on_timer(struct ev_loop *, ev_timer *w, int)
{
	struct probe *l = w->data;

	probe_fail(l, "the script was still loading after %d s: what takes time belongs into a hook", LOAD_TIMEOUT_S);
	supervisor_kill(l->supervisor);
}

static int probe_spawn(struct probe *l, const struct options *o, const char *source, bool is_text, struct err *err)
{
	static const struct supervisor_callbacks callbacks = { .message = probe_on_message, .gone = probe_on_gone };
	struct buf argv = { 0 };
	const char *first[] = {
		options_text(o, OPTION_LOG_FORMAT, NULL),
		options_text(o, OPTION_LOG_LEVEL, NULL),
		options_text(o, OPTION_IDENTITY, NULL),
		is_text ? "eval" : "file",
		source,
	};
	size_t args = 0;

	while (o->rest[args])
		args++;
	buf_add(&argv, first, sizeof first);
	buf_add(&argv, o->rest, (args + 1) * sizeof *o->rest); /* and their NULL */
	struct supervisor_spec spec = {
		.argv = (char *const *)argv.data,
		.unset = (char *const *)option_variables,
		.tree_fd = -1,
		.kill_allowance = NSEC_PER_SEC,
	};
	l->supervisor = supervisor_spawn(l->reaper, &spec, &callbacks, l, err);
	buf_fini(&argv);
	return l->supervisor ? 0 : -1;
}

static void probe_run(struct probe *l, const struct options *o, const char *source, bool is_text)
{
	struct err err;

	if (kernel_check(&err) < 0 || reaper_adopt(l->reaper, &err) < 0 ||
	    probe_spawn(l, o, source, is_text, &err) < 0) {
		probe_fail(l, "%s", err.text);
		return;
	}
	ev_timer_init(&l->timer, probe_on_timer, LOAD_TIMEOUT_S, 0);
	l->timer.data = l;
	ev_timer_start(l->loop, &l->timer);
	ev_run(l->loop, 0);
	supervisor_free(l->supervisor);
}

char *script_probe_load(struct script_probe *s, const struct options *o, const char *source, bool is_text)
{
	struct probe l = { .script_probe = s };

	*s = (struct script_probe){ 0 };
	l.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	if (!l.loop)
		return mem_dup("cannot make an event loop");
	l.reaper = reaper_new(l.loop);
	probe_run(&l, o, source, is_text);
	reaper_free(l.reaper);
	ev_loop_destroy(l.loop);
	return l.problem;
}

void script_probe_fini(struct script_probe *s)
{
	for (uint32_t i = 0; i < s->count; i++)
		election_settings_fini(&s->settings[i]);
	free(s->settings);
	free(s->lock_file);
	free(s->schemes);
	*s = (struct script_probe){ 0 };
}
