/* Drives lease.c by the events of traces that the model printed (lease.pml, TRACE), and compares after each decision:
 * the phase, the operation, what is in limbo, the deadlines, the term, and whether the script runs. So the model and
 * the code cannot part. Not a simulator: it decides nothing itself but what a store that compares and swaps decides.
 *
 * Reads traces from its standard input, and prints TAP. A tick of the model is a second. */
#include "lease/lease.h"
#include "lease/lease_internal.h"
#include "tap.h"

#include <stdlib.h>

#define NODES 3
#define NOBODY 7
#define SEC NSEC_PER_SEC

/* The settings of lease.pml: short and long. */
static const struct lease_times settings[2] = {
	{ .lease = 6 * SEC, .renew = 3 * SEC, .retry = 2 * SEC, .grace = 1 * SEC, .kill = 1 * SEC, .drift = 1 * SEC },
	{ .lease = 9 * SEC, .renew = 5 * SEC, .retry = 2 * SEC, .grace = 2 * SEC, .kill = 1 * SEC, .drift = 1 * SEC },
};

struct content { /* a record; version 0: absent */
	uint64_t version, write, holder, term, count;
	enum sight_kind kind;
	nsec duration;
	int given;
};

struct request {
	bool pending;
	uint64_t expected;
	struct content content;
};

struct candidate {
	struct lease lease;
	int set, given;
	uint64_t incarnation, seen; /* seen: the version */
	struct instant now, guard, sent_at;
	bool runs; /* the elector has not heard that the script is gone */
	int script;
	uint64_t op;
	bool writing, good; /* good: the write was applied */
	struct request sent, late;
};

struct world {
	struct candidate node[NODES];
	struct content store;
	uint64_t versions, writes, incarnations;
	unsigned long traces, decisions;
	bool over; /* the trace has ended for the comparison */
};

static struct lease_sight sight_of(const struct candidate *n, int i, const struct content *c)
{
	struct lease_sight s = { .kind = SIGHT_ABSENT };

	if (c->kind == SIGHT_ABSENT)
		return s;
	s.kind = c->kind;
	s.id = c->version;
	s.who = c->holder << 8 | c->term;
	s.write = c->write;
	s.mine = c->kind == SIGHT_HELD && c->holder == n->incarnation;
	s.duration = c->duration;
	s.term = c->term;
	s.count = c->count;
	s.other_first = c->given != NOBODY && c->given != i;
	return s;
}

static void obey(struct world *w, int i, const struct lease_actions *a);

static void step(struct world *w, int i, struct lease_event e)
{
	struct candidate *n = &w->node[i];
	nsec wait = lease_wait(&n->lease, n->now);
	struct lease_actions a = lease_step(&n->lease, &e, n->now);

	if (e.kind == LEASE_EV_TICK && wait > 0 && a.set)
		ok(0, "trace %lu: a candidate acts at a time for which it had asked for no timer", w->traces);
	obey(w, i, &a);
	if (n->lease.phase != PHASE_ENDING && n->lease.phase != PHASE_RELEASING)
		n->given = NOBODY;
}

static void begin_write(struct world *w, int i, enum lease_write what)
{
	struct candidate *n = &w->node[i];
	bool acquires = what == LEASE_ACQUIRE, releases = what == LEASE_RELEASE;

	n->writing = true;
	n->sent_at = n->now;
	n->sent = (struct request){
		.pending = true,
		.expected = n->seen,
		.content = {
			.write = ++w->writes,
			.holder = releases ? 0 : n->incarnation,
			.kind = releases ? SIGHT_RELEASED : SIGHT_HELD,
			.term = acquires ? lease_next_term(&n->lease) : lease_term(&n->lease),
			.count = lease_next_count(&n->lease),
			.duration = lease_publishes(&n->lease)->lease,
			.given = releases ? n->given : NOBODY,
		},
	};
	step(w, i,
	     (struct lease_event){ .kind = LEASE_EV_SENT, .write = n->sent.content.write, .sent_at = n->sent_at });
}

static void obey(struct world *w, int i, const struct lease_actions *a)
{
	struct candidate *n = &w->node[i];

	if (a->set & LEASE_DO_TWIN)
		ok(0, "trace %lu: a candidate takes a record for a copy's", w->traces);
	if (a->set & LEASE_DO_STOP)
		n->guard = instant_min(n->guard, a->stop_by);
	if (a->set & LEASE_DO_START) {
		n->runs = true;
		n->script = 1;
	}
	if (a->set & LEASE_DO_DEADLINE)
		n->guard = lease_kill(&n->lease);
	if (a->set & (LEASE_DO_READ | LEASE_DO_WRITE)) {
		n->op = a->op;
		n->writing = false;
	}
	if (a->set & LEASE_DO_WRITE)
		begin_write(w, i, a->write);
}

