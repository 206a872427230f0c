#include "process/supervisor.h"

#include "base/log.h"
#include "base/mem.h"
#include "loop/reaper.h"
#include "process/guard.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define UNREAD_MOST 4096
#define MESSAGES_A_TURN 64 /* a chatty worker must not keep the loop from renewing */

/* Datagrams that the other side has no room for yet. */
struct letter {
	struct letter *next;
	size_t len;
	char bytes[];
};

struct outbox {
	int fd; /* -1: nobody reads any more */
	struct letter *first, **last;
	int n;
	ev_io writable;
};

enum phase {
	RUNNING,
	ORPHANED, /* the guard is dead or was shot; what is left of the tree is being killed from here */
	GONE,
};

struct supervisor {
	struct ev_loop *loop;
	struct reaper *reaper;
	const struct supervisor_callbacks *cb;
	void *arg;
	nsec kill_allowance;
	struct page *page;

	enum phase phase;
	pid_t guard;                       /* 0 once reaped */
	pid_t worker;                      /* 0 until known; kept after its end */
	struct reaper_child *guard_child;  /* NULL once reaped */
	struct reaper_child *worker_child; /* ORPHANED: it is our child now; NULL once reaped */
	bool ended;
	int wait_status;               /* -1: nobody saw it */
	struct instant asked;          /* supervisor_kill */
	struct reaper_killing killing; /* ORPHANED */
	struct instant give_up;        /* ORPHANED: say that something lives */

	struct outbox orders, messages;
	bool poke_waits; /* in orders, unread: one is enough */
	ev_io notes, wire, overdue;
};

/* ---- outbox ---- */

