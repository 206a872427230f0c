#include "process/guard.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/proc.h"
#include "base/proc_tree.h"
#include "election/death_proof.h"
#include "process/deadline_page.h"
#include "process/guard_wire.h"
#include "process/privileges.h"
#include "process/sweeps.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* A sweep is over after this many walks in a row that found no process with its marks. */
#define QUIET_WALKS 2
/* The same if some process cannot be attributed: one in the middle of an execve shows no environment. */
#define PATIENT_WALKS 20
/* This many walks wait for processes that were killed and are not dead: on a busy machine that takes long. A process
 * that hangs in the kernel leaves a doubt. */
#define DYING_WALKS 400
/* The pause between two walks; and the shorter one where the first found nobody, so that nobody has to be given time to die or to show
 * himself. */
#define WALK_PAUSE NSEC_PER_MS
#define QUIET_PAUSE (NSEC_PER_MS / 10)
/* The pause until a note that could not be sent is sent again. At the end, when nothing lives any more, so often at most: a guard
 * does not outlive its work for an elector that does not read. */
#define UNTOLD_PAUSE (5 * NSEC_PER_MS)
#define UNTOLD_TRIES 20

/* Notes that must arrive, in the order in which they are sent. One place for each: the note that a command was
 * stopped is out of date once it has gone on. */
enum note_place { NOTE_STARTED, NOTE_STATE, NOTE_FAILED, NOTE_ENDED, NOTES };

struct guard {
	/* What it was started with. */
	int control, wire, page_fd[PAGE_FILES], kept_fd, tree_fd, elector;
	bool command, foreground;
	bool no_privileges; /* the worker or the command drops them */
	bool held;          /* the command waits for GUARD_BEGIN */
	int argc;
	char **argv;
	guard_worker *worker_main; /* not for a command */
	const char *tree_mark;     /* LUNARCH_TREE of this tree, NULL if none */

	int signals, timer, tty;
	nsec timer_at;       /* CLOCK_BOOTTIME; NSEC_NEVER: it is not set */
	int children;        /* tree_own_children */
	pid_t elector_group; /* whom the terminal belonged to */
	struct page *page;

	int go;                          /* a byte written here lets the worker go on; -1: there is none that waits */
	pid_t worker;                    /* 0 once reaped */
	bool over;                       /* kill everything and leave */
	struct guard_note untold[NOTES]; /* what could not be sent yet; type 0: nothing */

	/* Sweeps go on together: one walk serves them all. */
	struct sweeps sweeps;
	int quiet;
	bool unclear, matched;   /* in the walk under way */
	bool dying;              /* the walk under way met what was killed before, and is not dead */
	int dying_walks;         /* how many walks in a row met such a process */
	pid_t killed[TREE_MOST]; /* whom it killed since no sweep was pending: a slow death counts once */
	int killed_n;
	struct tree tree;

	struct guard_begin order; /* the one that is being read; the variables of GUARD_BEGIN stay in it */
};

/* ---- notes ---- */

