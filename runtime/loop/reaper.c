#include "loop/reaper.h"

#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "base/proc_tree.h"

#include <errno.h>
#include <ev.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define CENSUS_S 1.      /* how often to look for strangers */
#define ROUND_S 0.001    /* how often to kill and reap while a killing is begun */
#define LATE_ROUND_S 0.1 /* the same while none is begun, after orphans were killed */

struct reaper_child {
	struct reaper_child *next;
	struct reaper *reaper;
	pid_t pid;
	bool condemned;
	reaper_ended_fn *ended; /* NULL after reaper_forget */
	void *arg;
	ev_io exited; /* watches its pidfd; fd is -1 after reaper_adopt: SIGCHLD tells */
};

/* A child of ours that is of no guard's tree. The pid alone does not name it, since the kernel uses the pids of reaped
 * processes again. */
struct stranger {
	pid_t pid;
	uint64_t start;
};

struct strangers {
	struct stranger *all;
	size_t n;
};

struct reaper {
	struct ev_loop *loop;
	struct reaper_child *children;

	/* Used after reaper_adopt. */
	struct tree *tree;  /* NULL before reaper_adopt */
	bool has_strangers; /* there may be strangers: this is process 1, or it had children before */
	struct strangers strangers;
	struct reaper_killing *killings;
	ev_signal child;
	ev_timer round, census;
};

/* ---- children ---- */

static void child_unlink(struct reaper_child *c)
{
	struct reaper_child **at = &c->reaper->children;

	while (*at != c)
		at = &(*at)->next;
	*at = c->next;
}

static void child_free(struct reaper_child *c)
{
	ev_io_stop(c->reaper->loop, &c->exited);
	if (c->exited.fd >= 0)
		close(c->exited.fd);
	free(c);
}

static void child_end(struct reaper_child *c, int status)
{
	reaper_ended_fn *ended = c->ended;
	void *arg = c->arg;

	child_unlink(c);
	child_free(c);
	if (ended)
		ended(arg, status);
}

static void child_on_exited(struct ev_loop *, ev_io *w, int)
{
	struct reaper_child *c = w->data;
	int status;

	pid_t pid = waitpid(c->pid, &status, WNOHANG | __WALL);
	if (pid != 0)
		child_end(c, pid == c->pid ? status : -1);
}

static struct reaper_child *child_of(const struct reaper *r, pid_t pid)
{
	for (struct reaper_child *c = r->children; c; c = c->next)
		if (c->pid == pid)
			return c;
	return NULL;
}

static bool is_spared(const struct reaper *r, pid_t pid)
{
	const struct reaper_child *c = child_of(r, pid);

	return c && !c->condemned;
}

struct reaper_child *reaper_add(struct reaper *r, pid_t pid, reaper_ended_fn *ended, void *arg, struct err *err)
{
	int fd = r->tree ? -1 : (int)syscall(SYS_pidfd_open, pid, 0);

	if (!r->tree && fd < 0) {
		err_sys(err, "cannot wait for process %d (pidfd_open)", pid);
		return NULL;
	}
	struct reaper_child *c = mem_zero(sizeof *c);
	*c = (struct reaper_child){ .next = r->children, .reaper = r, .pid = pid, .ended = ended, .arg = arg };
	ev_io_init(&c->exited, child_on_exited, fd, EV_READ);
	c->exited.data = c;
	if (fd >= 0)
		ev_io_start(r->loop, &c->exited);
	r->children = c;
	return c;
}

void reaper_condemn(struct reaper_child *c)
{
	c->condemned = true;
}

void reaper_forget(struct reaper_child *c)
{
	if (c)
		c->ended = NULL;
}

/* ---- strangers ----
 *
 * While a guard lives, the orphans of its tree become children of that guard, not of this process. In one step the
 * kernel gives a dead guard's children to this process and shows the guard as dead (exit_notify, kernel/exit.c). So: if
 * a child of this process was not added, and all guards live after it was seen, then it is of no guard's tree. It is a
 * stranger, and so are its descendants. A child that is first seen after a guard's death counts as of its tree,
 * whatever its environment says. The reaper does not know which children are guards: it looks for strangers only while
 * all added children live. */

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

struct census {
	const struct reaper *reaper;
	struct strangers now;
};

static bool census_visit(void *arg, pid_t pid)
{
	struct census *s = arg;
	struct proc_stat st;

	if (!is_spared(s->reaper, pid) && proc_stat((uint64_t)pid, &st) == 0 && proc_runs(&st))
		add_stranger(&s->now, pid, st.start);
	return false;
}

static bool children_live(const struct reaper *r)
{
	for (const struct reaper_child *c = r->children; c; c = c->next)
		if (c->condemned || tree_dead(c->pid))
			return false;
	return !r->killings;
}

/* A walk may miss processes. So a stranger stays one for as long as it lives. */
static void keep_known(const struct reaper *r, struct strangers *now)
{
	struct proc_stat st;

	for (size_t i = 0; i < r->strangers.n; i++) {
		const struct stranger *s = &r->strangers.all[i];
		if (proc_stat((uint64_t)s->pid, &st) == 0 && st.start == s->start)
			add_stranger(now, s->pid, s->start);
	}
}

static void say_strangers(const struct reaper *r, const struct strangers *now)
{
	for (size_t i = 0; i < now->n; i++)
		if (!in_list(&r->strangers, now->all[i].pid, now->all[i].start))
			log_event(
				LOG_DEBUG, NULL, "stranger",
				"process %d has become a child of this process and belongs to no term: it is left alone",
				now->all[i].pid);
}

