/* Supervisors, with real processes throughout: an elector is a forked child of this test that runs a supervisor. Its
 * guard is a fork of it, or this same binary, re-executed with `-x guard`; the worker is a fork of the guard. What must
 * be dead is counted by its environment. How a guard is started, and that it looks the same either way, is in
 * test_guard_start.c. */
#include "base/proc_tree.h"
#include "election/death_proof.h"
#include "loop/reaper.h"
#include "process/guard.h"
#include "process/guard_start.h"
#include "process/guard_wire.h"
#include "process/supervisor.h"
#include "process/sources.h"
#include "proc_look.h"
#include "tap.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <pty.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- what the processes of a test share ---- */

#define PIDS 4096

static struct shared {
	_Atomic int up; /* processes of the tree that have come up */
	_Atomic pid_t pid[PIDS];
	_Atomic int word; /* given by one side to the other, as the test has it */
	_Atomic int started, gone, reaped, status, ended, ended_status, messages, messages_by_then, swept, killed,
		clean, nothing, stopped, continued, next, asked;
	_Atomic int extended_after_end, storm, stop_storm;
	_Atomic pid_t elector, guard, worker;
	_Atomic int64_t at[2];
	char text[256];
} * shared;

static int shared_fd;
static char mark[64];

static bool come_true(_Atomic int *what, int least)
{
	for (int i = 0; i < 60000 && *what < least; i++)
		usleep(500);
	return *what >= least;
}

/* ---- the worker's side ---- */

static void report_up(void)
{
	shared->pid[shared->up++ % PIDS] = getpid();
}

__attribute__((noreturn)) static void wait_for_ever(void)
{
	report_up();
	for (;;)
		pause();
}

static void say(int wire, enum wire_type type, uint32_t number)
{
	struct buf m = { 0 };

	wire_begin(&m, type);
	wire_u32(&m, number);
	if (send(wire, m.data, m.len, MSG_NOSIGNAL) < 0)
		_exit(3);
	buf_fini(&m);
}

static void leave_orphan(void)
{
	pid_t middle = fork();

	if (middle == 0) {
		setsid();
		if (fork() == 0)
			wait_for_ever();
		_exit(0);
	}
	waitpid(middle, NULL, 0);
}

/* 15 descendants: six that left by setsid and double fork, three that ignore what can be ignored, one stopped, a chain
 * of five. */
static void grow_tree(void)
{
	for (int i = 0; i < 6; i++)
		leave_orphan();
	for (int i = 0; i < 3; i++)
		if (fork() == 0) {
			for (int s = 1; s < NSIG; s++)
				signal(s, SIG_IGN);
			wait_for_ever();
		}
	if (fork() == 0) {
		report_up();
		raise(SIGSTOP);
	}
	int depth = 5;
	if (fork() == 0) {
		while (--depth && fork() == 0)
			;
		wait_for_ever();
	}
}

/* A process with this environment, which an exec makes visible. */
static void start_marked(char *const *env)
{
	if (fork() == 0) {
		char *argv[] = { "lunarch", "-x", "pause", NULL };
		execve("/proc/self/exe", argv, env);
		_exit(127);
	}
}

static char shared_env[32];

/* next NULL: without that mark */
static void start_with_marks(const char *term, const char *next, bool ours)
{
	char term_env[64], next_env[64], tree_env_[96];

	snprintf(term_env, sizeof term_env, TERM_MARK_ENV "=%s", term);
	snprintf(next_env, sizeof next_env, NEXT_MARK_ENV "=%s", next ? next : "");
	snprintf(tree_env_, sizeof tree_env_, PROOF_ENV "=%s%s", getenv(PROOF_ENV), ours ? "" : "-other");
	start_marked((char *[]){ term_env, tree_env_, shared_env, next ? next_env : NULL, NULL });
}

static void start_of_term(const char *term, bool ours)
{
	start_with_marks(term, NULL, ours);
}

/* A hundred processes, none of which lives longer than a millisecond or two: each forks its successor, which leaves the
 * session, and exits. No list of them is true by the time it is read. */
static void storm(void)
{
	for (int i = 0; i < 100; i++)
		if (fork() == 0)
			for (int generation = 0; generation < 50000 && !shared->stop_storm; generation++) {
				setsid();
				shared->storm++;
				usleep(1000);
				if (fork() != 0)
					_exit(0);
			}
}

static int count_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* Counts the descriptors of a process that are files of that name (memfd_create(2)). */
static int count_files(pid_t pid, const char *name)
{
	char path[64], to[64];
	int n = 0;

	for (int fd = 0; fd < 1024; fd++) {
		snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
		ssize_t len = readlink(path, to, sizeof to - 1);
		to[len > 0 ? len : 0] = '\0';
		n += strstr(to, name) != NULL;
	}
	return n;
}

/* Blocked or ignored signals, but those which the thread library keeps for itself. */
static uint64_t inherited_signals(void)
{
	uint64_t mask = 0;
	sigset_t blocked;

	sigprocmask(SIG_SETMASK, NULL, &blocked);
	for (int s = 1; s < NSIG; s++) {
		struct sigaction a;
		if (sigismember(&blocked, s) == 1 || (sigaction(s, NULL, &a) == 0 && a.sa_handler == SIG_IGN))
			mask |= UINT64_C(1) << (s - 1);
	}
	return mask;
}

/* Writes whatever it can write of its page, once a term has begun. */
static void scribble(const int *fd, int n)
{
	struct stat st;

	come_true(&shared->word, 1);
	for (int i = 0; i < n; i++) {
		fstat(fd[i], &st);
		void *at = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd[i], 0);
		if (at != MAP_FAILED)
			memset(at, 0x7f, (size_t)st.st_size);
	}
}

static void on_interrupt(int s)
{
	(void)s;
	shared->messages += 100;
}

