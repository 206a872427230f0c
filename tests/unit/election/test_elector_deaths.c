/* The elector beside holders that die on its machine: real processes, a real file lock, a lease of an hour that nobody
 * waits out. What a proof is, test_death_proof.c asks. */
#include "base/mem.h"
#include "election/death_watch.h"
#include "election/elector.h"
#include "loop/offload.h"
#include "loop/timeline.h"
#include "tap.h"

#include <ev.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 60.
#endif
#define HOUR_MS (3600 * 1000)
#define A_WHILE_S .3 /* in which something that must not happen would have happened */

static char dir[100], url[160];
static const char *path;
static int said_dead;

struct candidate {
	struct lock_env env;
	struct timeline timeline;
	struct proof_self self;
	struct death_watches *deaths;
	struct elector *elector;
	int leads, others;
	nsec doubt; /* of the leader that was told last */
};

struct holder {
	pid_t pid;
	struct record record;
};

/* ---- a holder: a process that pauses, and has the evidence that an elector has ---- */

static void be_holder(int out)
{
	struct proof_self self;
	struct record r;

	proof_self_init(&self, dir);
	record_init(&r);
	proof_self_fill(&self, &r);
	char *text = record_print(&r);
	if (write(out, text, strlen(text) + 1) < 0)
		_exit(1);
	close(out);
	for (;;)
		pause();
}

static void hold(struct holder *h)
{
	char text[4096];
	size_t have = 0;
	int fds[2];
	ssize_t n;

	fflush(stdout);
	if (pipe(fds) < 0)
		exit(1);
	h->pid = fork();
	if (h->pid == 0)
		be_holder(fds[1]);
	close(fds[1]);
	while ((n = read(fds[0], text + have, sizeof text - have)) > 0 && text[(have += (size_t)n) - 1] != '\0')
		;
	close(fds[0]);
	record_init(&h->record);
	if (record_parse(&h->record, text, strlen(text), NULL) < 0)
		exit(1);
	mem_replace(&h->record.holder, "other");
	h->record.state = RECORD_LEADING;
	h->record.lease_ms = HOUR_MS;
	h->record.term = 7;
	h->record.token = 7;
	h->record.acquired_us = h->record.renewed_us = clock_wall_us();
}

static void end(const struct holder *h)
{
	kill(h->pid, SIGKILL);
	waitpid(h->pid, NULL, 0);
}

static void bury(struct holder *h)
{
	unlink(h->record.tree);
	record_fini(&h->record);
}

/* Its record, as its write number n makes it. */
static void put(struct holder *h, int n)
{
	char *new = mem_printf("%s.new", path);

	snprintf(h->record.write, sizeof h->record.write, "%032d", n);
	char *text = record_print(&h->record);
	FILE *f = fopen(new, "we");
	fputs(text, f);
	fclose(f);
	if (rename(new, path) < 0)
		perror("rename");
	free(text);
	free(new);
}

static struct record look(void)
{
	static char text[RECORD_MAX_BYTES];
	struct record r;
	FILE *f = fopen(path, "re");
	size_t len = f ? fread(text, 1, sizeof text, f) : 0;

	if (f)
		fclose(f);
	record_init(&r);
	record_parse(&r, text, len, NULL);
	return r;
}

/* ---- the candidate ---- */

static void on_lead(void *arg, const struct elector_term *t)
{
	struct candidate *c = arg;

	(void)t;
	c->leads++;
}

static void on_deadline(void *arg, struct instant end, struct instant kill)
{
	(void)arg, (void)end, (void)kill;
}

static void on_stop(void *arg, enum lease_reason reason, bool held, struct instant stop_by)
{
	struct candidate *c = arg;

	(void)reason, (void)held, (void)stop_by;
	elector_stopped(c->elector, true);
}

static void on_leader(void *arg, const struct elector_leader *l)
{
	struct candidate *c = arg;

	c->others += !l->self;
	c->doubt = l->doubt;
}

static void on_no_leader(void *arg, const char *previous)
{
	(void)arg, (void)previous;
}

static void on_finished(void *arg, bool left)
{
	(void)arg, (void)left;
}

static const struct elector_callbacks callbacks = {
	.lead = on_lead,
	.deadline = on_deadline,
	.stop = on_stop,
	.leader = on_leader,
	.no_leader = on_no_leader,
	.finished = on_finished,
};

static void on_log(void *arg, enum log_level level, const struct log_about *about, const char *event, const char *text)
{
	(void)arg, (void)level, (void)about, (void)text;
	said_dead += strcmp(event, "holder_dead") == 0;
}