static bool swap(struct world *w, const struct request *r)
{
	if (r->expected != w->store.version)
		return false;
	w->store = r->content;
	w->store.version = ++w->versions;
	return true;
}

static void read_store(struct world *w, int i)
{
	struct candidate *n = &w->node[i];

	n->seen = w->store.version;
	step(w, i,
	     (struct lease_event){ .kind = LEASE_EV_READ_DONE,
	                           .op = n->op,
	                           .outcome = OUTCOME_OK,
	                           .sight = sight_of(n, i, &w->store) });
}

static void arrive(struct world *w, int i)
{
	struct candidate *n = &w->node[i];

	n->sent.pending = false;
	n->good = swap(w, &n->sent);
	if (n->good)
		n->sent.content.version = w->versions;
}

static void written(struct world *w, int i, enum lease_outcome outcome)
{
	struct candidate *n = &w->node[i];
	struct lease_event e = { .kind = LEASE_EV_WRITE_DONE, .op = n->op, .outcome = outcome, .sent_at = n->sent_at };

	if (outcome == OUTCOME_OK) {
		e.sight = sight_of(n, i, &n->sent.content);
		n->seen = n->sent.content.version;
	}
	step(w, i, e);
}

static void time_out(struct world *w, int i)
{
	struct candidate *n = &w->node[i];

	if (n->writing)
		written(w, i, OUTCOME_UNKNOWN);
	else
		step(w, i, (struct lease_event){ .kind = LEASE_EV_READ_DONE, .op = n->op, .outcome = OUTCOME_FAILED });
}

static void begin(struct world *w, int i)
{
	struct candidate *n = &w->node[i];

	lease_init(&n->lease, &settings[n->set], false, false, 1);
	n->lease.noise = 0; /* polls are exactly P apart */
	n->incarnation = ++w->incarnations;
	n->seen = 0;
	n->given = NOBODY;
	n->runs = n->sent.pending = n->writing = false;
	if (n->now.boot == 0)
		n->now = (struct instant){ 1000 * SEC, 1000 * SEC };
}

static void crash(struct world *w, int i)
{
	struct candidate *n = &w->node[i];

	if (n->lease.busy && n->writing && n->sent.pending && !n->late.pending && n->sent.expected == w->store.version)
		n->late = n->sent;
	if (n->script == 1)
		n->script = 2;
	begin(w, i);
	step(w, i, (struct lease_event){ .kind = LEASE_EV_CAMPAIGN });
}

static void tick(struct world *w, int skips, int odd, bool fast)
{
	for (int i = 0; i < NODES; i++) {
		struct candidate *n = &w->node[i];
		if (i == skips)
			continue;
		n->now.boot += i == odd && fast ? 2 * SEC : SEC;
		n->now.raw += i == odd && !fast ? 0 : SEC;
	}
}

static void kill_script(struct world *w, int i)
{
	struct candidate *n = &w->node[i];

	if (!instant_passed(n->guard, n->now))
		ok(0, "trace %lu: the model's guard kills, and lease.c's would not", w->traces);
	n->script = 2;
}

static void person(struct world *w, enum sight_kind kind)
{
	w->store.version = kind == SIGHT_ABSENT ? 0 : ++w->versions;
	w->store.kind = kind;
	w->store.holder = 0;
	if (kind == SIGHT_ABSENT)
		w->store.given = NOBODY;
}

/* What "=" says, as the model says it. */
static void state(const struct candidate *n, int i, long out[10])
{
	static const int phases[] = { [PHASE_IDLE] = -1, [PHASE_FOLLOWING] = 0, [PHASE_LEADING] = 1, [PHASE_ENDING] = 2,
		                      [PHASE_LOST] = 3,  [PHASE_RELEASING] = 4, [PHASE_NEXT] = -1 };
	static const int writes[] = {
		[LEASE_ACQUIRE] = 0, [LEASE_RENEW] = 1, [LEASE_RELEASE] = 2, [LEASE_NEXT_TERM] = -1
	};
	const struct lease *l = &n->lease;
	bool in_term = l->phase == PHASE_LEADING || l->phase == PHASE_ENDING;

	out[0] = i;
	out[1] = phases[l->phase];
	out[2] = !l->busy ? 0 : n->writing ? 2 : 1;
	out[3] = out[2] == 2 ? writes[l->writing] : 0;
	out[4] = l->limbo_len;
	out[5] = in_term ? (long)((instant_until(lease_end(l), n->now) + SEC - 1) / SEC) : 0;
	out[6] = n->runs ? (long)((instant_until(n->guard, n->now) + SEC - 1) / SEC) : 0;
	out[7] = (long)lease_term(l);
	out[8] = (long)lease_next_term(l) - 1;
	out[9] = n->script;
}

