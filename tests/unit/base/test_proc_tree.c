/* Process trees: found whole, whoever their parents are by now, killed whole, and asked for their environment. */
#include "base/clock.h"
#include "base/proc_tree.h"
#include "proc_look.h"
#include "tap.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static struct tree tree;

struct found {
	pid_t pid[4096];
	int n;
	pid_t skip; /* not entered */
};

static bool note(void *arg, pid_t pid)
{
	struct found *f = arg;

	if (f->n < 4096)
		f->pid[f->n++] = pid;
	return pid != f->skip;
}

static bool has(const struct found *f, pid_t pid)
{
	for (int i = 0; i < f->n; i++)
		if (f->pid[i] == pid)
			return true;
	return false;
}

static bool same(const struct found *a, const struct found *b)
{
	for (int i = 0; i < a->n; i++)
		if (!has(b, a->pid[i]))
			return false;
	return a->n == b->n;
}

/* Shared by all the processes of a test: who is up. */
static struct {
	_Atomic int n;
	_Atomic pid_t pid[4096];
} * up;

static void report(void)
{
	up->pid[up->n++] = getpid();
}

static void wait_up(int n)
{
	for (int i = 0; i < 120000 && up->n < n; i++)
		usleep(1000);
	if (up->n < n)
		printf("# only %d of %d came up\n", up->n, n);
}

static void wait_for_ever(void)
{
	report();
	for (;;)
		pause();
}

static void *fork_in_thread(void *arg)
{
	if (fork() == 0)
		wait_for_ever();
	pause();
	return arg;
}

/* 8 processes: this one, a chain of three, two that double-fork out of the session, one of a thread, one stopped. */
static void family(void)
{
	pthread_t t;

	for (int i = 0; i < 2; i++) {
		pid_t middle = fork();
		if (middle == 0) {
			setsid();
			if (fork() == 0)
				wait_for_ever();
			_exit(0);
		}
		waitpid(middle, NULL, 0);
	}
	if (fork() == 0) {
		if (fork() == 0) {
			if (fork() == 0)
				wait_for_ever();
			wait_for_ever();
		}
		signal(SIGTERM, SIG_IGN);
		wait_for_ever();
	}
	if (fork() == 0) {
		report();
		raise(SIGSTOP);
	}
	pthread_create(&t, NULL, fork_in_thread, NULL);
	wait_for_ever();
}

/* As the guard does it. */
static int kill_and_reap(int *walks)
{
	int reaped = 0;

	for (*walks = 1;; ++*walks) {
		pid_t pid;
		tree_kill(&tree, getpid());
		while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
			reaped++;
		if (pid < 0)
			return reaped;
		usleep(500);
	}
}

static void test_family(void)
{
	static struct found a, b, c;
	int walks;

	up->n = 0;
	pid_t top = fork();
	if (top == 0)
		family();
	wait_up(8);
	ok(tree_walk(&tree, getpid(), note, &a), "a tree fits a walk");
	is_int(a.n, 8,
	       "the walk finds the whole family: orphans, chains, other sessions, a thread's child, a stopped one");
	ok(has(&a, top) && !has(&a, getpid()), "with its top and without the root");
	tree_walk_scan(&tree, getpid(), note, &b);
	ok(same(&a, &b), "a scan by parents finds the same");
	c.skip = top;
	tree_walk(&tree, getpid(), note, &c);
	is_int(c.n, 3, "whom the visitor does not enter shows no descendants: the top and two orphans are left");
	c.n = 0;
	tree_walk_scan(&tree, getpid(), note, &c);
	is_int(c.n, 3, "nor in a scan");
	a.n = 0;
	tree_walk(&tree, top, note, &a);
	is_int(a.n, 5, "the walk of another root finds what is below it");
	is_int(kill_and_reap(&walks), 8, "killed and reaped, all of them");
	printf("# in %d walks\n", walks);
}

static void test_many(void)
{
	int walks;

	up->n = 0;
	pid_t top = fork();
	if (top == 0) {
		for (int i = 0; i < 1000; i++)
			if (fork() == 0)
				wait_for_ever();
		wait_for_ever();
	}
	wait_up(1001);
	nsec before = clock_now().boot;
	int reaped = kill_and_reap(&walks);
	printf("# killed 1001 in %lld ms, %d walks\n", (long long)((clock_now().boot - before) / NSEC_PER_MS), walks);
	is_int(reaped, 1001, "a process with 1,000 children is killed and reaped with all of them");
}