static void outbox_flush(struct outbox *o)
{
	while (o->first) {
		struct letter *l = o->first;
		if (o->fd >= 0 && send(o->fd, l->bytes, l->len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
		    (errno == EAGAIN || errno == ENOBUFS || errno == EINTR))
			return;
		/* Sent, or there is nobody to read it: then its sender hears of the end by other ways. */
		o->first = l->next;
		o->n--;
		free(l);
	}
	o->last = &o->first;
}

static void on_writable(struct ev_loop *loop, ev_io *w, int events)
{
	struct outbox *o = w->data;

	(void)events;
	outbox_flush(o);
	if (!o->first)
		ev_io_stop(loop, w);
}

static void outbox_init(struct outbox *o, int fd)
{
	*o = (struct outbox){ .fd = fd, .last = &o->first };
	ev_io_init(&o->writable, on_writable, fd, EV_WRITE);
	o->writable.data = o;
}

/* -1: too many are unread. */
static int outbox_put(struct outbox *o, struct ev_loop *loop, const void *bytes, size_t len)
{
	if (o->fd < 0)
		return 0;
	if (o->n == UNREAD_MOST)
		return -1;
	struct letter *l = mem_zero(sizeof *l + len);
	l->len = len;
	memcpy(l->bytes, bytes, len);
	*o->last = l;
	o->last = &l->next;
	o->n++;
	if (o->n == 1)
		outbox_flush(o);
	if (o->first)
		ev_io_start(loop, &o->writable);
	return 0;
}

static void outbox_close(struct outbox *o, struct ev_loop *loop)
{
	ev_io_stop(loop, &o->writable);
	if (o->fd >= 0)
		close(o->fd);
	o->fd = -1;
	outbox_flush(o);
}

/* ---- the end: of a guard, and of what it left ---- */

static void worker_on_end(void *arg, int status)
{
	struct supervisor *c = arg;

	c->worker_child = NULL;
	if (!c->ended)
		c->wait_status = status;
}

/* A dead guard's worker is a child of ours, and nobody else sees how it ends. */
static void watch_worker(struct supervisor *c)
{
	if (c->phase != ORPHANED || !c->worker || c->ended || c->worker_child)
		return;
	c->worker_child = reaper_add(c->reaper, c->worker, worker_on_end, c, NULL);
	reaper_condemn(c->worker_child);
}

static void orphaned(struct supervisor *c)
{
	if (c->phase != RUNNING)
		return;
	c->phase = ORPHANED;
	c->give_up = instant_add(clock_now(), c->kill_allowance);
	if (c->guard_child)
		reaper_condemn(c->guard_child);
	watch_worker(c);
	reaper_begin_killing(c->reaper, &c->killing);
}

/* The guard itself is stopped or stuck: its work is done from here. */
static void shoot_guard(struct supervisor *c)
{
	log_event(LOG_WARN, NULL, "guard_killed", "guard %d did not end its tree in time (stopped?): killing both",
	          c->guard);
	kill(c->guard, SIGKILL);
	orphaned(c);
}

/* Half of the allowance is the guard's, the other half ours. The timer is set for the end of the first half. */
static void look_at_guard(struct supervisor *c)
{
	struct itimerspec at = { 0 };
	struct instant first, now = clock_now();

	if (c->phase != RUNNING || !c->guard)
		return;
	if (!page_first_kill(c->page, &first))
		first = (struct instant){ NSEC_NEVER, NSEC_NEVER };
	first = instant_add(instant_min(first, c->asked), c->kill_allowance / 2);
	if (instant_passed(first, now)) {
		shoot_guard(c);
		return;
	}
	if (first.boot != NSEC_NEVER || first.raw != NSEC_NEVER) {
		nsec boot = now.boot + instant_until(first, now);
		at.it_value = (struct timespec){ .tv_sec = boot / NSEC_PER_SEC, .tv_nsec = boot % NSEC_PER_SEC };
	}
	timerfd_settime(c->overdue.fd, TFD_TIMER_ABSTIME, &at, NULL);
}

static void on_overdue(struct ev_loop *loop, ev_io *w, int events)
{
	uint64_t times;

	(void)loop, (void)events;
	if (read(w->fd, &times, sizeof times) == (ssize_t)sizeof times)
		look_at_guard(w->data);
}

static void drain_notes(struct supervisor *c);
static void drain_wire(struct supervisor *c);

static void finish(struct supervisor *c, bool reaped)
{
	drain_notes(c);
	drain_wire(c);
	c->phase = GONE;
	reaper_end_killing(c->reaper, &c->killing);
	reaper_forget(c->guard_child);
	reaper_forget(c->worker_child);
	ev_io_stop(c->loop, &c->notes);
	ev_io_stop(c->loop, &c->wire);
	ev_io_stop(c->loop, &c->overdue);
	close(c->overdue.fd);
	outbox_close(&c->orders, c->loop);
	outbox_close(&c->messages, c->loop);
	c->cb->gone(c->arg, reaped, c->wait_status);
}

/* An orphan may be of any dead guard, so the dead trees end together; but none before its guard. */
static void killing_on_round(void *arg, bool nobody_left)
{
	struct supervisor *c = arg;
	bool reaped = nobody_left && !c->guard_child;

	if (reaped || instant_passed(c->give_up, clock_now()))
		finish(c, reaped);
}

/* Its status is 0 if it has seen to it that nothing of its tree lives. */
static void guard_on_end(void *arg, int status)
{
	struct supervisor *c = arg;
	pid_t guard = c->guard;

	c->guard = 0;
	c->guard_child = NULL;
	if (status == 0) {
		finish(c, true);
		return;
	}
	if (c->phase == RUNNING)
		log_event(LOG_WARN, NULL, "guard_lost", "guard %d died (wait status 0x%x): killing its tree", guard,
		          (unsigned)status);
	orphaned(c);
}

/* ---- notes from the guard ---- */

static void on_ended(struct supervisor *c, int status)
{
	if (c->ended)
		return;
	c->ended = true;
	c->wait_status = status;
	drain_wire(c); /* what it said before it ended comes first */
	if (c->cb->ended)
		c->cb->ended(c->arg, status);
}

static void on_note(struct supervisor *c, const struct guard_note *n)
{
	switch ((enum guard_note_type)n->type) {
	case GUARD_STARTED:
		c->worker = n->value;
		watch_worker(c);
		break;
	case GUARD_ENDED:
		on_ended(c, n->value);
		break;
	case GUARD_SWEPT:
		if (c->cb->swept)
			c->cb->swept(c->arg, n->slot, n->term, n->value, n->clean);
		break;
	case GUARD_STOPPED:
	case GUARD_CONTINUED:
		if (c->cb->stopped)
			c->cb->stopped(c->arg, n->type == GUARD_STOPPED);
		break;
	}
}

static void drain_notes(struct supervisor *c)
{
	struct guard_note n;
	ssize_t len;

	while ((len = recv(c->orders.fd, &n, sizeof n, MSG_DONTWAIT)) == (ssize_t)sizeof n)
		on_note(c, &n);
	if (len >= 0 || errno != EAGAIN)
		ev_io_stop(c->loop, &c->notes); /* its end: SIGCHLD follows */
}

static void on_notes(struct ev_loop *loop, ev_io *w, int events)
{
	(void)loop, (void)events;
	drain_notes(w->data);
}

/* ---- messages from the worker ---- */

/* One message. false: there is none now, or there will be none any more. */
static bool receive(struct supervisor *c)
{
	char message[WIRE_MAX];
	struct wire w;
	ssize_t len = recv(c->messages.fd, message, sizeof message, MSG_DONTWAIT | MSG_TRUNC);

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (len <= 0) {
		ev_io_stop(c->loop, &c->wire);
		return false;
	}
	/* MSG_TRUNC gives the true length of one that was cut, and that is too large for wire_open. */
	enum wire_type type = wire_open(&w, message, (size_t)len);
	if (!type) {
		log_event(LOG_ERROR, NULL, "worker_malformed",
		          "the worker sent %zd bytes that are no message: killing it", len);
		ev_io_stop(c->loop, &c->wire);
		supervisor_kill(c);
		return false;
	}
	if (c->cb->message)
		c->cb->message(c->arg, type, &w);
	return true;
}

static void drain_wire(struct supervisor *c)
{
	while (ev_is_active(&c->wire) && receive(c))
		;
}

static void on_wire(struct ev_loop *loop, ev_io *w, int events)
{
	struct supervisor *c = w->data;

	(void)loop, (void)events;
	for (int i = 0; i < MESSAGES_A_TURN && ev_is_active(w) && receive(c); i++)
		;
}

/* ---- start ---- */

static bool names(const char *entry, const char *name, size_t len)
{
	return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

static bool is_set(char *const *env, const char *name, size_t len)
{
	for (; env && *env; env++)
		if (names(*env, name, len))
			return true;
	return false;
}

static bool is_unset(char *const *unset, const char *entry)
{
	for (; unset && *unset; unset++)
		if (names(entry, *unset, strlen(*unset)))
			return true;
	return false;
}

static size_t count(char *const *list)
{
	size_t n = 0;

	while (list && list[n])
		n++;
	return n;
}

/* The array is the caller's, the entries are borrowed. */
static char **make_environment(const struct supervisor_spec *spec)
{
	static char no_term[] = TERM_MARK_ENV "=-";
	const size_t term_len = strlen(TERM_MARK_ENV);
	char **env = mem_zero((count(environ) + count(spec->env) + 2) * sizeof *env);
	size_t n = 0;

	for (char **e = environ; *e; e++) {
		bool replaced = is_set(spec->env, *e, strcspn(*e, "=")) ||
		                (!spec->command && names(*e, TERM_MARK_ENV, term_len));
		if (!replaced && !is_unset(spec->unset, *e))
			env[n++] = *e;
	}
	for (char *const *e = spec->env; e && *e; e++)
		env[n++] = *e;
	if (!spec->command && !is_set(spec->env, TERM_MARK_ENV, term_len))
		env[n] = no_term;
	return env;
}

struct handed { /* descriptors for the guard; -1 = none */
	int control, wire, page[PAGE_FILES], tree, elector;
};

/* Every other descriptor of ours is O_CLOEXEC; these lose that flag in the child alone (dup2 onto itself,
 * posix_spawn_file_actions_adddup2(3p)). Signals are blocked until the guard is told otherwise, which is never. */
static int spawn_guard(pid_t *pid, const struct handed *h, char *const *argv, char *const *env)
{
	const int fds[] = { h->control, h->wire, h->page[PAGE_DEADLINES], h->page[PAGE_MARKS], h->tree, h->elector };
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	sigset_t all;

	sigfillset(&all);
	posix_spawn_file_actions_init(&files);
	posix_spawnattr_init(&attr);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
	posix_spawnattr_setsigmask(&attr, &all);
	posix_spawnattr_setsigdefault(&attr, &all);
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
		if (fds[i] >= 0)
			posix_spawn_file_actions_adddup2(&files, fds[i], fds[i]);
	int error = posix_spawn(pid, "/proc/self/exe", &files, &attr, argv, env);
	posix_spawn_file_actions_destroy(&files);
	posix_spawnattr_destroy(&attr);
	return error;
}

static int start_guard(pid_t *pid, const struct supervisor_spec *spec, const struct handed *h, struct err *err)
{
	static char name[] = "lunarch", role[] = "-x", guard[] = "guard";
	static char modes[][12] = { "worker", "command", "foreground" };
	const int fds[] = { h->control, h->wire, h->page[PAGE_DEADLINES], h->page[PAGE_MARKS], h->tree, h->elector };
	char numbers[sizeof fds / sizeof *fds][12];
	char **argv = mem_zero((count(spec->argv) + 11) * sizeof *argv), **env = make_environment(spec);
	size_t n = 0;

	argv[n++] = name;
	argv[n++] = role;
	argv[n++] = guard;
	for (size_t i = 0; i < sizeof fds / sizeof *fds; i++) {
		snprintf(numbers[i], sizeof numbers[i], "%d", fds[i]);
		argv[n++] = numbers[i];
	}
	argv[n++] = modes[spec->command + (spec->command && spec->foreground)];
	for (char *const *a = spec->argv; *a; a++)
		argv[n++] = *a;
	int error = spawn_guard(pid, h, argv, env);
	free(argv);
	free(env);
	errno = error;
	return error ? err_sys(err, "cannot start the guard process (/proc/self/exe)") : 0;
}

static int socket_pair(int fd[2], int buffer, struct err *err)
{
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fd) < 0)
		return err_sys(err, "cannot make a socket pair");
	/* Room for the largest message where the system's default is small; capped by the system, which is no error. */
	for (int i = 0; i < 2; i++)
		setsockopt(fd[i], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
	return 0;
}

static void close_if(int fd)
{
	if (fd >= 0)
		close(fd);
}

static void watch_fd(struct supervisor *c, ev_io *w, void (*cb)(struct ev_loop *, ev_io *, int), int fd)
{
	ev_io_init(w, cb, fd, EV_READ);
	w->data = c;
	if (fd >= 0)
		ev_io_start(c->loop, w);
}

static struct supervisor *supervisor_new(struct reaper *reaper, const struct supervisor_spec *spec,
                                         const struct supervisor_callbacks *cb, void *arg)
{
	struct supervisor *c = mem_zero(sizeof *c);

	c->loop = reaper_loop(reaper);
	c->reaper = reaper;
	c->killing = (struct reaper_killing){ .round = killing_on_round, .arg = c };
	c->cb = cb;
	c->arg = arg;
	c->kill_allowance = spec->kill_allowance;
	c->wait_status = -1;
	c->asked = (struct instant){ NSEC_NEVER, NSEC_NEVER };
	return c;
}

struct supervisor *supervisor_spawn(struct reaper *reaper, const struct supervisor_spec *spec,
                                    const struct supervisor_callbacks *cb, void *arg, struct err *err)
{
	struct supervisor *c = supervisor_new(reaper, spec, cb, arg);
	struct handed h = { .control = -1, .wire = -1, .page = { -1, -1 }, .tree = spec->tree_fd, .elector = -1 };
	int control[2] = { -1, -1 }, wire[2] = { -1, -1 }, timer = -1, failed = -1;

	c->page = page_new(PAGE_SLOTS, h.page, err);
	if (!c->page || socket_pair(control, WIRE_MAX, err) < 0 ||
	    (!spec->command && socket_pair(wire, 2 * WIRE_MAX, err) < 0))
		goto out;
	if (spec->first.term)
		page_begin(c->page, 0, spec->first.term, spec->first.token, spec->first.end, spec->first.kill);
	h.control = control[1];
	h.wire = wire[1];
	h.elector = pidfd_open(getpid(), 0);
	timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	if (h.elector < 0 || timer < 0)
		err_sys(err, "cannot make the descriptors of a worker (pidfd, timerfd)");
	else
		failed = start_guard(&c->guard, spec, &h, err);
out:
	close_if(h.page[PAGE_DEADLINES]);
	close_if(h.page[PAGE_MARKS]);
	close_if(control[1]);
	close_if(wire[1]);
	close_if(h.elector);
	if (failed) {
		close_if(control[0]);
		close_if(wire[0]);
		close_if(timer);
		if (c->page)
			page_unmap(c->page);
		free(c);
		return NULL;
	}
	outbox_init(&c->orders, control[0]);
	outbox_init(&c->messages, wire[0]);
	watch_fd(c, &c->notes, on_notes, control[0]);
	watch_fd(c, &c->wire, on_wire, wire[0]);
	watch_fd(c, &c->overdue, on_overdue, timer);
	c->guard_child = reaper_add(reaper, c->guard, guard_on_end, c, NULL);
	look_at_guard(c);
	return c;
}

/* ---- what the elector asks for ---- */

struct page *supervisor_page(struct supervisor *c)
{
	return c->page;
}

int supervisor_worker_pid(const struct supervisor *c)
{
	return c->worker;
}

static bool being_killed(const struct supervisor *c)
{
	return c->phase != RUNNING || c->asked.boot != NSEC_NEVER;
}

void supervisor_send(struct supervisor *c, const struct buf *message)
{
	if (message->len > WIRE_MAX) {
		log_event(LOG_ERROR, NULL, "bug", "a message of %zu bytes is larger than WIRE_MAX", message->len);
		abort();
	}
	if (outbox_put(&c->messages, c->loop, message->data, message->len) == 0 || being_killed(c))
		return;
	log_event(LOG_ERROR, NULL, "worker_deaf", "the worker has left %d messages unread: killing it", UNREAD_MOST);
	supervisor_kill(c);
}

/* A guard that reads no orders is stopped, and then the deadline is ours: look_at_guard. */
static void order(struct supervisor *c, struct guard_order o)
{
	if (c->phase == RUNNING && outbox_put(&c->orders, c->loop, &o, sizeof o) < 0)
		supervisor_kill(c);
}

void supervisor_allow(struct supervisor *c, nsec kill_allowance)
{
	c->kill_allowance = kill_allowance;
	look_at_guard(c);
}

void supervisor_poke(struct supervisor *c)
{
	if (!c->orders.first)
		c->poke_waits = false;
	if (!c->poke_waits)
		order(c, (struct guard_order){ .type = GUARD_POKE });
	c->poke_waits = c->orders.first != NULL;
	look_at_guard(c);
}

void supervisor_interrupt(struct supervisor *c)
{
	order(c, (struct guard_order){ .type = GUARD_INTERRUPT });
}

void supervisor_signal(struct supervisor *c, int signal)
{
	order(c, (struct guard_order){ .type = GUARD_SIGNAL, .signal = signal });
}

void supervisor_kill(struct supervisor *c)
{
	struct guard_order o = { .type = GUARD_KILL };

	if (being_killed(c))
		return;
	c->asked = clock_now();
	outbox_put(&c->orders, c->loop, &o, sizeof o);
	look_at_guard(c);
}

void supervisor_sweep(struct supervisor *c, uint32_t slot, uint64_t term)
{
	order(c, (struct guard_order){ .type = GUARD_SWEEP, .slot = slot, .term = term });
}

void supervisor_free(struct supervisor *c)
{
	if (!c)
		return;
	if (c->phase != GONE)
		abort(); /* its tree would live on without anybody to watch it */
	page_unmap(c->page);
	free(c);
}
