#include "commands/store_check.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "commands/seat.h"
#include "loop/offload.h"

#include <ev.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WRITERS 8
#define ROUNDS 40
#define RENEWALS 100
#define ACQUISITIONS 10
#define NOTICES 20
#define PART (8 * NSEC_PER_SEC) /* one proof: what is done by then has to do, */
#define SETTLE_TRIES 40
#define ENOUGH 3 /* if it is at least so many */
#define NOTICE_PATIENCE (2 * NSEC_PER_SEC)
#define SHORTEST_MS 500 /* below that the stop grace is no time for a script */

struct store_check {
	struct ev_loop *loop;
	struct lock_client lock_clients[WRITERS];
	struct version at, before; /* what the scratch record has now, and had before its last term */
	int64_t token;             /* the last term's */
	uint64_t term;
	struct err doubt; /* why the last question had no certain answer */
	store_check_found_fn *found;
	void *arg;
	struct store_check_report *report;
	ev_signal signals[2];
	bool cleaning;
};

static void __attribute__((format(printf, 4, 5)))
find(struct store_check *x, const char *name, enum store_check_verdict verdict, const char *fmt, ...)
{
	struct store_check_finding f = { .name = name, .verdict = verdict };
	va_list ap;

	if (x->report->signal && !x->cleaning)
		return; /* what was broken off proves nothing */
	va_start(ap, fmt);
	vsnprintf(f.text, sizeof f.text, fmt, ap);
	va_end(ap);
	x->report->fit &= verdict != STORE_CHECK_UNFIT;
	x->found(x->arg, &f);
}

/* ---- terms ---- */

/* A new term of the seat's own, as an elector would write it. */
static void fill_term(const struct store_check *x, struct lock_client *s)
{
	struct record *r = &s->record;
	char holder[40];

	record_clear(r);
	snprintf(holder, sizeof holder, "lunarch doctor %d", (int)(s - x->lock_clients) + 1);
	mem_replace(&r->holder, holder);
	r->lease_ms = 1000; /* a store that was just restarted may let nobody lead for so long */
	r->renew_ms = 600;
	r->retry_ms = 120;
	r->acquired_us = r->renewed_us = clock_wall_us();
	r->term = x->term + 1;
	r->transitions = (int64_t)x->term;
	r->token = s->lock->ops->token_in_record ? x->token + 1 : 0;
	r->state = RECORD_LEADING;
	nonce_hex(r->write, sizeof r->write / 2);
}

/* What the store holds after s has won. */
static void won(struct store_check *x, const struct lock_client *s)
{
	x->before = x->at;
	x->at = s->result.version;
	x->term++;
	x->token = s->result.token ? s->result.token : s->record.token;
}

static bool more(const struct store_check *x, struct instant since, int done)
{
	return !x->report->signal && (done < ENOUGH || elapsed_standby(since, clock_now()) < PART);
}

/* ---- times ---- */

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static struct store_check_times times_of(int64_t *us, int n)
{
	if (n == 0)
		return (struct store_check_times){ 0 };
	qsort(us, (size_t)n, sizeof *us, by_size);
	return (struct store_check_times){
		.n = n, .median_us = us[n / 2], .p99_us = us[(n * 99 - 1) / 100], .most_us = us[n - 1]
	};
}

static const char *print_us(int64_t us, char *out, size_t size)
{
	if (us < 10000)
		snprintf(out, size, "%.2f ms", (double)us / 1e3);
	else if (us < 1000000)
		snprintf(out, size, "%.0f ms", (double)us / 1e3);
	else
		snprintf(out, size, "%.1f s", (double)us / 1e6);
	return out;
}

static void find_times(struct store_check *x, const char *name, const char *what, const struct store_check_times *t)
{
	char median[24], p99[24], most[24];

	find(x, name, STORE_CHECK_GOOD, "%d %s: median %s, 99 of 100 within %s, at most %s", t->n, what,
	     print_us(t->median_us, median, sizeof median), print_us(t->p99_us, p99, sizeof p99),
	     print_us(t->most_us, most, sizeof most));
}

/* ---- the proofs ---- */