static bool compare(struct world *w, const char *line)
{
	static const char *const names[10] = { "candidate",    "phase",          "operation",          "write",
		                               "limbo",        "until it stops", "until it is killed", "term",
		                               "largest term", "script" };
	long got[10], want[10];

	if (sscanf(line, "= %ld %ld %ld %ld %ld %ld %ld %ld %ld %ld", want, want + 1, want + 2, want + 3, want + 4,
	           want + 5, want + 6, want + 7, want + 8, want + 9) != 10)
		return ok(0, "the trace says what nobody understands: %s", line);
	state(&w->node[want[0]], (int)want[0], got);
	w->decisions++;
	for (int i = 0; i < 10; i++)
		if (got[i] != want[i])
			return ok(0, "trace %lu, decision %lu, candidate %ld: %s: the model says %ld, lease.c %ld",
			          w->traces, w->decisions, want[0], names[i], want[i], got[i]);
	return true;
}

static void end_term(struct world *w, int i, int given)
{
	w->node[i].given = given;
	step(w, i, (struct lease_event){ .kind = LEASE_EV_END, .reason = LEASE_RESIGNED });
}

static void stopped(struct world *w, int i)
{
	w->node[i].runs = false;
	step(w, i, (struct lease_event){ .kind = LEASE_EV_STOPPED, .reaped = true });
}

static bool of_store(struct world *w, const char *word, int i)
{
	struct candidate *n = &w->node[i];

	if (strcmp(word, "read") == 0)
		read_store(w, i);
	else if (strcmp(word, "arrive") == 0)
		arrive(w, i);
	else if (strcmp(word, "reply") == 0)
		written(w, i, n->good ? OUTCOME_OK : OUTCOME_CONFLICT);
	else if (strcmp(word, "fail") == 0)
		written(w, i, OUTCOME_FAILED);
	else if (strcmp(word, "timeout") == 0)
		time_out(w, i);
	else if (strcmp(word, "float") == 0)
		n->late = n->sent;
	else if (strcmp(word, "land") == 0)
		n->late.pending = !swap(w, &n->late) && false;
	else if (strcmp(word, "delete") == 0)
		person(w, SIGHT_ABSENT);
	else if (strcmp(word, "empty") == 0)
		person(w, SIGHT_EMPTIED);
	else
		return strcmp(word, "lose") == 0 || strcmp(word, "reached") == 0;
	return true;
}

static bool of_process(struct world *w, const char *word, int i, int more)
{
	struct candidate *n = &w->node[i];

	if (strcmp(word, "campaign") == 0)
		step(w, i, (struct lease_event){ .kind = LEASE_EV_CAMPAIGN });
	else if (strcmp(word, "time") == 0)
		step(w, i, (struct lease_event){ .kind = LEASE_EV_TICK });
	else if (strcmp(word, "kill") == 0)
		kill_script(w, i);
	else if (strcmp(word, "ends") == 0 || strcmp(word, "dead") == 0)
		n->script = 0;
	else if (strcmp(word, "stopped") == 0)
		stopped(w, i);
	else if (strcmp(word, "end") == 0)
		end_term(w, i, more);
	else if (strcmp(word, "crash") == 0)
		crash(w, i);
	else if (strcmp(word, "config") == 0)
		lease_configure(&n->lease, &settings[n->set = more]);
	else
		return strcmp(word, "pause") == 0 || strcmp(word, "wake") == 0;
	return true;
}

static void begin_node(struct world *w, int i, int set)
{
	if (i == 0) {
		unsigned long traces = w->traces + 1, decisions = w->decisions;
		*w = (struct world){ .traces = traces, .decisions = decisions, .store.given = NOBODY };
	}
	w->node[i].set = set;
	begin(w, i);
}

/* false: the rest of the input is not worth reading. */
static bool obey_line(struct world *w, const char *line)
{
	char word[16] = "", rate[8] = "";
	int i = 0, more = 0;

	if (sscanf(line, "%15s %d %d %7s", word, &i, &more, rate) < 1)
		return true;
	if (i < 0 || (i >= NODES && i != NOBODY))
		return ok(0, "no such candidate: %s", line);
	if (strcmp(word, "node") == 0)
		begin_node(w, i, more);
	else if (w->over)
		return true;
	else if (strcmp(word, "over") == 0)
		w->over = true;
	else if (strcmp(word, "=") == 0)
		return compare(w, line);
	else if (strcmp(word, "tick") == 0)
		tick(w, i, more, *rate);
	else if (!of_store(w, word, i) && !of_process(w, word, i, more))
		return ok(0, "the trace says what nobody understands: %s", line);
	return true;
}

int main(void)
{
	static struct world w;
	char line[256];
	bool good = true;

	while (good && fgets(line, sizeof line, stdin)) {
		char *text = line + strspn(line, " \t");
		good = obey_line(&w, text);
	}
	if (good && tap_failed == 0)
		ok(w.decisions > 0, "lease.c decides as the model in %lu traces, %lu decisions", w.traces, w.decisions);
	return tap_done();
}
