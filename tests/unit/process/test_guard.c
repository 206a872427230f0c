/* A guard alone, in a forked child of this test, which is its supervisor by hand: what it is started with is wrong or
 * missing, orders that come at a wrong time, notes that find no room, what it cannot start. What guard and supervisor
 * do together is in test_supervisor.c and test_held.c. */
#include "election/death_proof.h"
#include "process/deadline_page.h"
#include "process/guard.h"
#include "process/guard_wire.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 60.
#endif

/* LeakSanitizer wants descriptors and a process, of which some guards here have none left. A guard has no heap. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static struct page *page;
static int page_fd[PAGE_FILES];

struct scene {
	const char *kind;     /* worker, command, held */
	char **command;       /* not for a worker */
	guard_worker *worker; /* of a worker */
	void (*before)(void); /* in the guard's process, before it begins */
	uint32_t slots;       /* of its page, if not PAGE_SLOTS */
	bool says;            /* what it writes to standard error is in `said` */
	int control, elector; /* our ends */
	int theirs;           /* a copy of the guard's end of control */
	int error;            /* the end of standard error that is ours */
	pid_t pid;
	char said[2000];
};

/* Descriptors one after another from 3 on: so that a limit leaves none between. */
static int compact(const int *from, int n)
{
	int high[8];

	for (int i = 0; i < n; i++)
		high[i] = fcntl(from[i], F_DUPFD, 100);
	for (int i = 0; i < n; i++)
		dup2(high[i], 3 + i);
	close_range((unsigned)(3 + n), ~0U, 0);
	return 3 + n;
}

__attribute__((noreturn)) static void be_guard(struct scene *s, int control, int elector, int error)
{
	char text[5][12], *argv[20] = { text[0], "-1", text[1], text[2], "-1", text[3], (char *)s->kind };
	int n = 7, fds[4] = { control, page_fd[PAGE_DEADLINES], page_fd[PAGE_MARKS], elector };
	sigset_t all;

	if (s->says)
		dup2(error, STDERR_FILENO);
	compact(fds, 4);
	for (int i = 0; i < 4; i++)
		snprintf(text[i], sizeof text[i], "%d", 3 + i);
	for (char **c = s->command; c && *c; c++)
		argv[n++] = *c;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	if (s->before)
		s->before();
	exit(guard_main(n, argv, s->worker));
}

