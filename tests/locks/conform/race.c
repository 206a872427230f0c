/* The race half. Rounds are held apart by a barrier, and the version that everybody expects is the one the last winner
 * was told, so that in every round all racers want the same thing at the same moment. */
#include "conform.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "locks/lock.h"
#include "loop/offload.h"

#include <ev.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE (60 * NSEC_PER_SEC)

struct course { /* in memory that all processes share */
	pthread_barrier_t gate;
	struct version at, next; /* what everybody expects; what this round's winner left */
	char holder[32];         /* of the winner */
	int64_t token;           /* of the last winner */
	int rounds, winners;     /* winners of this round */
	int won_once, wrong, back, misread;
	bool stop; /* what everybody expects next is not known; changed only while all wait */
	char first_wrong[600];
};

struct racer {
	struct lock_env env;
	struct lock *lock;
	struct stable *stable;
	char name[32];
	struct record record;
};

struct stable { /* one process' racers */
	struct course *course;
	struct ev_loop *loop;
	struct racer *racers;
	int count, running;
};

static void complain(struct course *c, const char *who, const struct lock_result *r)
{
	if (__atomic_add_fetch(&c->wrong, 1, __ATOMIC_SEQ_CST) == 1)
		snprintf(c->first_wrong, sizeof c->first_wrong, "%s: %s %s", who, lock_outcome_name(r->outcome),
		         r->err.text);
}

static void one_less(struct stable *s)
{
	if (--s->running == 0)
		ev_break(s->loop, EVBREAK_ALL);
}

static void won(struct racer *r, const struct lock_result *result)
{
	struct course *c = r->stable->course;
	int64_t token = result->token ? result->token : r->record.token;

	if (__atomic_add_fetch(&c->winners, 1, __ATOMIC_SEQ_CST) > 1)
		return;
	c->next = result->version;
	c->back += token <= c->token;
	c->token = token;
	snprintf(c->holder, sizeof c->holder, "%s", r->name);
}

static void on_written(void *arg, const struct lock_result *result)
{
	struct racer *r = arg;

	if (result->outcome == LOCK_OK)
		won(r, result);
	else if (result->outcome != LOCK_CONFLICT)
		complain(r->stable->course, r->name, result);
	one_less(r->stable);
}

static void on_read(void *arg, const struct lock_result *result)
{
	struct racer *r = arg;
	const struct course *c = r->stable->course;

	if (result->outcome != LOCK_OK || strcmp(result->record->holder, c->holder) != 0 ||
	    strcmp(result->version.text, c->at.text) != 0)
		__atomic_add_fetch(&r->stable->course->misread, 1, __ATOMIC_SEQ_CST);
	one_less(r->stable);
}

static void fill(struct racer *r, int round)
{
	mem_replace(&r->record.holder, r->name);
	r->record.lease_ms = 1; /* a store that waits a lease before it elects anybody does not hold up the race */
	r->record.acquired_us = r->record.renewed_us = clock_wall_us();
	r->record.token = r->lock->ops->token_in_record ? round + 1 : 0; /* 0: the store makes it */
	r->record.term = (uint64_t)round + 1;
	r->record.state = RECORD_LEADING;
	nonce_hex(r->record.write, sizeof r->record.write / 2);
}

static void run_round(struct stable *s, int round)
{
	struct instant by = instant_add(clock_now(), PATIENCE);

	s->running = s->count;
	for (int i = 0; i < s->count; i++) {
		struct racer *r = &s->racers[(i + round) % s->count];
		fill(r, round);
		r->lock->ops->write(r->lock, &r->record, &s->course->at, true, by, on_written, r);
	}
	ev_run(s->loop, 0);
}

static void look(struct stable *s, struct racer *r)
{
	s->running = 1;
	r->lock->ops->read(r->lock, instant_add(clock_now(), PATIENCE), on_read, r);
	ev_run(s->loop, 0);
}

/* Between the rounds, done by one of the processes while the others wait. */
static void settle(struct course *c)
{
	c->won_once += c->winners == 1;
	if (c->winners == 0)
		c->wrong++;
	c->winners = 0;
	c->at = c->next;
	c->stop = c->wrong > 0;
}

static void race(struct stable *s, int process, int processes)
{
	struct course *c = s->course;

	for (int round = 0; round < c->rounds; round++) {
		pthread_barrier_wait(&c->gate);
		if (c->stop)
			return;
		run_round(s, round);
		if (pthread_barrier_wait(&c->gate) == PTHREAD_BARRIER_SERIAL_THREAD)
			settle(c);
		pthread_barrier_wait(&c->gate);
		if (round % processes == process)
			look(s, &s->racers[round % s->count]);
	}
}

