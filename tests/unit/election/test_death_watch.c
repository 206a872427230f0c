/* Death watches with real processes: told once, after everything is dead, never in doubt; shared, forgotten, asked
 * again. */
#include "election/death_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/proc.h"
#include "holder.h"
#include "own_proc.h"
#include "loop/offload.h"
#include "tap.h"

#include <dirent.h>
#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[100];
static struct ev_loop *loop;
static struct offload *offload;
static struct death_watches *all;

struct waiting {
	struct death_watch watch; /* first */
	int told;
	bool inside;        /* told from inside death_watch_watch */
	pid_t must_be_dead; /* by then */
	bool lived;
	struct waiting *forgets;
	const struct record *again;
};

static bool watching;

static bool runs(pid_t pid)
{
	struct proc_stat s;

	return pid > 0 && proc_stat((uint64_t)pid, &s) == 0 && proc_runs(&s);
}

static void on_dead(void *arg)
{
	struct waiting *m = arg;
	const struct record *again = m->again;

	m->told++;
	m->inside = m->inside || watching;
	m->lived = m->lived || runs(m->must_be_dead);
	m->again = NULL;
	if (m->forgets)
		death_watch_forget(&m->forgets->watch);
	if (again)
		death_watch_watch(all, &m->watch, again);
}

static void wait_for_death(struct waiting *m, const struct holder *h)
{
	m->watch.dead = on_dead;
	m->watch.arg = m;
	watching = true;
	death_watch_watch(all, &m->watch, &h->record);
	watching = false;
}

/* The child ignores what it can and holds the marker and the tree file, as everything that a term starts does. */
static pid_t start_child(const struct proof_self *self)
{
	char marker[80];

	snprintf(marker, sizeof marker, "%s=%s", PROOF_ENV, self->incarnation);
	pid_t pid = fork();
	if (pid == 0) {
		char *env[] = { marker, NULL };
		execle("/bin/sh", "sh", "-c", "trap '' TERM HUP; while :; do sleep 100; done", (char *)NULL, env);
		_exit(1);
	}
	return pid;
}

static bool over;

static void on_over(struct ev_loop *l, ev_timer *w, int revents)
{
	(void)w;
	(void)revents;
	over = true;
	ev_break(l, EVBREAK_ONE);
}

/* Runs the loop until *count is want (0: not at all), at most so long. */
static void run(const int *count, int want, double seconds)
{
	ev_timer t;

	over = false;
	ev_timer_init(&t, on_over, seconds, 0.);
	ev_now_update(loop);
	ev_timer_start(loop, &t);
	while (!over && (!want || *count < want))
		ev_run(loop, EVRUN_ONCE);
	ev_timer_stop(loop, &t);
}

#define PATIENCE_S 30.
#define A_WHILE_S .15 /* in which something that must not happen would have happened */

static int open_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

static void test_alive_and_dead(void)
{
	struct waiting m = { 0 };
	struct holder h;

	hold(&h, dir, start_child);
	m.must_be_dead = h.child;
	wait_for_death(&m, &h);
	run(&m.told, 0, A_WHILE_S);
	is_int(m.told, 0, "nobody is told of the death of a living holder");
	end(&h);
	run(&m.told, 1, PATIENCE_S);
	is_int(m.told, 1, "a dead one is reported");
	ok(!m.lived, "after the child it left behind, which clings to life, is dead too");
	ok(!m.inside, "and from the loop");
	run(&m.told, 0, A_WHILE_S);
	is_int(m.told, 1, "once");
	bury(&h);
}

static void test_already_dead(void)
{
	struct waiting m = { 0 }, later = { 0 };
	struct holder h;

	hold(&h, dir, NULL);
	end(&h);
	wait_for_death(&m, &h);
	is_int(m.told, 0, "of one that was dead before, too, nobody is told from inside the call");
	run(&m.told, 1, PATIENCE_S);
	is_int(m.told, 1, "but soon");
	wait_for_death(&later, &h);
	run(&later.told, 1, PATIENCE_S);
	is_int(later.told, 1, "and so is who asks later");
	bury(&h);
}

