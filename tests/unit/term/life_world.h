/* A program around the machine of life.h, simulated: the terms' machines (term_hooks.h, next_hooks.h) are the real
 * ones; workers, electors and the file of the script are models, in which everything that can happen may happen next.
 * Not the lease: of each elector only what its user sees is here (elector.h). Used by test_life_search.c and
 * test_life_walk.c. */
#pragma once

#include "term/life.h"
#include "term/next_hooks.h"
#include "term/term_effects.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- scripts ---- */

enum { IDENTS = 5, SETS_MAX = 6, CANDS_MAX = 8, ELECTIONS_MAX = 3, NO_VERSION = 0xff };

/* What an election is: by its name and its lock. One of another lock is another election. */
static const struct ident {
	const char *text;
	char name, lock;
} idents[IDENTS] = { { "a", 'a', '1' }, { "b", 'b', '2' }, { "a'", 'a', '3' }, { "c", 'c', '4' }, { "d", 'd', '1' } };

static const struct script {
	const char *text;
	uint8_t count, ident[ELECTIONS_MAX], isolated[ELECTIONS_MAX];
	bool no_hooks;     /* neither on_stopping nor on_stopped */
	bool never_starts; /* its workers load, and then hang or die */
} scripts[] = {
	{ .text = "a, b", .count = 2, .ident = { 0, 1 } },
	{ .text = "b, a", .count = 2, .ident = { 1, 0 } },
	{ .text = "a with another lock, b", .count = 2, .ident = { 2, 1 } },
	{ .text = "a", .count = 1, .ident = { 0 } },
	{ .text = "a, b, c", .count = 3, .ident = { 0, 1, 3 } },
	{ .text = "d with the lock of a, b", .count = 2, .ident = { 4, 1 } },
	{ .text = "a isolated, b", .count = 2, .ident = { 0, 1 }, .isolated = { 1, 0 } },
	{ .text = "b, both isolated, a", .count = 2, .ident = { 1, 0 }, .isolated = { 1, 1 } },
	{ .text = "a without hooks, b", .count = 2, .ident = { 0, 1 }, .no_hooks = true },
	{ .text = "c", .count = 1, .ident = { 3 } },
	{ .text = "a, never starting", .count = 1, .ident = { 0 }, .never_starts = true },
	{ .text = "b, a, never starting", .count = 2, .ident = { 1, 0 }, .never_starts = true },
};
enum { SCRIPTS = sizeof scripts / sizeof *scripts };

static uint32_t script_groups(const struct script *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->count; i++)
		n += s->isolated[i];
	return n;
}

static uint32_t script_group(const struct script *s, uint32_t election)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i <= election; i++)
		n += s->isolated[i];
	return s->isolated[election] ? n : 0;
}

static bool script_has(const struct script *s, uint32_t ident)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (s->ident[i] == ident)
			return true;
	return false;
}

/* UINT32_MAX: it has no such election. */
static uint32_t group_of(const struct script *s, uint32_t ident)
{
	for (uint32_t i = 0; i < s->count; i++)
		if (s->ident[i] == ident)
			return script_group(s, i);
	return UINT32_MAX;
}

/* ---- the world ---- */

enum proc_phase { PROC_LOADING, PROC_LOADED, PROC_STARTING, PROC_READY };
enum { ASKED_BEFORE = 1, ASKED_SINCE = 2 };

enum task { TASK_NONE, TASK_LEADS, TASK_DRAINS, TASK_STOPS, TASK_CLEANS };
enum next_task { NEXT_TASK_NONE, NEXT_TASK_RUNS, NEXT_TASK_TAKEN, NEXT_TASK_ENDS };

struct proc {                                 /* a worker's process, as far as it has come */
	uint8_t exists, version, phase, told; /* told: the elections that GO has named, as bits of their numbers */
	uint8_t quit, killed, ended, takes;
	uint8_t task[IDENTS], next[IDENTS];
};

enum elector_state {
	ELECTOR_FOLLOWING,
	ELECTOR_LEADING,
	ELECTOR_ENDING,
	ELECTOR_LOST,
	ELECTOR_RELEASING,
	ELECTOR_NEXT,
	ELECTOR_FINISHED,
};

struct cand {
	uint8_t ident;
	uint8_t elector; /* enum elector_state */
	uint8_t next_term, for_good;
	uint8_t comes_next, next_timer;
	struct term_hooks hooks;
	struct next_hooks next;
};

struct world {
	struct life life;
	struct life_set set[SETS_MAX];
	struct life_candidate candidate[CANDS_MAX], spare[CANDS_MAX];
	struct cand cand[CANDS_MAX];
	uint32_t cand_count;
	struct proc proc[SETS_MAX];
	uint8_t timer[SETS_MAX];               /* enum life_timer */
	uint8_t file, loaded_file, version[2]; /* indices of scripts; NO_VERSION: nothing is kept of one */
	uint8_t waiting; /* requests that are not answered: ASKED_BEFORE the last load began, ASKED_SINCE */
	uint8_t failed;  /* the first load */
	uint8_t paused_all, paused[IDENTS]; /* by the letter of the name, from a */
	uint8_t debt[IDENTS];               /* a term began, and its on_stopped has not run */
	uint8_t tried;                      /* the sets of which a worker was spawned since the last load began */
	uint8_t due;                        /* something follows, at the end of the loop's turn */
	uint8_t check_bad;                  /* during an event: what is checked then is bad */
	const char *broken;                 /* what must not be; NULL: all is well */
};

/* What may happen in a search. */
struct scene {
	uint8_t script[SCRIPTS], script_count;
	bool with_next;   /* candidates come next, and have on_next */
	bool with_hooks;  /* the scripts have on_stopping */
	bool with_orders; /* pause, resume */
	bool with_ends;   /* end, kill */
	bool takes;       /* a worker can reload by itself */
	bool late;        /* what follows from an event is done after others, which come in the same turn of the loop */
};
static struct scene scene;
static bool tracing;

static void violate(struct world *w, const char *what)
{
	if (!w->broken)
		w->broken = what;
}

static void must(struct world *w, bool good, const char *what)
{
	if (!good)
		violate(w, what);
}

/* ---- events ---- */

enum happening {
	HAPPENS_RELOAD, /* script */
	HAPPENS_PAUSE,  /* candidate, or 0xff */
	HAPPENS_RESUME,
	HAPPENS_RESIGN,
	HAPPENS_END,
	HAPPENS_KILL,
	HAPPENS_NOT_SPAWNED, /* set */
	HAPPENS_LOADED,
	HAPPENS_LOADED_BAD,
	HAPPENS_LOAD_FAILED,
	HAPPENS_STARTED,
	HAPPENS_TAKEN,
	HAPPENS_NOT_TAKEN,
	HAPPENS_DIES,
	HAPPENS_GONE,
	HAPPENS_GONE_WORKED,
	HAPPENS_TIMER,
	HAPPENS_DRAINED, /* set * 8 + ident */
	HAPPENS_STOPPED,
	HAPPENS_NEXT_ENDED,
	HAPPENS_NEXT_FAILED,
	HAPPENS_LEAD, /* candidate */
	HAPPENS_LOST,
	HAPPENS_RELEASED,
	HAPPENS_NEXT_TERM,
	HAPPENS_NEXT_TERM_LOST,
	HAPPENS_FINISHED,
	HAPPENS_TERM_TIMER,
	HAPPENS_NEXT_TIMER,
	HAPPENS_SCRIPT_ENDS,
	HAPPENS_SWEPT,
	HAPPENS_SWEPT_UNCLEAN,
	HAPPENS_NEXT_SWEPT,
	HAPPENS_COMES_NEXT,
	HAPPENS_NOT_NEXT,
	HAPPENS_TURN,
	HAPPENINGS
};

static const char *const happening_names[HAPPENINGS] = {
	"a reload is asked for",
	"an operator pauses",
	"an operator resumes",
	"an operator resigns",
	"the program is to end",
	"the program is killed",
	"it could not be spawned: the worker",
	"it has loaded: the worker",
	"it has loaded, and the check finds it bad: the worker",
	"the load failed: the worker",
	"it has started: the worker",
	"it has reloaded by itself: the worker",
	"it has found bad what it was to reload: the worker",
	"it dies: the worker",
	"it is gone: the worker",
	"it is gone after a long life: the worker",
	"its timer is over: the worker",
	"on_stopping has run",
	"the hooks have stopped",
	"on_next is over, or taken",
	"on_next has failed",
	"it leads",
	"its lease is lost",
	"its lease is released",
	"its next term is written",
	"its next term is not to be had",
	"its elector has finished",
	"its term's timer is over",
	"its on_next's timer is over",
	"the script ends its term",
	"its term is swept",
	"its term is swept, and something cannot be attributed",
	"its on_next is swept",
	"it comes next",
	"it comes next no more",
	"the loop's turn ends",
};

