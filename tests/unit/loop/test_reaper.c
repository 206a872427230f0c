/* Children are waited for one by one, and what is no child of anybody's is killed where orphans are adopted. Each test
 * is a process of its own, since adoption is for good. */
#include "loop/reaper.h"
#include "tap.h"

#include <ev.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static struct shared {
	_Atomic pid_t orphan;
	int count, failed; /* of TAP */
} * shared;

struct child {
	pid_t pid;
	int go; /* written to: it ends */
	int ended, status;
	struct reaper_child *added;
};

struct scene {
	struct ev_loop *loop;
	struct reaper *reaper;
	struct child a, b;
};

static bool lives(pid_t pid)
{
	return kill(pid, 0) == 0;
}

static void on_end(void *arg, int status)
{
	struct child *c = arg;

	c->ended++;
	c->status = status;
}

/* It ends with that status when a byte comes. */
static void start(struct child *c, int status)
{
	int fd[2];
	char byte;

	if (pipe(fd) < 0)
		exit(1);
	c->go = fd[1];
	c->pid = fork();
	if (c->pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(fd[1]);
		_exit(read(fd[0], &byte, 1) == 1 ? status : 99);
	}
	close(fd[0]);
}

static void release(const struct child *c)
{
	ok(write(c->go, "", 1) == 1, "a child is let end");
}

static void add(struct scene *s, struct child *c, int status)
{
	start(c, status);
	c->added = reaper_add(s->reaper, c->pid, on_end, c, NULL);
}

static void on_time(struct ev_loop *loop, ev_timer *w, int events)
{
	(void)loop, (void)w, (void)events;
}

/* Turns of the loop until it is so, or for a minute. */
#define turn_until(s, what)                                            \
	do {                                                           \
		ev_timer t;                                            \
		ev_timer_init(&t, on_time, 0.005, 0.005);              \
		ev_timer_start((s)->loop, &t);                         \
		for (int turns = 0; turns < 12000 && !(what); turns++) \
			ev_run((s)->loop, EVRUN_ONCE);                 \
		ev_timer_stop((s)->loop, &t);                          \
	} while (0)

static void open_scene(struct scene *s, bool adopts)
{
	*s = (struct scene){ .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV) };
	s->reaper = reaper_new(s->loop);
	if (adopts)
		ok(reaper_adopt(s->reaper, NULL) == 0, "orphans are adopted");
}

static void close_scene(struct scene *s)
{
	reaper_free(s->reaper);
	ev_loop_destroy(s->loop);
}

static void test_two(bool adopts)
{
	const char *how = adopts ? "where orphans are adopted" : "without adoption";
	struct scene s;

	open_scene(&s, adopts);
	add(&s, &s.a, 3);
	add(&s, &s.b, 4);
	release(&s.a);
	turn_until(&s, s.a.ended);
	ok(s.a.ended == 1 && s.a.status == 3 << 8, "%s a child's status is told", how);
	for (int i = 0; i < 20; i++) {
		usleep(1000);
		ev_run(s.loop, EVRUN_NOWAIT);
	}
	ok(!s.b.ended && lives(s.b.pid), "%s another child lives on when one ends", how);
	release(&s.b);
	turn_until(&s, s.b.ended);
	ok(s.b.ended == 1 && s.b.status == 4 << 8, "%s it is told of its own end", how);
	close_scene(&s);
}

static void test_forgotten(bool adopts)
{
	const char *how = adopts ? "where orphans are adopted" : "without adoption";
	struct scene s;

	open_scene(&s, adopts);
	add(&s, &s.a, 3);
	add(&s, &s.b, 4);
	reaper_forget(s.a.added);
	kill(s.a.pid, SIGKILL);
	turn_until(&s, !lives(s.a.pid));
	ok(!lives(s.a.pid) && !s.a.ended, "%s a forgotten child is reaped, and nobody is told", how);
	ok(!s.b.ended && lives(s.b.pid), "%s and the other lives", how);
	close_scene(&s);
	ok(lives(s.b.pid), "%s a child lives on without its reaper", how);
	kill(s.b.pid, SIGKILL);
	waitpid(s.b.pid, NULL, 0);
}

