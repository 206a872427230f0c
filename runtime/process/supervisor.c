#include "process/supervisor.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "process/guard.h"
#include "process/proc_tree.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define UNREAD_MOST 4096
#define MESSAGES_A_TURN 64 /* a chatty worker must not keep the loop from renewing */
#define CENSUS_S 1.        /* between two looks for strangers */

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
	struct supervisor *next;
	struct ev_loop *loop;
	const struct supervisor_callbacks *cb;
	void *arg;
	nsec kill_allowance;
	struct page *page;

	enum phase phase;
	pid_t guard;     /* 0 once reaped */
	pid_t worker;    /* 0 until known; kept after its end */
	bool guard_done; /* it has seen to it that nothing lives */
	bool ended;
	int wait_status;        /* -1: nobody saw it */
	struct instant asked;   /* supervisor_kill */
	struct instant give_up; /* ORPHANED: say that something lives */

	struct outbox orders, messages;
	bool poke_waits; /* in orders, unread: one is enough */
	ev_io notes, wire, overdue;
};

/* A child of ours that is nobody of a guard's tree. Its number alone would not do: others may reap it and the number be
 * used again. */
struct stranger {
	pid_t pid;
	uint64_t start;
};

struct strangers {
	struct stranger *all;
	size_t n;
};

/* SIGCHLD, the children and the subreaper's duty belong to the process, and so does their one keeper. */
static struct {
	struct ev_loop *loop;
	struct supervisor *supervisors; /* RUNNING and ORPHANED */
	bool has_strangers;             /* there may be some: we are process 1, or had children before */
	struct strangers strangers;
	ev_signal child;
	ev_timer again, census;
	struct tree tree;
	char message[WIRE_MAX];
} keeper;

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

static void hurry(void)
{
	if (!ev_is_active(&keeper.again))
		ev_timer_again(keeper.loop, &keeper.again);
}

static void orphaned(struct supervisor *c)
{
	if (c->phase != RUNNING)
		return;
	c->phase = ORPHANED;
	c->give_up = instant_add(clock_now(), c->kill_allowance);
	hurry();
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

static bool guards_others(pid_t pid)
{
	for (const struct supervisor *c = keeper.supervisors; c; c = c->next)
		if (c->guard == pid && c->phase == RUNNING)
			return true;
	return false;
}

/* ---- strangers ----
 *
 * As long as a guard lives, whatever its tree orphans becomes a child of that guard. So a child of ours that is no
 * guard is none of a term's, if all the guards live after it was seen: a guard's death hands over its children and
 * shows the guard as dead in one step (exit_notify, kernel/exit.c). Whoever was seen so is a stranger, and so is
 * whoever descends from one. What appears only when a guard has died is of its tree, whatever its environment says. */

static bool in_list(const struct strangers *list, pid_t pid, uint64_t start)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->all[i].pid == pid && list->all[i].start == start)
			return true;
	return false;
}

static void add_stranger(struct strangers *list, pid_t pid, uint64_t start)
{
	if (in_list(list, pid, start))
		return;
	list->all = mem_resize(list->all, (list->n + 1) * sizeof *list->all);
	list->all[list->n++] = (struct stranger){ pid, start };
}

static bool see_stranger(void *arg, pid_t pid)
{
	struct proc_stat st;

	if (!guards_others(pid) && proc_stat((uint64_t)pid, &st) == 0 && proc_runs(&st))
		add_stranger(arg, pid, st.start);
	return false;
}

static bool guards_live(void)
{
	for (const struct supervisor *c = keeper.supervisors; c; c = c->next)
		if (c->phase != RUNNING || !c->guard || tree_dead(c->guard))
			return false;
	return true;
}

/* A walk may miss some: who is known stays known for as long as he lives. */
static void keep_known(struct strangers *now)
{
	struct proc_stat st;

	for (size_t i = 0; i < keeper.strangers.n; i++) {
		const struct stranger *s = &keeper.strangers.all[i];
		if (proc_stat((uint64_t)s->pid, &st) == 0 && st.start == s->start)
			add_stranger(now, s->pid, s->start);
	}
}

