#include "simulation/sim.h"

#include "base/env.h"
#include "base/mem.h"
#include "lease/record.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WALL_US INT64_C(1704067200000000) /* 2024-01-01 00:00 UTC, at 0 */
#define BEGIN_S 1000.0                    /* on the other clocks: 0 would mean "never" */
#define ROUNDED_S 1e-6 /* times are sums that have been rounded: what is due at the end of a period belongs to it */

struct waiting_fault { /* asked for while the code of a node ran: it happens when that has ended */
	struct waiting_fault *next;
	char *what, *node;
	double number;
};

void sim_fail(struct sim *s, const char *fmt, ...)
{
	va_list ap;

	if (s->failed)
		return;
	s->failed = true;
	s->err.code = ERR_INVALID;
	va_start(ap, fmt);
	vsnprintf(s->err.text, sizeof s->err.text, fmt, ap);
	va_end(ap);
}

/* At most one node leads. A paused node looks at its clock before it does anything else, so it does not count as
 * leading once its lease is over. */
void sim_check_leaders(struct sim *s, const struct sim_candidate *new_leader)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (s->nodes[i] != new_leader->node && sim_node_leads(s->nodes[i], new_leader->url))
			sim_fail(s, "%s and %s lead %s at once", s->nodes[i]->name, new_leader->node->name,
			         new_leader->url);
}

/* ---- time ---- */

static void sim_set_now(struct sim *s, double now)
{
	if (now > s->now)
		s->now = now;
	s->clock.now = (nsec)ceil(s->now * NSEC_PER_SEC);
}

void sim_enter(struct sim *s, struct sim_node *n)
{
	if (s->current)
		s->current->environment_now = environ;
	s->current = n;
	environ = n ? n->environment_now : (char **)s->environment;
	s->clock.wall_us = WALL_US - (int64_t)(BEGIN_S * 1e6) + (n ? n->ahead_us : 0);
}

static double sim_node_due(const struct sim_node *n)
{
	double at = n->up ? sim_node_first(n) : HUGE_VAL;

	return at < n->paused_until ? n->paused_until : at;
}

static struct sim_node *sim_earliest(struct sim *s, double *at)
{
	struct sim_node *first = NULL;

	*at = timeline_first(&s->world);
	for (uint32_t i = 0; i < s->count; i++)
		if (sim_node_due(s->nodes[i]) < *at) {
			first = s->nodes[i];
			*at = sim_node_due(first);
		}
	return first;
}

static int sim_carry_out(struct sim *s, const char *what, const char *name, double number, struct err *err);

static void sim_carry_out_waiting(struct sim *s)
{
	while (s->waiting_faults) {
		struct waiting_fault *o = s->waiting_faults;
		s->waiting_faults = o->next;
		if (sim_carry_out(s, o->what, o->node, o->number, &s->err) < 0)
			s->failed = true;
		free(o->what);
		free(o->node);
		free(o);
	}
}

/* Lets the next event happen. false: there is none until then. */
static bool sim_step(struct sim *s, double until)
{
	double at;
	struct sim_node *n = sim_earliest(s, &at);

	if (at > until + ROUNDED_S) {
		sim_set_now(s, until);
		return false;
	}
	sim_set_now(s, at);
	if (!n)
		timeline_fire(&s->world);
	else if (n->paused_until > 0)
		sim_node_wake(n);
	else
		sim_node_fire(n);
	sim_carry_out_waiting(s);
	return true;
}

int sim_run(struct sim *s, double until, bool one, struct err *err)
{
	if (s->current)
		return err_set(err, ERR_USAGE, "time cannot be moved from inside a stub");
	while (!s->failed && sim_step(s, until + BEGIN_S) && !one)
		;
	if (!s->failed)
		return 0;
	*err = s->err;
	return -1;
}

double sim_now(const struct sim *s)
{
	return s->now - BEGIN_S;
}

/* ---- faults ---- */

static void sim_on_each(struct sim *s, struct sim_node *only, void (*f)(struct sim *, struct sim_node *, double),
                        double number)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (!only || only == s->nodes[i])
			f(s, s->nodes[i], number);
}