/* false: the note is to be sent again. A socket that the elector has closed takes no notes any more. */
static bool guard_send(const struct guard *g, const struct guard_note *note)
{
	return send(g->control, note, sizeof *note, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0 ||
	       (errno != EAGAIN && errno != EINTR && !err_kernel_lacks(errno));
}

/* false: some notes are still unsent. */
static bool guard_tell_rest(struct guard *g)
{
	for (int i = 0; i < NOTES; i++) {
		if (g->untold[i].type && !guard_send(g, &g->untold[i]))
			return false;
		g->untold[i].type = 0;
	}
	return true;
}

static bool guard_has_untold(const struct guard *g)
{
	for (int i = 0; i < NOTES; i++)
		if (g->untold[i].type)
			return true;
	return false;
}

/* Sends the note now, or when there is memory and room for it: the loop and the end try again. */
static void guard_tell(struct guard *g, enum note_place place, struct guard_note note)
{
	g->untold[place] = note;
	guard_tell_rest(g);
}

/* Tells the elector why the guard ends its tree, where the elector could not know that. */
static void guard_fail(struct guard *g, enum guard_failure what, int error)
{
	g->over = true;
	guard_tell(g, NOTE_FAILED, (struct guard_note){ .type = GUARD_FAILED, .value = error, .slot = what });
}

static void guard_ended(struct guard *g, int wait_status)
{
	g->over = true;
	guard_tell(g, NOTE_ENDED, (struct guard_note){ .type = GUARD_ENDED, .value = wait_status });
}

/* ---- start ---- */

static int compare_ints(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Whatever else was inherited is not the guard's, and must not be held open by it. */
static void guard_close_others(const struct guard *g)
{
	int keep[] = { STDIN_FILENO,
		       STDOUT_FILENO,
		       STDERR_FILENO,
		       g->control,
		       g->wire,
		       g->page_fd[PAGE_DEADLINES],
		       g->page_fd[PAGE_MARKS],
		       g->kept_fd,
		       g->tree_fd,
		       g->elector,
		       g->signals,
		       g->timer,
		       g->tty,
		       g->children };
	const size_t n = sizeof keep / sizeof *keep;

	qsort(keep, n, sizeof *keep, compare_ints);
	for (size_t i = 0; i < n; i++) {
		unsigned next = i + 1 < n ? (unsigned)keep[i + 1] : ~0U;
		if (keep[i] >= 0 && (unsigned)keep[i] + 1 < next)
			close_range((unsigned)keep[i] + 1, next == ~0U ? next : next - 1, 0);
	}
}

static void close_on_exec(int fd)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, FD_CLOEXEC);
}

static bool guard_read_arguments(struct guard *g, int argc, char **argv)
{
	if (argc < 8)
		return false;
	g->control = atoi(argv[0]);
	g->wire = atoi(argv[1]);
	g->page_fd[PAGE_DEADLINES] = atoi(argv[2]);
	g->page_fd[PAGE_MARKS] = atoi(argv[3]);
	g->kept_fd = atoi(argv[4]);
	g->tree_fd = atoi(argv[5]);
	g->elector = atoi(argv[6]);
	g->held = strncmp(argv[7], "held", 4) == 0;
	g->foreground = strstr(argv[7], "foreground") != NULL;
	g->no_privileges = strstr(argv[7], GUARD_NO_PRIVILEGES) != NULL;
	g->command = g->held || g->foreground || strncmp(argv[7], "command", 7) == 0;
	g->argv = argv + 8;
	if (g->command)
		return argc > 8;
	/* The worker's arguments are made in place, over our own: worker WIREFD PAGEFD MARKSFD KEPTFD ... */
	static char role[] = "worker";
	g->argv = argv + 3;
	g->argc = argc - 3;
	memmove(g->argv + 1, argv + 1, 4 * sizeof *argv);
	g->argv[0] = role;
	return true;
}

static bool guard_open_all(struct guard *g)
{
	sigset_t chld;

	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	g->signals = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	/* BOOTTIME goes on in suspend: what was due then is done at once after it. */
	g->timer = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
	g->timer_at = NSEC_NEVER;
	g->children = tree_own_children();
	g->page = page_map(g->page_fd, NULL);
	return g->signals >= 0 && g->timer >= 0 && g->page && g->page->slots <= PAGE_SLOTS;
}

/* A session of its own, so that neither ^C nor the end of the terminal reaches it; but a command that is to have the
 * terminal must stay in the terminal's session, and the guard with it. */
static void guard_leave_session(struct guard *g)
{
	g->tty = -1;
	if (!g->foreground) {
		setsid();
		return;
	}
	g->elector_group = getpgrp();
	g->tty = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
	if (g->tty >= 0 && tcgetpgrp(g->tty) != g->elector_group) {
		close(g->tty); /* a background job has no claim to it */
		g->tty = -1;
	}
	setpgid(0, 0);
}