static void say_strangers(const struct strangers *now)
{
	for (size_t i = 0; i < now->n; i++)
		if (!in_list(&keeper.strangers, now->all[i].pid, now->all[i].start))
			log_event(LOG_DEBUG, NULL, "stranger",
			          "process %d has become a child of this one and is no term's: it is left alone",
			          now->all[i].pid);
}

static void take_census(void)
{
	struct strangers now = { 0 };

	tree_walk(&keeper.tree, getpid(), see_stranger, &now);
	if (!guards_live()) {
		free(now.all);
		return;
	}
	keep_known(&now);
	say_strangers(&now);
	free(keeper.strangers.all);
	keeper.strangers = now;
}

static void on_census(struct ev_loop *loop, ev_timer *w, int events)
{
	(void)loop, (void)w, (void)events;
	take_census();
}

static bool is_stranger(pid_t pid)
{
	struct proc_stat st;

	return keeper.strangers.n && proc_stat((uint64_t)pid, &st) == 0 && in_list(&keeper.strangers, pid, st.start);
}

static bool kill_orphan(void *arg, pid_t pid)
{
	if (guards_others(pid) || is_stranger(pid))
		return false;
	kill(pid, SIGKILL);
	++*(int *)arg;
	return true;
}

static void drain_notes(struct supervisor *c);
static void drain_wire(struct supervisor *c);

static void unlink_crew(struct supervisor *c)
{
	for (struct supervisor **at = &keeper.supervisors; *at; at = &(*at)->next)
		if (*at == c) {
			*at = c->next;
			return;
		}
}

static void finish(struct supervisor *c, bool reaped)
{
	drain_notes(c);
	drain_wire(c);
	unlink_crew(c);
	c->phase = GONE;
	ev_io_stop(c->loop, &c->notes);
	ev_io_stop(c->loop, &c->wire);
	ev_io_stop(c->loop, &c->overdue);
	close(c->overdue.fd);
	outbox_close(&c->orders, c->loop);
	outbox_close(&c->messages, c->loop);
	c->cb->gone(c->arg, reaped, c->wait_status);
}

/* The next crew that is over with; callbacks may change the list, so one asks anew each time. */
static struct supervisor *next_finished(bool nobody_left, bool *reaped)
{
	struct instant now = clock_now();

	for (struct supervisor *c = keeper.supervisors; c; c = c->next) {
		*reaped = c->guard_done || (c->phase == ORPHANED && c->guard == 0 && nobody_left);
		if (*reaped || (c->phase == ORPHANED && instant_passed(c->give_up, now)))
			return c;
	}
	return NULL;
}

static bool any_orphaned(void)
{
	for (const struct supervisor *c = keeper.supervisors; c; c = c->next)
		if (c->phase == ORPHANED)
			return true;
	return false;
}

static void on_reaped(pid_t pid, int status)
{
	for (struct supervisor *c = keeper.supervisors; c; c = c->next) {
		if (c->guard == pid) {
			c->guard = 0;
			c->guard_done = status == 0;
			if (!c->guard_done) {
				if (c->phase == RUNNING)
					log_event(LOG_WARN, NULL, "guard_lost",
					          "guard %d died (wait status 0x%x): killing its tree", pid, status);
				orphaned(c);
			}
		} else if (c->worker == pid && c->phase == ORPHANED && !c->ended) {
			c->wait_status = status;
		}
	}
}

/* true: some child was not a guard. */
static bool reap(void)
{
	bool stray = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
		stray = stray || !guards_others(pid);
		on_reaped(pid, status);
	}
	return stray;
}

/* After a child's death, and every millisecond while a tree without a guard dies. An orphan may be of any dead guard,
 * also of one that was given up; but where there may be strangers only while a tree dies, since then alone they have
 * been told apart. The walk before which nothing was left to reap proves that nobody is left: see proc_tree.h. */