static bool locks_memory(pid_t pid)
{
	char path[64], line[200];
	unsigned long locked = 0;

	snprintf(path, sizeof path, "/proc/%d/status", pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, "VmLck:", 6) == 0)
			locked = strtoul(line + 6, NULL, 10);
	if (f)
		fclose(f);
	return locked > 0;
}

/* argv: WIREFD PAGEFD MARKSFD KEPTFD BEHAVIOUR [ARG] */
static int worker(char **argv)
{
	int wire = atoi(argv[0]), page_fd[PAGE_FILES] = { atoi(argv[1]), atoi(argv[2]) };
	const char *how = argv[4];
	uint32_t arg = argv[5] ? (uint32_t)atoi(argv[5]) : 0;

	shared->guard = getppid();
	shared->worker = getpid();
	if (strcmp(how, "count") == 0) {
		snprintf(shared->text, sizeof shared->text,
		         "%d descriptors, signals %llx, %s=%s, A=%s, B=%s, tree %d, sources %d, of the guard %d",
		         count_descriptors(), (unsigned long long)inherited_signals(), TERM_MARK_ENV,
		         getenv(TERM_MARK_ENV), getenv("A"), getenv("B"), page_map(page_fd, NULL) != NULL,
		         count_files(getpid(), "lunarch-sources") == 1 && sources_open(atoi(argv[3]), NULL) != NULL,
		         count_files(getppid(), "lunarch-sources"));
		say(wire, WIRE_LOADED, 0);
		return 0;
	}
	if (strcmp(how, "look") == 0) {
		snprintf(shared->text, sizeof shared->text, "%s", locks_memory(getppid()) ? "locked" : "not locked");
		say(wire, WIRE_LOADED, 0);
		return 0;
	}
	fcntl(wire, F_SETFD, FD_CLOEXEC);
	for (int i = 0; i < PAGE_FILES; i++)
		fcntl(page_fd[i], F_SETFD, FD_CLOEXEC);
	signal(SIGRTMIN, on_interrupt);
	signal(SIGHUP,
	       SIG_IGN); /* which the kernel sends to who was stopped when its parent died: not what is tested here */
	if (strcmp(how, "tree") == 0) {
		grow_tree();
		come_true(&shared->up, 15);
	}
	if (strcmp(how, "children") == 0)
		for (uint32_t i = 0; i < arg; i++)
			if (fork() == 0)
				wait_for_ever();
	if (strcmp(how, "sweep") == 0) {
		start_of_term("3.7", true);
		start_of_term("3.7", true);
		start_of_term("3.8", true);
		start_of_term("2.7", true);
		start_of_term("-", true);
		start_of_term("3.7", false); /* of another lunarch, that a script started */
		if (arg)
			start_marked((char *[]){ shared_env, NULL });
	}
	if (strcmp(how, "sweep_next") == 0) {
		start_with_marks("-", "3.2", true);
		start_with_marks("-", "3.2", true);
		start_with_marks("-", "3.1", true);   /* an earlier on_next, ... */
		start_with_marks("-", "2.2", true);   /* ... another election's, ... */
		start_with_marks("3.2", NULL, true);  /* ... a term of that number, ... */
		start_with_marks("3.7", "3.2", true); /* ... a term, which says all of its processes, ... */
		start_with_marks("-", NULL, true);
		start_with_marks("-", "3.2", false); /* ... and another lunarch's */
	}
	if (strcmp(how, "stranger") == 0 && fork() == 0) {
		if (setuid(65534) < 0)
			_exit(9);
		wait_for_ever();
	}
	if (strcmp(how, "breeding") == 0) {
		pid_t between = fork();
		if (between == 0) {
			start_of_term("3.7", true);
			_exit(0);
		}
		waitpid(between, NULL, 0); /* who counts what a sweep leaves must not see it go */
	}
	if (strcmp(how, "storm") == 0)
		storm();
	if (strcmp(how, "nonsense") == 0 && write(wire, "what is this", 12) < 0)
		return 3;
	if (strcmp(how, "large") == 0) {
		char *large = calloc(1, WIRE_MAX + 8);
		large[0] = WIRE_LOADED;
		if (send(wire, large, WIRE_MAX + 8, 0) < 0)
			return 3;
	}
	if (strcmp(how, "hidden") == 0) {
		start_marked((char *[]){ shared_env, NULL });
		grow_tree();
		come_true(&shared->up, 16);
	}
	if (strcmp(how, "stranger") == 0)
		come_true(&shared->up, 1);
	say(wire, WIRE_LOADED, 0);
	if (strcmp(how, "crash") == 0)
		abort();
	if (strcmp(how, "scribble") == 0)
		scribble(page_fd, PAGE_FILES);
	if (strcmp(how, "exit") == 0) {
		kill(shared->elector, SIGSTOP);
		for (uint32_t i = 0; i < 100; i++)
			say(wire, WIRE_LOADED, i);
		leave_orphan();
		return (int)arg;
	}
	if (strcmp(how, "echo") == 0) {
		static char bytes[WIRE_MAX];
		struct wire w;
		for (ssize_t n; (n = recv(wire, bytes, sizeof bytes, 0)) > 0;)
			if (wire_open(&w, bytes, (size_t)n) == WIRE_LEAD &&
			    send(wire, (uint32_t[]){ WIRE_STARTED, (uint32_t)n }, 8, 0) < 0)
				return 3;
		return 0;
	}
	for (;;)
		pause();
}

/* In a command's place: is the terminal mine? Stops itself once. */
static int on_terminal(void)
{
	bool mine = tcgetpgrp(0) == getpgrp();

	raise(SIGTSTP);
	come_true(&shared->continued, 1); /* its end would hide that it went on, to waitpid(2) */
	return mine && tcgetpgrp(0) == getpgrp() ? 7 : 8;
}