struct happened {
	uint8_t what, arg;
};

static void happened_print(const struct world *w, struct happened h)
{
	printf("# %s", happening_names[h.what]);
	if (h.what == HAPPENS_RELOAD)
		printf(": %s", scripts[h.arg].text);
	else if (h.what >= HAPPENS_NOT_SPAWNED && h.what <= HAPPENS_TIMER)
		printf(" of set %u (side %u, group %u)", h.arg, h.arg % 2, h.arg / 2);
	else if (h.what >= HAPPENS_DRAINED && h.what <= HAPPENS_NEXT_FAILED)
		printf(": %s on set %u", idents[h.arg % 8].text, h.arg / 8);
	else if (h.arg == 0xff)
		printf(" all");
	else if (h.what != HAPPENS_END && h.what != HAPPENS_KILL && h.what != HAPPENS_TURN && h.arg < w->cand_count)
		printf(": %s", idents[w->cand[h.arg].ident].text);
	printf("\n");
}

/* ---- the terms ---- */

static struct proc *world_proc(struct world *w, uint32_t c)
{
	return &w->proc[life_set_of(&w->life, c)];
}

static struct term_context world_context(const struct world *w, uint32_t c)
{
	const struct life *l = &w->life;

	return (struct term_context){ .ready = life_ready(l, c),
		                      .moves = life_moves(l, c),
		                      .running = life_running(l, c),
		                      .ending = l->ending || l->candidate[c].leaves,
		                      .killing = l->killing };
}

static void cand_configure(struct world *w, uint32_t c, uint8_t version)
{
	static const struct lease_times times = { .lease = 15 * NSEC_PER_SEC, .grace = 3 * NSEC_PER_SEC };
	struct cand *p = &w->cand[c];
	bool hooks = !scripts[version].no_hooks;

	term_hooks_configure(&p->hooks, &times, 10 * NSEC_PER_SEC, hooks && scene.with_hooks, hooks);
	next_hooks_configure(&p->next, scene.with_next, times.grace);
}

static void cand_tell(struct world *w, uint32_t c, struct term_event e);

/* What a term's machine wants killed is known to the life from then on. */
static void kill_worker(struct world *w, uint32_t c)
{
	uint32_t set = life_set_of(&w->life, c);

	w->proc[set].killed = w->proc[set].exists;
	life_tell(&w->life, &(struct life_event){ .kind = LIFE_EV_ENDED, .set = set });
}

/* A worker is told something of this candidate: it must be one that knows it, and in which no other's hook runs. */
static struct proc *proc_told(struct world *w, uint32_t c, const char *unknown)
{
	struct proc *p = world_proc(w, c);
	uint8_t ident = w->cand[c].ident;

	must(w, p->exists, "a worker is told something, and there is none");
	must(w, !p->exists || p->ended || p->phase == PROC_READY, "a worker is told of a term before it has started");
	must(w, !p->exists || p->ended || p->quit || (p->told & 1 << ident), unknown);
	return p;
}

/* Nobody else runs a hook under this lock. */
static void lock_is_alone(struct world *w, const struct proc *own, uint8_t ident)
{
	for (uint32_t s = 0; s < SETS_MAX; s++)
		for (uint32_t i = 0; i < IDENTS; i++)
			if (idents[i].lock == idents[ident].lock && w->proc[s].exists && !w->proc[s].ended)
				must(w, w->proc[s].task[i] == TASK_NONE || (&w->proc[s] == own && i == ident),
				     "hooks of two workers run for one lock");
}

static void proc_set(struct world *w, uint32_t c, enum task task)
{
	uint8_t ident = w->cand[c].ident;
	struct proc *p =
		proc_told(w, c, "a worker is told of an election that its version has not, or under another lock");

	if (!p->exists || p->ended)
		return;
	lock_is_alone(w, p, ident);
	p->task[ident] = (uint8_t)task;
}

static void begin_term(struct world *w, uint32_t c)
{
	uint8_t ident = w->cand[c].ident;
	struct proc *p = world_proc(w, c);

	must(w, !p->ended && !p->quit && !p->killed, "a term begins in a worker that ends");
	must(w, p->task[ident] == TASK_NONE, "a term begins before the last one's hooks have stopped");
	must(w, !w->debt[ident], "a term begins before the last one's on_stopped has run");
	must(w, !w->life.candidate[c].told_end, "a term begins after the end");
	must(w, !w->life.candidate[c].paused, "a term begins that an operator has paused");
	proc_set(w, c, TASK_LEADS);
	w->debt[ident] = 1;
	if (w->cand[c].next.state == ON_NEXT_TAKING)
		p->next[ident] = NEXT_TASK_TAKEN;
}

static void clean_up(struct world *w, uint32_t c)
{
	must(w, w->debt[w->cand[c].ident], "on_stopped runs for a term that never began, or twice");
	must(w, world_proc(w, c)->task[w->cand[c].ident] == TASK_NONE,
	     "on_stopped runs in the worker that runs the term");
	proc_set(w, c, TASK_CLEANS);
}

/* ---- its elector ---- */

static void elector_stop(struct world *w, uint32_t c, bool held)
{
	struct cand *p = &w->cand[c];

	p->elector = held ? ELECTOR_ENDING : ELECTOR_LOST;
	cand_tell(w, c,
	          (struct term_event){
			  .kind = TERM_EV_STOP, .reason = held ? LEASE_RESIGNED : LEASE_STOLEN, .held = held });
}

static void elector_end_model(struct world *w, uint32_t c, bool for_good)
{
	struct cand *p = &w->cand[c];

	p->for_good |= for_good;
	p->next_term = 0;
	if (p->elector == ELECTOR_LEADING)
		elector_stop(w, c, true);
	else if (p->elector == ELECTOR_NEXT)
		p->elector = ELECTOR_RELEASING;
}

static void elector_next_term_model(struct world *w, uint32_t c)
{
	if (w->cand[c].elector != ELECTOR_LEADING)
		return;
	w->cand[c].next_term = 1;
	elector_stop(w, c, true);
}

static void elector_stopped_model(struct world *w, uint32_t c)
{
	struct cand *p = &w->cand[c];

	if (p->elector == ELECTOR_LOST)
		p->elector = p->for_good ? ELECTOR_RELEASING : ELECTOR_FOLLOWING;
	else if (p->elector == ELECTOR_ENDING)
		p->elector = p->next_term ? ELECTOR_NEXT : ELECTOR_RELEASING;
	p->next_term = 0;
}

static bool may_campaign(const struct world *w, uint32_t c)
{
	return life_bar(&w->life, c) == LIFE_MAY_CAMPAIGN && !w->cand[c].hooks.let_go && !w->cand[c].for_good;
}

/* ---- what the terms' machines say ---- */

static void tell_next(struct world *w, uint32_t c, struct on_next_event e)
{
	struct cand *p = &w->cand[c];

	e.ready = life_ready(&w->life, c);
	e.moves = life_moves(&w->life, c);
	struct on_next_actions a = next_hooks_step(&p->next, &e);
	struct proc *q = world_proc(w, c);
	if (a.set & ON_NEXT_DO_TIMER_OFF)
		p->next_timer = 0;
	if (a.set & ON_NEXT_DO_TIMER)
		p->next_timer = 1;
	if (a.set & ON_NEXT_DO_BEGIN) {
		q = proc_told(w, c, "a worker is told that an election comes next which its version has not");
		must(w, q->next[p->ident] == NEXT_TASK_NONE, "two on_next of an election run in a worker");
		q->next[p->ident] = NEXT_TASK_RUNS;
	}
	if (a.set & ON_NEXT_DO_OVER && q->exists && q->next[p->ident] != NEXT_TASK_NONE)
		q->next[p->ident] = NEXT_TASK_ENDS;
	if (a.set & ON_NEXT_DO_KILL)
		kill_worker(w, c);
}