static void chain(int depth)
{
	while (depth-- && fork() == 0)
		;
	wait_for_ever();
}

static void test_deep(void)
{
	int walks;

	up->n = 0;
	if (fork() == 0)
		chain(499);
	wait_up(500);
	is_int(kill_and_reap(&walks), 500, "a chain 500 deep is too");
	printf("# in %d walks\n", walks);
}

/* ---- a tree of one process ---- */

/* What a process does whose descendants are looked for. Each reports itself and who else is to be there. */
static void alone(void)
{
}

static void with_child(void)
{
	if (fork() == 0)
		wait_for_ever();
}

static void with_zombie(void)
{
	pid_t pid = fork();
	siginfo_t info;

	if (pid == 0)
		_exit(0);
	waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
	report();
}

static void with_orphan(void)
{
	pid_t middle = fork();

	if (middle == 0) {
		if (fork() == 0)
			wait_for_ever();
		_exit(0);
	}
	waitpid(middle, NULL, 0);
}

static void *pause_in_thread(void *arg)
{
	report();
	pause();
	return arg;
}

static void with_threads(void)
{
	pthread_t t;

	for (int i = 0; i < 3; i++)
		pthread_create(&t, NULL, pause_in_thread, NULL);
}

static void with_child_of_thread(void)
{
	pthread_t t;

	pthread_create(&t, NULL, fork_in_thread, NULL);
}

static void with_many_threads(void)
{
	pthread_t t;

	for (int i = 0; i < 2 * TREE_ONLY_THREADS; i++)
		pthread_create(&t, NULL, pause_in_thread, NULL);
	pthread_create(&t, NULL, fork_in_thread, NULL);
}

static bool is_only(void (*what)(void), int count)
{
	int walks;

	up->n = 0;
	pid_t child = fork();
	if (child == 0) {
		what();
		wait_for_ever();
	}
	wait_up(count);
	bool only = tree_is_only(getpid(), child);
	kill_and_reap(&walks);
	return only;
}

static void test_only(void)
{
	struct rlimit was, few;
	siginfo_t info;

	ok(is_only(alone, 1), "a process without children is all that its parent has");
	ok(is_only(with_threads, 4), "also if it has threads");
	ok(!is_only(with_child, 2), "one with a child is not");
	ok(!is_only(with_zombie, 2), "nor is one whose child is a zombie");
	ok(!is_only(with_child_of_thread, 2), "nor one with a thread that has a child");
	ok(!is_only(with_many_threads, 2 * TREE_ONLY_THREADS + 2), "nor one with more threads than are looked at");
	ok(!is_only(with_orphan, 2), "nor one beside an orphan that came from it");
	pid_t child = fork();
	if (child == 0)
		_exit(0);
	waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT);
	ok(tree_is_only(getpid(), child), "a zombie is still there");
	getrlimit(RLIMIT_NOFILE, &was);
	int next = dup(0);
	close(next);
	few = was;
	few.rlim_cur = (rlim_t)next;
	setrlimit(RLIMIT_NOFILE, &few);
	bool only = tree_is_only(getpid(), child);
	setrlimit(RLIMIT_NOFILE, &was);
	ok(!only, "without a descriptor left it is not sure");
	waitpid(child, NULL, 0);
	ok(!tree_is_only(getpid(), child), "one that was reaped is not there");
}

/* ---- environment ---- */

static const char *const names[] = { "found", "missing", "unreadable", "gone" };

/* Starts a process with this environment; it says with SIGSTOP, by way of its parent, that it has come past execve. */
static pid_t start(char **env)
{
	char *argv[] = { "sh", "-c", "kill -STOP $$", NULL };
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		execve("/bin/sh", argv, env);
		_exit(127);
	}
	waitpid(pid, &status, WUNTRACED);
	return pid;
}