static void test_shared(void)
{
	struct waiting m[20] = { 0 };
	struct holder h;
	int told = 0;

	hold(&h, dir, NULL);
	int before = open_fds();
	for (int i = 0; i < 20; i++)
		wait_for_death(&m[i], &h);
	for (int i = 0; i < 20; i++) /* asked again: costs nothing */
		wait_for_death(&m[i], &h);
	is_int(open_fds(), before + 1, "twenty that wait for one process have one descriptor for it");
	end(&h);
	run(&m[0].told, 1, PATIENCE_S);
	for (int i = 0; i < 20; i++)
		told += m[i].told == 1;
	is_int(told, 20, "and each is told, once");
	is_int(open_fds(), before, "then the descriptor is closed");
	bury(&h);
}

static void test_forgotten(void)
{
	struct waiting m = { 0 }, other = { 0 };
	struct holder h, g;

	hold(&h, dir, NULL);
	hold(&g, dir, NULL);
	int before = open_fds();
	wait_for_death(&m, &h);
	death_watch_forget(&m.watch);
	death_watch_forget(&m.watch);
	is_int(open_fds(), before, "forgotten, twice: no descriptor stays");
	end(&h);
	run(&m.told, 0, A_WHILE_S);
	is_int(m.told, 0, "and nobody is told");

	wait_for_death(&m, &h); /* a check is under way on a thread */
	death_watch_forget(&m.watch);
	run(&m.told, 0, A_WHILE_S);
	is_int(m.told, 0, "nor while it is being proved");

	wait_for_death(&m, &h);
	wait_for_death(&m, &g);
	wait_for_death(&other, &h);
	run(&other.told, 1, PATIENCE_S);
	is_int(other.told, 1, "of two that waited for the same process, one of which turned to another, one is told");
	is_int(m.told, 0, "and the other is not: what it waits for lives");
	end(&g);
	run(&m.told, 1, PATIENCE_S);
	is_int(m.told, 1, "until that dies");
	bury(&h);
	bury(&g);
}

static void test_from_the_callback(void)
{
	struct waiting first = { 0 }, second = { 0 };
	struct holder h;

	hold(&h, dir, NULL);
	first.forgets = &second;
	second.forgets = &first;
	first.again = second.again = &h.record;
	wait_for_death(&first, &h);
	wait_for_death(&second, &h);
	end(&h);
	for (int i = 0; i < 200 && first.told + second.told < 2; i++)
		run(&first.told, 0, A_WHILE_S);
	/* The one that was told first had the other forgotten, and asked once more. */
	int more = first.told > second.told ? first.told : second.told, less = first.told + second.told - more;
	is_int(more, 2, "who asks again from inside the callback is told again");
	is_int(less, 0, "and who is forgotten in it is not");
	death_watch_forget(&first.watch);
	death_watch_forget(&second.watch);
	bury(&h);
}

static void test_doubt(void)
{
	struct waiting m = { 0 }, later = { 0 };
	struct holder h;

	hold(&h, dir, NULL);
	unlink(h.record.tree); /* the evidence */
	wait_for_death(&m, &h);
	end(&h);
	run(&m.told, 0, .5);
	is_int(m.told, 0, "a death that cannot be proved is not reported");
	wait_for_death(&later, &h);
	run(&later.told, 0, A_WHILE_S);
	is_int(later.told, 0, "nor to who asks later");
	death_watch_forget(&m.watch);
	death_watch_forget(&later.watch);
	bury(&h);
}

static void count_unproved(void *arg, enum log_level level, const struct log_about *about, const char *event,
                           const char *text)
{
	(void)level;
	(void)about;
	(void)text;
	*(int *)arg += strcmp(event, "death_unproved") == 0;
}