static int connect(struct store_check *x, struct err *err)
{
	struct lock_client *s = &x->lock_clients[0];
	char took[24];

	enum lock_outcome o = lock_client_read(s);
	if (o == LOCK_OK || o == LOCK_FOREIGN) {
		err_set(err, ERR_INVALID, "%s is in use; a scratch record was expected to be absent", s->lock->url);
		return -1;
	}
	if (o != LOCK_ABSENT) {
		*err = s->result.err;
		return -1;
	}
	x->at = s->result.version;
	find(x, "connect", STORE_CHECK_GOOD, "%s answers, the first time after %s", s->lock->url,
	     print_us(lock_client_took_us(s), took, sizeof took));
	return 0;
}

static void ask_server(struct store_check *x)
{
	struct lock_client *s = &x->lock_clients[0];

	if (!s->lock->ops->about)
		return;
	if (lock_client_about(s) != LOCK_OK) {
		find(x, "server", STORE_CHECK_NOTE, "it does not say what it is: %s", s->result.err.text);
		return;
	}
	snprintf(x->report->server, sizeof x->report->server, "%s", s->about.server);
	if (*s->about.warning)
		find(x, "server", s->about.unfit ? STORE_CHECK_UNFIT : STORE_CHECK_NOTE, "%s: %s", s->about.server,
		     s->about.warning);
	else
		find(x, "server", STORE_CHECK_GOOD, "%s", s->about.server);
}

/* All at once, with the same expectation. The number of winners; *last is one of them. */
static int race_once(struct store_check *x, struct lock_client **last, int *unknown)
{
	int winners = 0;

	for (int i = 0; i < WRITERS; i++)
		fill_term(x, &x->lock_clients[i]);
	for (int i = 0; i < WRITERS; i++)
		lock_client_start_write(&x->lock_clients[i], &x->at, true);
	for (int i = 0; i < WRITERS; i++) {
		enum lock_outcome o = lock_client_wait(&x->lock_clients[i]);
		if (o == LOCK_OK) {
			winners++;
			*last = &x->lock_clients[i];
		} else if (o != LOCK_CONFLICT) {
			++*unknown;
			x->doubt = x->lock_clients[i].result.err;
		}
	}
	return winners;
}

/* Somebody's write had no certain outcome: the truth is what can be read, if not at once. -1: it cannot. */
static int settle(struct store_check *x)
{
	struct lock_client *s = &x->lock_clients[0];
	enum lock_outcome o = LOCK_FAILED;

	for (int tries = 0; tries < SETTLE_TRIES && o != LOCK_OK && o != LOCK_ABSENT; tries++) {
		if (tries)
			lock_client_quiet(s);
		o = lock_client_read(s);
	}
	if (o != LOCK_OK && o != LOCK_ABSENT)
		return -1;
	x->at = s->result.version;
	if (s->lock->ops->token_in_record && o == LOCK_OK)
		x->token = s->record.token;
	x->term++;
	return 0;
}

enum round { DECIDED, UNDECIDED, BROKEN };

/* What another connection reads is what the winner wrote. No answer proves nothing. */
static enum round read_back(struct store_check *x, const struct lock_client *winner)
{
	struct lock_client *reader = &x->lock_clients[winner == &x->lock_clients[0]];
	enum lock_outcome o = lock_client_read(reader);

	if (o == LOCK_OK && strcmp(reader->record.write, winner->record.write) == 0 &&
	    strcmp(reader->result.version.text, winner->result.version.text) == 0)
		return DECIDED;
	if (o == LOCK_OK || o == LOCK_ABSENT || o == LOCK_FOREIGN) {
		find(x, "race", STORE_CHECK_UNFIT,
		     "what the winner wrote is not what another connection reads right after it: reads are stale");
		return BROKEN;
	}
	x->doubt = reader->result.err;
	return UNDECIDED;
}

/* Nobody is known to have won. That is possible while answers get lost, but never if each was told that another had. */
static enum round no_winner(struct store_check *x, int doubts)
{
	if (doubts && settle(x) == 0) {
		lock_client_quiet(&x->lock_clients[0]); /* whatever is the matter, not at once again */
		return UNDECIDED;
	}
	find(x, "race", STORE_CHECK_UNFIT, "of %d writers none won: %s", WRITERS,
	     doubts ? x->lock_clients[0].result.err.text : "each was told that another had");
	return BROKEN;
}

