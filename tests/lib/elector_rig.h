/* An elector's place in a test: a loop, a file lock in a directory of its own, what an elector needs, and waiting for a
 * count. Not its user: each test has its own callbacks, but for those that need not do anything. Used by the tests of
 * tests/unit that run real electors on a file lock. */
#pragma once

#include "election/elector.h"
#include "loop/offload.h"
#include "loop/timeline.h"
#include "nobody.h"
#include "tap.h"

#include <ev.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 60. /* mutants get less */
#endif

static char dir[] = "/dev/shm/lunarch-elector-XXXXXX", url[100];
static const char *path; /* of the record */

struct rig {
	struct lock_env env;
	struct timeline timeline;
	struct proof_self self;
	struct elector *elector;
};

static void place_make(void)
{
	if (!mkdtemp(dir))
		exit(1);
	snprintf(url, sizeof url, "file:%s/lock", dir);
	path = url + strlen("file:");
}

/* The status of a test that has said all. */
static int place_end(void)
{
	char command[60];

	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	return system(command) != 0 || tap_done();
}

static void rig_init(struct rig *s)
{
	*s = (struct rig){ .elector = NULL };
	s->env.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	s->env.offload = offload_new(s->env.loop, 1, NULL);
	timeline_init(&s->timeline, s->env.loop);
	proof_self_init(&s->self, dir);
}

__attribute__((unused)) static struct elector_config rig_config(struct rig *s, nsec lease)
{
	struct elector_config c = { .env = &s->env,
		                    .timeline = &s->timeline,
		                    .self = &s->self,
		                    .lock = url,
		                    .identity = "a",
		                    .address = "",
		                    .times = { .lease = lease } };

	lease_times_default(&c.times);
	return c;
}

__attribute__((unused)) static void rig_start(struct rig *s, const struct elector_config *config,
                                              const struct elector_callbacks *user, void *arg)
{
	struct err err;

	s->elector = elector_new(config, user, arg, &err);
	if (!s->elector)
		printf("Bail out! %s\n", err.text), exit(1);
}

/* And the record goes. */
static void rig_fini(struct rig *s)
{
	elector_free(s->elector);
	lock_env_fini(&s->env);
	proof_self_fini(&s->self);
	offload_free(s->env.offload);
	timeline_fini(&s->timeline);
	ev_loop_destroy(s->env.loop);
	unlink(path);
}

static void turn(struct rig *s)
{
	ev_run(s->env.loop, EVRUN_NOWAIT);
	usleep(500);
}

/* Whether the counter, which may be another process's, is there in time. */
static bool within(struct rig *s, const int *counter, int want, double seconds)
{
	double end = ev_time() + seconds;

	while (__atomic_load_n(counter, __ATOMIC_SEQ_CST) < want && ev_time() < end)
		turn(s);
	return __atomic_load_n(counter, __ATOMIC_SEQ_CST) >= want;
}

static bool until(struct rig *s, const int *counter, int want)
{
	return within(s, counter, want, PATIENCE_S);
}

__attribute__((unused)) static struct record look(void)
{
	static char text[RECORD_MAX_BYTES];
	struct record r;
	struct err err;
	FILE *f = fopen(path, "re");
	size_t len = f ? fread(text, 1, sizeof text, f) : 0;

	if (f)
		fclose(f);
	record_init(&r);
	if (record_parse(&r, text, len, &err) < 0)
		printf("# %s: %s\n", path, err.text);
	return r;
}

/* As a store does that shows another version from now on. */
__attribute__((unused)) static void replace(const struct record *r)
{
	char new[120];
	char *text = record_print(r);

	snprintf(new, sizeof new, "%s.other", path);
	FILE *f = fopen(new, "we");
	fputs(text, f);
	fclose(f);
	free(text);
	if (rename(new, path) < 0)
		perror("rename");
}