static void end(pid_t pid)
{
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void expect(char **env, enum tree_env want, const char *want_value, const char *what)
{
	char value[32];
	pid_t pid = start(env);
	enum tree_env got = tree_env(pid, "MARK", value, sizeof value);

	if (!ok(got == want && strcmp(value, want_value) == 0, "%s", what))
		printf("# %s '%s', wanted %s '%s'\n", names[got], value, names[want], want_value);
	end(pid);
}

/* The entry begins at every place around the border between two reads. */
static void test_borders(void)
{
	static char filler[5000];
	int wrong = 0, reads = 0;

	for (int at = 4080; at <= 4100; at++) {
		char value[32];
		memset(filler, 'x', sizeof filler);
		filler[1] = '=';
		filler[at] = '\0';
		char *env[] = { filler, "MARK=12.345", "Z=", NULL };
		pid_t pid = start(env);
		wrong += tree_env(pid, "MARK", value, sizeof value) != TREE_ENV_FOUND || strcmp(value, "12.345") != 0;
		reads++;
		end(pid);
	}
	is_int(wrong, 0, "an entry is found wherever the border between two reads falls in it");
	printf("# %d places\n", reads);
}

static void test_env(void)
{
	char value[32], small[4];

	expect((char *[]){ "A=1", "MARK=3.7", NULL }, TREE_ENV_FOUND, "3.7", "a variable is found with its value");
	expect((char *[]){ "MARK=", NULL }, TREE_ENV_FOUND, "", "an empty value is found");
	expect((char *[]){ "XMARK=1", "MARKX=2", "A=MARK=3", "MARK", NULL }, TREE_ENV_MISSING, "",
	       "only a whole name at the start of an entry counts");
	expect((char *[]){ "MARK=1", "MARK=2", NULL }, TREE_ENV_FOUND, "1", "the first of two counts, as for getenv");
	expect((char *[]){ "MARK=a=b c", NULL }, TREE_ENV_FOUND, "a=b c", "the value goes to the end of the entry");
	expect((char *[]){ NULL }, TREE_ENV_MISSING, "", "an empty environment is not a dead process");
	expect((char *[]){ "MMARK=1", "MAMARK=2", "MARK=3", NULL }, TREE_ENV_FOUND, "3", "false starts do not hide it");
	test_borders();

	pid_t pid = start((char *[]){ "MARK=123456", NULL });
	ok(tree_env(pid, "MARK", small, sizeof small) == TREE_ENV_FOUND && strcmp(small, "123") == 0,
	   "a long value is cut");
	kill(pid, SIGKILL);
	siginfo_t info;
	waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
	ok(tree_env(pid, "MARK", value, sizeof value) == TREE_ENV_GONE, "a zombie is gone");
	waitpid(pid, NULL, 0);
	ok(tree_env(pid, "MARK", value, sizeof value) == TREE_ENV_GONE, "and so is a process that was reaped");
}

static void *go_on(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* A process whose main has left it to another thread. */
static int leaderless(void)
{
	pthread_t t;

	if (pthread_create(&t, NULL, go_on, NULL) != 0)
		return 9;
	pthread_exit(NULL);
}

/* It looks like a zombie, shows no environment, and lives. */
static void test_leaderless(void)
{
	char value[32], *argv[] = { "test", "leaderless", NULL }, *env[] = { "A=1", "MARK=3.7", NULL };
	pid_t pid = fork();
	siginfo_t info;

	if (pid == 0) {
		execve("/proc/self/exe", argv, env);
		_exit(127);
	}
	for (int i = 0; i < 60000 && state_of(pid) != 'Z'; i++)
		usleep(1000);
	ok(state_of(pid) == 'Z' && !tree_dead(pid), "a process whose first thread has ended is not dead");
	ok(tree_env(pid, "MARK", value, sizeof value) == TREE_ENV_FOUND && strcmp(value, "3.7") == 0,
	   "and its environment is found by another thread's");
	ok(tree_env(pid, "OTHER", value, sizeof value) == TREE_ENV_MISSING, "what is not in that is missing, not gone");
	kill(pid, SIGKILL);
	waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
	ok(tree_dead(pid) && tree_env(pid, "MARK", value, sizeof value) == TREE_ENV_GONE,
	   "when the last thread has ended it is dead");
	waitpid(pid, NULL, 0);
}

/* Somebody else's process: ours as seen by nobody, or that of process 1 as seen by us. */
static void test_unreadable(void)
{
	char value[32];
	int status;
	bool root = getuid() == 0;
	pid_t pid = root ? start((char *[]){ "MARK=1", NULL }) : 1;
	pid_t nobody = fork();

	if (nobody == 0) {
		if (root && setuid(65534) < 0)
			_exit(9);
		_exit((int)tree_env(pid, "MARK", value, sizeof value));
	}
	waitpid(nobody, &status, 0);
	is_int(WEXITSTATUS(status), TREE_ENV_UNREADABLE, "another user's process is unreadable, not gone");
	if (root)
		end(pid);
}

/* If /proc cannot be read, processes may be left that were not seen: the elector must not release the lease. */
static void test_blind(void)
{
	struct rlimit was, few;
	struct found f = { 0 };
	char value[8];
	pid_t pid = start((char *[]){ "MARK=1", NULL });

	getrlimit(RLIMIT_NOFILE, &was);
	int next = dup(0);
	close(next);
	few = was;
	for (int left = 0; left <= 1; left++) {
		few.rlim_cur = (rlim_t)(next + left);
		setrlimit(RLIMIT_NOFILE, &few);
		bool whole = tree_walk(&tree, getpid(), note, &f), scanned = tree_walk_scan(&tree, getpid(), note, &f);
		enum tree_env env = tree_env(pid, "MARK", value, sizeof value);
		bool dead = tree_dead(pid);
		setrlimit(RLIMIT_NOFILE, &was);
		ok(!whole && !scanned, "with %d descriptors left a walk is not whole", left);
		if (left == 0)
			ok(env == TREE_ENV_UNREADABLE && !dead, "and nobody is taken for dead");
	}
	ok(tree_walk(&tree, getpid(), note, &f), "with enough of them it is");
	end(pid);
}

/* keep: the end of the pipe that it holds; its own session, or the group of that number. */
static pid_t hold(const int *fds, int keep, pid_t group)
{
	pid_t pid = fork();

	if (pid)
		return pid;
	close(fds[!keep]);
	if (group < 0 ? setsid() < 0 : setpgid(0, group) < 0)
		_exit(1);
	wait_for_ever();
	return 0;
}

/* It ends by the signal that comes now, and by none of before. */
static bool was_spared(pid_t pid)
{
	int status = 0;

	kill(pid, SIGTERM);
	return waitpid(pid, &status, 0) == pid && WTERMSIG(status) == SIGTERM;
}

static void test_writers(void)
{
	int fds[2], status = 0;
	char path[32], name[64] = "";

	up->n = 0;
	if (pipe(fds) < 0)
		exit(1);
	snprintf(path, sizeof path, "/proc/self/fd/%d", fds[1]);
	if (readlink(path, name, sizeof name - 1) < 0)
		exit(1);
	pid_t writer = hold(fds, 1, -1), reader = hold(fds, 0, -1), spared = hold(fds, 1, 0);
	wait_up(3);
	tree_signal_writers(&tree, getpid(), spared, name, SIGKILL);
	ok(waitpid(writer, &status, 0) == writer && WTERMSIG(status) == SIGKILL,
	   "who holds a pipe open for writing gets the signal, whatever its session");
	ok(was_spared(reader), "who only reads it does not");
	ok(was_spared(spared), "nor does the group that is left out, nor the caller");
	close(fds[0]);
	close(fds[1]);
}

static void test_users(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	ok(proc_has_uid((uint64_t)pid, geteuid()), "a child is our user's");
	waitpid(pid, NULL, 0);
	ok(!proc_has_uid((uint64_t)pid, geteuid()), "what has ended is nobody's");
}

int main(int argc, char **argv)
{
	(void)argv;
	if (argc > 1)
		return leaderless();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	up = mmap(NULL, sizeof *up, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	test_family();
	test_only();
	test_env();
	test_users();
	test_leaderless();
	test_unreadable();
	test_blind();
	test_writers();
	test_many(); /* a second and more: what fails above does not wait for it */
	test_deep();
	return tap_done();
}