static int role(char **argv)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(getenv("TEST_SHARED")), 0);
	if (shared == MAP_FAILED)
		return 99;
	snprintf(shared_env, sizeof shared_env, "TEST_SHARED=%s", getenv("TEST_SHARED"));
	if (strcmp(argv[0], "worker") == 0)
		return worker(argv + 1);
	if (strcmp(argv[0], "terminal") == 0)
		return on_terminal();
	wait_for_ever();
}

/* ---- the elector's side ---- */

struct elector {
	struct ev_loop *loop;
	struct supervisor *supervisor;
	struct ev_timer timer;
	void (*ready)(struct elector *e); /* upon the worker's WIRE_LOADED */
	struct instant kill;
};

static bool on_message(void *arg, enum wire_type type, struct wire *w)
{
	struct elector *e = arg;

	shared->at[1] = clock_now().boot;
	shared->messages++;
	if (type == WIRE_STARTED) {
		shared->text[0] = 0;
		snprintf(shared->text, sizeof shared->text, "%u", wire_get_u32(w));
	}
	if (type == WIRE_LOADED && !shared->started++ && e->ready)
		e->ready(e);
	return true;
}

static void on_ended(void *arg, int status)
{
	struct elector *e = arg;
	struct instant later = instant_add(clock_now(), 3600 * NSEC_PER_SEC);

	shared->ended_status = status;
	shared->messages_by_then = shared->messages;
	shared->ended++;
	for (uint32_t i = 0; i < 4; i++)
		shared->extended_after_end += page_extend(&supervisor_page(e->supervisor)->slot[i], 1, later, later);
}

static void on_gone(void *arg, bool reaped, int status)
{
	struct elector *e = arg;

	shared->status = status;
	shared->reaped = reaped;
	shared->gone++;
	ev_timer_stop(e->loop, &e->timer);
	supervisor_free(e->supervisor);
	ev_break(e->loop, EVBREAK_ALL);
}

static void on_swept(void *arg, uint32_t slot, uint64_t term, uint32_t next, int killed, bool clean)
{
	(void)arg, (void)slot;
	shared->asked = term == (shared->next ? 0 : 7) && (int)next == shared->next;
	shared->killed = killed;
	shared->clean = clean;
	shared->swept++;
}

static void on_stopped(void *arg, bool stopped)
{
	struct elector *e = arg;

	if (stopped) {
		shared->stopped++;
		supervisor_signal(e->supervisor, SIGCONT);
	} else {
		shared->continued++;
	}
}

static const struct supervisor_callbacks callbacks = {
	.message = on_message,
	.ended = on_ended,
	.gone = on_gone,
	.swept = on_swept,
	.stopped = on_stopped,
};

/* What is left must be reaped by then, on a busy machine, too. Where a guard is stopped, half of it passes before the
 * elector acts: so there it is the shorter one. */
static const nsec ALLOWANCE = 60 * NSEC_PER_SEC, ALLOWANCE_STOPPED = 6 * NSEC_PER_SEC;

struct scene {
	char *const *argv;
	bool command, foreground;
	void (*ready)(struct elector *e);
	void (*spawned)(struct elector *e);
	char *const *env;
	char *const *unset;
	nsec allowance;
	int kept_fd;
};

static bool forked; /* the guards are forks */

static void let_go(void *arg)
{
	reaper_let_go(arg);
}

static int worker_role(int argc, char **argv, int go);

static int elector(const struct scene *s)
{
	static char shared_var[40], mark_var[96];
	char *env[8] = { shared_var, mark_var }, *no_unset[] = { NULL };
	struct elector e = { .ready = s->ready };
	struct err err = { 0 };

	for (int i = 0; s->env && s->env[i]; i++)
		env[i + 2] = s->env[i];
	snprintf(shared_var, sizeof shared_var, "TEST_SHARED=%d", shared_fd);
	snprintf(mark_var, sizeof mark_var, PROOF_ENV "=%s", mark);
	e.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	struct reaper *reaper = reaper_new(e.loop);
	if (reaper_adopt(reaper, &err) < 0)
		return 98;
	const struct guard_fork fork = { .worker = worker_role, .let_go = let_go, .arg = reaper };
	/* The shared memory goes the way of the tree's descriptor: everything in the tree has it. */
	struct supervisor_spec spec = { .argv = s->argv,
		                        .command = s->command,
		                        .foreground = s->foreground,
		                        .env = env,
		                        .unset = s->unset ? s->unset : no_unset,
		                        .tree_fd = shared_fd,
		                        .kept_fd = s->kept_fd,
		                        .kill_allowance = s->allowance ? s->allowance : ALLOWANCE,
		                        .fork = forked ? &fork : NULL };
	shared->elector = getpid();
	shared->at[0] = clock_now().boot;
	e.supervisor = supervisor_spawn(reaper, &spec, &callbacks, &e, &err);
	if (!e.supervisor) {
		printf("# %s\n", err.text);
		return 97;
	}
	if (s->spawned)
		s->spawned(&e);
	ev_run(e.loop, 0);
	return 0;
}

static void forget(void)
{
	memset(shared, 0, sizeof *shared);
	snprintf(mark, sizeof mark, "test-%d-%lld", getpid(), (long long)clock_now().boot);
}

static pid_t start_elector(const struct scene *s)
{
	forget();
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_CHILD_SUBREAPER, 0);
		_exit(elector(s));
	}
	return pid;
}

static bool wait_exit(pid_t pid)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool run(const struct scene *s)
{
	return wait_exit(start_elector(s));
}

/* ---- counting and ending survivors ---- */

struct survivors {
	int n;
	bool end;
};