static void fault_partition(struct sim *, struct sim_node *n, double)
{
	n->link.cut = true;
}

static void fault_heal(struct sim *s, struct sim_node *n, double)
{
	n->link.cut = false;
	sim_store_healed(s->store);
}

static void fault_pause(struct sim *s, struct sim_node *n, double number)
{
	if (n->up)
		n->paused_until = s->now + number;
}

static void fault_wake(struct sim *, struct sim_node *n, double)
{
	if (n->paused_until > 0)
		sim_node_wake(n);
}

static void fault_clock(struct sim *, struct sim_node *n, double number)
{
	n->ahead_us = (int64_t)(number * 1e6);
}

static void fault_crash(struct sim *, struct sim_node *n, double)
{
	if (n->up)
		sim_node_crash(n);
}

static void fault_start(struct sim *, struct sim_node *n, double)
{
	if (!n->up)
		sim_node_start(n);
}

static void fault_stop(struct sim *, struct sim_node *n, double)
{
	if (n->up)
		sim_node_stop(n);
}

static void fault_kill_worker(struct sim *, struct sim_node *n, double)
{
	if (n->up)
		sim_node_kill_worker(n);
}

static void fault_resign(struct sim *, struct sim_node *n, double number)
{
	if (n->up)
		sim_node_resign(n, number);
}

static const struct fault {
	const char *what;
	void (*node)(struct sim *s, struct sim_node *n, double number);
	bool runs; /* its code: not while it stands still */
} faults[] = {
	{ "partition", fault_partition, false },
	{ "heal", fault_heal, false },
	{ "pause", fault_pause, true },
	{ "wake", fault_wake, false },
	{ "crash", fault_crash, false },
	{ "start", fault_start, false },
	{ "stop", fault_stop, true },
	{ "kill_worker", fault_kill_worker, true },
	{ "resign", fault_resign, true },
	{ "clock", fault_clock, false },
};

static struct sim_node *sim_find(const struct sim *s, const char *name)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (strcmp(s->nodes[i]->name, name) == 0)
			return s->nodes[i];
	return NULL;
}

static int sim_unknown_node(const struct sim *s, const char *name, struct err *err)
{
	struct buf b = { 0 };

	for (uint32_t i = 0; i < s->count; i++)
		buf_printf(&b, "%s%s", i ? ", " : "", s->nodes[i]->name);
	err_set(err, ERR_USAGE, "there is no node '%s': there are %s", name, b.data);
	buf_fini(&b);
	return -1;
}

/* ---- elections ---- */

void sim_know_election(struct sim *s, const char *name, const char *lock, const char *url)
{
	for (uint32_t i = 0; i < s->election_count; i++)
		if (strcmp(s->elections[i].url, url) == 0)
			return;
	s->elections = mem_resize(s->elections, sizeof *s->elections * (s->election_count + 1));
	s->elections[s->election_count++] =
		(struct sim_election){ .name = mem_dup(name), .lock = mem_dup(lock), .url = mem_dup(url) };
}

static int sim_unknown_election(const struct sim *s, const char *name, struct err *err)
{
	struct buf b = { 0 };

	for (uint32_t i = 0; i < s->election_count; i++)
		buf_printf(&b, "%s%s", i ? ", " : "",
		           *s->elections[i].name ? s->elections[i].name : s->elections[i].url);
	err_set(err, ERR_USAGE, "there is no election '%s': there %s %s", name, s->election_count > 1 ? "are" : "is",
	        b.data);
	buf_fini(&b);
	return -1;
}

const char *sim_election_url(const struct sim *s, const char *name, struct err *err)
{
	if (!s->election_count)
		return "";
	if (!name)
		return s->elections[0].url;
	for (uint32_t i = 0; i < s->election_count; i++)
		if (strcmp(name, s->elections[i].name) == 0)
			return s->elections[i].url;
	for (uint32_t i = 0; i < s->election_count; i++)
		if (strcmp(name, s->elections[i].lock) == 0 || strcmp(name, s->elections[i].url) == 0)
			return s->elections[i].url;
	sim_unknown_election(s, name, err);
	return NULL;
}

