#include "doctor/store_measure.h"

#include <stdio.h>
#include <stdlib.h>

#define RENEWALS 100
#define ACQUISITIONS 10
#define NOTICES 20
#define NOTICE_TIMEOUT (2 * NSEC_PER_SEC)
#define SHORTEST_MS 500 /* below that the stop grace is no time for a script */

static int by_size(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return x < y ? -1 : x > y;
}

static struct store_times times_of(int64_t *us, int n)
{
	if (n == 0)
		return (struct store_times){ 0 };
	qsort(us, (size_t)n, sizeof *us, by_size);
	return (struct store_times){
		.n = n, .median_us = us[n / 2], .p99_us = us[(n * 99 - 1) / 100], .most_us = us[n - 1]
	};
}

const char *store_times_print(int64_t us, char *out, size_t size)
{
	if (us < 10000)
		snprintf(out, size, "%.2f ms", (double)us / 1e3);
	else if (us < 1000000)
		snprintf(out, size, "%.0f ms", (double)us / 1e3);
	else
		snprintf(out, size, "%.1f s", (double)us / 1e6);
	return out;
}

static void find_times(struct store_trial *x, const char *name, const char *what, const struct store_times *t)
{
	char median[24], p99[24], most[24];

	store_trial_find(x, name, STORE_GOOD, "%d %s: median %s, 99 of 100 within %s, at most %s", t->n, what,
	                 store_times_print(t->median_us, median, sizeof median),
	                 store_times_print(t->p99_us, p99, sizeof p99),
	                 store_times_print(t->most_us, most, sizeof most));
}

/* false: it was refused, as each that follows would be, and an elector of which the store takes no writes leads nobody,
 * as its /readyz and `why` say in the same words (election/readiness.c). */
static bool tell_failure(struct store_trial *x, const struct lock_client *s, bool durable)
{
	const char *name = durable ? "acquire" : "renew";

	enum lock_outcome o = s->result.outcome;
	bool full = (o == LOCK_FAILED || o == LOCK_UNKNOWN) && s->result.err.code == ERR_FULL;

	if (o == LOCK_REFUSED || full) {
		store_trial_find(x, name, STORE_UNFIT, "the store does not take its writes: %s is refused: %s",
		                 durable ? "a new term" : "a renewal", store_trial_why(s));
		return false;
	}
	store_trial_find(x, name, STORE_NOTE, "a write was not confirmed: %s", store_trial_why(s));
	return true;
}

/* Writes by one client, each on the one before. durable: of new terms. */
static struct store_times measure_series(struct store_trial *x, int most, bool durable)
{
	struct instant since = clock_now();
	struct lock_client *s = &x->client[0];
	int64_t us[RENEWALS];
	int n = 0;

	for (int i = 0; i < most && store_trial_goes_on(x, since, i); i++) {
		store_trial_fill_term(x, s);
		if (!durable)
			s->record.token = x->token;
		lock_client_start_write(s, &x->at, durable);
		if (lock_client_wait(s) != LOCK_OK) {
			if (!tell_failure(x, s, durable) || store_trial_settle(x) < 0)
				break;
			continue;
		}
		us[n++] = lock_client_took_us(s);
		if (durable)
			store_trial_won(x, s);
		else
			x->at = s->result.version;
	}
	return times_of(us, n);
}

void store_measure_writes(struct store_trial *x)
{
	struct store_report *r = x->report;

	r->acquisitions = measure_series(x, ACQUISITIONS, true);
	if (r->acquisitions.n)
		find_times(x, "acquire", "new terms", &r->acquisitions);
	r->renewals = measure_series(x, RENEWALS, false);
	if (r->renewals.n)
		find_times(x, "renew", "renewals", &r->renewals);
}

void store_measure_notices(struct store_trial *x)
{
	struct lock_client *writer = &x->client[0], *watcher = &x->client[1];
	struct instant since = clock_now();
	int64_t us[NOTICES];
	int n = 0, missed = 0;

	if (!store_trial_watch(x, watcher)) {
		store_trial_find(
			x, "notice", STORE_NOTE,
			"no notices here: standbys look again every retry period, so a handover takes up to 2.2 of them");
		return;
	}
	for (int i = 0; i < NOTICES && store_trial_goes_on(x, since, i); i++) {
		lock_client_drain(watcher);
		store_trial_fill_term(x, writer);
		lock_client_start_write(writer, &x->at, true);
		if (lock_client_wait(writer) != LOCK_OK && store_trial_settle(x) < 0)
			break;
		if (writer->result.outcome == LOCK_OK)
			store_trial_won(x, writer);
		if (lock_client_wait_change(watcher, NOTICE_TIMEOUT, NOTICE_TIMEOUT))
			us[n++] = (watcher->changed_at.raw - writer->asked.raw) / 1000;
		else
			missed++;
	}
	x->report->notices = times_of(us, n);
	if (n)
		find_times(x, "notice", "changes, from the write's start to the standby's notice", &x->report->notices);
	if (missed)
		store_trial_find(x, "notice", STORE_NOTE,
		                 "%d of %d changes were not told within %d s: handovers may take a retry period",
		                 missed, n + missed, (int)(NOTICE_TIMEOUT / NSEC_PER_SEC));
}

/* Renewals get four tries before the deadline, each with room for the slowest answer seen, and a pause of the server
 * besides. */
void store_measure_shortest(struct store_trial *x)
{
	struct store_report *r = x->report;
	int64_t slowest_us = r->renewals.p99_us > r->acquisitions.p99_us ? r->renewals.p99_us : r->acquisitions.p99_us;
	char slowest[24];

	if (!r->renewals.n || !r->acquisitions.n)
		return;
	int64_t retry_ms = slowest_us * 3 / 1000 > 50 ? slowest_us * 3 / 1000 : 50;
	int64_t lease_ms = (4 * retry_ms + x->client[0].about.pause_ms) * 3 / 2;
	lease_ms = (lease_ms + 99) / 100 * 100;
	r->shortest_ms = lease_ms > SHORTEST_MS ? lease_ms : SHORTEST_MS;
	store_trial_find(
		x, "lease", STORE_GOOD,
		"%.1f s is the shortest to trust here: answers take up to %s, and a renewal should have four tries%s",
		(double)r->shortest_ms / 1e3, store_times_print(slowest_us, slowest, sizeof slowest),
		x->client[0].about.pause_ms ? ", also while the server chooses a leader of its own" : "");
}
