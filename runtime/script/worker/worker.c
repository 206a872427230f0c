#include "script/worker/worker.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "loop/timeline.h"
#include "process/channel.h"
#include "process/guard.h"
#include "process/sources.h"
#include "script/api/api.h"
#include "script/script.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

struct worker {
	struct ev_loop *loop;
	struct timeline timeline;
	struct page *page;
	struct sources *sources; /* NULL: nothing is kept */
	struct script *script;
	struct channel *to_elector;
	bool leaving; /* WIRE_QUIT has come */
};

/* ---- signals ---- */

/* The signal handlers, which get no argument, find their worker here. It is set once, before they are installed. */
static const struct worker *handled;

static void worker_on_interrupt(int)
{
	int error = errno;

	sched_interrupt(handled->script->sched);
	errno = error;
}

/* When the process is continued after a stop, this runs before the script does. If a kill deadline has passed
 * meanwhile, the script must not run any further. */
static void worker_on_continue(int signal)
{
	struct instant kill_at;

	if (page_first_kill(handled->page, &kill_at) && instant_passed(kill_at, clock_now()))
		kill(getpid(), SIGKILL);
	worker_on_interrupt(signal);
}

static void catch_signals(const struct worker *w)
{
	/* SIGRTMIN must interrupt a blocking read of the script, so no SA_RESTART. SIGCONT must not interrupt one. */
	struct sigaction interrupt = { .sa_handler = worker_on_interrupt };
	struct sigaction go_on = { .sa_handler = worker_on_continue, .sa_flags = SA_RESTART };
	sigset_t none;

	handled = w;
	sigaction(SIGRTMIN, &interrupt, NULL);
	sigaction(SIGCONT, &go_on, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* ---- messages ---- */

static void worker_send(void *arg, const struct buf *m)
{
	const struct worker *w = arg;

	channel_send(w->to_elector, m->data, m->len);
}

static void worker_on_nonsense(enum wire_type type)
{
	log_event(LOG_ERROR, NULL, "elector_message", "a message (%s) from the elector makes no sense: giving up",
	          type ? wire_name(type) : "of no known type");
	_exit(1); /* the guard then ends the terms, as after a crash */
}

static void worker_on_message(void *arg, const void *bytes, size_t len)
{
	struct worker *w = arg;
	struct wire wire;
	enum wire_type type = wire_open(&wire, bytes, len);

	if (type == WIRE_QUIT)
		w->leaving = true;
	else if (!type || !script_message(w->script, type, &wire))
		worker_on_nonsense(type);
}

static void worker_on_elector_end(void *, size_t oversized)
{
	if (oversized)
		worker_on_nonsense((enum wire_type)0);
	_exit(0); /* the elector has died, and the guard ends the terms */
}

/* One message in a turn of the loop: the tasks that it has made ready run before the next one is read. */
static const struct channel_kind elector_channel = {
	.message_max = WIRE_MAX,
	.turn_max = 1,
	.message = worker_on_message,
	.end = worker_on_elector_end,
};

/* ---- the process ---- */

/* Opens descriptors 0 to 2 if they are closed, so that no file that is opened later gets these numbers: children
 * inherit them. */
static void fill_standard_descriptors(void)
{
	int fd;

	do
		fd = open("/dev/null", O_RDWR);
	while (fd >= 0 && fd <= STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

static void worker_run_loop(struct worker *w)
{
	script_load(w->script);
	while (!w->leaving) {
		bool more = sched_run(w->script->sched);
		ev_run(w->loop, more ? EVRUN_NOWAIT : EVRUN_ONCE);
	}
}

/* The arguments in memory of their own, NULL-terminated: ps(1) shows a title where they were. Freed with the
 * process. */
static char **worker_arguments(int argc, char **argv)
{
	char **copy = mem_zero(((size_t)argc + 1) * sizeof *copy);

	mem_pack((size_t)argc, (const char *const *)argv, copy);
	proc_title("worker", strcmp(argv[7], "eval") == 0 ? "-e" : argv[8]);
	prctl(PR_SET_NAME, "lunarch-worker");
	return copy;
}

/* argv: WIREFD PAGEFD MARKSFD KEPTFD LOGFORMAT LOGLEVEL IDENTITY file|eval SCRIPT [ARGS...]; KEPTFD -1: nothing is
 * kept; IDENTITY "": not known yet */
int worker_main(int argc, char **argv, int go)
{
	struct worker w = { 0 };
	struct err err;

	if (argc < 9 || log_level_parse(argv[5]) < 0) {
		fputs("lunarch -x worker is a role that lunarch starts itself\n", stderr);
		return 2;
	}
	argv = worker_arguments(argc, argv);
	int wire_fd = atoi(argv[0]), kept_fd = atoi(argv[3]),
	    page_fd[PAGE_FILES] = { [PAGE_DEADLINES] = atoi(argv[1]), [PAGE_MARKS] = atoi(argv[2]) };
	fill_standard_descriptors();
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* when the guard dies, its parent */
	log_init(strcmp(argv[4], "json") == 0 ? LOG_JSON : LOG_TEXT, (enum log_level)log_level_parse(argv[5]));
	log_follow();
	if (*argv[6])
		log_program(argv[6], NULL);
	setvbuf(stdout, NULL, _IOLBF, 0); /* so that a script that is killed does not lose lines */
	fcntl(wire_fd, F_SETFD, FD_CLOEXEC);
	w.page = page_map(page_fd, &err);
	if (w.page && kept_fd >= 0)
		w.sources = sources_open(kept_fd, &err);
	if (!w.page || (kept_fd >= 0 && !w.sources)) {
		log_event(LOG_ERROR, NULL, "worker_failed", "%s", err.text);
		return 1;
	}
	for (int i = 0; i < PAGE_FILES; i++)
		close(page_fd[i]);
	w.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	if (!w.loop) {
		log_event(LOG_ERROR, NULL, "worker_failed", "no event loop: %s", strerror(errno));
		return 1;
	}
	timeline_init(&w.timeline, w.loop);
	w.to_elector = channel_new(w.loop, wire_fd, &elector_channel, &w);
	const struct script_spec spec = { .loop = w.loop,
		                          .timeline = &w.timeline,
		                          .page = w.page,
		                          .sources = w.sources,
		                          .eval = strcmp(argv[7], "eval") == 0,
		                          .source = argv[8],
		                          .args = argv + 9,
		                          .natives = api_open,
		                          .send = worker_send,
		                          .arg = &w };
	w.script = script_new(&spec);
	catch_signals(&w);
	if (go >= 0)
		guard_await_go(go);
	worker_run_loop(&w);
	signal(SIGRTMIN, SIG_IGN);
	signal(SIGCONT, SIG_DFL);
	script_free(w.script);
	channel_free(w.to_elector);
	timeline_fini(&w.timeline);
	ev_loop_destroy(w.loop);
	page_unmap(w.page);
	sources_close(w.sources);
	free(*argv);
	free(argv);
	return 0;
}