/* SIGTTOU is blocked, so this does not stop us (tcsetpgrp(3)). */
static void guard_give_terminal(const struct guard *g, pid_t group)
{
	if (g->tty >= 0)
		tcsetpgrp(g->tty, group);
}

/* ---- a command, between vfork and exec: the guard's memory, so nothing is changed but the kernel's view of it ---- */

static void say_not_run(const char *name, int error)
{
	char text[512];
	int n = snprintf(text, sizeof text, "lunarch: cannot run '%s': %s\n", name, strerrordesc_np(error));

	if (n >= (int)sizeof text)
		n = (int)sizeof text - 1;
	if (write(STDERR_FILENO, text, (size_t)n) < 0)
		return; /* there is nobody else to tell */
}

/* The group is its own, so that `kill 0` in a script does not reach the guard. */
static void guard_leave_group(pid_t guard)
{
	setpgid(0, 0);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != guard) /* it died before that */
		_exit(1);
}

static void unblock_signals(void)
{
	sigset_t none;

	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The command must not run with privileges that it was to lose. */
static void guard_drop_privileges(const struct guard *g)
{
	static const char text[] = "lunarch: cannot give the privileges up (--no-new-privs), so nothing is started\n";

	if (!g->no_privileges || privileges_drop() == 0)
		return;
	if (write(STDERR_FILENO, text, sizeof text - 1) < 0)
		_exit(126);
	_exit(126);
}

__attribute__((noreturn)) static void guard_become_command(const struct guard *g, pid_t guard)
{
	guard_leave_group(guard);
	guard_give_terminal(g, getpid());
	unblock_signals();
	guard_drop_privileges(g);
	execvp(g->argv[0], g->argv);
	int error = errno;
	say_not_run(g->argv[0], error);
	_exit(error == ENOENT ? 127 : 126);
}

static void guard_started(struct guard *g, pid_t pid)
{
	if (pid < 0) {
		say_not_run(g->argv[0], errno);
		guard_ended(g, 126 << 8);
		return;
	}
	g->worker = pid;
	guard_tell(g, NOTE_STARTED, (struct guard_note){ .type = GUARD_STARTED, .value = pid });
}

/* vfork, since no signal has a handler (supervisor.c saw to that) and a copy of the page tables is most of what fork
 * costs. */
static void guard_start_command(struct guard *g)
{
	pid_t guard = getpid();
	pid_t pid = vfork();

	if (pid == 0)
		guard_become_command(g, guard);
	guard_started(g, pid);
}

/* ---- the worker: a fork, which needs no second start of this program. /proc shows the guard's environment for it,
 * with the marks of the tree ---- */

/* What is the guard's must not be the script's. The wire, the page, the sources and the tree's descriptor are the
 * worker's. */
__attribute__((noreturn)) static void guard_become_worker(struct guard *g, pid_t guard, int go)
{
	const int mine[] = { g->control, g->elector, g->signals, g->timer, g->children, g->go };

	guard_leave_group(guard);
	for (size_t i = 0; i < sizeof mine / sizeof *mine; i++)
		if (mine[i] >= 0)
			close(mine[i]);
	page_unmap(g->page);
	guard_drop_privileges(g);
	exit(g->worker_main(g->argc - 1, g->argv + 1, go));
}

void guard_await_go(int go)
{
	char byte;
	ssize_t n;

	do
		n = read(go, &byte, 1);
	while (n < 0 && errno == EINTR);
	if (n != 1)
		_exit(1);
	close(go);
}

static void guard_fork_worker(struct guard *g)
{
	pid_t guard = getpid(), pid = -1;
	int go[2];

	if (pipe2(go, O_CLOEXEC) == 0) {
		g->go = go[1];
		pid = fork();
		if (pid == 0)
			guard_become_worker(g, guard, go[0]);
		close(go[0]);
	}
	guard_started(g, pid);
}

/* The worker has them now. Held by us too, a pipe's reader would wait for us, and the elector would not see the wire
 * end. */
static void guard_let_go(struct guard *g)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0) {
		for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
			dup2(null, fd);
		close(null);
	}
	if (g->wire >= 0)
		close(g->wire);
	for (int i = 0; i < PAGE_FILES; i++)
		close(g->page_fd[i]);
	if (g->kept_fd >= 0)
		close(g->kept_fd);
}