static enum round race_round(struct store_check *x, int *unknown)
{
	struct lock_client *winner = NULL;
	int64_t before = x->token;
	int doubts = 0, winners = race_once(x, &winner, &doubts);

	*unknown += doubts;
	if (winners == 0)
		return no_winner(x, doubts);
	if (winners > 1) {
		find(x, "race", STORE_CHECK_UNFIT,
		     "%d of %d writers who expected the same version were told that they won: two leaders are possible",
		     winners, WRITERS);
		return BROKEN;
	}
	won(x, winner);
	if (x->token <= before) {
		find(x, "token", STORE_CHECK_UNFIT,
		     "a later term has the token %" PRId64 ", an earlier one had %" PRId64, x->token, before);
		return BROKEN;
	}
	enum round r = read_back(x, winner);
	*unknown += r == UNDECIDED;
	return r;
}

/* false: the store is proved unfit, or nothing can be proved. */
static bool race(struct store_check *x)
{
	struct instant since = clock_now();
	int count[2] = { 0 }, unknown = 0;

	while (count[DECIDED] + count[UNDECIDED] < ROUNDS && more(x, since, count[DECIDED] + count[UNDECIDED])) {
		enum round r = race_round(x, &unknown);
		if (r == BROKEN)
			return false;
		count[r]++;
	}
	x->report->writers = WRITERS;
	x->report->rounds = count[DECIDED];
	if (x->report->signal)
		return false;
	if (count[DECIDED] == 0) {
		find(x, "race", STORE_CHECK_UNFIT, "no round could be decided: %s", x->doubt.text);
		return false;
	}
	find(x, "race", unknown ? STORE_CHECK_NOTE : STORE_CHECK_GOOD,
	     "%d rounds of %d writers with connections of their own: one winner in each%s", count[DECIDED], WRITERS,
	     unknown ? "; but some questions had no certain answer in time" : "");
	find(x, "token", STORE_CHECK_GOOD, "larger in every term, %" PRId64 " in the last", x->token);
	return true;
}

static const char *why(const struct lock_client *s)
{
	return *s->result.err.text ? s->result.err.text : lock_outcome_name(s->result.outcome);
}

static void deposed(struct store_check *x)
{
	struct lock_client *s = &x->lock_clients[1];

	fill_term(x, s);
	lock_client_start_write(s, &x->before, true);
	enum lock_outcome o = lock_client_wait(s);
	if (o == LOCK_CONFLICT)
		find(x, "deposed", STORE_CHECK_GOOD, "a write by one who knows only an older version is turned away");
	else if (o == LOCK_OK)
		find(x, "deposed", STORE_CHECK_UNFIT,
		     "a write that expects an older version is done, where a conflict is due");
	else
		find(x, "deposed", STORE_CHECK_NOTE,
		     "a write by one who knows only an older version had no certain answer: %s", why(s));
}

/* Writes by one seat, each on the one before. durable: of new terms. */
static struct store_check_times series(struct store_check *x, int most, bool durable)
{
	struct instant since = clock_now();
	struct lock_client *s = &x->lock_clients[0];
	int64_t us[RENEWALS];
	int n = 0;

	for (int i = 0; i < most && more(x, since, i); i++) {
		fill_term(x, s);
		if (!durable)
			s->record.token = x->token;
		lock_client_start_write(s, &x->at, durable);
		if (lock_client_wait(s) != LOCK_OK) {
			find(x, durable ? "acquire" : "renew", STORE_CHECK_NOTE, "a write was not confirmed: %s",
			     s->result.err.text);
			if (settle(x) < 0)
				break;
			continue;
		}
		us[n++] = lock_client_took_us(s);
		if (durable)
			won(x, s);
		else
			x->at = s->result.version;
	}
	return times_of(us, n);
}

static void measure(struct store_check *x)
{
	struct store_check_report *r = x->report;

	r->acquisitions = series(x, ACQUISITIONS, true);
	if (r->acquisitions.n)
		find_times(x, "acquire", "new terms", &r->acquisitions);
	r->renewals = series(x, RENEWALS, false);
	if (r->renewals.n)
		find_times(x, "renew", "renewals", &r->renewals);
}