/* What happens to the record of an election, or to the next record beside it. 1: that is none of these. */
static int sim_hurt_record(struct sim *s, const char *what, const char *election, struct err *err)
{
	static const char *const whats[] = { "delete_record", "delete_next", "deny_next", "allow_next" };
	enum { DELETE_RECORD, DELETE_NEXT, DENY_NEXT, WHATS = 4 };
	int i = 0;

	while (i < WHATS && strcmp(what, whats[i]) != 0)
		i++;
	if (i == WHATS)
		return 1;
	const char *url = sim_election_url(s, election, err);
	if (!url)
		return -1;
	if (i <= DELETE_NEXT)
		sim_store_delete(s->store, url, i == DELETE_NEXT);
	else
		sim_store_deny_next(s->store, url, i == DENY_NEXT);
	return 0;
}

static int sim_carry_out(struct sim *s, const char *what, const char *name, double number, struct err *err)
{
	struct sim_node *n = name ? sim_find(s, name) : NULL;
	int hurt = sim_hurt_record(s, what, name, err);

	if (hurt <= 0)
		return hurt;
	if (strcmp(what, "latency") == 0)
		sim_store_latency(s->store, number);
	else if (strcmp(what, "loss") == 0)
		sim_store_loss(s->store, number);
	else if (strcmp(what, "store_down") == 0)
		sim_store_refuse(s->store, true);
	else if (strcmp(what, "store_up") == 0)
		sim_store_refuse(s->store, false);
	else if (name && !n)
		return sim_unknown_node(s, name, err);
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		if (strcmp(what, faults[i].what) != 0)
			continue;
		if (n && n->paused_until > 0 && faults[i].runs)
			return err_set(err, ERR_USAGE, "%s stands still: sim:wake(\"%s\") first", name, name);
		sim_on_each(s, n, faults[i].node, number);
	}
	return 0;
}

int sim_fault(struct sim *s, const char *what, const char *node, double number, struct err *err)
{
	if (!s->current) {
		if (sim_carry_out(s, what, node, number, err) < 0)
			return -1;
		if (!s->failed)
			return 0;
		*err = s->err;
		return -1;
	}
	struct waiting_fault *o = mem_zero(sizeof *o), **at = &s->waiting_faults;
	*o = (struct waiting_fault){ .what = mem_dup(what), .node = mem_dup(node), .number = number };
	while (*at)
		at = &(*at)->next;
	*at = o;
	return 0;
}

/* ---- looking ---- */

const char *sim_leader(const struct sim *s, const char *url)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (sim_node_leads(s->nodes[i], url))
			return s->nodes[i]->name;
	return NULL;
}

int sim_leads(const struct sim *s, const char *node, struct err *err)
{
	const struct sim_node *n = sim_find(s, node);

	return n ? sim_node_leads(n, NULL) : sim_unknown_node(s, node, err);
}

/* The candidate that the leader publishes as next. While nobody leads: one that takes itself to be next. */
const char *sim_next(const struct sim *s, const char *url)
{
	const char *next = NULL;

	for (uint32_t i = 0; i < s->count; i++) {
		const struct sim_node *n = s->nodes[i];
		const char *of = sim_node_next(n, url);
		if (sim_node_leads(n, url))
			return of;
		if (of && strcmp(of, n->name) == 0)
			next = of;
	}
	return next;
}

int sim_hand_over(struct sim *s, const char *url, const char *to, double timeout, struct err *err)
{
	s->handover = (struct sim_handover){ .of = NULL };
	if (s->current)
		return err_set(err, ERR_USAGE, "time cannot be moved from inside a stub");
	if (to && !sim_find(s, to))
		return sim_unknown_node(s, to, err);
	for (uint32_t i = 0; i < s->count; i++) {
		struct sim_node *n = s->nodes[i];
		if (!sim_node_leads(n, url))
			continue;
		if (n->paused_until > 0)
			return err_set(err, ERR_USAGE, "%s stands still: sim:wake(\"%s\") first", n->name, n->name);
		sim_node_hand_over(n, url, to ? to : "", timeout);
		return 0;
	}
	err_set(&s->handover.refused, ERR_USAGE, "nobody leads");
	return 0;
}