static bool survivor(void *arg, pid_t pid)
{
	struct survivors *s = arg;
	char value[64];

	if (tree_env(pid, PROOF_ENV, value, sizeof value) == TREE_ENV_FOUND &&
	    strncmp(value, mark, strlen(mark)) == 0) {
		s->n++;
		if (s->end)
			kill(pid, SIGKILL);
	}
	return true;
}

/* The test is the subreaper behind everything, so whatever still lives is below it. */
static int survivors(bool end)
{
	static struct tree tree;
	struct survivors s = { .end = end };

	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	tree_walk(&tree, getpid(), survivor, &s);
	return s.n;
}

/* What was killed last may still be dying. */
static int survivors_in_time(int wanted)
{
	int n;

	for (int i = 0; i < 30000 && (n = survivors(false)) > wanted; i++)
		usleep(1000);
	return n;
}

static void end_survivors(void)
{
	while (survivors(true))
		usleep(1000);
}

static bool lives(pid_t pid)
{
	char value[8];

	return tree_env(pid, "X", value, sizeof value) != TREE_ENV_GONE;
}

/* ---- tests: the ordinary life ---- */

#define WORKER(...) ((char *[]){ __VA_ARGS__, NULL })

static void kill_supervisor(struct elector *e)
{
	supervisor_kill(e->supervisor);
}

static void test_exit(void)
{
	struct scene s = { .argv = WORKER("exit", "5") };
	pid_t pid = start_elector(&s);

	/* It has stopped the elector, which finds all there is to read at once when it goes on. */
	while (!shared->worker || state_of(shared->worker))
		usleep(1000);
	kill(pid, SIGCONT);
	ok(wait_exit(pid) && shared->gone == 1 && shared->reaped,
	   "a worker that exits is gone with all it left behind");
	is_int(survivors(false), 0, "nothing of it lives");
	ok(shared->ended == 1 && WIFEXITED(shared->ended_status) && WEXITSTATUS(shared->ended_status) == 5,
	   "its status is reported");
	is_int(shared->status, shared->ended_status, "again when all is gone");
	is_int(shared->messages_by_then, 101, "every message that it sent before arrives before that");
}

static void test_crash(void)
{
	struct scene s = { .argv = WORKER("crash") };

	ok(run(&s) && WIFSIGNALED(shared->status) && WTERMSIG(shared->status) == SIGABRT,
	   "a crash is reported as its signal");
}