static void start(struct candidate *c)
{
	struct err err;

	said_dead = 0;
	*c = (struct candidate){ .doubt = -1 };
	c->env.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	c->env.offload = offload_new(c->env.loop, 1, NULL);
	timeline_init(&c->timeline, c->env.loop);
	proof_self_init(&c->self, dir);
	c->deaths = death_watches_new(c->env.loop, c->env.offload);
	struct elector_config config = { .env = &c->env,
		                         .timeline = &c->timeline,
		                         .self = &c->self,
		                         .death_watches = c->deaths,
		                         .lock = url,
		                         .identity = "candidate",
		                         .address = "" };
	lease_times_default(&config.times);
	c->elector = elector_new(&config, &callbacks, c, &err);
	if (!c->elector)
		printf("Bail out! %s\n", err.text), exit(1);
	elector_bar(c->elector, NULL);
}

static void stop(struct candidate *c)
{
	elector_free(c->elector);
	death_watches_free(c->deaths);
	lock_env_fini(&c->env);
	proof_self_fini(&c->self);
	offload_free(c->env.offload);
	timeline_fini(&c->timeline);
	ev_loop_destroy(c->env.loop);
	unlink(path);
}

static bool until(struct candidate *c, const int *counter, int want, double seconds)
{
	for (double last = ev_time() + seconds; *counter < want && ev_time() < last; usleep(500))
		ev_run(c->env.loop, EVRUN_NOWAIT);
	return *counter >= want;
}

static bool sees_write(struct candidate *c, const struct holder *h)
{
	struct elector_status s = { 0 };

	for (double last = ev_time() + PATIENCE_S; ev_time() < last; usleep(500)) {
		ev_run(c->env.loop, EVRUN_NOWAIT);
		elector_status(c->elector, &s);
		if (strcmp(s.record->write, h->record.write) == 0)
			return true;
	}
	return false;
}

/* ---- */

static void died(void)
{
	struct candidate c;
	struct holder h;

	hold(&h);
	put(&h, 1);
	start(&c);
	ok(until(&c, &c.others, 1, PATIENCE_S) && c.doubt == 0, "nothing says that a holder that lives is dead");
	put(&h, 2); /* it renews */
	ok(sees_write(&c, &h) && !until(&c, &c.leads, 1, A_WHILE_S), "its lease is waited out");
	end(&h);
	ok(until(&c, &c.leads, 1, PATIENCE_S) && said_dead == 1, "but not when it is proved dead");
	struct record r = look();
	ok(r.term > 7 && r.token > 7 && r.past && strstr(r.past, "\"died\""),
	   "the record tells that its term ended so: %s", r.past ? r.past : "nothing");
	record_fini(&r);
	stop(&c);
	bury(&h);
}

static void dead_before(void)
{
	struct candidate c;
	struct holder h;

	hold(&h);
	end(&h);
	put(&h, 1);
	start(&c);
	until(&c, &c.others, 1, PATIENCE_S);
	is_int(c.doubt, 250 * NSEC_PER_MS, "of one that was dead before it may soon be known");
	ok(until(&c, &c.leads, 1, PATIENCE_S), "and it is");
	stop(&c);
	bury(&h);
}

/* Of what a record of another machine says nothing can be proved. */
static void elsewhere(void)
{
	struct candidate c;
	struct holder h, far;

	hold(&h);
	put(&h, 1);
	start(&c);
	until(&c, &c.others, 1, PATIENCE_S);
	hold(&far);
	mem_replace(&far.record.holder, "far");
	far.record.boot_id[0] = far.record.boot_id[0] == 'a' ? 'b' : 'a';
	far.record.term = 8;
	put(&far, 2);
	ok(until(&c, &c.others, 2, PATIENCE_S) && c.doubt == 0, "another machine's leader takes its place");
	end(&h);
	end(&far);
	ok(!until(&c, &c.leads, 1, A_WHILE_S), "the death of the one that led before is no proof about it");
	is_int(said_dead, 0, "nor is it called dead");
	far.record.renewed_us = clock_wall_us() - INT64_C(2000) * HOUR_MS;
	far.record.term = 9;
	put(&far, 3);
	ok(until(&c, &c.others, 3, PATIENCE_S) && c.doubt == INT64_C(3) * HOUR_MS / 2 * NSEC_PER_MS,
	   "a record that is older than its lease is known to be dead after one and a half of it");
	ok(!until(&c, &c.leads, 1, A_WHILE_S), "which is waited, whatever the wall clocks say");
	stop(&c);
	bury(&h);
	bury(&far);
}

int main(void)
{
	snprintf(dir, sizeof dir, "/dev/shm/lunarch-deaths-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	snprintf(url, sizeof url, "file:%s/lock", dir);
	path = url + strlen("file:");
	log_divert(on_log, NULL);
	died();
	dead_before();
	elsewhere();
	char command[140];
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command) != 0 || tap_done();
}