static void guard_run_command(struct guard *g)
{
	close_on_exec(g->control);
	close_on_exec(g->elector);
	for (int i = 0; i < PAGE_FILES; i++)
		close_on_exec(g->page_fd[i]);
	guard_start_command(g);
	/* Not before: the shell may have given the command descriptors (3<file, <(...)), which it gets as from
	 * env(1). */
	guard_close_others(g);
	guard_let_go(g);
}

/* ---- reaping ---- */

static void guard_on_worker_status(struct guard *g, int status)
{
	if (WIFSTOPPED(status) || WIFCONTINUED(status)) {
		if (!g->command)
			return;
		if (WIFSTOPPED(status))
			guard_give_terminal(g, g->elector_group);
		guard_tell(g, NOTE_STATE,
		           (struct guard_note){ .type = WIFSTOPPED(status) ? GUARD_STOPPED : GUARD_CONTINUED });
		return;
	}
	g->worker = 0;
	guard_ended(g, status);
}

/* false: there is nobody left. */
static bool guard_reap(struct guard *g)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED | WCONTINUED | __WALL)) != 0) {
		if (pid < 0 && errno != EINTR)
			return false;
		if (pid > 0 && pid == g->worker)
			guard_on_worker_status(g, status);
	}
	return true;
}

/* ---- the end ---- */

#define FRESH_STACK (48 << 10) /* more than killing needs */
#define FIRST_PIDS 4096        /* by the time that so many have been killed there is memory again */

static void guard_sleep(const struct guard *g, nsec at_most)
{
	struct pollfd p = { .fd = g->signals, .events = POLLIN };
	struct timespec t = { .tv_sec = at_most / NSEC_PER_SEC, .tv_nsec = at_most % NSEC_PER_SEC };
	struct signalfd_siginfo info;

	if (ppoll(&p, 1, &t, NULL) > 0)
		while (read(g->signals, &info, sizeof info) > 0)
			;
}

static bool pass_by(void *, pid_t)
{
	return true;
}

/* Page by page, and without changing what is there. */
__attribute__((noinline)) static void touch(volatile char *at, size_t size)
{
	for (size_t i = 0; i < size; i += 1024) {
		char was = at[i]; // NOLINT(clang-analyzer-core.uninitialized.Assign): whatever it is
		at[i] = was;
	}
}

__attribute__((noinline)) static void touch_stack(void)
{
	volatile char fresh[FRESH_STACK];

	fresh[0] = 0;
	touch(fresh, sizeof fresh);
}

/* When it is time to kill, the tree may have taken all the memory that it and we may have together (memory.max).
 * Whoever needs another page waits for one then, and no file of /proc can be opened. So the guard does all of this
 * once beforehand, and what it touched stays in memory. Without the right to lock so much (RLIMIT_MEMLOCK) there are
 * at least no pages that were never there. */
static void guard_prepare(struct guard *g)
{
	touch_stack();
	touch((char *)&errno, sizeof errno);
	touch((char *)g->tree.pid, FIRST_PIDS * sizeof *g->tree.pid);
	tree_walk(&g->tree, getpid(), pass_by, NULL);
	kill(getpid(), 0);
	guard_reap(g);
	setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0));
	guard_sleep(g, 0);
	mlockall(MCL_CURRENT | MCL_ONFAULT);
}

/* The script waits until the guard has what it needs: after the fork a page is the guard's own only when it has been
 * written to. Meanwhile the worker makes what each script needs. */
static void guard_run_worker(struct guard *g)
{
	guard_close_others(g);
	guard_fork_worker(g);
	guard_prepare(g);
	guard_let_go(g);
	if (g->go >= 0 && write(g->go, "", 1) < 0 && errno != EPIPE) /* that: the worker has died, the loop reaps it */
		guard_fail(g, GUARD_CANNOT_BEGIN, errno);            /* else it would wait for ever */
}