static void scene_start(struct scene *s)
{
	int control[2], elector[2], error[2];
	struct err err;

	page = page_new(s->slots ? s->slots : PAGE_SLOTS, page_fd, &err);
	if (!page || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0 ||
	    pipe2(elector, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0)
		printf("Bail out! %s\n", strerror(errno)), exit(1);
	fflush(stdout);
	s->pid = fork();
	if (s->pid == 0)
		be_guard(s, control[1], elector[0], error[1]);
	s->control = control[0];
	s->theirs = control[1];
	s->elector = elector[1];
	s->error = error[0];
	close(elector[0]);
	close(error[1]);
}

/* The next note, or one of type 0: the guard has closed, or sends none. */
static struct guard_note scene_note(struct scene *s)
{
	struct guard_note n = { 0 };
	struct pollfd p = { .fd = s->control, .events = POLLIN };

	if (s->theirs >= 0)
		close(s->theirs);
	s->theirs = -1;
	if (poll(&p, 1, (int)(PATIENCE_S * 1000)) != 1 || recv(s->control, &n, sizeof n, 0) != (ssize_t)sizeof n)
		n.type = 0;
	return n;
}

static void scene_order(struct scene *s, struct guard_order o)
{
	if (send(s->control, &o, sizeof o, MSG_NOSIGNAL) < 0)
		printf("# order %u: %s\n", o.type, strerror(errno));
}

/* Its exit status; -1: a signal ended it. */
static int scene_end(struct scene *s)
{
	int status;

	waitpid(s->pid, &status, 0);
	ssize_t n = s->says ? read(s->error, s->said, sizeof s->said - 1) : 0;
	s->said[n > 0 ? n : 0] = '\0';
	s->said[strcspn(s->said, "\n")] = '\0';
	close(s->control);
	if (s->theirs >= 0)
		close(s->theirs);
	close(s->elector);
	close(s->error);
	page_unmap(page);
	for (int i = 0; i < PAGE_FILES; i++)
		close(page_fd[i]);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static char *sleeper[] = { "sleep", "1000", NULL };

/* ---- what it is started with ---- */

static int no_worker(int argc, char **argv, int go)
{
	(void)argc, (void)argv, (void)go;
	return 3;
}

static void limit_files(int more)
{
	struct rlimit r = { .rlim_cur = (rlim_t)(7 + more), .rlim_max = (rlim_t)(7 + more) };

	setrlimit(RLIMIT_NOFILE, &r);
}

static void none_left(void)
{
	limit_files(0);
}

static void one_left(void)
{
	limit_files(1);
}

static void no_page(void)
{
	close(4);
}

static void test_refusals(void)
{
	char *few[] = { "3", "4", "5", "6", "7", "8" };
	struct scene cases[] = {
		{ .kind = "command", .command = sleeper, .before = none_left },
		{ .kind = "command", .command = sleeper, .before = one_left },
		{ .kind = "command", .command = sleeper, .before = no_page },
		{ .kind = "command", .command = sleeper, .slots = PAGE_SLOTS + 1 },
		{ .kind = "command" },
	};
	static const char *const what[] = { "no descriptor is left for signals", "none for the timer",
		                            "there is no page", "the page has more slots than it knows",
		                            "there is no command" };

	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		exit(guard_main(6, few, no_worker));
	int status;
	waitpid(pid, &status, 0);
	is_int(WEXITSTATUS(status), 70, "a guard with too few arguments ends");
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		scene_start(&cases[i]);
		int type = (int)scene_note(&cases[i]).type;
		is_int(scene_end(&cases[i]), 70, what[i]);
		is_int(type, 0, "and nothing was started");
	}
}

/* ---- what it cannot start ---- */

static void no_processes(void)
{
	struct rlimit r = { 0 };

	setrlimit(RLIMIT_NPROC, &r);
	if (setgid(65534) < 0 || setuid(65534) < 0)
		exit(99);
}

static void close_error(void)
{
	close(STDERR_FILENO);
}

static void no_pipe(void)
{
	limit_files(3); /* signals, timer and its children: then the worker's pipe has none */
}

static void test_not_started(void)
{
	char *name = malloc(900), *command[] = { name, NULL };
	struct scene a = { .kind = "command", .command = command, .says = true };
	struct scene b = { .kind = "command", .command = command, .before = close_error };
	struct scene c = { .kind = "command", .command = sleeper, .says = true, .before = no_processes };
	struct scene d = { .kind = "worker", .worker = no_worker, .before = no_pipe };

	memset(name, 'n', 899);
	name[899] = '\0';
	scene_start(&a);
	is_int(scene_note(&a).type, GUARD_STARTED, "a command whose name is longer than a file's can be");
	struct guard_note n = scene_note(&a);
	ok(n.type == GUARD_ENDED && n.value == 126 << 8, "ends with 126");
	scene_end(&a);
	ok(strncmp(a.said, "lunarch: cannot run 'nnn", 24) == 0 && strlen(a.said) >= 510,
	   "and that is said, as much as fits (%zu bytes)", strlen(a.said));
	scene_start(&b);
	scene_note(&b);
	n = scene_note(&b);
	ok(n.type == GUARD_ENDED && n.value == 126 << 8, "as well where nobody can be told");
	is_int(scene_end(&b), 0, "and its guard ends well");
	free(name);
	if (geteuid() == 0) {
		scene_start(&c);
		n = scene_note(&c);
		ok(n.type == GUARD_ENDED && n.value == 126 << 8, "without a process for it the command ends with 126");
		is_int(scene_end(&c), 0, "its guard ends, too");
		ok(strstr(c.said, "cannot run 'sleep': Resource temporarily unavailable") != NULL, "and says why: %s",
		   c.said);
	} else {
		ok(1, "root's limits are not tried # SKIP not root");
	}
	scene_start(&d);
	n = scene_note(&d);
	ok(n.type == GUARD_ENDED && n.value == 126 << 8, "without a descriptor for its pipe there is no worker");
	scene_end(&d);
}

/* ---- a worker ---- */

static int stops_itself(int argc, char **argv, int go)
{
	(void)argc, (void)argv;
	guard_await_go(go);
	raise(SIGSTOP);
	return 7;
}

static void test_worker(void)
{
	struct scene s = { .kind = "worker", .worker = stops_itself };
	struct guard_note n;
	int status;

	signal(SIGPIPE, SIG_IGN);
	scene_start(&s);
	n = scene_note(&s);
	ok(n.type == GUARD_STARTED && n.value > 0, "a worker is started");
	char path[64], stat[300] = "";
	snprintf(path, sizeof path, "/proc/%d/stat", n.value);
	for (int i = 0; i < 60000 && !strstr(stat, ") T"); i++) { /* until it has stopped */
		FILE *f = fopen(path, "re");
		if (!f || !fgets(stat, sizeof stat, f))
			stat[0] = '\0';
		if (f)
			fclose(f);
		usleep(1000);
	}
	scene_order(&s, (struct guard_order){ .type = GUARD_SIGNAL, .signal = SIGCONT });
	n = scene_note(&s);
	ok(n.type == GUARD_ENDED && WEXITSTATUS(n.value) == 7,
	   "that it was stopped and went on is told of no worker: the next note is its end");
	is_int(scene_end(&s), 0, "the guard ends with it");
	struct scene early = { .kind = "worker", .worker = no_worker };
	scene_start(&early);
	scene_note(&early);
	n = scene_note(&early);
	ok(n.type == GUARD_ENDED && WEXITSTATUS(n.value) == 3, "a worker that dies before it may go on is reaped");
	is_int(scene_end(&early), 0, "and does not take the guard with it");
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		int go[2];
		if (pipe2(go, O_CLOEXEC) == 0)
			close(go[1]);
		guard_await_go(go[0]);
		exit(5);
	}
	waitpid(pid, &status, 0);
	is_int(WEXITSTATUS(status), 1, "who waits to go on ends with the guard");
}