static void tell_term_next(struct world *w, uint32_t c, const struct term_actions *a, const struct term_event *e)
{
	if (!scene.with_next)
		return;
	if (a->set & TERM_DO_LEAD)
		tell_next(w, c, (struct on_next_event){ .kind = ON_NEXT_EV_LEAD });
	else if (e->kind == TERM_EV_LEAD || a->set & TERM_DO_FINISHED)
		tell_next(w, c, (struct on_next_event){ .kind = ON_NEXT_EV_NOT_NEXT });
}

static uint8_t life_term_of(const struct cand *p)
{
	bool idle = p->hooks.state == TERM_NONE && p->next.state == ON_NEXT_IDLE;

	if (idle)
		return p->hooks.finished ? LIFE_FINISHED : LIFE_IDLE;
	if (p->hooks.state == TERM_OWED)
		return LIFE_OWES;
	return p->hooks.state == TERM_NONE ? LIFE_NEXT : LIFE_BUSY;
}

static void do_move(struct world *w, uint32_t c)
{
	const struct cand *p = &w->cand[c];

	must(w, p->hooks.state == TERM_NONE || p->hooks.state == TERM_OWED || p->hooks.state == TERM_GONE,
	     "a candidate changes its worker while something of its term runs");
	for (uint32_t s = 0; s < SETS_MAX; s++)
		must(w,
		     !w->proc[s].exists || w->proc[s].ended || w->proc[s].killed ||
		             (w->proc[s].task[p->ident] == TASK_NONE && w->proc[s].next[p->ident] == NEXT_TASK_NONE),
		     "a candidate changes its worker while the old one runs its hooks");
}

/* ---- the effects of a term's actions ---- */

struct told {
	struct world *w;
	uint32_t c;
	bool has_on_stopped; /* before the event */
};

static struct page *told_page(void *arg)
{
	const struct told *t = arg;

	must(t->w, world_proc(t->w, t->c)->exists, "the page of a worker that is not there");
	return NULL; /* the model has no deadlines */
}

static void told_page_changed(void *, enum term_page_news)
{
}

static void told_lead(void *arg, struct term_actions *)
{
	const struct told *t = arg;

	begin_term(t->w, t->c);
}

static void told_drain(void *arg, struct term_actions *)
{
	const struct told *t = arg;

	proc_set(t->w, t->c, TASK_DRAINS);
}

static void told_stop(void *arg, struct term_actions *)
{
	const struct told *t = arg;

	proc_set(t->w, t->c, TASK_STOPS);
}

static void told_clean_up(void *arg, struct term_actions *)
{
	const struct told *t = arg;

	clean_up(t->w, t->c);
}

static void told_kill(void *arg, struct term_actions *)
{
	const struct told *t = arg;

	must(t->w, world_proc(t->w, t->c)->exists, "the kill of a worker that is not there");
	kill_worker(t->w, t->c);
}

static void told_sweep(void *arg, struct term_actions *)
{
	const struct told *t = arg;

	must(t->w, world_proc(t->w, t->c)->exists, "the sweep of a worker that is not there");
}

/* The hook that is owed is dropped for what term_hooks.h names, and for nothing else. */
static void told_over(void *arg, struct term_actions *a)
{
	const struct told *t = arg;
	struct world *w = t->w;
	bool dropped = a->set & TERM_DO_LOG && (a->note == TERM_NOTE_DROPPED || a->note == TERM_NOTE_GIVEN_UP);
	uint8_t *debt = &w->debt[w->cand[t->c].ident];

	must(w, !*debt || dropped || w->life.killing || !t->has_on_stopped,
	     "a term is over, and its on_stopped has not run");
	*debt = 0;
	if (scene.with_next)
		tell_next(w, t->c, (struct on_next_event){ .kind = ON_NEXT_EV_TERM_OVER });
	w->life.candidate[t->c].term = life_term_of(&w->cand[t->c]);
	if (life_move(&w->life, t->c))
		do_move(w, t->c);
}

static void told_end(void *arg, struct term_actions *a)
{
	const struct told *t = arg;

	elector_end_model(t->w, t->c, a->sit_out == NSEC_NEVER);
}

static void told_next_term(void *arg, struct term_actions *)
{
	const struct told *t = arg;

	elector_next_term_model(t->w, t->c);
}

static void told_report(void *arg, struct term_actions *)
{
	const struct told *t = arg;

	elector_stopped_model(t->w, t->c);
}

static const struct term_effects told_effects = {
	.page = told_page,
	.page_changed = told_page_changed,
	.lead = told_lead,
	.drain = told_drain,
	.stop = told_stop,
	.clean_up = told_clean_up,
	.kill = told_kill,
	.sweep = told_sweep,
	.over = told_over,
	.end = told_end,
	.next_term = told_next_term,
	.report = told_report,
};

static void cand_tell(struct world *w, uint32_t c, struct term_event e)
{
	struct cand *p = &w->cand[c];
	bool led = p->hooks.state == TERM_LEADING;
	struct told told = { w, c, p->hooks.has_on_stopped };

	e.at = (struct instant){ 1000 * NSEC_PER_SEC, 1000 * NSEC_PER_SEC };
	e.stop_by = instant_add(e.at, 10 * NSEC_PER_SEC);
	e.now = world_context(w, c);
	struct term_actions a = term_hooks_step(&p->hooks, &e);
	tell_term_next(w, c, &a, &e);
	if (p->hooks.state == TERM_NONE && led && e.kind == TERM_EV_DEAD)
		w->debt[p->ident] = 0;
	term_carry_out(&p->hooks, 0, &a, &told_effects, &told);
	if (e.kind == TERM_EV_READY && scene.with_next)
		tell_next(w, c, (struct on_next_event){ .kind = ON_NEXT_EV_READY });
}

/* ---- what the machine of the life says ---- */

static void do_spawn(struct world *w, uint32_t set)
{
	struct proc *p = &w->proc[set];

	must(w, !p->exists, "a worker is spawned beside one that is there");
	must(w, w->version[set % 2] != NO_VERSION, "a worker is spawned of a version that was freed");
	must(w, w->life.phase == LIFE_SETTLED || set % 2 != life_loading_side(&w->life) || !(w->tried & 1 << set),
	     "a worker that has failed to load is spawned again in the same load");
	w->tried |= (uint8_t)(1 << set);
	*p = (struct proc){ .exists = 1, .version = w->version[set % 2] };
}

static void do_go(struct world *w, uint32_t set, bool first)
{
	struct proc *p = &w->proc[set];
	const struct script *s = &scripts[p->version];

	(void)first;
	must(w, p->exists && !p->ended && p->phase == PROC_LOADED, "GO to a worker that has not loaded");
	must(w, !p->told, "GO twice");
	for (uint32_t c = 0; c < w->cand_count; c++) {
		uint8_t ident = w->cand[c].ident;
		if (!life_has(&w->life, set, c))
			continue;
		must(w, script_has(s, ident), "GO names an election that the worker's version has not");
		must(w, group_of(s, ident) == set / 2, "GO names an election that another worker has");
		p->told |= (uint8_t)(1 << ident);
	}
	p->phase = PROC_STARTING;
}

/* What the script that was loaded last is to be: its elections, and which of those that are here go on as one of
 * them. */
static uint32_t elections_of(const struct world *w, struct life_election *out)
{
	const struct script *s = &scripts[w->version[life_loading_side(&w->life)]];

	for (uint32_t i = 0; i < s->count; i++) {
		out[i] =
			(struct life_election){ .group = script_group(s, i), .keeps = LIFE_NONE, .earlier = LIFE_NONE };
		for (uint32_t c = 0; c < w->cand_count; c++) {
			if (w->cand[c].ident == s->ident[i])
				out[i].keeps = c;
			else if (idents[w->cand[c].ident].name == idents[s->ident[i]].name)
				out[i].earlier = c;
		}
	}
	return s->count;
}

static void names_follow(struct world *w, const struct script *s)
{
	for (uint32_t n = 0; n < IDENTS; n++) {
		bool was = false;
		for (uint32_t c = 0; c < w->cand_count; c++)
			was |= idents[w->cand[c].ident].name == (char)('a' + n);
		if (!was)
			w->paused[n] = w->paused_all;
	}
	(void)s;
}

