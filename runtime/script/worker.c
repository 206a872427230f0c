#include "script/worker.h"

#include "base/mem.h"
#include "script/script.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* A message that the socket had no room for. */
struct outgoing {
	struct outgoing *next;
	size_t len;
	char bytes[];
};

struct worker {
	struct ev_loop *loop;
	struct timeline timeline;
	struct page *page;
	struct script *script;
	ev_io readable, writable;
	struct outgoing *unsent, **unsent_end;
	void *incoming; /* WIRE_MAX bytes */
	bool leaving;
};

/* ---- signals ---- */

/* Handlers have no argument of their own. Set once, before the handlers are. */
static const struct worker *handled;

static void worker_on_interrupt(int signal)
{
	int error = errno;

	(void)signal;
	sched_interrupt(handled->script->sched);
	errno = error;
}

/* Runs before anything of the script does after a stop: what was to be killed meanwhile must not go on for a moment. */
static void worker_on_continue(int signal)
{
	struct instant kill_at;

	if (page_first_kill(handled->page, &kill_at) && instant_passed(kill_at, clock_now()))
		kill(getpid(), SIGKILL);
	worker_on_interrupt(signal);
}

static void catch_signals(const struct worker *w)
{
	/* SIGRTMIN gets the script out of a blocking read, so no SA_RESTART; a stop and its SIGCONT should not. */
	struct sigaction interrupt = { .sa_handler = worker_on_interrupt };
	struct sigaction go_on = { .sa_handler = worker_on_continue, .sa_flags = SA_RESTART };
	sigset_t none;

	handled = w;
	sigaction(SIGRTMIN, &interrupt, NULL);
	sigaction(SIGCONT, &go_on, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* ---- the wire ---- */

static bool send_now(struct worker *w, const void *bytes, size_t len)
{
	while (send(w->readable.fd, bytes, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
		if (errno == EAGAIN)
			return false;
		if (errno != EINTR)
			return true; /* the elector is gone: reading says so too, and ends us */
	}
	return true;
}

static void worker_on_writable(struct ev_loop *loop, ev_io *io, int revents)
{
	struct worker *w = io->data;

	(void)revents;
	while (w->unsent && send_now(w, w->unsent->bytes, w->unsent->len)) {
		struct outgoing *sent = w->unsent;
		w->unsent = sent->next;
		free(sent);
	}
	if (!w->unsent) {
		w->unsent_end = &w->unsent;
		ev_io_stop(loop, &w->writable);
	}
}

static void send_message(void *arg, const struct buf *m)
{
	struct worker *w = arg;

	if (!w->unsent && send_now(w, m->data, m->len))
		return;
	struct outgoing *o = mem_zero(sizeof *o + m->len);
	o->len = m->len;
	memcpy(o->bytes, m->data, m->len);
	*w->unsent_end = o;
	w->unsent_end = &o->next;
	ev_io_start(w->loop, &w->writable);
}

static void worker_receive(struct worker *w, const void *bytes, size_t len)
{
	struct wire wire;
	enum wire_type type = wire_open(&wire, bytes, len);
	const char *name = wire_name(type);

	if (type == WIRE_QUIT) {
		w->leaving = true;
		return;
	}
	if (!type || !script_message(w->script, type, &wire)) {
		log_event(LOG_ERROR, NULL, "elector_message",
		          "a message (%s) from the elector makes no sense: giving up",
		          name ? name : "of no known type");
		_exit(1); /* the guard ends the terms, as for any crash */
	}
}

/* One message at a time: what it made ready runs before the next one is looked at. */
static void worker_on_readable(struct ev_loop *loop, ev_io *io, int revents)
{
	struct worker *w = io->data;
	ssize_t n = recv(io->fd, w->incoming, WIRE_MAX, MSG_DONTWAIT);

	(void)loop;
	(void)revents;
	if (n > 0)
		worker_receive(w, w->incoming, (size_t)n);
	else if (n == 0 || (errno != EAGAIN && errno != EINTR))
		_exit(0); /* the elector has died, and the guard is about to end what is left */
}

static void open_wire(struct worker *w, int fd)
{
	w->unsent_end = &w->unsent;
	w->incoming = mem_zero(WIRE_MAX);
	ev_io_init(&w->readable, worker_on_readable, fd, EV_READ);
	ev_io_init(&w->writable, worker_on_writable, fd, EV_WRITE);
	w->readable.data = w->writable.data = w;
	ev_io_start(w->loop, &w->readable);
}

static void worker_close_wire(struct worker *w)
{
	ev_io_stop(w->loop, &w->readable);
	ev_io_stop(w->loop, &w->writable);
	while (w->unsent) {
		struct outgoing *o = w->unsent;
		w->unsent = o->next;
		free(o);
	}
	free(w->incoming);
}

/* ---- the process ---- */

/* Whatever is opened later must not land on 0 to 2, which children get. */
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

static int usage(void)
{
	fputs("lunarch -x worker is a role that lunarch starts itself\n", stderr);
	return 2;
}

/* argv: WIREFD PAGEFD MARKSFD LOGFORMAT LOGLEVEL file|eval SCRIPT [ARGS...] */
int worker_main(int argc, char **argv)
{
	struct worker w = { 0 };
	struct err err;

	if (argc < 7 || log_level_parse(argv[4]) < 0)
		return usage();
	int wire_fd = atoi(argv[0]),
	    page_fd[PAGE_FILES] = { [PAGE_DEADLINES] = atoi(argv[1]), [PAGE_MARKS] = atoi(argv[2]) };
	fill_standard_descriptors();
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* with the guard, whose child this is */
	log_init(strcmp(argv[3], "json") == 0 ? LOG_JSON : LOG_TEXT, (enum log_level)log_level_parse(argv[4]));
	setvbuf(stdout, NULL, _IOLBF, 0); /* a killed script should not lose the lines it wrote */
	fcntl(wire_fd, F_SETFD, FD_CLOEXEC);
	w.page = page_map(page_fd, &err);
	if (!w.page) {
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
	open_wire(&w, wire_fd);
	const struct script_spec spec = { .loop = w.loop,
		                          .timeline = &w.timeline,
		                          .page = w.page,
		                          .eval = strcmp(argv[5], "eval") == 0,
		                          .source = argv[6],
		                          .args = argv + 7,
		                          .send = send_message,
		                          .arg = &w };
	w.script = script_new(&spec);
	catch_signals(&w);
	worker_run_loop(&w);
	signal(SIGRTMIN, SIG_IGN);
	signal(SIGCONT, SIG_DFL);
	script_free(w.script);
	worker_close_wire(&w);
	timeline_fini(&w.timeline);
	ev_loop_destroy(w.loop);
	page_unmap(w.page);
	return 0;
}