static void notices(struct store_check *x)
{
	struct lock_client *writer = &x->lock_clients[0], *watcher = &x->lock_clients[1];
	struct instant since = clock_now();
	int64_t us[NOTICES];
	int n = 0, missed = 0;

	lock_client_read(watcher);
	if (!lock_client_watch(watcher)) {
		find(x, "notice", STORE_CHECK_NOTE,
		     "no notices here: standbys look again every retry period, so a handover takes up to 2.2 of them");
		return;
	}
	for (int i = 0; i < NOTICES && more(x, since, i); i++) {
		lock_client_quiet(watcher);
		fill_term(x, writer);
		lock_client_start_write(writer, &x->at, true);
		if (lock_client_wait(writer) != LOCK_OK && settle(x) < 0)
			break;
		if (writer->result.outcome == LOCK_OK)
			won(x, writer);
		if (lock_client_told(watcher, NOTICE_PATIENCE))
			us[n++] = (watcher->changed_at.raw - writer->asked.raw) / 1000;
		else
			missed++;
	}
	x->report->notices = times_of(us, n);
	if (n)
		find_times(x, "notice", "changes, from the write's start to the standby's notice", &x->report->notices);
	if (missed)
		find(x, "notice", STORE_CHECK_NOTE,
		     "%d of %d changes were not told within %d s: handovers may take a retry period", missed,
		     n + missed, (int)(NOTICE_PATIENCE / NSEC_PER_SEC));
}

/* ---- the end ---- */

static void untried(struct store_check *x, const struct lock_client *s)
{
	find(x, "deleted", STORE_CHECK_NOTE, "what a deleted record does could not be tried: %s", why(s));
}

/* Its key is gone and made again: whoever led before is turned away all the same, and tokens go on. */
static void remade(struct store_check *x)
{
	struct lock_client *s = &x->lock_clients[0], *other = &x->lock_clients[1];
	struct version old = x->at;
	int64_t before = x->token;

	if (lock_client_remove(s, &x->at) != LOCK_OK)
		return untried(x, s);
	if (lock_client_read(other) != LOCK_ABSENT)
		return untried(x, other);
	x->at = other->result.version;
	fill_term(x, other);
	lock_client_start_write(other, &old, true);
	enum lock_outcome late = lock_client_wait(other);
	if (late == LOCK_OK) {
		find(x, "deleted", STORE_CHECK_UNFIT,
		     "a write that expects a record made one where that had been deleted");
		won(x, other);
		return;
	}
	if (late != LOCK_CONFLICT)
		return untried(x, other);
	fill_term(x, s);
	lock_client_start_write(s, &x->at, true);
	if (lock_client_wait(s) != LOCK_OK)
		return untried(x, s);
	won(x, s);
	if (x->token > before)
		find(x, "deleted", STORE_CHECK_GOOD,
		     "a deleted record is not written to; the next term's token is larger all the same");
	else
		find(x, "deleted", STORE_CHECK_UNFIT,
		     "after the record was deleted the token fell from %" PRId64 " to %" PRId64, before, x->token);
}

static void clean_up(struct store_check *x)
{
	struct lock_client *s = &x->lock_clients[0];

	x->cleaning = true;
	if (!s->lock->ops->remove) {
		find(x, "clean", STORE_CHECK_NOTE, "%s stays behind: remove it", s->lock->url);
		return;
	}
	for (int tries = 0; tries < ENOUGH; tries++) {
		enum lock_outcome o = lock_client_read(s);
		x->at = s->result.version;
		if (o == LOCK_ABSENT) {
			lock_client_remove(s, &x->at); /* what may be beside it */
			return;
		}
		if (o == LOCK_OK && lock_client_remove(s, &x->at) == LOCK_OK)
			return;
	}
	find(x, "clean", STORE_CHECK_NOTE, "%s stays behind, remove it: %s", s->lock->url, s->result.err.text);
}

/* Renewals get four tries before the deadline, each with room for the slowest answer seen, and a pause of the server
 * besides. */
