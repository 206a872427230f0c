#include "election/death_watch.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "election/death_proof.h"
#include "loop/offload.h"

#include <ev.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* For this time after the elector's death, the killing of the tree is left to its guard, which also knows children
 * that nobody else can attribute. */
#define GUARDS_TIME (50 * NSEC_PER_MS)
#define SAID_AFTER 3 /* a third of the lease: by then also a standby that polls has read the record once more */

/* The process of a holder, for whose death somebody waits. Freed when nobody does and no check is under way. */
struct watched {
	struct offload_job check; /* first, so that a job can be cast to it */
	struct death_watches *all;
	struct watched *next;
	struct death_watch *waiting, *due; /* due: those that are still to be told, while `telling` */
	struct record record;              /* who it is: pid, start, boot, tree */
	ev_io gone;                        /* its pidfd */
	ev_timer again;
	enum { LIVES, CHECKING, DYING, DEAD, DOUBTFUL } state;
	enum proof_verdict verdict;
	bool insist;          /* proof_check's */
	bool telling;         /* a callback may call in: it must not be freed now */
	bool said;            /* the log has that the death is not proved */
	struct instant since; /* of its death */
	char why[200];
};

struct death_watches {
	struct ev_loop *loop;
	struct offload *offload;
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

static void watched_free_if_unused(struct watched *m)
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

/* The callbacks may forget, or watch again. So the list is taken away first, and those that are added meanwhile are
 * told later, from the loop. */
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

static void watched_on_thread(struct offload_job *job)
{
	struct watched *m = (struct watched *)job;

	m->verdict = proof_check(&m->record, m->insist, m->why, sizeof m->why);
}

static void watched_check(struct watched *m)
{
	m->state = CHECKING;
	m->insist = elapsed_standby(m->since, clock_now()) > GUARDS_TIME;
	offload_run(m->all->offload, &m->check);
}

static void watched_start_timer(struct watched *m, double after)
{
	ev_now_update(m->all->loop);
	ev_timer_set(&m->again, after, 0.);
	ev_timer_start(m->all->loop, &m->again);
}

/* At first soon, since killing takes a moment; then ever more rarely. Meanwhile the lease of a process that cannot die
 * runs out. */
static void watched_check_later(struct watched *m)
{
	nsec passed = elapsed_standby(m->since, clock_now());
	double after = passed < 100 * NSEC_PER_MS ? 0.001 : passed < 2 * NSEC_PER_SEC ? 0.01 : 0.5;
	if (m->verdict == PROOF_DOUBTED) /* what cannot be read may live long, and each search reads all of /proc */
		after = fmin(fmax((double)passed / NSEC_PER_SEC / 10, 0.01), 5);

	m->state = DYING;
	watched_start_timer(m, after);
}

static double watched_said_after_ms(const struct watched *m)
{
	return (double)m->record.lease_ms / SAID_AFTER;
}

static void watched_on_checked(struct offload_job *job)
{
	struct watched *m = (struct watched *)job;

	switch (m->verdict) {
	case PROOF_DEAD:
		m->state = DEAD;
		watched_tell_all(m);
		break;
	case PROOF_DYING:
	case PROOF_DOUBTED:
		watched_check_later(m);
		break;
	case PROOF_UNKNOWN:
		/* A holder that stopped cleanly leaves no evidence either, but it has released. That is seen first, so
		 * this is not logged of it. */
		m->state = DOUBTFUL;
		watched_start_timer(m, watched_said_after_ms(m) / 1e3);
		break;
	}
	watched_free_if_unused(m);
}

static void watched_on_gone(struct ev_loop *, ev_io *w, int)
{
	struct watched *m = w->data;

	watched_stop_watching(m);
	m->since = clock_now();
	watched_check(m);
}

static void watched_say_unproved(struct watched *m)
{
	if (m->said || !m->waiting)
		return;
	m->said = true;
	log_event(LOG_INFO, NULL, "death_unproved",
	          "that process %llu is dead cannot be proved, so its lease is waited out: %s",
	          (unsigned long long)m->record.pid, m->why);
}

static void watched_on_again(struct ev_loop *, ev_timer *w, int)
{
	struct watched *m = w->data;

	if (m->state == DYING) {
		if (elapsed_standby(m->since, clock_now()) > watched_said_after_ms(m) * NSEC_PER_MS)
			watched_say_unproved(m);
		watched_check(m);
	} else if (m->state == DEAD) {
		watched_tell_all(m);
	} else if (m->state == DOUBTFUL) {
		watched_say_unproved(m);
	}
	watched_free_if_unused(m);
}

static struct watched *watched_new(struct death_watches *all, const struct record *r)
{
	struct watched *m = mem_zero(sizeof *m);

	m->all = all;
	m->check = (struct offload_job){ .work = watched_on_thread, .done = watched_on_checked };
	record_init(&m->record);
	record_copy(&m->record, r);
	m->gone.fd = -1;
	ev_timer_init(&m->again, watched_on_again, 0., 0.);
	m->again.data = m;
	m->next = all->first;
	all->first = m;
	return m;
}

static void watched_begin(struct watched *m)
{
	int fd = proof_pidfd(&m->record);

	if (fd < 0) {
		m->since = clock_now();
		watched_check(m);
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

struct death_watches *death_watches_new(struct ev_loop *loop, struct offload *o)
{
	struct death_watches *all = mem_zero(sizeof *all);

	*all = (struct death_watches){ .loop = loop, .offload = o };
	return all;
}

void death_watch_watch(struct death_watches *all, struct death_watch *watch, const struct record *r)
{
	if (watch->of && same_process(&watch->of->record, r))
		return;
	death_watch_forget(watch);
	struct watched *m = watched_find(all, r);
	bool known = m != NULL;
	if (!known)
		m = watched_new(all, r);
	watch->of = m;
	watch->next = m->waiting;
	m->waiting = watch;
	if (!known) {
		watched_begin(m);
	} else if (m->state == DEAD) {
		watched_start_timer(m, 0.); /* told from the loop, not from in here */
	}
}

static bool list_remove(struct death_watch **list, const struct death_watch *watch)
{
	while (*list && *list != watch)
		list = &(*list)->next;
	if (!*list)
		return false;
	*list = watch->next;
	return true;
}

void death_watch_forget(struct death_watch *watch)
{
	struct watched *m = watch->of;

	if (!m)
		return;
	if (!list_remove(&m->waiting, watch))
		list_remove(&m->due, watch);
	watch->of = NULL;
	watched_free_if_unused(m);
}

/* The process is ending: the memory of a check that is still under way on a thread is left to it. */
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