/* One thread proves both, in order; the first has time left to be seen released. */
static void test_doubt_is_said(void)
{
	struct waiting first = { 0 }, second = { 0 };
	struct holder h, g;
	int said = 0;

	hold(&h, dir, NULL);
	hold(&g, dir, NULL);
	unlink(h.record.tree);
	unlink(g.record.tree);
	end(&h);
	end(&g);
	h.record.lease_ms = 3600 * 1000;
	g.record.lease_ms = 3;
	log_divert(count_unproved, &said);
	wait_for_death(&first, &h);
	wait_for_death(&second, &g);
	run(&said, 1, PATIENCE_S);
	run(&said, 0, A_WHILE_S);
	is_int(said, 1, "that a death is not proved is said, once, and not before a good part of the lease has passed");
	death_watch_forget(&first.watch);
	death_watch_forget(&second.watch);
	log_divert(NULL, NULL);
	bury(&h);
	bury(&g);
}

/* What a process of the same user with more rights carries cannot be read. */
static pid_t start_unreadable(void)
{
	char path[64];
	int fd;

	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_DUMPABLE, 0);
		for (;;)
			pause();
	}
	snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	while ((fd = open(path, O_RDONLY | O_CLOEXEC)) >= 0) {
		close(fd);
		usleep(1000);
	}
	return pid;
}

static void begin(void);
static void finish(void);

static int body_doubt_ends(void)
{
	struct waiting m = { 0 };
	struct holder h;
	int said = 0;

	begin();
	hold(&h, dir, NULL);
	h.record.lease_ms = 3;
	pid_t other = start_unreadable();
	log_divert(count_unproved, &said);
	end(&h);
	wait_for_death(&m, &h);
	run(&said, 1, PATIENCE_S);
	run(&m.told, 0, A_WHILE_S);
	int failed = said != 1 || m.told != 0;
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	run(&m.told, 1, PATIENCE_S);
	failed += m.told != 1;
	if (failed)
		printf("# said %d times, told %d times\n", said, m.told);
	log_divert(NULL, NULL);
	bury(&h);
	finish();
	return failed;
}

/* Root reads everything. */
static void test_doubt_ends(void)
{
	int status = -1;

	chmod(dir, 0777);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		uid_t nobody = 65534;
		if (geteuid() == 0 && (setgid(nobody) < 0 || setuid(nobody) < 0))
			_exit(1);
		int failed = body_doubt_ends();
		fflush(stdout);
		_exit(failed);
	}
	waitpid(pid, &status, 0);
	is_int(status, 0,
	       "a process that may be of the tree and cannot be read: the death is told when that has ended");
}

static void test_free(void)
{
	struct death_watches *own = death_watches_new(loop, offload);
	struct waiting m = { .watch = { .dead = on_dead, .arg = &m } };
	struct holder h;

	hold(&h, dir, NULL);
	int before = open_fds();
	death_watch_watch(own, &m.watch, &h.record);
	death_watches_free(own);
	is_int(open_fds(), before, "freed with somebody waiting: nothing stays open");
	end(&h);
	run(&m.told, 0, A_WHILE_S);
	is_int(m.told, 0, "and nobody is told any more");
	death_watches_free(NULL);
	bury(&h);
}

static void begin(void)
{
	loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	offload = offload_new(loop, 1, NULL);
	all = death_watches_new(loop, offload);
}

static void finish(void)
{
	death_watches_free(all);
	offload_free(offload);
	ev_loop_destroy(loop);
}

int main(void)
{
	own_proc();
	snprintf(dir, sizeof dir, "/tmp/lunarch-death-watch-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	test_doubt_ends();
	begin();
	test_alive_and_dead();
	test_already_dead();
	test_shared();
	test_forgotten();
	test_from_the_callback();
	test_doubt();
	test_doubt_is_said();
	test_free();
	finish();
	rmdir(dir);
	return tap_done();
}