/* ---- a command, and orders ---- */

static void test_command(void)
{
	char path[60], text[200], *script[] = { "sh", "-c", text, NULL };
	struct scene s = { .kind = "command", .command = script };

	/* Going on is told only if it can be seen before the end. */
	snprintf(path, sizeof path, "/tmp/lunarch-guard-%d", (int)getpid());
	snprintf(text, sizeof text, "kill -STOP $$; until [ -e %s ]; do sleep 0.02; done; exit 9", path);
	scene_start(&s);
	is_int(scene_note(&s).type, GUARD_STARTED, "a command is started");
	is_int(scene_note(&s).type, GUARD_STOPPED, "that it was stopped is told");
	scene_order(&s, (struct guard_order){ .type = GUARD_SIGNAL, .signal = SIGCONT });
	is_int(scene_note(&s).type, GUARD_CONTINUED, "and that it went on");
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	struct guard_note n = scene_note(&s);
	unlink(path);
	ok(n.type == GUARD_ENDED && WEXITSTATUS(n.value) == 9, "and how it ended");
	is_int(scene_end(&s), 0, "nothing is left");
}

static void test_orders(void)
{
	struct scene s = { .kind = "command", .command = sleeper };
	struct guard_begin begin = { .order = { .type = GUARD_BEGIN }, .variables = "A=b" };

	scene_start(&s);
	pid_t pid = scene_note(&s).value;
	scene_order(&s, (struct guard_order){ .type = 4711 });
	scene_order(&s, (struct guard_order){ .type = GUARD_SWEEP, .slot = PAGE_SLOTS, .term = 1 });
	send(s.control, &begin, sizeof begin.order + 4, 0);
	scene_order(&s, (struct guard_order){ .type = GUARD_POKE });
	scene_order(&s, (struct guard_order){ .type = GUARD_SWEEP, .slot = 1, .term = 5 });
	struct guard_note n = scene_note(&s);
	ok((n.type == GUARD_SWEPT || n.type == GUARD_UNCLEAR) && n.slot == 1 && n.term == 5 && n.value == 0,
	   "an order that there is not, a sweep of a slot that there is not, and to begin what has begun change nothing");
	is_int(kill(pid, 0), 0, "the command goes on");
	scene_order(&s, (struct guard_order){ .type = GUARD_INTERRUPT });
	n = scene_note(&s);
	ok(n.type == GUARD_ENDED && WTERMSIG(n.value) == SIGRTMIN, "until it is interrupted");
	is_int(scene_end(&s), 0, "nothing is left");
	struct scene cut = { .kind = "command", .command = sleeper };
	scene_start(&cut);
	pid = scene_note(&cut).value;
	send(cut.control, &begin, 5, 0);
	n = scene_note(&cut);
	ok(n.type == GUARD_ENDED && WTERMSIG(n.value) == SIGKILL,
	   "who sends less than an order is no supervisor: all is killed");
	is_int(scene_end(&cut), 0, "and the guard ends");
	struct scene left = { .kind = "command", .command = sleeper };
	scene_start(&left);
	scene_note(&left);
	close(left.elector);
	left.elector = -1;
	n = scene_note(&left);
	ok(n.type == GUARD_ENDED && WTERMSIG(n.value) == SIGKILL, "and so it is when the elector is gone");
	is_int(scene_end(&left), 0, "the guard ends then, too");
}