static void cands_follow(struct world *w, const struct life_election *e, uint32_t count, const struct script *s)
{
	struct cand old[CANDS_MAX];
	bool kept[CANDS_MAX] = { false };
	uint32_t n = count, old_count = w->cand_count;

	memcpy(old, w->cand, sizeof old);
	memset(w->cand, 0, sizeof w->cand);
	w->cand_count = count;
	for (uint32_t i = 0; i < count; i++) {
		if (e[i].keeps == LIFE_NONE) {
			w->cand[i].ident = s->ident[i];
			cand_configure(w, i, (uint8_t)(s - scripts));
		} else {
			w->cand[i] = old[e[i].keeps];
			cand_configure(w, i, (uint8_t)(s - scripts));
			kept[e[i].keeps] = true;
		}
	}
	for (uint32_t c = 0; c < old_count; c++)
		if (!kept[c])
			w->cand[n++] = old[c];
	w->cand_count = n;
}

static void do_check(struct world *w)
{
	struct life *l = &w->life;
	struct life_election e[ELECTIONS_MAX];
	uint8_t side = life_loading_side(l);

	for (uint32_t g = 0; g <= script_groups(&scripts[w->version[side]]); g++)
		must(w, w->proc[2 * g + side].exists && w->proc[2 * g + side].phase == PROC_LOADED,
		     "a version is checked before all of its workers have loaded it");
	if (w->check_bad) {
		life_tell(l, &(struct life_event){ .kind = LIFE_EV_BAD });
		return;
	}
	for (uint32_t c = 0; c < w->cand_count; c++)
		must(w, !l->candidate[c].leaves && l->candidate[c].side != side,
		     "a version comes into force before those of the one before the last have left");
	uint32_t count = elections_of(w, e);
	names_follow(w, &scripts[w->version[side]]);
	memset(w->spare, 0xff, sizeof w->spare);
	life_tell(l, &(struct life_event){ .kind = LIFE_EV_GOOD, .elections = e, .count = count, .into = w->spare });
	must(w, l->candidate == w->spare, "the new candidates are not in use");
	memcpy(w->candidate, w->spare, sizeof w->candidate);
	memset(w->spare, 0, sizeof w->spare);
	l->candidate = w->candidate;
	cands_follow(w, e, count, &scripts[w->version[side]]);
	must(w, l->candidate_count == w->cand_count, "the candidates are those kept, those new, and those that leave");
}

static void do_answer(struct world *w, const struct life_action *a)
{
	const struct life *l = &w->life;

	if (a->cause == LIFE_SHUTDOWN) {
		must(w, w->waiting && l->ending, "a reload is refused that nobody waits for, or that could be tried");
		w->waiting = 0;
		return;
	}
	must(w, w->waiting & ASKED_BEFORE, "a reload is answered that nobody waits for, or that was not tried");
	w->waiting &= ASKED_SINCE;
	if (a->good)
		must(w, l->in_force && w->version[l->side] == w->loaded_file,
		     "a reload is said to be good, and what was asked for is not in force");
}

static void do_forget(struct world *w, uint32_t c)
{
	struct cand *p = &w->cand[c];

	must(w, p->hooks.state == TERM_NONE && p->next.state == ON_NEXT_IDLE && p->elector == ELECTOR_FINISHED,
	     "a candidate is freed, and its elector or something of its term is not over");
	for (uint32_t s = 0; s < SETS_MAX; s++)
		must(w, !w->proc[s].exists || w->proc[s].ended || w->proc[s].task[p->ident] == TASK_NONE,
		     "a candidate is freed while a worker runs its hooks");
	w->cand[c] = w->cand[--w->cand_count];
	memset(&w->cand[w->cand_count], 0, sizeof *w->cand);
}

static void do_settled(struct world *w, uint8_t side)
{
	for (uint32_t s = side; s < SETS_MAX; s += 2)
		must(w, !w->proc[s].exists && w->timer[s] == LIFE_TIMER_OFF,
		     "a version is freed that a worker, or a timer, still has");
	for (uint32_t c = 0; c < w->cand_count; c++)
		must(w, w->life.candidate[c].side != side, "a version is freed that a candidate still has");
	w->version[side] = NO_VERSION;
}

static void do_load(struct world *w)
{
	uint8_t side = life_loading_side(&w->life);

	must(w, w->version[side] == NO_VERSION, "a version is loaded in the place of one that is not freed");
	w->version[side] = w->loaded_file = w->file;
	if (w->waiting)
		w->waiting = ASKED_BEFORE;
	w->tried = 0;
}

static void do_take(struct world *w, uint32_t set)
{
	struct proc *p = &w->proc[set];

	must(w, p->exists && p->phase == PROC_READY && !p->quit, "a worker is asked to reload that is not ready");
	must(w, !p->takes, "a worker is asked to reload twice");
	p->takes = 1;
	if (w->waiting)
		w->waiting = ASKED_BEFORE;
}

static void do_quit(struct world *w, uint32_t set)
{
	must(w, w->proc[set].exists && !w->proc[set].ended, "QUIT to a worker that is not there");
	for (uint32_t i = 0; i < IDENTS; i++)
		must(w, w->proc[set].task[i] == TASK_NONE, "QUIT to a worker that runs hooks");
	w->proc[set].quit = 1;
}

static void do_stir(struct world *w, uint32_t c)
{
	cand_tell(w, c, (struct term_event){ .kind = TERM_EV_RELOAD });
	if (scene.with_next)
		tell_next(w, c, (struct on_next_event){ .kind = ON_NEXT_EV_MOVE });
}

static void do_action(struct world *w, const struct life_action *a)
{
	switch (a->what) {
	case LIFE_DO_LOAD:
		do_load(w);
		return;
	case LIFE_DO_TAKE:
		do_take(w, a->set);
		return;
	case LIFE_DO_SPAWN:
		do_spawn(w, a->set);
		return;
	case LIFE_DO_TIMER:
		w->timer[a->set] = (uint8_t)a->timer;
		return;
	case LIFE_DO_CHECK:
		do_check(w);
		return;
	case LIFE_DO_GO:
		do_go(w, a->set, a->first);
		return;
	case LIFE_DO_QUIT:
		do_quit(w, a->set);
		return;
	case LIFE_DO_KILL:
		must(w, w->proc[a->set].exists, "a worker is killed that is not there");
		w->proc[a->set].killed = 1;
		return;
	case LIFE_DO_SERVE:
		cand_tell(w, a->candidate, (struct term_event){ .kind = TERM_EV_READY });
		return;
	case LIFE_DO_MOVE:
		do_move(w, a->candidate);
		return;
	case LIFE_DO_STIR:
		do_stir(w, a->candidate);
		return;
	case LIFE_DO_END:
		cand_tell(w, a->candidate, (struct term_event){ .kind = TERM_EV_END, .reason = LEASE_SHUTDOWN });
		return;
	case LIFE_DO_KILL_TERM:
		cand_tell(w, a->candidate, (struct term_event){ .kind = TERM_EV_KILL });
		return;
	case LIFE_DO_FORGET:
		do_forget(w, a->candidate);
		return;
	case LIFE_DO_SETTLED:
		do_settled(w, a->side);
		return;
	case LIFE_DO_ANSWER:
		do_answer(w, a);
		return;
	case LIFE_DO_FAIL:
		w->failed = 1;
		life_tell(&w->life, &(struct life_event){ .kind = LIFE_EV_END });
		return;
	case LIFE_DO_OVER:
		for (uint32_t s = 0; s < SETS_MAX; s++)
			must(w, !w->proc[s].exists, "the program ends before its workers");
		for (uint32_t c = 0; c < w->cand_count; c++)
			must(w, w->cand[c].elector == ELECTOR_FINISHED && w->cand[c].hooks.state == TERM_NONE,
			     "the program ends before its candidates");
		return;
	}
}

static const char *const do_names[] = { "LOAD",      "TAKE",   "SPAWN",   "TIMER",  "CHECK", "GO",
	                                "QUIT",      "KILL",   "SERVE",   "MOVE",   "STIR",  "END",
	                                "KILL_TERM", "FORGET", "SETTLED", "ANSWER", "FAIL",  "OVER" };

static void tell_terms(struct world *w)
{
	for (uint32_t c = 0; c < w->cand_count; c++)
		w->life.candidate[c].term = life_term_of(&w->cand[c]);
}

/* All that follows from the last event. */
static void world_settle(struct world *w)
{
	struct life_action a;
	int n = 0;

	tell_terms(w);
	while (!w->broken && life_next(&w->life, &a)) {
		if (tracing)
			printf("#     %s set %u candidate %d side %u timer %d cause %d%s\n", do_names[a.what], a.set,
			       (int)a.candidate, a.side, (int)a.timer, (int)a.cause, a.good ? " good" : "");
		do_action(w, &a);
		tell_terms(w);
		must(w, ++n < 200, "one event is followed by actions without end");
	}
}