static void open_racers(struct stable *s, const char *url, int first)
{
	struct err err;

	s->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	s->racers = mem_zero((size_t)s->count * sizeof *s->racers);
	for (int i = 0; i < s->count; i++) {
		struct racer *r = &s->racers[i];
		r->stable = s;
		r->env = (struct lock_env){ .loop = s->loop, .offload = offload_new(s->loop, 1, NULL) };
		r->lock = lock_open(&r->env, url, &err);
		if (!r->lock) {
			fprintf(stderr, "conform race: %s\n", err.text);
			exit(2);
		}
		snprintf(r->name, sizeof r->name, "racer-%d", first + i);
		record_init(&r->record);
	}
}

static void close_racers(struct stable *s)
{
	for (int i = 0; i < s->count; i++) {
		struct racer *r = &s->racers[i];
		r->lock->ops->close(r->lock);
		lock_env_fini(&r->env);
		offload_free(r->env.offload);
		record_fini(&r->record);
	}
	free(s->racers);
	ev_loop_destroy(s->loop);
}

/* What is there already: a race may begin with no record or with any. */
static void on_first_read(void *arg, const struct lock_result *result)
{
	struct racer *r = arg;

	r->stable->course->at = result->version;
	if (result->outcome != LOCK_OK && result->outcome != LOCK_ABSENT)
		complain(r->stable->course, "first look", result);
	one_less(r->stable);
}

static void first_look(struct course *c, const char *url)
{
	struct stable s = { .course = c, .count = 1, .running = 1 };

	open_racers(&s, url, 0);
	s.racers->lock->ops->read(s.racers->lock, instant_add(clock_now(), PATIENCE), on_first_read, s.racers);
	ev_run(s.loop, 0);
	c->stop = c->wrong > 0;
	close_racers(&s);
}

static void compete(struct course *c, const char *url, int racers, int process, int processes)
{
	struct stable s = { .course = c, .count = racers / processes };

	open_racers(&s, url, process * s.count);
	race(&s, process, processes);
	close_racers(&s);
}

static void report(const struct course *c, int racers, int processes, int failed, struct instant began)
{
	double seconds = (double)elapsed_holder(began, clock_now()) / NSEC_PER_SEC;

	printf("{\"rounds\": %d, \"racers\": %d, \"processes\": %d, \"won_once\": %d, \"wrong\": %d, \"misread\": %d, \"token_back\": %d, "
	       "\"failed\": %d, \"seconds\": %.2f}\n",
	       c->rounds, racers, processes, c->won_once, c->wrong, c->misread, c->back, failed, seconds);
	if (c->wrong)
		fprintf(stderr, "conform race: %s\n", c->first_wrong);
}

static void stop_all(const pid_t *pids, int n)
{
	for (int i = 0; i < n; i++)
		if (pids[i] > 0)
			kill(pids[i], SIGKILL);
}

/* CONFORM_HOSTS, pids: the racers' processes see, in turns, the file systems as those do, which may be clients of one
 * server. */
static void move_to_host(int process)
{
	const char *hosts = getenv("CONFORM_HOSTS");
	char path[64];
	int pids[8], n = 0, used;

	for (; hosts && n < 8 && sscanf(hosts, "%d%n", &pids[n], &used) == 1; n++)
		hosts += used;
	if (n == 0)
		return;
	snprintf(path, sizeof path, "/proc/%d/ns/mnt", pids[process % n]);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNS) < 0) {
		fprintf(stderr, "conform race: cannot go to %s\n", path);
		exit(2);
	}
	close(fd);
}

int conform_race(const char *url, int rounds, int racers, int processes)
{
	struct course *c = mmap(NULL, sizeof *c, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct instant began = clock_now();
	pthread_barrierattr_t attr;
	int failed = 0;

	if (c == MAP_FAILED || rounds < 1 || processes < 1 || processes > 64 || racers % processes)
		return 2;
	c->rounds = rounds;
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&c->gate, &attr, (unsigned)processes);
	pid_t pids[64] = { 0 };
	for (int i = 0; i < processes; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			move_to_host(i);
			if (i == 0) /* the others wait at the first gate */
				first_look(c, url);
			compete(c, url, racers, i, processes);
			_exit(0);
		}
	}
	for (int i = 0, status; i < processes; i++) {
		wait(&status);
		if (status != 0 && failed++ == 0)
			stop_all(pids, processes); /* or they would wait for it at the gate */
	}
	report(c, racers, processes, failed, began);
	return 0;
}