static void take_census(struct reaper *r)
{
	struct census s = { .reaper = r };

	tree_walk(r->tree, getpid(), census_visit, &s);
	if (!children_live(r)) {
		free(s.now.all);
		return;
	}
	keep_known(r, &s.now);
	say_strangers(r, &s.now);
	free(r->strangers.all);
	r->strangers = s.now;
}

static void census_on_timer(struct ev_loop *, ev_timer *w, int)
{
	take_census(w->data);
}

static bool is_stranger(const struct reaper *r, pid_t pid)
{
	struct proc_stat st;

	return r->strangers.n && proc_stat((uint64_t)pid, &st) == 0 && in_list(&r->strangers, pid, st.start);
}

/* ---- orphans ---- */

struct round {
	const struct reaper *reaper;
	int killed;
};

static bool round_visit(void *arg, pid_t pid)
{
	struct round *k = arg;

	if (is_spared(k->reaper, pid) || is_stranger(k->reaper, pid))
		return false;
	kill(pid, SIGKILL);
	k->killed++;
	return true;
}

/* Reaps all children that have ended. false: there was none. */
static bool reap(struct reaper *r)
{
	bool any = false;
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0) {
		struct reaper_child *c = child_of(r, pid);
		any = true;
		if (c)
			child_end(c, status);
	}
	return any;
}

/* Reaps, then kills orphans. Called after a child's death, and repeatedly while orphans die.
 * Orphans are killed after any child's death: each is of a dead guard's tree. But if there may be strangers, orphans
 * are killed only while a killing is begun: only then is a new child of this process surely not a stranger. No orphan
 * is left if these three hold: all children that had ended were reaped, the walk after that was complete (tree_walk
 * returned true), and it found no process to kill. proc_tree.h says why. */
static void settle(struct reaper *r)
{
	struct round k = { .reaper = r };
	bool whole = true;

	bool ended = reap(r) || ev_is_active(&r->round);
	if (r->killings || (ended && !r->has_strangers))
		whole = tree_walk(r->tree, getpid(), round_visit, &k);
	for (struct reaper_killing *w = r->killings, *next; w; w = next) {
		next = w->next;
		w->round(w->arg, whole && !k.killed);
	}
	ev_timer_stop(r->loop, &r->round);
	r->round.repeat = r->killings ? ROUND_S : LATE_ROUND_S;
	if (r->killings || k.killed)
		ev_timer_again(r->loop, &r->round);
}

static void reaper_on_child(struct ev_loop *, ev_signal *w, int)
{
	settle(w->data);
}

static void round_on_timer(struct ev_loop *, ev_timer *w, int)
{
	settle(w->data);
}

void reaper_begin_killing(struct reaper *r, struct reaper_killing *k)
{
	k->next = r->killings;
	r->killings = k;
	if (ev_is_active(&r->round) && r->round.repeat <= ROUND_S)
		return;
	r->round.repeat = ROUND_S;
	ev_timer_again(r->loop, &r->round);
}

void reaper_end_killing(struct reaper *r, struct reaper_killing *k)
{
	for (struct reaper_killing **at = &r->killings; *at; at = &(*at)->next)
		if (*at == k) {
			*at = k->next;
			return;
		}
}

/* ---- the reaper ---- */

struct reaper *reaper_new(struct ev_loop *loop)
{
	struct reaper *r = mem_zero(sizeof *r);

	r->loop = loop;
	return r;
}

struct ev_loop *reaper_loop(struct reaper *r)
{
	return r->loop;
}

/* The processes of a term are found through /proc. If /proc belongs to another PID namespace, it shows other processes
 * under the same numbers. */
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

/* The kernel knows that there is none, without a look at /proc, which takes longer. */
static bool has_children(void)
{
	siginfo_t info;

	return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 || errno != ECHILD;
}

int reaper_adopt(struct reaper *r, struct err *err)
{
	sigset_t chld;

	if (check_proc(err) < 0)
		return -1;
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return err_sys(err, "cannot become the reaper of orphaned processes (prctl PR_SET_CHILD_SUBREAPER)");
	r->tree = mem_resize(NULL, sizeof *r->tree); /* without zeros, so that what is never used takes no memory */
	if (has_children())
		take_census(r);
	r->has_strangers = r->strangers.n > 0 || getpid() == 1;
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	pthread_sigmask(SIG_UNBLOCK, &chld, NULL);
	ev_signal_init(&r->child, reaper_on_child, SIGCHLD);
	ev_timer_init(&r->round, round_on_timer, 0., ROUND_S);
	ev_timer_init(&r->census, census_on_timer, CENSUS_S, CENSUS_S);
	r->child.data = r->round.data = r->census.data = r;
	ev_signal_start(r->loop, &r->child);
	if (r->has_strangers)
		ev_timer_start(r->loop, &r->census);
	return 0;
}

void reaper_let_go(struct reaper *r)
{
	if (r->tree)
		ev_signal_stop(r->loop, &r->child);
}

void reaper_free(struct reaper *r)
{
	if (!r)
		return;
	while (r->children) {
		struct reaper_child *c = r->children;
		child_unlink(c);
		child_free(c);
	}
	if (r->tree) {
		ev_signal_stop(r->loop, &r->child);
		ev_timer_stop(r->loop, &r->round);
		ev_timer_stop(r->loop, &r->census);
	}
	free(r->strangers.all);
	free(r->tree);
	free(r);
}