static void shortest(struct store_check *x)
{
	struct store_check_report *r = x->report;
	int64_t slowest_us = r->renewals.p99_us > r->acquisitions.p99_us ? r->renewals.p99_us : r->acquisitions.p99_us;
	char slowest[24];

	if (!r->renewals.n || !r->acquisitions.n)
		return;
	int64_t retry_ms = slowest_us * 3 / 1000 > 50 ? slowest_us * 3 / 1000 : 50;
	int64_t lease_ms = (4 * retry_ms + x->lock_clients[0].about.pause_ms) * 3 / 2;
	lease_ms = (lease_ms + 99) / 100 * 100;
	r->shortest_ms = lease_ms > SHORTEST_MS ? lease_ms : SHORTEST_MS;
	find(x, "lease", STORE_CHECK_GOOD,
	     "%.1f s is the shortest to trust here: answers take up to %s, and a renewal should have four tries%s",
	     (double)r->shortest_ms / 1e3, print_us(slowest_us, slowest, sizeof slowest),
	     x->lock_clients[0].about.pause_ms ? ", also while the server chooses a leader of its own" : "");
}

/* ---- all of it ---- */

static char *scratch_url(const char *url, const struct lock *l)
{
	char more[sizeof "-doctor-12345678"] = "-doctor-";

	nonce_hex(more + strlen(more), 4);
	return lock_url_beside(l, url, more);
}

/* The user's own URL is opened, which tells its mistakes, and closed: nothing is done there. */
static int open_seats(struct store_check *x, const char *url, struct err *err)
{
	struct lock_env env = { .loop = x->loop, .offload = offload_new(x->loop, 1, err) };
	struct lock *l = env.offload ? lock_open(&env, url, err) : NULL;
	char *scratch = l ? scratch_url(url, l) : NULL;
	int status = l ? 0 : -1;

	if (l)
		l->ops->close(l);
	lock_env_fini(&env);
	if (env.offload)
		offload_free(env.offload);
	for (int i = 0; status == 0 && i < WRITERS; i++)
		status = lock_client_open(&x->lock_clients[i], x->loop, scratch, err);
	free(scratch);
	return status;
}

static void prove(struct store_check *x)
{
	ask_server(x);
	if (!race(x))
		return;
	deposed(x);
	measure(x);
	notices(x);
	if (x->lock_clients[0].lock->ops->remove && !x->report->signal)
		remade(x);
	shortest(x);
}

static void heed(struct store_check *x, bool on)
{
	for (int i = 0; i < 2; i++) {
		if (on)
			ev_signal_start(x->loop, &x->signals[i]);
		else
			ev_signal_stop(x->loop, &x->signals[i]);
	}
}

/* The second one kills. */
static void on_signal(struct ev_loop *loop, ev_signal *w, int revents)
{
	struct store_check *x = w->data;

	(void)loop;
	(void)revents;
	x->report->signal = w->signum;
	heed(x, false);
}

static void examine(struct store_check *x)
{
	static const int which[] = { SIGINT, SIGTERM };

	for (int i = 0; i < 2; i++) {
		ev_signal_init(&x->signals[i], on_signal, which[i]);
		x->signals[i].data = x;
	}
	heed(x, true);
	prove(x);
	clean_up(x);
	heed(x, false);
}

int store_check_run(const char *url, store_check_found_fn *found, void *arg, struct store_check_report *report,
                    struct err *err)
{
	struct store_check *x = mem_zero(sizeof *x);
	int status = -1;

	*report = (struct store_check_report){ .fit = true };
	x->found = found;
	x->arg = arg;
	x->report = report;
	x->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	if (!x->loop) {
		err_set(err, ERR_SYSTEM, "cannot make an event loop");
		goto done;
	}
	if (open_seats(x, url, err) < 0)
		goto done;
	report->scratch = mem_dup(x->lock_clients[0].lock->url);
	status = connect(x, err);
	if (status == 0)
		examine(x);
done:
	for (int i = 0; i < WRITERS; i++)
		lock_client_close(&x->lock_clients[i]);
	if (x->loop)
		ev_loop_destroy(x->loop);
	free(x);
	return status;
}

void store_check_report_fini(struct store_check_report *r)
{
	free(r->scratch);
}