static void test_inheritance(void)
{
	struct scene s = { .argv = WORKER("count"),
		           .env = (char *[]){ "A=new", NULL },
		           .unset = (char *[]){ "B", NULL },
		           .kept_fd = sources_new(NULL) };
	sigset_t some, was;
	int stray = dup(0), other = sources_new(NULL);

	setenv("A", "old", 1);
	setenv("B", "secret", 1);
	setenv(TERM_MARK_ENV, "9.9", 1);
	sigemptyset(&some);
	sigaddset(&some, SIGUSR1);
	sigprocmask(SIG_BLOCK, &some, &was);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	run(&s);
	signal(SIGPIPE, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	sigprocmask(SIG_SETMASK, &was, NULL);
	unsetenv(TERM_MARK_ENV);
	close(stray);
	close(other);
	close(s.kept_fd);
	/* Standard ones, wire, page with its marks, sources, tree. */
	is_str(shared->text,
	       "8 descriptors, signals 0, LUNARCH_TERM=-, A=new, B=(null), tree 1, sources 1, of the guard 0",
	       "a worker inherits no descriptor, mask or disposition but its own, and the environment it was given");
}

/* Locking memory is the last thing that it does before. Without the right to it, and under a sanitizer, nothing shows.
 * A guard has no more memory than this process with 16 MB. */
static void test_prepared(void)
{
	struct scene s = { .argv = WORKER("look") };
	int status = 0, not_locked = 0, may;

	pid_t pid = fork();
	if (pid == 0 && mmap(NULL, 16 << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED)
		_exit(0);
	if (pid == 0)
		_exit(mlockall(MCL_CURRENT | MCL_ONFAULT) == 0 && locks_memory(getpid()));
	waitpid(pid, &status, 0);
	may = WIFEXITED(status) && WEXITSTATUS(status);
	for (int i = 0; i < 20; i++)
		not_locked += !run(&s) || strcmp(shared->text, "locked") != 0;
	ok(!may || not_locked == 0, "a worker runs only when its guard has the memory that it needs%s",
	   may ? "" : " (which it may not lock here)");
}

static void send_large(struct elector *e)
{
	struct buf m = { 0 };
	char *filler = malloc(WIRE_MAX - 4);

	wire_begin(&m, WIRE_LEAD);
	memset(filler, 'x', WIRE_MAX - 4);
	buf_add(&m, filler, WIRE_MAX - 4);
	free(filler);
	for (int i = 0; i < 20; i++)
		supervisor_send(e->supervisor, &m);
	wire_begin(&m, WIRE_QUIT);
	supervisor_send(e->supervisor, &m);
	buf_fini(&m);
	supervisor_interrupt(e->supervisor);
}

static void after_echo(struct elector *e, int events);

static void on_echo_timer(struct ev_loop *loop, ev_timer *w, int events)
{
	(void)loop, (void)events;
	after_echo(w->data, 0);
}

static void after_echo(struct elector *e, int events)
{
	(void)events;
	if (shared->messages >= 121)
		supervisor_kill(e->supervisor);
}

static void echo(struct elector *e)
{
	send_large(e);
	ev_timer_init(&e->timer, on_echo_timer, 0.01, 0.01);
	e->timer.data = e;
	ev_timer_start(e->loop, &e->timer);
}

static void test_messages(void)
{
	struct scene s = { .argv = WORKER("echo"), .ready = echo };
	char want[16];

	snprintf(want, sizeof want, "%d", WIRE_MAX);
	ok(run(&s) && shared->messages == 121,
	   "20 of the largest messages arrive and are answered; an interrupt arrives");
	is_str(shared->text, want, "whole");
	is_int(shared->reaped, 1, "crew_kill ends the crew");
}

static void flood(struct elector *e)
{
	struct buf m = { 0 };

	wire_begin(&m, WIRE_ASK);
	for (int i = 0; i < 20000; i++)
		supervisor_send(e->supervisor, &m);
	buf_fini(&m);
}

static void test_bad_workers(void)
{
	struct scene deaf = { .argv = WORKER("tree"), .ready = flood };
	struct scene nonsense = { .argv = WORKER("nonsense") }, large = { .argv = WORKER("large") };

	ok(run(&deaf) && shared->reaped && WTERMSIG(shared->status) == SIGKILL,
	   "a worker that leaves its messages unread is killed");
	ok(run(&nonsense) && WTERMSIG(shared->status) == SIGKILL && shared->messages == 0,
	   "so is one that sends nonsense");
	ok(run(&large) && WTERMSIG(shared->status) == SIGKILL && shared->messages == 0,
	   "and one that sends too large a message");
	is_int(survivors(false), 0, "nothing of them lives");
}

/* ---- tests: deadlines ---- */

static void begin_term(struct elector *e, nsec kill_in)
{
	struct instant now = clock_now();

	e->kill = instant_add(now, kill_in);
	page_begin(supervisor_page(e->supervisor), 2, 1, 1, instant_add(now, kill_in / 2), e->kill);
	supervisor_poke(e->supervisor);
}

static void short_term(struct elector *e)
{
	begin_term(e, 150 * NSEC_PER_MS);
	shared->at[0] = e->kill.boot;
	shared->word = 1;
}

static void test_deadline(void)
{
	struct scene s = { .argv = WORKER("tree"), .ready = short_term };

	ok(run(&s) && shared->reaped && shared->ended == 1, "at the kill deadline everything dies");
	printf("# all gone %lld ms after the deadline\n",
	       (long long)((clock_now().boot - shared->at[0]) / NSEC_PER_MS));
	is_int(survivors(false), 0, "the whole tree");
	is_int(shared->extended_after_end, 0, "and its terms cannot be extended any more");
}

/* Guard and elector read deadlines in memory that the worker has too. */
static void test_hostile(void)
{
	struct scene s = { .argv = WORKER("scribble"), .ready = short_term };

	ok(run(&s) && shared->reaped && shared->ended == 1,
	   "a worker that writes all over the page is killed by its guard at the deadline");
	is_int(survivors(false), 0, "with all of its tree");
}

static void on_outlived(struct ev_loop *loop, ev_timer *w, int events)
{
	struct elector *e = w->data;

	(void)loop, (void)events;
	shared->word = !shared->ended; /* alive past its first deadline */
	page_stop(&supervisor_page(e->supervisor)->slot[2], false, clock_now());
	supervisor_poke(e->supervisor);
}

static void extended_term(struct elector *e)
{
	struct instant later = instant_add(clock_now(), 3600 * NSEC_PER_SEC);

	begin_term(e, NSEC_PER_SEC);
	page_extend(&supervisor_page(e->supervisor)->slot[2], 1, later, later);
	supervisor_poke(e->supervisor);
	ev_timer_init(&e->timer, on_outlived, 1.3, 0.);
	e->timer.data = e;
	ev_timer_start(e->loop, &e->timer);
}

static void test_extension(void)
{
	struct scene s = { .argv = WORKER("tree"), .ready = extended_term };

	ok(run(&s) && shared->word, "an extended term outlives its first deadline");
	ok(shared->reaped && survivors(false) == 0, "and dies when the deadline is drawn nearer");
}

static void test_first_term(void)
{
	forget();
	pid_t pid = fork();
	if (pid == 0) {
		struct elector e = { .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV) };
		struct instant now = clock_now();
		struct supervisor_spec spec = { .argv = WORKER("touch", "/nowhere/at/all"),
			                        .command = true,
			                        .tree_fd = -1,
			                        .kill_allowance = ALLOWANCE,
			                        .first = { .term = 3, .token = 1, .end = now, .kill = now } };
		struct reaper *reaper = reaper_new(e.loop);
		reaper_adopt(reaper, NULL);
		e.supervisor = supervisor_spawn(reaper, &spec, &callbacks, &e, NULL);
		ev_run(e.loop, 0);
		_exit(0);
	}
	ok(wait_exit(pid) && shared->gone && shared->reaped && !shared->ended,
	   "a command whose term is over already is not started");
}

/* ---- tests: who can be killed or frozen ---- */

enum fate { RUNS, FROZEN, KILLED };

static const char *const fates[] = { "runs", "stopped", "killed" };

/* All three meet their fates from a standstill, or the first one's death would be acted upon before the last is
 * dead. */
static void meet_fates(const pid_t *pids, const enum fate *f, int n)
{
	for (int i = 0; i < n; i++)
		kill(pids[i], SIGSTOP);
	for (int i = 0; i < n; i++)
		for (int state; (state = state_of(pids[i])) && state != 'T' && state != 'Z';)
			usleep(100);
	for (int i = 0; i < n; i++)
		if (f[i] == KILLED)
			kill(pids[i], SIGKILL);
	for (int i = 0; i < n; i++)
		if (f[i] == RUNS)
			kill(pids[i], SIGCONT);
}

/* Is anybody left who can act? With both elector and guard out of action nothing is promised but that the worker dies
 * with a killed guard; who was only stopped must finish the job when continued. */
static void check_fates(enum fate e, enum fate g, enum fate w, pid_t elector_pid, pid_t guard_pid)
{
	bool promised = g == RUNS || e == RUNS, worker_dead = true;

	if (!promised && g == KILLED)
		for (int i = 0; i < 30000 && (worker_dead = !lives(shared->worker)) == false; i++)
			usleep(1000);
	if (!promised && g == FROZEN) {
		usleep(200000); /* let the deadline pass */
		kill(guard_pid, SIGCONT);
		promised = true;
	} else if (!promised && e == FROZEN) {
		kill(elector_pid, SIGCONT);
		promised = true;
	}
	int left = promised ? survivors_in_time(0) : 0;
	bool said = true;
	if (promised && e != KILLED) {
		kill(elector_pid, SIGCONT);
		said = come_true(&shared->gone, 1) && shared->gone == 1 && shared->reaped;
	}
	if (!ok(left == 0 && worker_dead && said, "elector %s, guard %s, worker %s: %s", fates[e], fates[g], fates[w],
	        promised ? "nothing survives" : "the worker does not survive"))
		printf("# %d survive, worker %s, the elector %s it (told %d times, reaped: %d)\n", left,
		       worker_dead ? "dead" : "alive", said ? "knows" : "does not know", shared->gone, shared->reaped);
}

static void test_fate(enum fate e, enum fate g, enum fate w)
{
	struct scene s = { .argv = WORKER("tree"),
		           .ready = short_term,
		           .allowance = g == FROZEN ? ALLOWANCE_STOPPED : ALLOWANCE };
	pid_t pid = start_elector(&s);

	if (!come_true(&shared->word, 1)) {
		ok(0, "a tree comes up");
		return;
	}
	pid_t guard = shared->guard;
	int64_t from = clock_now().boot;
	meet_fates((pid_t[]){ pid, guard, shared->worker }, (enum fate[]){ e, g, w }, 3);
	check_fates(e, g, w, pid, guard);
	int64_t due = shared->at[0] > from && !(e == KILLED || w == KILLED || g == KILLED) ? shared->at[0] : from;
	printf("# after %lld ms\n", (long long)((clock_now().boot - due) / NSEC_PER_MS));
	kill(pid, SIGKILL);
	kill(guard, SIGKILL);
	end_survivors();
}

static void test_fates(void)
{
	for (int e = RUNS; e <= KILLED; e++)
		for (int g = RUNS; g <= KILLED; g++)
			for (int w = RUNS; w <= KILLED; w++)
				test_fate((enum fate)e, (enum fate)g, (enum fate)w);
}

/* Two supervisors in one elector: one guard dies, and the other's tree is left alone. */
static void test_two_supervisors(void)
{
	forget();
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		static char shared_var[40], mark_var[96];
		char *env[] = { shared_var, mark_var, NULL };
		struct elector a = { .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV) }, b = a;
		snprintf(shared_var, sizeof shared_var, "TEST_SHARED=%d", shared_fd);
		snprintf(mark_var, sizeof mark_var, PROOF_ENV "=%s", mark);
		struct reaper *reaper = reaper_new(a.loop);
		reaper_adopt(reaper, NULL);
		const struct guard_fork a_fork = { .worker = worker_role, .let_go = let_go, .arg = reaper };
		struct supervisor_spec spec = { .argv = WORKER("tree"),
			                        .env = env,
			                        .tree_fd = shared_fd,
			                        .kill_allowance = ALLOWANCE,
			                        .fork = forked ? &a_fork : NULL };
		a.supervisor = supervisor_spawn(reaper, &spec, &callbacks, &a, NULL);
		b.supervisor = supervisor_spawn(reaper, &spec, &callbacks, &b, NULL);
		while (!shared->gone)
			ev_run(a.loop, EVRUN_ONCE);
		ev_run(a.loop, 0);
		_exit(0);
	}
	come_true(&shared->up, 30);
	come_true(&shared->started, 2);
	kill(shared->guard, SIGKILL);
	come_true(&shared->gone, 1);
	ok(shared->gone == 1 && shared->reaped, "of two crews, one whose guard was killed is gone");
	is_int(survivors(false), 17, "the other's guard, worker and 15 descendants live on");
	kill(pid, SIGKILL);
	is_int(survivors_in_time(0), 0, "until the elector dies");
}

