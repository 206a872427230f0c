/* The race half: the racers of doctor (runtime/doctor/store_race.h), each with a connection of its own, in processes of
 * their own, which a barrier holds together. */
#include "conform.h"

#include "base/mem.h"
#include "doctor/store_race.h"
#include "loop/offload.h"

#include <ev.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE (60 * NSEC_PER_SEC)

struct course { /* in memory that all processes share */
	pthread_barrier_t gate;
	struct store_race race;
	const char *url;
	int rounds, processes; /* rounds: that are to be won */
	bool stop;             /* changed only while all wait, as `race` */
	struct err why, doubt; /* doubt: the first answer that was none */
};

static void give_up(const struct err *err)
{
	fprintf(stderr, "conform race: %s\n", err->text);
	exit(2);
}

/* The first version is what is there already, if there is anything. */
static void first_look(struct course *c, struct lock_client *reader)
{
	enum lock_outcome o = lock_client_read(reader);

	if (o != LOCK_OK && o != LOCK_ABSENT)
		give_up(&reader->result.err);
	c->race.at = reader->result.version;
}

static void judge_round(struct course *c, struct lock_client *reader)
{
	int unsure = c->race.unsure;

	c->stop = store_race_judge(&c->race, reader, &c->why) != STORE_GOOD;
	if (c->race.unsure > unsure && !*c->doubt.text)
		err_set(&c->doubt, ERR_SYSTEM, "%s", store_race_why(&c->race));
}

/* All write, and then one of the processes judges, another one in each round. A round in which a server that is too
 * busy has answered nobody is judged as well, but nobody has won it: another one takes its place. */
static void run_rounds(struct course *c, struct lock_client *reader, int process, int first, int count)
{
	for (int round = 0;; round++) {
		pthread_barrier_wait(&c->gate);
		if (c->stop || c->race.won == c->rounds || round == 3 * c->rounds)
			return;
		store_race_run(&c->race, reader->loop, first, count, PATIENCE);
		pthread_barrier_wait(&c->gate);
		if (round % c->processes == process)
			judge_round(c, reader);
	}
}

static void compete(struct course *c, int process)
{
	struct lock_client reader = { .within = PATIENCE };
	int count = c->race.count / c->processes, first = process * count;
	struct lock_env env[STORE_RACERS] = { 0 };
	struct err err;

	if (lock_client_open(&reader, NULL, c->url, &err) < 0)
		give_up(&err);
	if (process == 0) /* the others wait at the first gate */
		first_look(c, &reader);
	for (int i = 0; i < count; i++) {
		env[i] = (struct lock_env){ .loop = reader.loop, .offload = offload_new(reader.loop, 1, &err) };
		if (!env[i].offload || store_race_enter(&c->race.racer[first + i], &env[i], c->url, &err) < 0)
			give_up(&err);
	}
	run_rounds(c, &reader, process, first, count);
	for (int i = 0; i < count; i++) {
		store_race_leave(&c->race.racer[first + i]);
		lock_env_fini(&env[i]);
		offload_free(env[i].offload);
	}
	lock_client_close(&reader);
}

static void report(const struct course *c, int failed, struct instant began)
{
	printf("{\"rounds\": %d, \"won\": %d, \"unsure\": %d, \"wrong\": %d, \"failed\": %d, \"seconds\": %.2f}\n",
	       c->race.rounds, c->race.won, c->race.unsure, c->stop, failed,
	       (double)elapsed_holder(began, clock_now()) / NSEC_PER_SEC);
	if (c->stop || *c->doubt.text)
		fprintf(stderr, "conform race: %s\n", c->stop ? c->why.text : c->doubt.text);
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

	if (c == MAP_FAILED || rounds < 1 || processes < 1 || processes > 64 || racers % processes ||
	    racers > STORE_RACERS)
		return 2;
	c->url = url;
	c->rounds = rounds;
	c->processes = processes;
	c->race.count = racers;
	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&c->gate, &attr, (unsigned)processes);
	pid_t pids[64] = { 0 };
	for (int i = 0; i < processes; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			move_to_host(i);
			compete(c, i);
			_exit(0);
		}
	}
	for (int i = 0, status; i < processes; i++) {
		wait(&status);
		if (status != 0 && failed++ == 0)
			stop_all(pids, processes); /* or they would wait for it at the gate */
	}
	report(c, failed, began);
	return 0;
}