/* ---- what must hold whenever nothing is left to be done ---- */

static void check_set(struct world *w, uint32_t s)
{
	const struct life_set *set = &w->life.set[s];
	const struct proc *p = &w->proc[s];
	bool alive = set->worker != WORKER_NONE && set->worker != WORKER_WAITING;
	bool timed = set->worker == WORKER_LOADING || set->worker == WORKER_STARTING ||
	             set->worker == WORKER_QUITTING || set->worker == WORKER_WAITING || set->take == TAKE_ASKED;

	must(w, alive == (p->exists != 0), "what is known of a worker is whether there is one");
	must(w, !timed || w->timer[s] != LIFE_TIMER_OFF, "something waits for a worker, and no timer runs");
	must(w, timed || w->timer[s] == LIFE_TIMER_OFF, "a timer runs for nothing");
	must(w, set->worker != WORKER_DYING || p->killed || p->ended,
	     "it is waited for the end of a worker that lives");
	must(w, set->worker != WORKER_LOADED || w->life.phase == LIFE_LOADING,
	     "a worker has loaded, and nothing follows");
	must(w, !p->exists || p->version == w->version[s % 2], "a worker is of another version than its side");
	for (uint32_t i = 0; i < IDENTS; i++)
		must(w, p->task[i] == TASK_NONE || script_has(&scripts[p->version], i),
		     "a worker runs hooks of an election that its version has not");
}

static void check_cand(struct world *w, uint32_t c)
{
	const struct life *l = &w->life;
	const struct cand *p = &w->cand[c];
	const struct proc *q = &w->proc[life_set_of(l, c)];
	enum term_state s = p->hooks.state;
	bool runs = s == TERM_LEADING || s == TERM_DRAINING || s == TERM_STOPPING || s == TERM_CLEANING;

	must(w,
	     l->candidate[c].leaves ||
	             l->candidate[c].group[l->side] == group_of(&scripts[w->version[l->side]], p->ident),
	     "a candidate's worker is that of its election in the version in force");
	must(w, life_set_of(l, c) < l->set_count, "a candidate's set is one of those that are there");
	must(w, w->version[l->candidate[c].side] != NO_VERSION, "a candidate has a version that was freed");
	must(w, !runs || q->exists, "a term runs, and there is no worker");
	must(w, !runs || q->ended || q->task[p->ident] != TASK_NONE, "a term runs, and its worker does not know it");
	must(w, l->candidate[c].leaves || l->candidate[c].paused == (w->paused[idents[p->ident].name - 'a'] != 0),
	     "an operator's order is forgotten");
	must(w, l->candidate[c].leaves == !script_has(&scripts[w->version[l->side]], p->ident),
	     "those leave whose election is not in the version in force");
	must(w, s != TERM_OWED || w->debt[p->ident], "an on_stopped is owed of a term that never began");
	must(w,
	     (p->next.state != ON_NEXT_TAKING && p->next.state != ON_NEXT_ENDING) || p->next_timer || !q->exists ||
	             q->killed || q->ended,
	     "on_next is waited for, and no timer runs");
	if (life_bar(l, c) == LIFE_MAY_CAMPAIGN)
		must(w, q->exists && q->phase == PROC_READY && (q->told & 1 << p->ident),
		     "it may campaign, and its worker does not know it");
	for (uint32_t k = 0; k < w->cand_count; k++)
		must(w,
		     k == c || idents[w->cand[k].ident].lock != idents[p->ident].lock || !may_campaign(w, c) ||
		             w->cand[k].elector == ELECTOR_FINISHED || w->cand[k].for_good,
		     "two candidates campaign for one lock");
}

/* All that the worker of the version in force is to know of. */
static void check_told(struct world *w)
{
	for (uint32_t s = w->life.side; s < w->life.set_count; s += 2)
		for (uint32_t c = 0; c < w->cand_count; c++)
			if (w->proc[s].exists && w->proc[s].phase >= PROC_STARTING && life_has(&w->life, s, c))
				must(w, w->proc[s].told & 1 << w->cand[c].ident,
				     "a worker was not told of an election that it has");
}

static void world_check(struct world *w)
{
	const struct life *l = &w->life;

	for (uint32_t s = 0; s < SETS_MAX; s++)
		check_set(w, s);
	for (uint32_t c = 0; c < w->cand_count; c++)
		check_cand(w, c);
	check_told(w);
	must(w, !w->waiting || l->asked || l->reload_due, "a request for a reload is forgotten");
	must(w, !l->over || !w->waiting, "the program ends, and a request was not answered");
	must(w,
	     !l->asked || l->ending || l->phase != LIFE_SETTLED || l->reload_due || l->judged ||
	             w->set[l->side].take == TAKE_ASKED,
	     "a reload is over, and was not answered");
}

/* ---- what may happen next ---- */

struct happenings {
	struct happened list[160];
	int count;
};

static void may(struct happenings *out, enum happening what, uint32_t arg)
{
	out->list[out->count++] = (struct happened){ (uint8_t)what, (uint8_t)arg };
}

static void may_order(const struct world *w, struct happenings *out)
{
	const struct life *l = &w->life;

	for (uint32_t i = 0; i < scene.script_count; i++)
		may(out, HAPPENS_RELOAD, scene.script[i]);
	if (scene.with_ends && !l->ending)
		may(out, HAPPENS_END, 0);
	if (scene.with_ends && !l->killing)
		may(out, HAPPENS_KILL, 0);
	if (!scene.with_orders)
		return;
	may(out, w->paused_all ? HAPPENS_RESUME : HAPPENS_PAUSE, 0xff);
	for (uint32_t c = 0; c < w->cand_count; c++)
		if (!l->candidate[c].leaves && (l->candidate[c].paused || c == 0))
			may(out, l->candidate[c].paused ? HAPPENS_RESUME : HAPPENS_PAUSE, c);
}

static void may_worker(const struct world *w, uint32_t s, struct happenings *out)
{
	const struct proc *p = &w->proc[s];

	if (w->timer[s] != LIFE_TIMER_OFF)
		may(out, HAPPENS_TIMER, s);
	if (!p->exists)
		return;
	if (p->ended) {
		may(out, HAPPENS_GONE, s);
		may(out, HAPPENS_GONE_WORKED, s);
		return;
	}
	may(out, HAPPENS_DIES, s);
	if (p->killed)
		return;
	if (p->phase == PROC_LOADING) {
		may(out, HAPPENS_NOT_SPAWNED, s);
		may(out, HAPPENS_LOADED, s);
		may(out, HAPPENS_LOADED_BAD, s);
		may(out, HAPPENS_LOAD_FAILED, s);
	} else if (p->phase == PROC_STARTING && !scripts[p->version].never_starts) {
		may(out, HAPPENS_STARTED, s);
	}
	if (p->takes) {
		may(out, HAPPENS_TAKEN, s);
		may(out, HAPPENS_NOT_TAKEN, s);
	}
	for (uint32_t i = 0; i < IDENTS; i++) {
		if (p->task[i] == TASK_DRAINS)
			may(out, HAPPENS_DRAINED, s * 8 + i);
		if (p->task[i] == TASK_STOPS || p->task[i] == TASK_CLEANS)
			may(out, HAPPENS_STOPPED, s * 8 + i);
		if (p->next[i] != NEXT_TASK_NONE)
			may(out, HAPPENS_NEXT_ENDED, s * 8 + i);
		if (p->next[i] != NEXT_TASK_NONE)
			may(out, HAPPENS_NEXT_FAILED, s * 8 + i);
	}
}

static bool lock_is_free(const struct world *w, uint32_t c)
{
	for (uint32_t k = 0; k < w->cand_count; k++) {
		uint8_t e = w->cand[k].elector;
		if (k != c && idents[w->cand[k].ident].lock == idents[w->cand[c].ident].lock &&
		    e != ELECTOR_FOLLOWING && e != ELECTOR_FINISHED && e != ELECTOR_LOST)
			return false;
	}
	return true;
}