/* A guard that is held: its deadline may pass before it begins, and it may be told to end. */
static void test_held(void)
{
	struct guard_begin begin = { .order = { .type = GUARD_BEGIN }, .variables = "A=b" };
	struct scene late = { .kind = "held", .command = sleeper }, never = { .kind = "held", .command = sleeper };
	struct instant now = clock_now();

	scene_start(&late);
	page_begin(page, 0, 1, 1, now, now); /* before the order: its time is over */
	send(late.control, &begin, sizeof begin.order + 4, 0);
	is_int(scene_note(&late).type, 0, "a command whose time was over before it began is not started");
	is_int(scene_end(&late), 0, "and the guard ends");
	scene_start(&never);
	scene_order(&never, (struct guard_order){ .type = GUARD_SIGNAL, .signal = SIGTERM });
	scene_order(&never, (struct guard_order){ .type = GUARD_KILL });
	send(never.control, &begin, sizeof begin.order + 4, MSG_NOSIGNAL);
	is_int(scene_note(&never).type, 0, "nor is one that was to end before it began, and no signal goes astray");
	is_int(scene_end(&never), 0, "and the guard ends");
}

/* ---- notes that find no room ---- */

#define JUNK 4711

/* Fills what waits for us, as if the elector did not read. */
static int fill(const struct scene *s)
{
	struct guard_note junk = { .value = JUNK };
	int n = 0;

	while (send(s->theirs, &junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		n++;
	return n;
}

/* Without the junk, and what came before it. */
static struct guard_note scene_note_behind(struct scene *s)
{
	struct guard_note n;

	do
		n = scene_note(s);
	while (n.type == 0 && n.value == JUNK);
	return n;
}

static char *marked[] = { "sh", "-c",
	                  TERM_MARK_ENV "=2.9 sleep 1000 & " TERM_MARK_ENV "=2.9 sleep 1000 & exec sleep 1000", NULL };

static void unmarked_tree(void)
{
	unsetenv(PROOF_ENV);
}

/* How many processes have this in their environment. */
static int count_marked(const char *mark)
{
	char command[200];
	int n = -1;

	snprintf(command, sizeof command, "grep -lzsx '%s' /proc/[0-9]*/environ | wc -l", mark);
	FILE *f = popen(command, "re");
	if (f && fscanf(f, "%d", &n) != 1)
		n = -1;
	if (f)
		pclose(f);
	return n;
}

static void test_no_room(void)
{
	struct scene s = { .kind = "command", .command = marked, .before = unmarked_tree };
	struct guard_note n;
	int swept = 0;

	scene_start(&s);
	for (int i = 0; i < 6000 && count_marked(TERM_MARK_ENV "=2.9") < 2; i++)
		usleep(10000);
	ok(fill(&s) > 0, "an elector reads nothing");
	scene_order(&s, (struct guard_order){ .type = GUARD_SWEEP, .slot = 2, .term = 9 });
	for (int i = 0; i < 6000 && count_marked(TERM_MARK_ENV "=2.9") > 0; i++)
		usleep(10000);
	is_int(count_marked(TERM_MARK_ENV "=2.9"), 0, "what the term left is killed nevertheless");
	do {
		n = scene_note_behind(&s);
		swept += n.type == GUARD_SWEPT || n.type == GUARD_UNCLEAR;
	} while (n.type && !swept);
	ok(swept && n.slot == 2 && n.value == 2, "and told as soon as there is room: %d were killed", n.value);
	scene_order(&s, (struct guard_order){ .type = GUARD_KILL });
	n = scene_note_behind(&s);
	ok(n.type == GUARD_ENDED && WTERMSIG(n.value) == SIGKILL, "the next note is the one of the end");
	is_int(scene_end(&s), 0, "nothing is left");
}

int main(void)
{
	test_refusals();
	test_not_started();
	test_worker();
	test_command();
	test_orders();
	test_held();
	test_no_room();
	return tap_done();
}