/* Without a child there is no descendant, since this is the subreaper. Else: walks and waits until waitpid says that
 * there is nobody: every descendant is a child of ours by then, or was. What cannot be killed (another user's, stuck in
 * the kernel) is waited for: who holds our exit status knows. */
static void guard_kill_all(struct guard *g)
{
	nsec pause = NSEC_PER_MS;

	page_end_all(g->page);
	if (!guard_reap(g))
		return;
	setpriority(PRIO_PROCESS, 0,
	            -20); /* a fork storm competes for the processor; without the right to it, so be it */
	for (;;) {
		tree_kill_children(g->children); /* which works without memory, too */
		tree_kill(&g->tree, getpid());
		bool left = guard_reap(g);
		guard_tell_rest(g);
		if (!left)
			return;
		guard_sleep(g, pause);
		if (pause < NSEC_PER_SEC)
			pause += pause / 4;
	}
}

/* Sends the last notes, when nothing of the tree lives any more. */
static void guard_tell_at_last(struct guard *g)
{
	for (int i = 0; i < UNTOLD_TRIES && !guard_tell_rest(g); i++)
		guard_sleep(g, UNTOLD_PAUSE);
}

/* ---- sweeping: what a term or an on_next left behind ---- */

/* A lunarch that a script started has a tree of its own. */
static bool guard_of_this_tree(const struct guard *g, pid_t pid)
{
	char tree[64];

	return !g->tree_mark ||
	       (tree_env(pid, PROOF_ENV, tree, sizeof tree) == TREE_ENV_FOUND && strcmp(tree, g->tree_mark) == 0);
}

/* What on_next started has no term, so a process of a term is not looked at for it. */
static struct sweep *guard_find_sweep(struct guard *g, pid_t pid, const char *term_mark)
{
	char next_mark[48];
	bool outside = strcmp(term_mark, "-") == 0;
	bool next = outside && tree_env(pid, NEXT_MARK_ENV, next_mark, sizeof next_mark) == TREE_ENV_FOUND;
	struct sweep *s = sweeps_find(&g->sweeps, term_mark, next ? next_mark : NULL);

	return s && guard_of_this_tree(g, pid) ? s : NULL;
}

static bool guard_has_killed(const struct guard *g, pid_t pid)
{
	for (int i = 0; i < g->killed_n; i++)
		if (g->killed[i] == pid)
			return true;
	return false;
}

static bool guard_kills_first_time(struct guard *g, pid_t pid)
{
	if (guard_has_killed(g, pid))
		return false;
	if (g->killed_n < TREE_MOST)
		g->killed[g->killed_n++] = pid;
	return true;
}

static bool guard_sweep_one(void *arg, pid_t pid)
{
	struct guard *g = arg;
	char mark[48];

	if (pid == g->worker)
		return true;
	switch (tree_env(pid, TERM_MARK_ENV, mark, sizeof mark)) {
	case TREE_ENV_FOUND: {
		struct sweep *s = guard_find_sweep(g, pid, mark);
		if (!s)
			break;
		g->matched = true;
		if (kill(pid, SIGKILL) == 0)
			s->killed += guard_kills_first_time(g, pid);
		break;
	}
	case TREE_ENV_MISSING:
	case TREE_ENV_UNREADABLE:
		/* What was killed gives its environment back first, and on a busy machine is dead much later. */
		if (guard_has_killed(g, pid))
			g->dying = true;
		else
			g->unclear = true;
		break;
	case TREE_ENV_GONE:
		break;
	}
	return true;
}

static void guard_report_sweeps(struct guard *g)
{
	for (uint32_t slot = 0; slot < PAGE_SLOTS && g->sweeps.pending; slot++) {
		struct sweep *s = &g->sweeps.slot[slot];
		if (!s->pending)
			continue;
		if (!guard_send(g, &(struct guard_note){ .type = g->unclear ? GUARD_UNCLEAR : GUARD_SWEPT,
		                                         .value = s->killed,
		                                         .slot = slot,
		                                         .next = s->next,
		                                         .term = s->term }))
			return; /* the elector does not read: the next walk reports the rest */
		sweeps_answered(&g->sweeps, s);
	}
	g->killed_n = 0;
}