/* Where the elector had a child before it was one, that child is left alone when a guard's orphans are killed. Of
 * those, one does not carry the tree's marker. */
static void test_strangers(void)
{
	struct scene s = { .argv = WORKER("hidden") };

	forget();
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		pid_t stranger = fork();
		if (stranger == 0)
			for (;;)
				pause();
		shared->pid[PIDS - 1] = stranger;
		_exit(elector(&s));
	}
	come_true(&shared->up, 16);
	come_true(&shared->started, 1);
	kill(shared->guard, SIGKILL);
	ok(wait_exit(pid) && shared->reaped && survivors(false) == 0, "a killed guard's tree is gone");
	int living = 0;
	for (int i = 0; i < 16; i++)
		living += lives(shared->pid[i]);
	is_int(living, 0, "whatever the environment of its processes says");
	ok(lives(shared->pid[PIDS - 1]), "a child that the elector had before lives");
	kill(shared->pid[PIDS - 1], SIGKILL);
}

/* A guard that reads nothing: neither pokes nor its orders may fill anything up, and supervisor_kill works without
 * it. */
static void poke_stopped_guard(struct elector *e)
{
	kill(shared->guard, SIGSTOP);
	for (int i = 0; i < 20000; i++)
		supervisor_poke(e->supervisor);
	shared->word = 1;
	supervisor_kill(e->supervisor);
}

static void test_stopped_guard(void)
{
	struct scene s = { .argv = WORKER("tree"), .ready = poke_stopped_guard, .allowance = ALLOWANCE_STOPPED };

	ok(run(&s) && shared->word && shared->gone == 1 && shared->reaped,
	   "crew_kill works though the guard is stopped");
	is_int(survivors(false), 0, "on all of the tree");
	is_int(shared->status, SIGKILL, "and the elector saw how the worker ended");
}

