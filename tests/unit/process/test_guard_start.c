/* How a guard is started: as a fork of its elector, or executed. Real processes: an elector is a forked child of this
 * test; a guard that is executed is this same binary, with `-x guard`. Whatever /proc shows of guard and worker must be
 * the same either way. What guards do is in test_supervisor.c and test_held.c, which run with both kinds. */
#include "base/proc.h"
#include "base/proc_tree.h"
#include "election/death_proof.h"
#include "loop/reaper.h"
#include "process/guard.h"
#include "process/guard_start.h"
#include "proc_look.h"
#include "process/supervisor.h"
#include "tap.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 60.
#endif

static struct shared {
	_Atomic pid_t guard, worker, elector;
	_Atomic int gone;
} * shared;

static int shared_fd;
static char mark[64];

/* ---- the processes ---- */

/* In the worker's place: says who it is, and waits. */
static int worker_role(int argc, char **argv, int go)
{
	(void)argc, (void)argv;
	guard_await_go(go);
	struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(getenv("TEST_SHARED")), 0);
	s->worker = getpid();
	for (;;)
		pause();
	return 0;
}

static void let_go(void *arg)
{
	reaper_let_go(arg);
}

static void on_gone(void *arg, bool reaped, int status)
{
	(void)arg, (void)reaped, (void)status;
	_exit(0);
}

static const struct supervisor_callbacks callbacks = { .gone = on_gone };

struct scene {
	bool fork, command;
	void (*before)(void); /* in the elector, before it starts its guard */
};

static void on_signal(struct ev_loop *loop, ev_signal *w, int events)
{
	(void)loop, (void)w, (void)events;
}

/* It handles signals, ignores one, and has descriptors of its own, as electors do. */
__attribute__((noreturn)) static void elector(const struct scene *s)
{
	char shared_var[40], mark_var[96], a[] = "A=new", *unset[] = { "B", NULL };
	char *env[] = { shared_var, mark_var, a, NULL };
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	struct reaper *reaper = reaper_new(loop);
	struct err err = { 0 };
	sigset_t ignored;
	ev_signal usr1;

	if (reaper_adopt(reaper, &err) < 0)
		_exit(98);
	snprintf(shared_var, sizeof shared_var, "TEST_SHARED=%d", shared_fd);
	snprintf(mark_var, sizeof mark_var, PROOF_ENV "=%s", mark);
	ev_signal_init(&usr1, on_signal, SIGUSR1);
	ev_signal_start(loop, &usr1);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	sigemptyset(&ignored);
	sigaddset(&ignored, SIGHUP);
	if (s->before)
		s->before();
	const struct guard_fork fork = { .worker = worker_role, .let_go = let_go, .arg = reaper };
	struct supervisor_spec spec = { .argv = s->command ? (char *[]){ "sleep", "1000", NULL }
		                                           : (char *[]){ "text", "info", "", "eval", "x", NULL },
		                        .command = s->command,
		                        .held = s->command,
		                        .ignored = &ignored,
		                        .env = env,
		                        .unset = unset,
		                        .tree_fd = shared_fd,
		                        .kill_allowance = 60 * NSEC_PER_SEC,
		                        .fork = s->fork ? &fork : NULL };
	if (!supervisor_spawn(reaper, &spec, &callbacks, NULL, &err)) {
		printf("# %s\n", err.text);
		_exit(97);
	}
	shared->elector = getpid();
	ev_run(loop, 0);
	_exit(0);
}

/* A guard sleeps when it has begun what it is for, and nowhere before that. */
static bool guard_begun(const struct scene *s, pid_t elector)
{
	struct proc_stat stat;

	shared->guard = child_of(elector);
	return (s->command ? shared->elector : shared->worker) && proc_stat((uint64_t)shared->guard, &stat) == 0 &&
	       stat.state == 'S';
}

static pid_t start(const struct scene *s)
{
	memset(shared, 0, sizeof *shared);
	snprintf(mark, sizeof mark, "test-%d-%lld", getpid(), (long long)clock_now().boot);
	setenv("A", "old", 1);
	setenv("LUNARCH_TERM", "7.7", 1);
	setenv("B", "secret", 1);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		elector(s);
	for (int i = 0; i < PATIENCE_S * 1000 && !guard_begun(s, pid); i++)
		usleep(1000);
	return pid;
}

static void end(pid_t elector)
{
	pid_t guard = shared->guard;

	kill(elector, SIGKILL);
	waitpid(elector, NULL, 0);
	for (int i = 0; i < PATIENCE_S * 1000 && waitpid(guard, NULL, WNOHANG) == 0; i++) /* this is a subreaper */
		usleep(1000);
}