/* One walk. Others follow, a pause apart, until two in a row have found nobody: a process may have been missed by one
 * while it changed parents, but then it became our child, and no walk misses our children. */
static void guard_sweep(struct guard *g)
{
	g->matched = g->unclear = g->dying = false;
	if (!tree_walk(&g->tree, getpid(), guard_sweep_one, g))
		g->unclear = true;
	g->dying_walks = g->dying ? g->dying_walks + 1 : 0;
	if (g->dying_walks > DYING_WALKS)
		g->unclear = true;
	else if (g->dying)
		g->matched = true;
	g->quiet = g->matched ? 0 : g->quiet + 1;
	if (g->quiet >= (g->unclear ? PATIENT_WALKS : QUIET_WALKS))
		guard_report_sweeps(g);
}

/* ---- when to kill, and whom ---- */

/* Is it time to kill? If not, the timer is set to when it will be, or earlier: a later time is found when it fires. */
static bool guard_due(struct guard *g)
{
	struct instant kill, now = clock_now();
	struct itimerspec at = { 0 };
	bool armed = page_first_kill(g->page, &kill);

	if (armed && instant_passed(kill, now))
		return true;
	nsec boot = armed ? now.boot + instant_until(kill, now) : NSEC_NEVER;
	bool fired = now.boot >= g->timer_at;
	if (boot >= g->timer_at && !fired)
		return false;
	if (armed)
		at.it_value = (struct timespec){ .tv_sec = boot / NSEC_PER_SEC, .tv_nsec = boot % NSEC_PER_SEC };
	timerfd_settime(g->timer, TFD_TIMER_ABSTIME, &at, NULL); /* none armed: it is not readable any more */
	g->timer_at = boot;
	return false;
}

/* What it guards, for ps(1): the command, or the script, which is behind LOGFORMAT LOGLEVEL IDENTITY file|eval. */
static const char *guard_name(const struct guard *g)
{
	enum { WORKER_FIRST = 5, WORKER_KIND = 3 };

	if (g->command)
		return g->argv[0];
	for (int i = 0; i <= WORKER_FIRST + WORKER_KIND + 1; i++)
		if (!g->argv[i])
			return "";
	return strcmp(g->argv[WORKER_FIRST + WORKER_KIND], "eval") == 0 ? "-e"
	                                                                : g->argv[WORKER_FIRST + WORKER_KIND + 1];
}

/* ---- a command that was held ---- */

/* The environment is an array of our own, and has a place for each variable that an order brings (supervisor.h). */
static void take_variable(char *entry)
{
	size_t name = strcspn(entry, "=") + 1;

	for (char **e = environ; *e; e++)
		if (strncmp(*e, entry, name) == 0)
			*e = entry;
}

/* Starting may have been waited for so long that the term is over: then the loop kills. */
static void guard_begin(struct guard *g, size_t len)
{
	char *at = g->order.variables, *end = (char *)&g->order + len;

	if (!g->held || g->over || guard_due(g))
		return;
	g->held = false;
	end[-1] = '\0';
	for (; at < end; at += strlen(at) + 1)
		take_variable(at);
	guard_run_command(g);
	proc_title("guard", guard_name(g));
}

/* ---- the loop ---- */

static void guard_signal_worker(const struct guard *g, int signal, bool group)
{
	if (!g->worker)
		return;
	if (group && signal == SIGCONT)
		guard_give_terminal(g, g->worker);
	kill(group ? -g->worker : g->worker, signal);
}

