/* A guard whose command waits for its term (supervisor_spec.held), with real processes: an elector is a forked child of
 * this test; the guard is a fork of it, or this same binary, re-executed with `-x guard`. What the guard does for any
 * command is in test_supervisor.c. */
#include "base/proc_tree.h"
#include "election/death_proof.h"
#include "loop/reaper.h"
#include "process/guard.h"
#include "process/guard_start.h"
#include "process/privileges.h"
#include "proc_look.h"
#include "process/supervisor.h"
#include "tap.h"

#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 60. /* for what comes at once */
#endif

static struct shared {
	int begun, ended, gone, reaped, status;
	bool kept;
	double timer_s;
} * shared;

struct elector {
	struct ev_loop *loop;
	struct supervisor *supervisor;
};

static void on_ended(void *arg, int status)
{
	(void)arg, (void)status;
	shared->ended++;
}

static void on_gone(void *arg, bool reaped, int status)
{
	struct elector *e = arg;

	shared->gone++;
	shared->reaped = reaped;
	shared->status = status;
	supervisor_free(e->supervisor);
	ev_break(e->loop, EVBREAK_ALL);
}

static const struct supervisor_callbacks callbacks = { .ended = on_ended, .gone = on_gone };

static char mark[96], marked[128];

struct scene {
	char *command;           /* for sh -c */
	nsec kill_in;            /* its term's, from the time it begins; 0: an hour */
	nsec allow;              /* its kill allowance; 0: a minute */
	const char *environment; /* of the term; NULL: LUNARCH_TOKEN=7 */
	void (*before)(struct elector *e, pid_t guard);
	bool not_begun;
	void (*after)(struct elector *e, pid_t guard);
	int passed;
	bool no_privileges;
};

static void begin(struct elector *e, const struct scene *s)
{
	struct instant now = clock_now(), kill = instant_add(now, s->kill_in ? s->kill_in : 3600 * NSEC_PER_SEC);
	struct supervisor_term term = { .term = 3, .token = 7, .end = kill, .kill = kill };
	char *env[] = { (char *)(s->environment ? s->environment : "LUNARCH_TOKEN=7"), NULL };

	shared->begun = supervisor_begin(e->supervisor, &term, env);
}

static bool forked; /* the guards are forks */

static void let_go(void *arg)
{
	reaper_let_go(arg);
}

static int elector(const struct scene *s)
{
	if (s->passed)
		dup3(STDIN_FILENO, 8, O_CLOEXEC); /* the number is nobody else's */
	struct elector e = { .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV) };
	struct reaper *reaper = reaper_new(e.loop);
	const struct guard_fork fork = { .let_go = let_go, .arg = reaper };
	struct supervisor_spec spec = { .argv = (char *[]){ "sh", "-c", s->command, NULL },
		                        .command = true,
		                        .held = true,
		                        .no_privileges = s->no_privileges,
		                        .env = (char *[]){ marked, "LUNARCH_TOKEN=", NULL },
		                        .tree_fd = -1,
		                        .kill_allowance = s->allow ? s->allow : 60 * NSEC_PER_SEC,
		                        .passed = s->passed,
		                        .passed_as = s->passed ? 8 : 0,
		                        .fork = forked ? &fork : NULL };
	struct err err;

	if (reaper_adopt(reaper, &err) < 0)
		return 98;
	e.supervisor = supervisor_spawn(reaper, &spec, &callbacks, &e, &err);
	if (!e.supervisor)
		return 97;
	pid_t guard = child_of(getpid());
	if (s->before)
		s->before(&e, guard);
	if (!s->not_begun)
		begin(&e, s);
	if (s->after)
		s->after(&e, guard);
	ev_run(e.loop, 0);
	return 0;
}

static bool is_marked(void *arg, pid_t pid)
{
	char value[96];

	if (tree_env(pid, PROOF_ENV, value, sizeof value) == TREE_ENV_FOUND && strcmp(value, mark) == 0)
		kill(pid, SIGKILL), ++*(int *)arg;
	return true;
}

/* What an elector left; this test is the subreaper behind it. */
static int survivors(void)
{
	static struct tree tree;
	int n = 0;

	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	tree_walk(&tree, getpid(), is_marked, &n);
	return n;
}

/* Whether the elector saw its supervisor go in time, with all of its tree. A supervisor that never goes is a failure:
 * then the elector is killed. */
