#include "election/death_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "election/death_proof.h"
#include "loop/offload.h"

#include <ev.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A guard that outlived its elector kills the tree itself, children it alone can attribute included. */
#define GUARDS_TIME (50 * NSEC_PER_MS)
#define SAID_AFTER 3 /* this part of the lease, in which whoever polls looks once */

/* A process that held a lock, for whose death somebody waits. Freed when nobody does and no check is under way. */
struct watched {
	struct offload_job check; /* first, so that a job can be cast to it */
	struct death_watches *all;
	struct watched *next;
	struct death_watch *waiting, *due; /* due: are being told */
	struct record record;              /* who it is: pid, start, boot, tree */
	ev_io gone;                        /* its pidfd */
	ev_timer again;
	enum { LIVES, CHECKING, DYING, DEAD, DOUBTFUL } state;
	enum proof_verdict verdict;
	bool insist;          /* kill, not only look */
	bool telling;         /* it stays until all of those are through */
	struct instant since; /* of its death */
	char why[200];
};

struct death_watches {
	struct ev_loop *loop;
	struct offload *offload;
	const struct proof_self *self;
	struct watched *first;
};

static bool same_process(const struct record *a, const struct record *b)
{
	return a->pid == b->pid && a->pid_start == b->pid_start && strcmp(a->incarnation, b->incarnation) == 0 &&
	       strcmp(a->boot_id, b->boot_id) == 0;
}

static void watched_stop_watching(struct watched *m)
{
	if (m->gone.fd < 0)
		return;
	ev_io_stop(m->all->loop, &m->gone);
	close(m->gone.fd);
	m->gone.fd = -1;
}

static void discard_if_unused(struct watched *m)
{
	struct watched **at = &m->all->first;

	if (m->waiting || m->telling || m->state == CHECKING)
		return;
	while (*at != m)
		at = &(*at)->next;
	*at = m->next;
	watched_stop_watching(m);
	ev_timer_stop(m->all->loop, &m->again);
	record_fini(&m->record);
	free(m);
}

/* The callbacks may forget, or watch: the list is taken away first, so that who comes new is told from the loop. */
static void watched_tell_all(struct watched *m)
{
	m->due = m->waiting;
	m->waiting = NULL;
	m->telling = true;
	while (m->due) {
		struct death_watch *watch = m->due;
		m->due = watch->next;
		watch->of = NULL;
		watch->dead(watch->arg);
	}
	m->telling = false;
}

static void watched_work(struct offload_job *job)
{
	struct watched *m = (struct watched *)job;

	m->verdict = proof_check(&m->record, m->insist, m->why, sizeof m->why);
}

static void start_check(struct watched *m)
{
	m->state = CHECKING;
	m->insist = elapsed_standby(m->since, clock_now()) > GUARDS_TIME;
	offload_run(m->all->offload, &m->check);
}

static void start_again(struct watched *m, double after)
{
	ev_now_update(m->all->loop);
	ev_timer_set(&m->again, after, 0.);
	ev_timer_start(m->all->loop, &m->again);
}

/* Killing takes a moment; a process that cannot die keeps its lease until that runs out anyway. */
static void ask_again(struct watched *m)
{
	nsec passed = elapsed_standby(m->since, clock_now());
	double after = passed < 100 * NSEC_PER_MS ? 0.001 : passed < 2 * NSEC_PER_SEC ? 0.01 : 0.5;

	m->state = DYING;
	start_again(m, after);
}

static void say_unproved(const struct watched *m)
{
	log_event(LOG_INFO, NULL, "death_unproved",
	          "that process %llu is dead cannot be proved, so its lease is waited out: %s",
	          (unsigned long long)m->record.pid, m->why);
}

static void watched_checked(struct offload_job *job)
{
	struct watched *m = (struct watched *)job;

	switch (m->verdict) {
	case PROOF_DEAD:
		m->state = DEAD;
		watched_tell_all(m);
		break;
	case PROOF_DYING:
		ask_again(m);
		break;
	case PROOF_UNKNOWN:
		m->state = DOUBTFUL; /* a clean stop leaves no evidence: then it has released, which is seen before this
		                        is said */
		start_again(m, (double)m->record.lease_ms / SAID_AFTER / 1e3);
		break;
	}
	discard_if_unused(m);
}

static void watched_on_gone(struct ev_loop *loop, ev_io *w, int revents)
{
	struct watched *m = w->data;

	(void)loop;
	(void)revents;
	watched_stop_watching(m);
	m->since = clock_now();
	start_check(m);
}

static void watched_on_again(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct watched *m = w->data;

	(void)loop;
	(void)revents;
	if (m->state == DYING)
		start_check(m);
	else if (m->state == DEAD)
		watched_tell_all(m);
	else if (m->state == DOUBTFUL && m->waiting)
		say_unproved(m);
	discard_if_unused(m);
}

static struct watched *watched_new(struct death_watches *all, const struct record *r)
{
	struct watched *m = mem_zero(sizeof *m);

	m->all = all;
	m->check = (struct offload_job){ .work = watched_work, .done = watched_checked };
	record_init(&m->record);
	record_copy(&m->record, r);
	m->gone.fd = -1;
	ev_timer_init(&m->again, watched_on_again, 0., 0.);
	m->again.data = m;
	m->next = all->first;
	all->first = m;
	return m;
}

static void watch_process(struct watched *m)
{
	int fd = proof_pidfd(&m->record);

	if (fd < 0) {
		m->since = clock_now();
		start_check(m);
		return;
	}
	ev_io_init(&m->gone, watched_on_gone, fd, EV_READ);
	m->gone.data = m;
	ev_io_start(m->all->loop, &m->gone);
}

static struct watched *watched_find(struct death_watches *all, const struct record *r)
{
	for (struct watched *m = all->first; m; m = m->next)
		if (same_process(&m->record, r))
			return m;
	return NULL;
}

struct death_watches *death_watches_new(struct ev_loop *loop, struct offload *o, const struct proof_self *self)
{
	struct death_watches *all = mem_zero(sizeof *all);

	*all = (struct death_watches){ .loop = loop, .offload = o, .self = self };
	return all;
}

void death_watch_watch(struct death_watches *all, struct death_watch *watch, const struct record *r)
{
	if (watch->of && same_process(&watch->of->record, r))
		return;
	death_watch_forget(all, watch);
	struct watched *m = watched_find(all, r);
	bool known = m != NULL;
	if (!known)
		m = watched_new(all, r);
	watch->of = m;
	watch->next = m->waiting;
	m->waiting = watch;
	if (!known) {
		watch_process(m);
	} else if (m->state == DEAD) {
		start_again(m, 0.); /* told from the loop, not from in here */
	}
}

static bool take_out(struct death_watch **list, const struct death_watch *watch)
{
	while (*list && *list != watch)
		list = &(*list)->next;
	if (!*list)
		return false;
	*list = watch->next;
	return true;
}

void death_watch_forget(struct death_watches *all, struct death_watch *watch)
{
	struct watched *m = watch->of;

	(void)all;
	if (!m)
		return;
	if (!take_out(&m->waiting, watch))
		take_out(&m->due, watch);
	watch->of = NULL;
	discard_if_unused(m);
}

/* A check that is under way on a thread keeps its memory: the process is ending. */
void death_watches_free(struct death_watches *all)
{
	if (!all)
		return;
	while (all->first) {
		struct watched *m = all->first;
		all->first = m->next;
		watched_stop_watching(m);
		ev_timer_stop(all->loop, &m->again);
		if (m->state == CHECKING)
			continue;
		record_fini(&m->record);
		free(m);
	}
	free(all);
}