const char *sim_not_handed_over(const struct sim *s)
{
	return s->handover.refused.code ? s->handover.refused.text : NULL;
}

bool sim_metric(const struct sim *s, const char *name, const char *labels, const char *node, double *value)
{
	bool found = false;

	*value = 0;
	for (uint32_t i = 0; i < s->count; i++) {
		const struct sim_node *n = s->nodes[i];
		for (uint32_t k = 0; k < n->candidate_count && (!node || strcmp(n->name, node) == 0); k++)
			for (const struct script_metric *m = n->candidates[k]->metrics.first; m; m = m->next) {
				if (strcmp(m->name, name) != 0 || strcmp(m->labels, labels) != 0)
					continue;
				*value += m->value;
				found = true;
			}
	}
	return found;
}

char *sim_record(const struct sim *s, const char *url)
{
	const struct record *r = sim_store_record(s->store, url);

	return r ? record_print(r) : NULL;
}

bool sim_edit_checkpoint(struct sim *s, const char *url, const char *json)
{
	return sim_store_edit_checkpoint(s->store, url, json);
}

/* ---- the log ---- */

static void sim_on_log(void *arg, enum log_level level, const struct log_about *about, const char *event,
                       const char *text)
{
	struct sim *s = arg;

	s->setup.event(s->setup.testing, sim_now(s), s->current ? s->current->name : NULL, level, event, text, about);
}

/* ---- beginning and end ---- */

void sim_close(struct sim *s)
{
	for (uint32_t i = 0; i < s->count; i++) {
		struct sim_node *n = s->nodes[i];
		if (n->up)
			sim_node_crash(n);
		free(n->environment);
		free(n);
	}
	for (uint32_t i = 0; i < s->election_count; i++) {
		free(s->elections[i].name);
		free(s->elections[i].lock);
		free(s->elections[i].url);
	}
	free(s->elections);
	sim_enter(s, NULL);
	log_divert(NULL, NULL);
	clock_pretend(NULL);
	sim_store_free(s->store);
	timeline_fini(&s->world);
	ev_loop_destroy(s->loop);
	free(s->fallback);
	free(s->nodes);
	free(s);
}

static struct sim_node *sim_node_new(struct sim *s, uint32_t index)
{
	struct sim_node *n = mem_zero(sizeof *n);

	n->sim = s;
	n->number = index + 1;
	n->machine = &s->setup.machines[index];
	n->name = n->machine->name;
	n->environment = n->environment_now = env_with(s->environment, (char *const *)n->machine->env);
	return n;
}

static int sim_node_parse(struct sim_node *n, struct err *err)
{
	int argc = 0;

	while (n->machine->arguments[argc])
		argc++;
	return options_parse(&n->options, COMMAND_RUN, argc, (char **)n->machine->arguments, err);
}

static int sim_begin(struct sim *s, struct err *err)
{
	s->fallback = election_default_lock(s->setup.script, false, err);
	if (!s->fallback)
		return -1;
	s->nodes = mem_zero(s->setup.count * sizeof(struct sim_node *));
	for (; s->count < s->setup.count; s->count++)
		s->nodes[s->count] = sim_node_new(s, s->count);
	for (uint32_t i = 0; i < s->count; i++)
		if (sim_node_parse(s->nodes[i], err) < 0)
			return -1;
	for (uint32_t i = 0; i < s->count && !s->failed; i++)
		sim_node_start(s->nodes[i]);
	*err = s->err;
	return s->failed ? -1 : 0;
}

struct sim *sim_open(const struct testing_setup *setup, struct err *err)
{
	struct sim *s = mem_zero(sizeof *s);

	s->setup = *setup;
	s->environment = environ;
	s->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	if (!s->loop)
		abort(); /* no descriptor is left for epoll */
	sim_enter(s, NULL);
	timeline_init_virtual(&s->world, &s->now);
	sim_set_now(s, BEGIN_S);
	clock_pretend(&s->clock);
	log_divert(sim_on_log, s);
	s->store = sim_store_new(&s->world, setup->seed);
	if (sim_begin(s, err) == 0)
		return s;
	sim_close(s);
	return NULL;
}