static void guard_obey(struct guard *g, const struct guard_order *o, size_t len)
{
	switch ((enum guard_order_type)o->type) {
	case GUARD_POKE: /* the loop looks at the page after every wake-up */
		break;
	case GUARD_INTERRUPT:
		guard_signal_worker(g, SIGRTMIN, false);
		break;
	case GUARD_SIGNAL:
		guard_signal_worker(g, o->signal, g->command);
		break;
	case GUARD_KILL:
		g->over = true;
		break;
	case GUARD_SWEEP:
		if (sweeps_ask(&g->sweeps, o->slot, o->term, o->next))
			g->quiet = 0;
		break;
	case GUARD_BEGIN:
		guard_begin(g, len);
		break;
	}
}

static void guard_read_orders(struct guard *g)
{
	const struct guard_order *o = &g->order.order;
	ssize_t n;

	while ((n = recv(g->control, &g->order, sizeof g->order, MSG_DONTWAIT)) == (ssize_t)sizeof *o ||
	       (n > (ssize_t)sizeof *o && o->type == GUARD_BEGIN))
		guard_obey(g, o, (size_t)n);
	/* Without memory for a moment the order stays where it is, and ppoll(2) tells of it again. */
	if (n < 0 && (errno == EAGAIN || errno == EINTR || err_kernel_lacks(errno)))
		return;
	g->over = true; /* the elector closed it, or is not itself any more */
	if (n < 0)
		guard_fail(g, GUARD_CANNOT_READ, errno);
	else if (n > 0)
		guard_fail(g, GUARD_NO_ORDER, 0);
}

/* How long it may wait for something to happen; NULL: for ever. */
static const struct timespec *guard_wait(const struct guard *g)
{
	static const struct timespec walk = { .tv_nsec = WALK_PAUSE }, quiet = { .tv_nsec = QUIET_PAUSE },
				     untold = { .tv_nsec = UNTOLD_PAUSE };

	if (g->sweeps.pending)
		return g->quiet == 0 || g->unclear ? &walk : &quiet;
	return guard_has_untold(g) ? &untold : NULL;
}

/* Goes on until there is a reason to kill. After every wake-up, however late, the deadline is looked at first. */
static void guard_watch(struct guard *g)
{
	enum { ELECTOR, CONTROL, SIGNALS, TIMER, N };
	struct signalfd_siginfo info;
	struct pollfd p[N] = {
		[ELECTOR] = { .fd = g->elector, .events = POLLIN },
		[CONTROL] = { .fd = g->control, .events = POLLIN },
		[SIGNALS] = { .fd = g->signals, .events = POLLIN },
		[TIMER] = { .fd = g->timer, .events = POLLIN },
	};

	while (!g->over && !guard_due(g)) {
		ppoll(p, N, guard_wait(g), NULL);
		if (guard_due(g) || p[ELECTOR].revents)
			return;
		while (read(g->signals, &info, sizeof info) > 0)
			;
		guard_reap(g);
		guard_tell_rest(g);
		if (p[CONTROL].revents)
			guard_read_orders(g);
		if (g->sweeps.pending && !g->over && !guard_due(g))
			guard_sweep(g);
	}
}

int guard_main(int argc, char **argv, guard_worker *worker)
{
	static struct guard g; /* no heap; what is never touched of it takes no memory */

	prctl(PR_SET_NAME, "lunarch-guard");
	g.worker_main = worker;
	g.go = -1;
	if (!guard_read_arguments(&g, argc, argv) || !guard_open_all(&g) || prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
		return 70;
	g.tree_mark = getenv(PROOF_ENV);
	guard_leave_session(&g);
	tree_kill_children(g.children); /* there are none yet: for its code, as in guard_prepare */
	if (g.command) {
		guard_prepare(&g);
		if (!g.held && !guard_due(&g)) /* its term is in the page already, and starting may have taken long */
			guard_run_command(&g);
	} else {
		guard_run_worker(&g);
	}
	if (!g.held)
		proc_title("guard", guard_name(&g)); /* nobody needs the arguments any more */
	guard_watch(&g);
	guard_kill_all(&g);
	guard_tell_at_last(&g);
	guard_give_terminal(&g, g.elector_group);
	return 0;
}
