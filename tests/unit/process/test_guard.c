/* A guard alone, in a forked child of this test, which is its supervisor by hand: what it is started with is wrong or
 * missing, orders that come at a wrong time, notes that find no room, what it cannot start. What guard and supervisor
 * do together is in test_supervisor.c and test_held.c. */
#include "guard_scene.h"
#include "tap.h"

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
	char *few[] = { "3", "4", "5", "6", "7", "8", "9" };
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
		exit(guard_main(7, few, no_worker));
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

static int dies_at_once(int argc, char **argv, int go)
{
	(void)argc, (void)argv, (void)go;
	_exit(3);
}

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
	struct scene early = { .kind = "worker", .worker = dies_at_once };
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
	ok(n.type == GUARD_FAILED && n.slot == GUARD_NO_ORDER, "who sends less than an order is no supervisor");
	n = scene_note(&cut);
	ok(n.type == GUARD_ENDED && WTERMSIG(n.value) == SIGKILL, "which is said before all is killed");
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

/* The first note that is neither junk nor what came before it. */
static struct guard_note scene_note_behind(struct scene *s)
{
	struct guard_note n;

	do
		n = scene_note(s);
	while (n.type == 0 && n.value == JUNK);
	return n;
}

static void unmarked_tree(void)
{
	unsetenv(PROOF_ENV);
}

static void test_no_room(void)
{
	char mark[40], text[200], *marked[] = { "sh", "-c", text, NULL };
	struct scene s = { .kind = "command", .command = marked, .before = unmarked_tree };
	uint64_t term = (uint64_t)getpid(); /* nobody else's */
	struct guard_note n;
	int swept = 0;

	snprintf(mark, sizeof mark, "%s=2.%d", TERM_MARK_ENV, (int)term);
	snprintf(text, sizeof text, "%s sleep 1000 & %s sleep 1000 & exec sleep 1000", mark, mark);

	scene_start(&s);
	for (int i = 0; i < 6000 && count_marked(mark) < 2; i++)
		usleep(10000);
	ok(fill(&s) > 0, "an elector reads nothing");
	scene_order(&s, (struct guard_order){ .type = GUARD_SWEEP, .slot = 2, .term = term });
	for (int i = 0; i < 6000 && count_marked(mark) > 0; i++)
		usleep(10000);
	is_int(count_marked(mark), 0, "what the term left is killed nevertheless");
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