/* ---- what /proc shows ---- */

struct seen {
	char text[16384];
	size_t len;
};

static void see(pid_t pid, const char *what, struct seen *s)
{
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/%s", pid, what);
	ssize_t n = proc_slurp(path, s->text, sizeof s->text);
	s->len = n > 0 ? (size_t)n : 0;
}

static bool same(const struct seen *a, const struct seen *b)
{
	return a->len == b->len && memcmp(a->text, b->text, a->len) == 0;
}

static bool has(pid_t pid, const char *what, const char *text)
{
	struct seen s;

	see(pid, what, &s);
	return memmem(s.text, s.len, text, strlen(text)) != NULL;
}

/* Signals that libraries see to: posix_spawn(3) leaves two ignored that the thread library keeps for itself, and a
 * sanitizer handles SIGBUS, SIGFPE and SIGSEGV in what is executed. */
static void without_library_signals(char *line)
{
	const unsigned long long theirs = 3ULL << 31 | 1 << (SIGBUS - 1) | 1 << (SIGFPE - 1) | 1 << (SIGSEGV - 1);

	if (strncmp(line, "SigIgn:", 7) == 0 || strncmp(line, "SigCgt:", 7) == 0)
		snprintf(line + 8, 17, "%016llx", strtoull(line + 8, NULL, 16) & ~theirs);
}

/* Lines of /proc/PID/status about signals, name and rights. */
static void see_status(pid_t pid, struct seen *out)
{
	static const char *const lines[] = { "Name:",   "Uid:",        "Gid:",    "SigPnd:", "ShdPnd:",
		                             "SigBlk:", "SigIgn:",     "SigCgt:", "CapInh:", "CapPrm:",
		                             "CapEff:", "NoNewPrivs:", "Threads:" };
	struct seen s;
	char *at = s.text;

	see(pid, "status", &s);
	out->len = 0;
	for (char *line; (line = strsep(&at, "\n"));) {
		without_library_signals(line);
		for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
			if (strncmp(line, lines[i], strlen(lines[i])) == 0)
				out->len += (size_t)snprintf(out->text + out->len, sizeof out->text - out->len, "%s\n",
				                             line);
	}
}

/* Which descriptors there are, and of what kind. */
static void see_descriptors(pid_t pid, struct seen *out)
{
	out->len = 0;
	for (int fd = 0; fd < 100; fd++) {
		char path[64], target[100] = "";
		snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
		if (readlink(path, target, sizeof target - 1) <= 0)
			continue;
		target[strcspn(target, "0123456789[")] = '\0'; /* "socket:", "/proc/": without its number */
		out->len += (size_t)snprintf(out->text + out->len, sizeof out->text - out->len, "%d %s\n", fd, target);
	}
}