static void may_elector(const struct world *w, uint32_t c, struct happenings *out)
{
	const struct cand *p = &w->cand[c];

	switch ((enum elector_state)p->elector) {
	case ELECTOR_FOLLOWING:
		if (p->for_good)
			may(out, HAPPENS_FINISHED, c);
		else if (may_campaign(w, c) && lock_is_free(w, c))
			may(out, HAPPENS_LEAD, c);
		if (scene.with_next && !p->for_good && !p->comes_next && may_campaign(w, c))
			may(out, HAPPENS_COMES_NEXT, c);
		if (scene.with_next && p->comes_next)
			may(out, HAPPENS_NOT_NEXT, c);
		return;
	case ELECTOR_LEADING:
	case ELECTOR_ENDING:
		if (p->elector == ELECTOR_LEADING && p->hooks.state == TERM_LEADING)
			may(out, HAPPENS_RESIGN, c);
		may(out, HAPPENS_LOST, c);
		return;
	case ELECTOR_RELEASING:
		may(out, HAPPENS_RELEASED, c);
		return;
	case ELECTOR_NEXT:
		may(out, HAPPENS_NEXT_TERM, c);
		may(out, HAPPENS_NEXT_TERM_LOST, c);
		return;
	case ELECTOR_LOST:
	case ELECTOR_FINISHED:
		return;
	}
}

static void may_cand(struct world *w, uint32_t c, struct happenings *out)
{
	const struct cand *p = &w->cand[c];
	const struct proc *q = world_proc(w, c);

	may_elector(w, c, out);
	if (p->hooks.timing)
		may(out, HAPPENS_TERM_TIMER, c);
	if (p->hooks.state == TERM_SWEEPING && !q->ended)
		may(out, HAPPENS_SWEPT, c);
	if (p->hooks.state == TERM_SWEEPING && !q->ended && !q->killed)
		may(out, HAPPENS_SWEPT_UNCLEAN, c);
	if (p->next.state == ON_NEXT_SWEEPING && !q->ended)
		may(out, HAPPENS_NEXT_SWEPT, c);
	if (p->next_timer)
		may(out, HAPPENS_NEXT_TIMER, c);
}

static void world_may(struct world *w, struct happenings *out)
{
	out->count = 0;
	if (w->life.over)
		return;
	if (w->due)
		may(out, HAPPENS_TURN, 0);
	may_order(w, out);
	for (uint32_t s = 0; s < SETS_MAX; s++)
		may_worker(w, s, out);
	for (uint32_t c = 0; c < w->cand_count; c++)
		may_cand(w, c, out);
}

/* ---- it happens ---- */

static void tell_life(struct world *w, struct life_event e)
{
	life_tell(&w->life, &e);
}

static uint32_t cand_of(const struct world *w, uint32_t set, uint32_t ident)
{
	for (uint32_t c = 0; c < w->cand_count; c++)
		if (w->cand[c].ident == ident && life_set_of(&w->life, c) == set)
			return c;
	return LIFE_NONE;
}

static void order_pause(struct world *w, uint32_t c, bool paused)
{
	uint32_t candidate = c == 0xff ? LIFE_NONE : c;

	if (candidate == LIFE_NONE) {
		w->paused_all = paused;
		memset(w->paused, paused, sizeof w->paused);
	} else {
		w->paused[idents[w->cand[c].ident].name - 'a'] = paused;
	}
	tell_life(w, (struct life_event){ .kind = paused ? LIFE_EV_PAUSE : LIFE_EV_RESUME, .candidate = candidate });
}

static void worker_gone(struct world *w, uint32_t set, bool worked)
{
	struct proc *p = &w->proc[set];

	for (uint32_t c = 0; c < w->cand_count; c++)
		if (life_set_of(&w->life, c) == set) {
			if (scene.with_next)
				tell_next(w, c, (struct on_next_event){ .kind = ON_NEXT_EV_DEAD });
			cand_tell(w, c, (struct term_event){ .kind = TERM_EV_DEAD, .reaped = true });
		}
	tell_terms(w);
	*p = (struct proc){ 0 };
	tell_life(w, (struct life_event){ .kind = LIFE_EV_GONE, .set = set, .worked = worked });
}

static void worker_dies(struct world *w, uint32_t set)
{
	struct proc *p = &w->proc[set];

	p->ended = 1;
	memset(p->task, 0, sizeof p->task);
	memset(p->next, 0, sizeof p->next);
	tell_life(w, (struct life_event){ .kind = LIFE_EV_ENDED, .set = set });
}

static void worker_loaded(struct world *w, uint32_t set)
{
	struct proc *p = &w->proc[set];

	p->phase = PROC_LOADED;
	tell_life(w, (struct life_event){
			     .kind = LIFE_EV_LOADED, .set = set, .groups = script_groups(&scripts[p->version]) });
}

/* What a worker says of an election. The program drops what another worker than the candidate's says. */
static void worker_says(struct world *w, enum happening what, uint32_t set, uint32_t ident)
{
	struct proc *p = &w->proc[set];
	uint32_t c = cand_of(w, set, ident);
	bool cleaned = p->task[ident] == TASK_STOPS || p->task[ident] == TASK_CLEANS;
	bool taken = p->next[ident] == NEXT_TASK_TAKEN && what == HAPPENS_NEXT_ENDED;

	if (what == HAPPENS_STOPPED && cleaned)
		w->debt[ident] = 0;
	if (what == HAPPENS_STOPPED)
		p->task[ident] = TASK_NONE;
	else if (what != HAPPENS_DRAINED)
		p->next[ident] = NEXT_TASK_NONE;
	must(w, c != LIFE_NONE, "a worker's answer concerns nobody");
	if (c == LIFE_NONE)
		return;
	if (what == HAPPENS_DRAINED || what == HAPPENS_STOPPED)
		cand_tell(w, c,
		          (struct term_event){ .kind = what == HAPPENS_DRAINED ? TERM_EV_DRAINED : TERM_EV_STOPPED,
		                               .term = w->cand[c].hooks.term });
	else
		tell_next(w, c,
		          (struct on_next_event){ .kind = ON_NEXT_EV_STOPPED,
		                                  .number = w->cand[c].next.number,
		                                  .end = taken                         ? ON_NEXT_END_TAKEN
		                                         : what == HAPPENS_NEXT_FAILED ? ON_NEXT_END_FAILED
		                                                                       : ON_NEXT_END_DONE });
}

static void elector_finished(struct world *w, uint32_t c)
{
	w->cand[c].elector = ELECTOR_FINISHED;
	cand_tell(w, c, (struct term_event){ .kind = TERM_EV_FINISHED });
}

static void elector_leads(struct world *w, uint32_t c)
{
	w->cand[c].elector = ELECTOR_LEADING;
	w->cand[c].comes_next = 0;
	cand_tell(w, c, (struct term_event){ .kind = TERM_EV_LEAD, .term = w->cand[c].hooks.term + 1 });
}

static void elector_follows(struct world *w, uint32_t c)
{
	w->cand[c].elector = ELECTOR_FOLLOWING;
	if (w->cand[c].for_good)
		elector_finished(w, c);
}

static void order(struct world *w, struct happened h)
{
	switch ((int)h.what) {
	case HAPPENS_RELOAD:
		w->file = h.arg;
		w->waiting |= ASKED_SINCE;
		tell_life(w, (struct life_event){ .kind = LIFE_EV_RELOAD });
		return;
	case HAPPENS_PAUSE:
	case HAPPENS_RESUME:
		order_pause(w, h.arg, h.what == HAPPENS_PAUSE);
		return;
	case HAPPENS_RESIGN:
		cand_tell(w, h.arg, (struct term_event){ .kind = TERM_EV_RESIGN, .sit_out = 1 });
		return;
	case HAPPENS_END:
	case HAPPENS_KILL:
		tell_life(w, (struct life_event){ .kind = h.what == HAPPENS_END ? LIFE_EV_END : LIFE_EV_KILL });
		return;
	}
}

/* What comes late is asked for once more by the machine itself, which is told what comes of that. */
static void worker_takes(struct world *w, uint32_t s, bool good)
{
	w->proc[s].takes = 0;
	if (w->set[s].take == TAKE_LATE && !w->life.ending)
		w->waiting |= ASKED_SINCE;
	tell_life(w, (struct life_event){ .kind = LIFE_EV_TAKEN, .set = s, .good = good });
}