static void settle(void)
{
	struct supervisor *c;
	bool reaped, whole = true;
	int killed = 0;

	bool stray = reap() || ev_is_active(&keeper.again);
	if (any_orphaned() || (stray && !keeper.has_strangers))
		whole = tree_walk(&keeper.tree, getpid(), kill_orphan, &killed);
	while ((c = next_finished(whole && !killed, &reaped)))
		finish(c, reaped);
	ev_timer_stop(keeper.loop, &keeper.again);
	/* Unkillable for the moment, and given up: less often. */
	keeper.again.repeat = any_orphaned() ? 0.001 : 0.1;
	if (any_orphaned() || killed)
		hurry();
}

static void on_child(struct ev_loop *loop, ev_signal *w, int events)
{
	(void)loop, (void)w, (void)events;
	settle();
}

static void on_again(struct ev_loop *loop, ev_timer *w, int events)
{
	(void)loop, (void)w, (void)events;
	settle();
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
	struct wire w;
	ssize_t len = recv(c->messages.fd, keeper.message, sizeof keeper.message, MSG_DONTWAIT | MSG_TRUNC);

	if (len < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (len <= 0) {
		ev_io_stop(c->loop, &c->wire);
		return false;
	}
	/* MSG_TRUNC gives the true length of one that was cut, and that is too large for wire_open. */
	enum wire_type type = wire_open(&w, keeper.message, (size_t)len);
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

/* What a term starts is found through /proc. That of another PID namespace shows other processes under the same
 * numbers. */
static int check_proc(struct err *err)
{
	char self[32];
	ssize_t n = readlink("/proc/self", self, sizeof self - 1);

	self[n > 0 ? n : 0] = '\0';
	if (n > 0 && strtol(self, NULL, 10) == getpid())
		return 0;
	return err_set(
		err, ERR_INVALID,
		"/proc does not show this process (expected /proc/self to be %d, it is %s): it is not mounted, or "
		"belongs to another PID namespace, and what a term starts could not be found in it and killed. Mount it in this "
		"namespace: mount -t proc proc /proc (with unshare(1): --mount-proc)",
		getpid(), n > 0 ? self : "not there");
}

int supervisor_init(struct ev_loop *loop, struct err *err)
{
	sigset_t chld;

	if (check_proc(err) < 0)
		return -1;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return err_sys(err, "cannot become the reaper of orphaned processes (prctl PR_SET_CHILD_SUBREAPER)");
	keeper.loop = loop;
	take_census();
	keeper.has_strangers = keeper.strangers.n > 0 || getpid() == 1;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	pthread_sigmask(SIG_UNBLOCK, &chld, NULL);
	ev_signal_init(&keeper.child, on_child, SIGCHLD);
	ev_signal_start(loop, &keeper.child);
	ev_timer_init(&keeper.again, on_again, 0., 0.001);
	ev_timer_init(&keeper.census, on_census, CENSUS_S, CENSUS_S);
	if (keeper.has_strangers)
		ev_timer_start(loop, &keeper.census);
	return 0;
}

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

static struct supervisor *new_crew(struct ev_loop *loop, const struct supervisor_spec *spec,
                                   const struct supervisor_callbacks *cb, void *arg)
{
	struct supervisor *c = mem_zero(sizeof *c);

	c->loop = loop;
	c->cb = cb;
	c->arg = arg;
	c->kill_allowance = spec->kill_allowance;
	c->wait_status = -1;
	c->asked = (struct instant){ NSEC_NEVER, NSEC_NEVER };
	return c;
}

struct supervisor *supervisor_spawn(struct ev_loop *loop, const struct supervisor_spec *spec,
                                    const struct supervisor_callbacks *cb, void *arg, struct err *err)
{
	struct supervisor *c = new_crew(loop, spec, cb, arg);
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
	c->next = keeper.supervisors;
	keeper.supervisors = c;
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