/* Mappings of the page that can be written. */
static int writable_pages(pid_t pid)
{
	char path[64], line[300];
	int n = 0;

	snprintf(path, sizeof path, "/proc/%d/maps", pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		n += strstr(line, "lunarch-page") && strstr(line, " rw-s ");
	if (f)
		fclose(f);
	return n;
}

/* It has executed nothing since: PF_FORKNOEXEC, include/linux/sched.h, in field 9 of proc(5)'s stat. */
static bool is_fork(pid_t pid)
{
	struct seen s;

	see(pid, "stat", &s);
	char *at = strrchr(s.text, ')');
	for (int field = 2; at && field < 9; field++)
		at = strchr(at + 1, ' ');
	return at && strtoul(at, NULL, 10) & 0x40;
}

/* ---- tests ---- */

static bool shows_its_tree(pid_t pid)
{
	char value[96];

	return tree_env(pid, PROOF_ENV, value, sizeof value) == TREE_ENV_FOUND && strcmp(value, mark) == 0;
}

/* The marks differ in their last digits, as their times do. */
static void without_mark(struct seen *s)
{
	char *at = memmem(s->text, s->len, PROOF_ENV "=", strlen(PROOF_ENV) + 1);

	for (; at && *at; at++)
		*at = 'x';
}

static void look_at(pid_t pid, struct seen *seen)
{
	see(pid, "environ", &seen[0]);
	without_mark(&seen[0]);
	see(pid, "cmdline", &seen[1]);
	see_status(pid, &seen[2]);
	see_descriptors(pid, &seen[3]);
}

static const char *const looks[] = { "environment", "arguments", "name, rights and signals", "descriptors" };
#define LOOKS (sizeof looks / sizeof *looks)

/* seen[0]: of the fork */
static void compare(struct seen (*seen)[LOOKS], const char *who)
{
	for (size_t i = 0; i < LOOKS; i++)
		if (!ok(seen[0][i].len && same(&seen[0][i], &seen[1][i]), "%s: the same %s", who, looks[i]))
			printf("# a fork: %.*s\n# executed: %.*s\n", (int)seen[0][i].len, seen[0][i].text,
			       (int)seen[1][i].len, seen[1][i].text);
}

static void test_same(bool command)
{
	static struct seen guard[2][LOOKS], worker[2][LOOKS];

	for (int kind = 0; kind < 2; kind++) {
		struct scene s = { .fork = kind == 0, .command = command };
		pid_t pid = start(&s);
		ok(is_fork(shared->guard) == s.fork, "the guard of a %s is %s",
		   command ? "command that is held" : "worker", s.fork ? "a fork" : "executed");
		ok(shows_its_tree(shared->guard), "its environment shows its tree");
		if (!command)
			ok(shows_its_tree(shared->worker), "so does its worker's");
		ok(!has(shared->guard, "environ", "secret"), "it shows nothing that was to be removed");
		ok(has(shared->guard, "environ", "A=new") && !has(shared->guard, "environ", "A=old"),
		   "nor what was replaced");
		ok(has(shared->guard, "environ", command ? "LUNARCH_TERM=7.7" : "LUNARCH_TERM=-"),
		   command ? "a command is of the term that its lunarch is of" : "a worker is outside any term");
		is_int(writable_pages(shared->guard), 1, "it can write marks, and no deadlines");
		look_at(shared->guard, guard[kind]);
		if (!command) {
			is_int(writable_pages(shared->worker), 0, "its worker has neither, before it maps the page");
			look_at(shared->worker, worker[kind]);
		}
		end(pid);
	}
	compare(guard, "guard");
	if (!command)
		compare(worker, "worker");
}

/* The kernel shows no other environment: as where it was built without, or a filter forbids it. */
static void forbid_showing(void)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_prctl, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, PR_SET_MM, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { .len = sizeof filter / sizeof *filter, .filter = filter };

	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(96);
}

static void test_cannot_show(void)
{
	struct scene s = { .fork = true, .before = forbid_showing };
	pid_t pid = start(&s);

	ok(shared->guard && !is_fork(shared->guard), "a fork that cannot show its tree is executed after all");
	ok(shows_its_tree(shared->guard) && shows_its_tree(shared->worker), "and shows it then");
	is_int(writable_pages(shared->worker), 0, "with a worker that can write no deadlines");
	end(pid);
}

static void *wait_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static void start_thread(void)
{
	pthread_t thread;

	pthread_create(&thread, NULL, wait_for_ever, NULL);
}

static void test_threads(void)
{
	struct scene s = { .fork = true, .before = start_thread };
	pid_t pid = start(&s);

	ok(shared->guard && !is_fork(shared->guard), "a process with threads executes its guard");
	end(pid);
}

/* In a child, which has the environment that this test was executed with. */
static int show(void)
{
	char words[] = "an argument\0another\0A=1\0B=2", *env = words + 20, *before = environ[0];
	size_t size = strlen(before) + 1;
	struct seen s;

	if (proc_show(words, 20, env, sizeof words - 20) < 0)
		return errno == EINVAL ? 77 : 1;
	for (size_t i = 0; i < size; i++)
		if (before[i])
			return 2;
	see(getpid(), "environ", &s);
	if (s.len != 8 || memcmp(s.text, env, 8) != 0)
		return 3;
	see(getpid(), "cmdline", &s);
	if (s.len != 20 || memcmp(s.text, words, 20) != 0)
		return 4;
	proc_title("guard", "x");
	see(getpid(), "cmdline", &s);
	return strcmp(s.text, "lunarch: guard x") == 0 ? 0 : 5;
}

static void test_show(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(show());
	waitpid(pid, &status, 0);
	is_int(status, 0, "/proc shows other words, also a title in their place, and those before are wiped");
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "-x") == 0)
		return guard_main(argc - 3, argv + 3, worker_role);
	alarm(600);  /* what hangs has failed */
	test_show(); /* before setenv(3) */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	shared_fd = memfd_create("shared", 0);
	if (ftruncate(shared_fd, sizeof *shared) < 0)
		return 1;
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
	test_same(false);
	test_same(true);
	test_cannot_show();
	test_threads();
	return tap_done();
}