static void of_worker(struct world *w, struct happened h)
{
	switch ((int)h.what) {
	case HAPPENS_NOT_SPAWNED:
		w->proc[h.arg] = (struct proc){ 0 };
		tell_life(w, (struct life_event){ .kind = LIFE_EV_NOT_SPAWNED, .set = h.arg });
		return;
	case HAPPENS_LOADED:
	case HAPPENS_LOADED_BAD:
		w->check_bad = h.what == HAPPENS_LOADED_BAD;
		worker_loaded(w, h.arg);
		return;
	case HAPPENS_LOAD_FAILED:
		tell_life(w, (struct life_event){ .kind = LIFE_EV_LOAD_FAILED, .set = h.arg });
		return;
	case HAPPENS_STARTED:
		w->proc[h.arg].phase = PROC_READY;
		tell_life(w, (struct life_event){ .kind = LIFE_EV_STARTED, .set = h.arg });
		return;
	case HAPPENS_TAKEN:
	case HAPPENS_NOT_TAKEN:
		worker_takes(w, h.arg, h.what == HAPPENS_TAKEN);
		return;
	case HAPPENS_DIES:
		worker_dies(w, h.arg);
		return;
	case HAPPENS_GONE:
	case HAPPENS_GONE_WORKED:
		worker_gone(w, h.arg, h.what == HAPPENS_GONE_WORKED);
		return;
	case HAPPENS_TIMER:
		w->timer[h.arg] = LIFE_TIMER_OFF;
		tell_life(w, (struct life_event){ .kind = LIFE_EV_TIMER, .set = h.arg });
		return;
	}
}

static void of_cand(struct world *w, struct happened h)
{
	uint32_t c = h.arg;

	switch ((int)h.what) {
	case HAPPENS_LEAD:
		elector_leads(w, c);
		return;
	case HAPPENS_LOST:
		w->cand[c].next_term = 0;
		elector_stop(w, c, false);
		return;
	case HAPPENS_RELEASED:
	case HAPPENS_NEXT_TERM_LOST:
		elector_follows(w, c);
		return;
	case HAPPENS_NEXT_TERM:
		if (may_campaign(w, c))
			elector_leads(w, c);
		else
			w->cand[c].elector = ELECTOR_RELEASING;
		return;
	case HAPPENS_FINISHED:
		elector_finished(w, c);
		return;
	case HAPPENS_TERM_TIMER:
		cand_tell(w, c, (struct term_event){ .kind = TERM_EV_TIMER });
		return;
	case HAPPENS_NEXT_TIMER:
		w->cand[c].next_timer = 0;
		tell_next(w, c, (struct on_next_event){ .kind = ON_NEXT_EV_TIMER });
		return;
	case HAPPENS_SWEPT:
	case HAPPENS_SWEPT_UNCLEAN:
		cand_tell(w, c,
		          (struct term_event){ .kind = TERM_EV_SWEPT,
		                               .term = w->cand[c].hooks.term,
		                               .clean = h.what == HAPPENS_SWEPT });
		return;
	case HAPPENS_NEXT_SWEPT:
		tell_next(w, c,
		          (struct on_next_event){
				  .kind = ON_NEXT_EV_SWEPT, .number = w->cand[c].next.number, .clean = true });
		return;
	case HAPPENS_COMES_NEXT:
	case HAPPENS_NOT_NEXT:
		w->cand[c].comes_next = h.what == HAPPENS_COMES_NEXT;
		tell_next(w, c,
		          (struct on_next_event){ .kind = w->cand[c].comes_next ? ON_NEXT_EV_NEXT
		                                                                : ON_NEXT_EV_NOT_NEXT });
		return;
	}
}

static void world_happens(struct world *w, struct happened h)
{
	if (h.what <= HAPPENS_KILL)
		order(w, h);
	else if (h.what <= HAPPENS_TIMER)
		of_worker(w, h);
	else if (h.what <= HAPPENS_NEXT_FAILED)
		worker_says(w, (enum happening)h.what, h.arg / 8, h.arg % 8);
	else if (h.what != HAPPENS_TURN)
		of_cand(w, h);
	w->due = scene.late && h.what != HAPPENS_TURN && h.what != HAPPENS_LOADED_BAD;
	if (w->due)
		return;
	world_settle(w);
	w->check_bad = 0;
	world_check(w);
}

static void world_point(struct world *w)
{
	w->life.set = w->set;
	w->life.set_count = SETS_MAX;
	w->life.candidate = w->candidate;
	w->life.takes = scene.takes;
}

static void world_begin(struct world *w, uint8_t script)
{
	memset(w, 0, sizeof *w);
	world_point(w);
	w->file = w->loaded_file = w->version[0] = script;
	w->version[1] = NO_VERSION;
	tell_life(w, (struct life_event){ .kind = LIFE_EV_BEGIN });
	world_settle(w);
	world_check(w);
}

static void world_print(const struct world *w)
{
	const struct life *l = &w->life;

	printf("# side %u%s, phase %u%s%s%s%s%s; versions %u and %u, file %u%s\n", l->side,
	       l->in_force ? "" : " (none in force)", l->phase, l->other ? ", other" : "", l->asked ? ", asked" : "",
	       l->reload_due ? ", reload due" : "", l->ending ? ", ending" : "", l->killing ? ", killing" : "",
	       w->version[0], w->version[1], w->file, w->waiting ? ", waiting" : "");
	for (uint32_t s = 0; s < SETS_MAX; s++)
		if (w->set[s].worker != WORKER_NONE)
			printf("# set %u: worker %u timer %u%s%s%s\n", s, w->set[s].worker, w->timer[s],
			       w->proc[s].killed ? " killed" : "", w->proc[s].ended ? " ended" : "",
			       w->proc[s].quit ? " quit" : "");
	for (uint32_t c = 0; c < w->cand_count; c++)
		printf("# %s: side %u%s%s%s elector %u term %u%s next %u\n", idents[w->cand[c].ident].text,
		       l->candidate[c].side, l->candidate[c].leaves ? " leaves" : "",
		       l->candidate[c].fresh ? " fresh" : "", l->candidate[c].paused ? " paused" : "",
		       w->cand[c].elector, w->cand[c].hooks.state, w->cand[c].hooks.let_go ? " released" : "",
		       w->cand[c].next.state);
}

/* ---- a state in few bytes: numbers and instants on which nothing depends are left out ---- */

struct packed {
	uint8_t bytes[400];
	uint32_t len;
	bool load;
};

#define PACK(p, x)                                                   \
	do {                                                         \
		if ((p)->load)                                       \
			(x) = (__typeof__(x))(p)->bytes[(p)->len++]; \
		else                                                 \
			(p)->bytes[(p)->len++] = (uint8_t)(x);       \
	} while (0)

static void pack_life(struct packed *p, struct life *l)
{
	PACK(p, l->candidate_count);
	PACK(p, l->side);
	PACK(p, l->in_force);
	PACK(p, l->phase);
	PACK(p, l->groups);
	PACK(p, l->other);
	PACK(p, l->judged);
	if (!p->load && !l->judged)
		l->verdict = 0;
	PACK(p, l->verdict);
	PACK(p, l->asked);
	PACK(p, l->reload_due);
	PACK(p, l->paused);
	PACK(p, l->ending);
	PACK(p, l->killing);
	PACK(p, l->over);
}

static void pack_set(struct packed *p, struct world *w, uint32_t s)
{
	struct life_set *set = &w->set[s];
	struct proc *q = &w->proc[s];

	if (!p->load && set->failures > 1)
		set->failures = 1;
	PACK(p, set->worker);
	PACK(p, set->failures);
	PACK(p, set->started);
	PACK(p, set->began);
	PACK(p, set->doom);
	PACK(p, set->untimed);
	PACK(p, set->take);
	PACK(p, w->timer[s]);
	PACK(p, q->exists);
	if (!q->exists)
		return;
	PACK(p, q->version);
	PACK(p, q->phase);
	PACK(p, q->told);
	PACK(p, q->quit);
	PACK(p, q->killed);
	PACK(p, q->ended);
	PACK(p, q->takes);
	for (uint32_t i = 0; i < IDENTS; i++) {
		PACK(p, q->task[i]);
		if (scene.with_next)
			PACK(p, q->next[i]);
	}
}

static void pack_cand(struct packed *p, struct world *w, uint32_t c)
{
	struct life_candidate *l = &w->candidate[c];
	struct cand *q = &w->cand[c];

	PACK(p, l->group[0]);
	PACK(p, l->group[1]);
	PACK(p, l->term);
	PACK(p, l->side);
	PACK(p, l->leaves);
	PACK(p, l->fresh);
	PACK(p, l->paused);
	PACK(p, l->served);
	PACK(p, l->stirred);
	PACK(p, l->told_end);
	PACK(p, l->told_kill);
	PACK(p, q->ident);
	PACK(p, q->elector);
	PACK(p, q->next_term);
	PACK(p, q->for_good);
	PACK(p, q->comes_next);
	PACK(p, q->next_timer);
	PACK(p, q->hooks.state);
	PACK(p, q->hooks.has_on_stopping);
	PACK(p, q->hooks.has_on_stopped);
	PACK(p, q->hooks.drains);
	PACK(p, q->hooks.cleanups);
	PACK(p, q->hooks.let_go);
	PACK(p, q->hooks.finished);
	PACK(p, q->hooks.timing);
	PACK(p, q->next.state);
	PACK(p, q->next.next);
	PACK(p, q->next.cold);
}