/* A process that neither guard nor elector may kill: of another user, with CAP_KILL given up. */
static void test_unkillable(void)
{
	struct scene s = { .argv = WORKER("stranger"), .ready = kill_supervisor, .allowance = 200 * NSEC_PER_MS };

	if (getuid() != 0) {
		printf("ok %d # SKIP making an unkillable process needs root\n", ++tap_count);
		return;
	}
	forget();
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_CAPBSET_DROP, CAP_KILL);
		struct __user_cap_header_struct h = { .version = _LINUX_CAPABILITY_VERSION_3 };
		struct __user_cap_data_struct d[2];
		syscall(SYS_capget, &h, d);
		d[0].effective &= ~(1U << CAP_KILL);
		d[0].permitted &= ~(1U << CAP_KILL);
		syscall(SYS_capset, &h, d);
		_exit(elector(&s));
	}
	ok(wait_exit(pid) && shared->gone == 1 && !shared->reaped, "what cannot be killed is reported as not reaped");
	is_int(survivors_in_time(1), 1, "it alone lives");
	end_survivors();
}

static void test_many(void)
{
	struct scene s = { .argv = WORKER("children", "1000") };
	pid_t pid = start_elector(&s);

	come_true(&shared->up, 1000);
	is_int(shared->up, 1000, "1,000 children come up");
	int64_t before = clock_now().boot;
	kill(shared->worker, SIGKILL);
	ok(wait_exit(pid) && shared->reaped, "their parent is killed, and all are gone");
	printf("# killed 1000 in %lld ms\n", (long long)((clock_now().boot - before) / NSEC_PER_MS));
	is_int(survivors(false), 0, "none lives");
}

static void test_storm(void)
{
	struct scene s = { .argv = WORKER("storm") };
	pid_t pid = start_elector(&s);

	come_true(&shared->storm, 1000);
	int64_t before = clock_now().boot;
	kill(shared->worker, SIGKILL);
	ok(wait_exit(pid) && shared->reaped, "a storm of forks, each in its own session, comes to its end");
	printf("# ended after %d generations in %lld ms\n", shared->storm / 100,
	       (long long)((clock_now().boot - before) / NSEC_PER_MS));
	is_int(survivors(false), 0, "and nothing of it is left");
	shared->stop_storm = 1;
}

/* ---- tests: sweeps ---- */

static void sweep_now(struct elector *e)
{
	uint64_t term = shared->next ? 0 : 7;

	shared->nothing = supervisor_sweep(e->supervisor, 3, term, (uint32_t)shared->next);
	if (shared->nothing)
		on_swept(e, 3, term, (uint32_t)shared->next, 0, true);
}

static void on_sweep_timer(struct ev_loop *loop, ev_timer *w, int events)
{
	struct elector *e = w->data;

	(void)loop, (void)events;
	if (shared->word && !shared->continued++)
		sweep_now(e);
	if (shared->swept && shared->stop_storm)
		supervisor_kill(e->supervisor);
}

/* Waits for the test's word, so that everything is up by then. */
static void sweep_on_word(struct elector *e)
{
	ev_timer_init(&e->timer, on_sweep_timer, 0.002, 0.002);
	e->timer.data = e;
	ev_timer_start(e->loop, &e->timer);
}

/* next 0: of the term 7 */
static void sweep_of(int next, char **argv, int up, int killed, bool clean, bool nothing, const char *what)
{
	struct scene s = { .argv = argv, .ready = sweep_on_word };
	pid_t pid = start_elector(&s);

	come_true(&shared->up, up);
	come_true(&shared->started, 1);
	int before = survivors(false);
	shared->next = next;
	shared->word = 1;
	come_true(&shared->swept, 1);
	if (!ok(shared->asked && shared->killed == killed && shared->clean == clean && shared->nothing == nothing, "%s",
	        what))
		printf("# %d killed, %s, %s\n", shared->killed, shared->clean ? "clean" : "not clean",
		       shared->nothing ? "nothing there" : "by the guard");
	is_int(before - survivors(false), killed, "and nothing else dies");
	shared->stop_storm = 1;
	ok(wait_exit(pid) && survivors_in_time(0) == 0, "until the crew ends");
	end_survivors();
}

static void sweep(char **argv, int up, int killed, bool clean, bool nothing, const char *what)
{
	sweep_of(0, argv, up, killed, clean, nothing, what);
}

static void test_sweeps(void)
{
	sweep(WORKER("echo"), 0, 0, true, true, "a sweep of nothing is clean");
	sweep(WORKER("sweep", "0"), 6, 2, true, false,
	      "a sweep kills that term's leftovers, not other terms', not another tree's");
	sweep(WORKER("sweep", "1"), 7, 2, false, false, "with a process of no term about, it is not clean");
	sweep(WORKER("breeding"), 1, 1, true, false, "an orphan of the term is found");
	sweep(WORKER("tree"), 15, 0, true, false, "children that the worker forked without a term are its own");
	sweep_of(2, WORKER("sweep_next"), 8, 2, true, false,
	         "what an on_next left is killed, not what an earlier one, a term or another tree has");
}

/* ---- tests: commands ---- */

static void command(int want, const char *what, char **argv)
{
	struct scene s = { .argv = argv, .command = true };

	if (!ok(run(&s) && shared->ended == 1 && shared->ended_status == want && shared->reaped, "%s", what))
		printf("# ended %d times, status 0x%x, gone %d\n", shared->ended, shared->ended_status, shared->gone);
}

static void signal_command(struct elector *e)
{
	/* The group: the shell dies, and so does what it waits for. It is up when the file says so. */
	come_true(&shared->up, 1);
	supervisor_signal(e->supervisor, SIGUSR2);
}