static bool run(const struct scene *s)
{
	static unsigned number;
	int status, waited = 0;

	memset(shared, 0, sizeof *shared);
	snprintf(mark, sizeof mark, "held-%d-%u", getpid(), ++number);
	snprintf(marked, sizeof marked, PROOF_ENV "=%s", mark);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_CHILD_SUBREAPER, 0);
		_exit(elector(s));
	}
	while (waitpid(pid, &status, WNOHANG) != pid) {
		usleep(1000);
		if (++waited > (int)(PATIENCE_S * 1000)) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			break;
		}
	}
	int left = survivors();
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 && shared->gone == 1 && shared->reaped && left == 0;
}

/* ---- what is done to them ---- */

static void wait_for_state(pid_t pid, int state)
{
	for (int i = 0; i < 60000 && state_of(pid) != state; i++)
		usleep(1000);
}

static void kill_it(struct elector *e, pid_t guard)
{
	(void)guard;
	supervisor_kill(e->supervisor);
}

static void kill_guard(struct elector *e, pid_t guard)
{
	(void)e;
	kill(guard, SIGKILL);
	wait_for_state(guard, 'Z');
}

static void stop_guard(struct elector *e, pid_t guard)
{
	(void)e;
	kill(guard, SIGSTOP);
	wait_for_state(guard, 'T');
}

static void continue_after_a_while(struct elector *e, pid_t guard)
{
	(void)e;
	usleep(20000);
	kill(guard, SIGCONT);
}

static void begin_again(struct elector *e, pid_t guard)
{
	const struct scene s = { .environment = "LUNARCH_TOKEN=8" };
	int begun = shared->begun;

	(void)guard;
	begin(e, &s);
	shared->begun = begun && !shared->begun;
}

/* Seconds until the elector's own timer fires, which is the one that counts suspend; -1: it has fired, or is not
 * set. */
static double timer_in(void)
{
	char path[40], line[100];
	double value = -1;

	for (int fd = 3; fd < 64 && value < 0; fd++) {
		bool boot = false;
		long whole, rest;
		snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
		FILE *f = fopen(path, "re");
		while (f && fgets(line, sizeof line, f)) {
			boot = boot || strcmp(line, "clockid: 7\n") == 0;
			if (boot && sscanf(line, "it_value: (%ld, %ld)", &whole, &rest) == 2 && whole + rest > 0)
				value = (double)whole + (double)rest / 1e9;
		}
		if (f)
			fclose(f);
	}
	return value;
}

/* An hour, again and again, as renewals do. */
static void extend(struct elector *e)
{
	struct instant kill = instant_add(clock_now(), 3600 * NSEC_PER_SEC);

	page_extend(&supervisor_page(e->supervisor)->slot[0], 3, kill, kill);
	supervisor_extended(e->supervisor);
}

static void extend_in_time(struct elector *e, pid_t guard)
{
	struct instant began = clock_now();

	extend(e);
	shared->kept = timer_in() < 1000 || elapsed_holder(began, clock_now()) > NSEC_PER_SEC;
	while (timer_in() < 1000 && elapsed_holder(began, clock_now()) < 60 * NSEC_PER_SEC) {
		usleep(20000);
		extend(e);
	}
	shared->timer_s = timer_in();
	kill_it(e, guard);
}

/* ---- tests ---- */

static char ends_with_42[] = "exit 42", never_ends[] = "setsid sleep 1000 & sleep 1000";

static void test_begun(void)
{
	char looks[] = "test \"$LUNARCH_TOKEN\" = 7 && grep -qz '^LUNARCH_TOKEN=7$' /proc/$$/environ && "
		       "grep -qz \"^LUNARCH_TREE=.\" /proc/$$/environ && exit 42";

	ok(run(&(struct scene){ .command = looks }) && shared->begun && shared->ended == 1 && shared->status == 42 << 8,
	   "it starts with the variables of its term, and its status is reported");
	ok(run(&(struct scene){ .command = ends_with_42, .after = begin_again }) && shared->begun &&
	           shared->status == 42 << 8,
	   "once only");
}

static void test_not_begun(void)
{
	struct scene never = { .command = ends_with_42, .not_begun = true, .after = kill_it };
	struct scene late = { .command = ends_with_42, .before = kill_it };

	ok(run(&never) && !shared->ended && shared->status == -1,
	   "it has not started when it is killed before its term");
	ok(run(&late) && !shared->begun && !shared->ended, "nor does it start after that");
}