/* A child that nobody has added: killed when another ends. What a spared child has started is not. */
static void test_stray(void)
{
	struct scene s;
	struct child stray;

	open_scene(&s, true);
	add(&s, &s.a, 3);
	s.b.pid = fork();
	if (s.b.pid == 0) {
		pid_t grandchild = fork();
		if (grandchild == 0)
			prctl(PR_SET_PDEATHSIG, SIGKILL);
		else
			shared->orphan = grandchild;
		for (;;)
			pause();
	}
	s.b.added = reaper_add(s.reaper, s.b.pid, on_end, &s.b, NULL);
	start(&stray, 5);
	turn_until(&s, shared->orphan);
	release(&s.a);
	turn_until(&s, !lives(stray.pid));
	ok(!lives(stray.pid), "a child that nobody added is killed and reaped when another ends");
	ok(!s.b.ended && lives(s.b.pid) && lives(shared->orphan),
	   "one that was added lives, and so does its own child");
	kill(s.b.pid, SIGKILL);
	turn_until(&s, s.b.ended);
	ok(s.b.status == SIGKILL, "which ends by what somebody else does");
	turn_until(&s, !lives(shared->orphan));
	ok(!lives(shared->orphan), "what it left behind is killed");
	close_scene(&s);
}

struct rounds {
	struct reaper *reaper;
	struct reaper_killing killing;
	int n;
	bool over;
};

static void on_round(void *arg, bool nobody_left)
{
	struct rounds *r = arg;

	r->n++;
	r->over = nobody_left;
	if (nobody_left)
		reaper_end_killing(r->reaper, &r->killing);
}

static void test_killing(void)
{
	struct scene s;
	struct child stray;

	open_scene(&s, true);
	struct rounds r = { .reaper = s.reaper, .killing = { .round = on_round, .arg = &r } };
	add(&s, &s.a, 3);
	add(&s, &s.b, 4);
	start(&stray, 5);
	reaper_condemn(s.b.added);
	reaper_begin_killing(s.reaper, &r.killing);
	turn_until(&s, r.over);
	ok(r.over && r.n > 1, "a killing goes on until nobody is left");
	ok(!lives(stray.pid) && s.b.ended && s.b.status == SIGKILL, "nobody that was not added, or was condemned");
	ok(!s.a.ended && lives(s.a.pid), "who is spared lives");
	reaper_end_killing(s.reaper, &r.killing);
	int n = r.n;
	start(&stray, 5);
	for (int i = 0; i < 20; i++) {
		usleep(1000);
		ev_run(s.loop, EVRUN_NOWAIT);
	}
	ok(r.n == n && lives(stray.pid), "after its end there are no rounds any more");
	kill(stray.pid, SIGKILL);
	kill(s.a.pid, SIGKILL);
	turn_until(&s, s.a.ended);
	close_scene(&s);
}

/* A child that was there before, as of who executed this program in its own place: it is nobody's tree. */
static void test_stranger(void)
{
	struct scene s;
	struct child stranger, stray;

	start(&stranger, 6);
	open_scene(&s, true);
	struct rounds r = { .reaper = s.reaper, .killing = { .round = on_round, .arg = &r } };
	add(&s, &s.a, 3);
	start(&stray, 5);
	reaper_condemn(s.a.added);
	reaper_begin_killing(s.reaper, &r.killing);
	turn_until(&s, r.over);
	ok(r.over && s.a.ended && !lives(stray.pid) && lives(stranger.pid),
	   "a child that this process had before it adopts is left alone");
	kill(stranger.pid, SIGKILL);
	close_scene(&s);
}

/* Who started us may have SIGCHLD ignored: then the system keeps no status. */
static void test_ignored(void)
{
	struct scene s;

	signal(SIGCHLD, SIG_IGN);
	open_scene(&s, false);
	add(&s, &s.a, 3);
	release(&s.a);
	turn_until(&s, s.a.ended);
	ok(s.a.ended == 1 && s.a.status == -1, "where SIGCHLD is ignored the end is told, without a status");
	close_scene(&s);
}

static void apart(void (*test)(void))
{
	int status;

	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		test();
		shared->count = tap_count;
		shared->failed = tap_failed;
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	tap_count = shared->count;
	tap_failed = shared->failed + (status != 0);
}

static void adopting(void)
{
	test_two(true);
}

static void adopting_forgotten(void)
{
	test_forgotten(true);
}

int main(void)
{
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	test_two(false);
	test_forgotten(false);
	apart(adopting);
	apart(adopting_forgotten);
	apart(test_stray);
	apart(test_killing);
	apart(test_stranger);
	apart(test_ignored);
	return tap_done();
}