static void pack_world(struct packed *p, struct world *w)
{
	pack_life(p, &w->life);
	PACK(p, w->cand_count);
	for (uint32_t s = 0; s < SETS_MAX; s++)
		pack_set(p, w, s);
	for (uint32_t c = 0; c < w->cand_count; c++)
		pack_cand(p, w, c);
	PACK(p, w->file);
	PACK(p, w->loaded_file);
	PACK(p, w->version[0]);
	PACK(p, w->version[1]);
	PACK(p, w->waiting);
	w->tried = p->load || w->life.phase != LIFE_SETTLED ? w->tried : 0;
	PACK(p, w->tried);
	PACK(p, w->failed);
	PACK(p, w->due);
	PACK(p, w->paused_all);
	for (uint32_t i = 0; i < IDENTS; i++) {
		PACK(p, w->paused[i]);
		PACK(p, w->debt[i]);
	}
}

#define SWAP(type, x, y)             \
	do {                         \
		type swapped_ = (x); \
		(x) = (y);           \
		(y) = swapped_;      \
	} while (0)

/* Which side is which makes no difference. */
static void world_mirror(struct world *w)
{
	for (uint32_t s = 0; s < SETS_MAX; s += 2) {
		SWAP(struct life_set, w->set[s], w->set[s + 1]);
		SWAP(struct proc, w->proc[s], w->proc[s + 1]);
		SWAP(uint8_t, w->timer[s], w->timer[s + 1]);
	}
	for (uint32_t c = 0; c < w->cand_count; c++) {
		w->candidate[c].side ^= 1;
		SWAP(uint32_t, w->candidate[c].group[0], w->candidate[c].group[1]);
	}
	SWAP(uint8_t, w->version[0], w->version[1]);
	w->tried = (uint8_t)((w->tried & 0x55) << 1 | (w->tried & 0xaa) >> 1);
	w->life.side ^= 1;
}

__attribute__((unused)) static void world_save(struct world *w, struct packed *p)
{
	if (w->life.in_force && w->life.side == 1)
		world_mirror(w);
	p->len = 0;
	p->load = false;
	pack_world(p, w);
}

__attribute__((unused)) static void world_load(struct world *w, struct packed *p)
{
	memset(w, 0, sizeof *w);
	world_point(w);
	p->len = 0;
	p->load = true;
	pack_world(p, w);
	for (uint32_t c = 0; c < w->cand_count; c++) {
		struct cand *q = &w->cand[c];
		bool stopping = q->hooks.has_on_stopping, stopped = q->hooks.has_on_stopped;
		cand_configure(w, c, 0);
		q->hooks.has_on_stopping = stopping;
		q->hooks.has_on_stopped = stopped;
		q->hooks.term = q->hooks.state != TERM_NONE;
		q->next.number = q->next.state != ON_NEXT_IDLE;
	}
}

/* ---- when the disturbances end ---- */

/* Whether nobody waits for this of a worker: one ends by itself only if it was told to, and one that answers at all
 * does so in time, in the version in force; else nobody would ever lead. */
static bool calm_leaves_out(const struct world *w, struct happened h, bool slow)
{
	bool in_force = w->life.in_force && w->life.side == h.arg % 2;

	if (h.what == HAPPENS_NEXT_TIMER)
		return !slow;
	if (h.what != HAPPENS_DIES && h.what != HAPPENS_TIMER)
		return false;
	const struct proc *p = &w->proc[h.arg];
	if (h.what == HAPPENS_DIES)
		return !p->killed && !(p->quit && !slow);
	if (w->timer[h.arg] == LIFE_TIMER_BACK_OFF)
		return false;
	if (w->timer[h.arg] == LIFE_TIMER_QUIT)
		return !slow;
	return !slow || in_force || p->phase == PROC_STARTING;
}

static bool never_starts(const struct world *w, uint8_t side)
{
	return w->version[side] != NO_VERSION && scripts[w->version[side]].never_starts;
}

/* Of workers that never start: what is owed to them is not waited for, and they do not hold up others. */
static bool calm_of_hopeless(const struct world *w, const struct happenings *h, enum happening what,
                             struct happened *next)
{
	for (int i = 0; i < h->count; i++) {
		struct happened e = h->list[i];
		if (e.what != what)
			continue;
		if (what == HAPPENS_TIMER && !never_starts(w, e.arg % 2))
			continue;
		if (what == HAPPENS_TERM_TIMER &&
		    (w->cand[e.arg].hooks.state != TERM_OWED || !never_starts(w, w->life.candidate[e.arg].side)))
			continue;
		*next = e;
		return true;
	}
	return false;
}

static bool calm_first(const struct world *w, const struct happenings *h, bool slow, struct happened *next)
{
	static const uint8_t ways[2][28] = {
		{ HAPPENS_TURN,       HAPPENS_RESUME,     HAPPENS_GONE,     HAPPENS_LOADED,     HAPPENS_STARTED,
		  HAPPENS_TAKEN,      HAPPENS_DRAINED,    HAPPENS_STOPPED,  HAPPENS_SWEPT,      HAPPENS_NEXT_ENDED,
		  HAPPENS_NEXT_SWEPT, HAPPENS_DIES,       HAPPENS_RELEASED, HAPPENS_NEXT_TERM,  HAPPENS_FINISHED,
		  HAPPENS_TIMER,      HAPPENS_NEXT_TIMER, HAPPENS_LEAD,     HAPPENS_TERM_TIMER, HAPPENINGS },
		{ HAPPENS_TURN,       HAPPENS_RESUME,    HAPPENS_GONE,     HAPPENS_TIMER,      HAPPENS_NEXT_TIMER,
		  HAPPENS_TERM_TIMER, HAPPENS_DIES,      HAPPENS_LOADED,   HAPPENS_STARTED,    HAPPENS_TAKEN,
		  HAPPENS_DRAINED,    HAPPENS_STOPPED,   HAPPENS_SWEPT,    HAPPENS_NEXT_SWEPT, HAPPENS_NEXT_ENDED,
		  HAPPENS_RELEASED,   HAPPENS_NEXT_TERM, HAPPENS_FINISHED, HAPPENS_LEAD,       HAPPENINGS },
	};

	for (const uint8_t *way = ways[slow]; *way < HAPPENINGS; way++)
		for (int i = 0; i < h->count; i++) {
			struct happened e = h->list[i];
			bool later = e.what == HAPPENS_TIMER && w->timer[e.arg] != LIFE_TIMER_QUIT &&
			             never_starts(w, e.arg % 2);
			if (e.what != *way || later || calm_leaves_out(w, e, slow))
				continue;
			*next = e;
			return true;
		}
	return false;
}

/* What happens next if nobody disturbs any more. slow: workers do not answer what has a time, if that can be over
 * without an end. A script that never starts is mended, and loads in time then. false: nothing. */
static bool world_calm(struct world *w, bool slow, struct happened *next)
{
	bool mends = w->life.in_force && never_starts(w, w->life.side);
	struct happenings h;

	if (!w->due && !w->life.ending && !w->waiting && mends) {
		*next = (struct happened){ HAPPENS_RELOAD, scene.script[0] };
		return true;
	}
	world_may(w, &h);
	return calm_of_hopeless(w, &h, HAPPENS_TERM_TIMER, next) || calm_first(w, &h, slow && !mends, next) ||
	       calm_of_hopeless(w, &h, HAPPENS_TIMER, next);
}

static const char *world_lacks(const struct world *w)
{
	const struct life *l = &w->life;

	if (w->waiting)
		return "a reload is never answered";
	if (l->ending)
		return l->over ? NULL : "the program never ends";
	if (l->other || l->phase != LIFE_SETTLED)
		return "a reload never settles";
	for (uint32_t c = 0; c < w->cand_count; c++)
		if (w->cand[c].elector != ELECTOR_LEADING || w->cand[c].hooks.state != TERM_LEADING)
			return "a candidate never leads again";
	return NULL;
}