static void test_deadline(void)
{
	struct scene late = {
		.command = ends_with_42, .kill_in = NSEC_PER_MS, .before = stop_guard, .after = continue_after_a_while
	};
	struct scene runs = { .command = never_ends, .kill_in = 100 * NSEC_PER_MS };

	ok(run(&late) && shared->begun && !shared->ended && shared->status == -1,
	   "it does not start if its term is over by then");
	ok(run(&runs) && shared->begun, "it is killed at its term's deadline, with all that it started");
}

/* Nothing reads the timer here, as it would fire. */
static void test_extended(void)
{
	struct scene extended = {
		.command = never_ends, .kill_in = 2 * NSEC_PER_SEC, .allow = 400 * NSEC_PER_MS, .after = extend_in_time
	};

	ok(run(&extended) && shared->kept, "a renewal leaves the elector's timer alone while it is far from firing");
	ok(shared->timer_s > 3590 && shared->timer_s < 3600.5,
	   "just before it fires, a renewal sets it for the new deadline, and no later");
	if (shared->timer_s < 0 || shared->timer_s > 3600)
		printf("# it fires in %.3f s\n", shared->timer_s);
}

static void test_guard_dies(void)
{
	struct scene held = { .command = ends_with_42, .before = kill_guard };
	struct scene told = { .command = ends_with_42, .before = stop_guard, .after = kill_guard };

	ok(run(&held) && !shared->begun && !shared->ended && shared->status == -1,
	   "a guard that has died before takes no term");
	ok(run(&told) && shared->begun && !shared->ended && shared->status == -1,
	   "the command of one that dies after it was told has no status");
}

static void test_does_not_fit(void)
{
	static char large[20000] = "LUNARCH_TOKEN=";

	memset(large + strlen(large), 'x', sizeof large - strlen(large) - 1);
	ok(run(&(struct scene){ .command = ends_with_42, .environment = large, .after = kill_it }) && !shared->begun &&
	           !shared->ended,
	   "it does not start in a term whose variables do not fit the order");
}

/* As a worker does: without an execve, which would take some of it away, too. */
static bool has_none_left(void)
{
	char line[100];
	int left = 0, lines = 0;
	FILE *f = fopen("/proc/self/status", "re");

	while (f && fgets(line, sizeof line, f)) {
		bool cap = strncmp(line, "Cap", 3) == 0 && (geteuid() == 0 || strncmp(line, "CapBnd", 6) != 0);
		lines += cap;
		left += cap && strspn(line + 8, "0") != 16;
	}
	if (f)
		fclose(f);
	return lines >= 4 && left == 0;
}

static void test_no_capabilities(void)
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(privileges_drop() == 0 && has_none_left() ? 42 : 1);
	waitpid(pid, &status, 0);
	ok(status == 42 << 8, "who gives privileges up has no capability, nor any in the bounding set");
}

/* Whoever runs this as root sees capabilities go as well. */
static void test_privileges(void)
{
	static char has_none[] =
		"grep -q '^NoNewPrivs:.1$' /proc/self/status && grep -q '^CapPrm:.0*$' /proc/self/status && "
		"grep -q '^CapEff:.0*$' /proc/self/status && exit 42";
	struct scene s = { .command = has_none, .no_privileges = true };

	ok(run(&s) && WIFEXITED(shared->status) && WEXITSTATUS(shared->status) == 42,
	   "a command that is to have no privileges has none, and gains none");
	s.no_privileges = false;
	ok(run(&s) && WIFEXITED(shared->status) && WEXITSTATUS(shared->status) != 42, "another keeps what there was");
}

static void test_passed(void)
{
	char says[] = "echo hello >&8", text[16] = "";
	int fd[2];

	if (pipe2(fd, O_CLOEXEC) < 0)
		return;
	ok(run(&(struct scene){ .command = says, .passed = fd[1] }) && shared->status == 0,
	   "it can write to a descriptor that it was passed");
	close(fd[1]);
	ssize_t n = read(fd[0], text, sizeof text - 1);
	is_str(n > 0 ? text : "", "hello\n", "under its number");
	close(fd[0]);
}

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "-x") == 0)
		return guard_main(argc - 3, argv + 3, NULL);
	alarm(600); /* what hangs has failed */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (int i = 0; i < 2; i++) {
		forked = i == 0;
		printf("# the guard is %s\n", forked ? "a fork of its elector" : "executed");
		test_begun();
		test_not_begun();
		test_deadline();
		test_extended();
		test_guard_dies();
		test_does_not_fit();
		test_passed();
		test_no_capabilities();
		test_privileges();
	}
	return tap_done();
}