static void test_commands(void)
{
	int in[2];
	struct scene s = { .argv = WORKER("/proc/self/exe", "-x", "pause"),
		           .command = true,
		           .spawned = signal_command };

	command(42 << 8, "a command's status is reported", WORKER("sh", "-c", "exit 42"));
	command(SIGTERM, "and its signal", WORKER("sh", "-c", "kill -TERM $$"));
	command(127 << 8, "127 if it is not found", WORKER("no-such-command-at-all"));
	command(126 << 8, "126 if it cannot be executed", WORKER("/etc/passwd"));
	command(0, "it is in a process group of its own",
	        WORKER("sh", "-c", "test $(cut -d' ' -f5 /proc/$$/stat) = $$"));
	command(0, "what it leaves behind is killed", WORKER("sh", "-c", "setsid sleep 1000 & sleep 1000 & exit 0"));
	is_int(survivors(false), 0, "all of it");
	command(0, "its environment has no term of its own accord", WORKER("sh", "-c", "test -z \"$LUNARCH_TERM\""));
	ok(run(&s) && shared->ended_status == SIGUSR2, "crew_signal reaches the command");

	int was = dup(0);
	if (pipe(in) < 0 || write(in[1], "hello\n", 6) != 6)
		return;
	dup2(in[0], 0);
	close(in[0]);
	close(in[1]);
	command(0, "standard input is passed through, to its end",
	        WORKER("sh", "-c", "read x && test \"$x\" = hello && ! read y"));
	dup2(was, 0);
	int passed = dup2(was, 9);
	close(was);
	command(0, "a descriptor that was handed to us is handed on", WORKER("sh", "-c", "test -e /proc/self/fd/9"));
	close(passed);
}

/* stdout's reader must see its end when the command ends, though a child of the elector's might hold it. */
static void test_output(void)
{
	struct scene s = { .argv = WORKER("sh", "-c", "echo out; exec sleep 1000"), .command = true };
	char text[64];
	int out[2];

	if (pipe2(out, O_CLOEXEC) < 0)
		return;
	fflush(stdout);
	int was = fcntl(1, F_DUPFD_CLOEXEC, 10);
	dup2(out[1], 1);
	close(out[1]);
	pid_t pid = start_elector(&s);
	dup2(was, 1);
	close(was);
	ssize_t n = read(out[0], text, sizeof text - 1);
	text[n > 0 ? n : 0] = '\0';
	is_str(text, "out\n", "standard output is passed through");
	kill(pid, SIGKILL);
	is_int(read(out[0], text, sizeof text), 0, "and ends with the tree, when the elector was killed");
	is_int(survivors_in_time(0), 0, "which is dead");
	close(out[0]);
}

static void test_terminal(void)
{
	struct scene s = { .argv = WORKER("/proc/self/exe", "-x", "terminal"), .command = true, .foreground = true };
	int master, slave;

	forget();
	if (openpty(&master, &slave, NULL, NULL, NULL) < 0) {
		printf("ok %d # SKIP no pseudo-terminal\n", ++tap_count);
		return;
	}
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		setsid();
		ioctl(slave, TIOCSCTTY, 0);
		dup2(slave, 0);
		int status = elector(&s);
		shared->word = tcgetpgrp(0) == getpgrp();
		_exit(status);
	}
	close(slave);
	ok(wait_exit(pid) && shared->ended_status == 7 << 8,
	   "a command on a terminal has the foreground, again after a stop");
	ok(shared->stopped == 1 && shared->continued == 1, "its stop and its continuation are reported");
	is_int(shared->word, 1, "the terminal is given back in the end");
	close(master);
}

/* ---- measurements ---- */

static int compare(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static void print_memory(pid_t pid, const char *who)
{
	char path[40], line[128];

	snprintf(path, sizeof path, "/proc/%d/smaps_rollup", pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, "Pss:", 4) == 0 || strncmp(line, "Private_Dirty:", 14) == 0)
			printf("# %s %s", who, line);
	if (f)
		fclose(f);
}

static void measure(void)
{
	struct scene s = { .argv = WORKER("echo"), .ready = kill_supervisor };
	int64_t took[20];

	for (int i = 0; i < 20; i++) {
		run(&s);
		took[i] = shared->at[1] - shared->at[0];
	}
	qsort(took, 20, sizeof *took, compare);
	printf("# spawn to the worker's first message, of a guard that is %s: median %lld us\n",
	       forked ? "a fork" : "executed", (long long)took[10] / 1000);
	s.ready = NULL;
	pid_t pid = start_elector(&s);
	come_true(&shared->started, 1);
	print_memory(shared->guard, "idle guard");
	kill(pid, SIGKILL);
	survivors_in_time(0);
}

static void test_all(void)
{
	test_exit();
	test_crash();
	test_inheritance();
	test_prepared();
	test_messages();
	test_bad_workers();
	test_deadline();
	test_hostile();
	test_extension();
	test_first_term();
	test_fates();
	test_two_supervisors();
	test_strangers();
	test_stopped_guard();
	test_unkillable();
	test_many();
	test_storm();
	test_sweeps();
	test_commands();
	test_output();
	test_terminal();
	measure();
}

/* As main.c starts it: the arguments after the role's name. */
static int worker_role(int argc, char **argv, int go)
{
	sigset_t none;

	(void)argc;
	guard_await_go(go);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	return role(argv - 1);
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "-x") == 0)
		return strcmp(argv[2], "guard") == 0 ? guard_main(argc - 3, argv + 3, worker_role) : role(argv + 2);
	alarm(600); /* what hangs has failed */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	shared_fd = memfd_create("shared", 0);
	if (ftruncate(shared_fd, sizeof *shared) < 0)
		return 1;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
	for (int i = 0; i < 2; i++) {
		forked = i == 0;
		printf("# the guard is %s\n", forked ? "a fork of its elector" : "executed");
		test_all();
	}
	return tap_done();
}
