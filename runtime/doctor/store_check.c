#include "doctor/store_check.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "doctor/store_full.h"
#include "doctor/store_measure.h"
#include "doctor/store_proofs.h"
#include "lease/next_record.h"
#include "locks/lock_identity.h"
#include "locks/lock_url.h"

#include <ev.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* There is nothing to remove yet. What may not be removed is found out later; here counts whether the lock can at
 * all. */
static bool store_check_can_remove(const struct store_trial *x, struct lock_client *s)
{
	struct version nothing = x->at;

	return lock_client_remove(s, &nothing) != LOCK_REFUSED || s->result.err.code != ERR_MISSING;
}

static int store_check_connect(struct store_trial *x, struct err *err)
{
	struct lock_client *s = &x->client[0];
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
	store_trial_find(x, "connect", STORE_GOOD, "%s answers, the first time after %s", s->lock->url,
	                 store_times_print(lock_client_took_us(s), took, sizeof took));
	x->removes = s->lock->ops->remove && store_check_can_remove(x, s);
	return 0;
}

/* Behind one name there may be several servers. */
static void store_check_compare(struct store_trial *x)
{
	const char *place = x->client[0].about.place;
	struct lock_client *s = &x->client[1];

	while (s < x->client + STORE_WRITERS && *place &&
	       (lock_client_about(s) != LOCK_OK || strcmp(place, s->about.place) == 0))
		s++;
	if (s < x->client + STORE_WRITERS && *place)
		store_trial_find(x, "server", STORE_UNFIT, "two connections reach two stores: %s, and %s", place,
		                 s->about.place);
}

static void store_check_ask_server(struct store_trial *x)
{
	struct lock_client *s = &x->client[0];

	if (!s->lock->ops->about)
		return;
	if (lock_client_about(s) != LOCK_OK) {
		store_trial_find(x, "server", STORE_NOTE, "it does not say what it is: %s", s->result.err.text);
		return;
	}
	snprintf(x->report->server, sizeof x->report->server, "%s", s->about.server);
	if (*s->about.warning)
		store_trial_find(x, "server", s->about.unfit ? STORE_UNFIT : STORE_NOTE, "%s: %s", s->about.server,
		                 s->about.warning);
	else
		store_trial_find(x, "server", STORE_GOOD, "%s", s->about.server);
	store_check_compare(x);
}

/* The name of the store behind one host. false: it does not answer, or has no name. */
static bool store_check_ask_host(struct store_trial *x, const char *url, char name[LOCK_IDENTITY_SIZE])
{
	struct lock_client c = { .env.state_dir = x->client[0].env.state_dir };
	struct err err;

	if (lock_client_open(&c, x->loop, url, &err) < 0)
		c.result.err = err;
	else if (lock_client_read(&c) != LOCK_FAILED)
		snprintf(name, LOCK_IDENTITY_SIZE, "%s", lock_identity_of(c.lock));
	if (!*name)
		store_trial_find(x, "endpoints", STORE_NOTE, "one of them does not say which store it is of: %s",
		                 c.result.err.text);
	lock_client_close(&c);
	return *name;
}

/* A member that was started anew is a store of its own: who reaches it alone would lead beside the leader. */
static void store_check_compare_hosts(struct store_trial *x)
{
	const char *here = lock_identity_of(x->client[0].lock);
	char others[600] = "", *url;
	int same = 0;

	for (int i = 0; *here && (url = lock_url_with_host(x->scratch, i)); i++) {
		char name[LOCK_IDENTITY_SIZE] = "", *shown = lock_url_redact(url);
		size_t len = strlen(others);
		if (store_check_ask_host(x, url, name) && strcmp(name, here) != 0)
			snprintf(others + len, sizeof others - len, "%s%s is %s", len ? ", " : "", shown, name);
		else
			same += *name != '\0';
		free(shown);
		free(url);
	}
	if (*others)
		store_trial_find(
			x, "endpoints", STORE_UNFIT,
			"they are not of one store, but of %s and others (%s): who reaches only the others elects a leader of their "
			"own. Take them out of the URL, or make them members again",
			here, others);
	else if (same > 1)
		store_trial_find(x, "endpoints", STORE_GOOD, "%d of them are of one store, %s", same, here);
}

static char *scratch_url(const char *url, const struct lock *l)
{
	char more[sizeof "-doctor-12345678"] = "-doctor-";

	nonce_hex(more + strlen(more), 4);
	return lock_url_beside(l, url, more);
}

/* The user's own URL is opened, which tells its mistakes, and closed: nothing is done there. */
static int store_check_open(struct store_trial *x, const char *url, const char *state_dir, bool full, struct err *err)
{
	struct lock_client own = { .env.state_dir = state_dir };
	int status = lock_client_open(&own, x->loop, url, err);
	char *scratch = status == 0 ? scratch_url(url, own.lock) : NULL;

	lock_client_close(&own);
	for (int i = 0; status == 0 && i < STORE_WRITERS; i++) {
		x->client[i].env.state_dir = state_dir;
		if (full && i < 2)
			x->faults[i] = driver_faults_new(x->loop, &x->client[i].env);
		status = lock_client_open(&x->client[i], x->loop, scratch, err);
	}
	x->scratch = scratch;
	return status;
}

/* A leader names as next only whom it has seen to write, so both live. */
static void store_check_identities(struct store_trial *x, const struct record *r)
{
	const struct advice *a = r->advice;

	if (*r->holder && advice_has(a, ADVICE_NEXT) && strcmp(a->next.identity, r->holder) == 0 &&
	    strcmp(a->next.incarnation, r->incarnation) != 0)
		store_trial_find(
			x, "identity", STORE_NOTE,
			"who leads and who comes next have one identity, %s: nobody can tell them apart. Give each "
			"its own (--identity, LUNARCH_IDENTITY)",
			r->holder);
}

/* -1 with *err: the user's own URL names a record of who comes next, which is no lock. */
static int store_check_own(struct store_trial *x, const char *url, struct err *err)
{
	struct lock_client own = { .env.state_dir = x->client[0].env.state_dir };
	bool is = lock_client_open(&own, x->loop, url, err) == 0 && lock_client_read(&own) == LOCK_OK;
	bool next = is && next_record_is(&own.record);

	if (is && !next)
		store_check_identities(x, &own.record);
	if (next)
		err_set(err, ERR_USAGE, "%s is no lock, but the record of who comes next beside one: name that lock",
		        lock_client_url(&own));
	lock_client_close(&own);
	return next ? -1 : 0;
}

static void prove_and_measure(struct store_trial *x)
{
	store_check_ask_server(x);
	store_check_compare_hosts(x);
	if (!store_prove_race(x))
		return;
	store_prove_deposed(x);
	store_measure_writes(x);
	store_measure_notices(x);
	if (x->removes && !x->report->signal)
		store_prove_deleted(x);
	store_measure_shortest(x);
	if (!x->report->signal)
		store_try_next(x, x->scratch);
}

static void store_check_heed_signals(struct store_trial *x, bool on)
{
	for (int i = 0; i < 2; i++) {
		if (on)
			ev_signal_start(x->loop, &x->signals[i]);
		else
			ev_signal_stop(x->loop, &x->signals[i]);
	}
}

/* The second one kills. */
static void store_check_on_signal(struct ev_loop *, ev_signal *w, int)
{
	struct store_trial *x = w->data;

	x->report->signal = w->signum;
	store_check_heed_signals(x, false);
}

static void store_check_all(struct store_trial *x, bool full)
{
	static const int which[] = { SIGINT, SIGTERM };

	for (int i = 0; i < 2; i++) {
		ev_signal_init(&x->signals[i], store_check_on_signal, which[i]);
		x->signals[i].data = x;
	}
	store_check_heed_signals(x, true);
	if (full)
		store_full_run(x);
	if (!x->report->signal)
		prove_and_measure(x);
	store_trial_remove(x, &x->client[0]);
	store_check_heed_signals(x, false);
}

int store_check_run(const char *url, const char *state_dir, bool full, store_found_fn *found, void *arg,
                    struct store_report *report, struct err *err)
{
	struct store_trial *x = mem_zero(sizeof *x);
	int status = -1;

	*report = (struct store_report){ .fit = true };
	x->found = found;
	x->arg = arg;
	x->report = report;
	x->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);
	if (!x->loop) {
		err_set(err, ERR_SYSTEM, "cannot make an event loop");
		goto done;
	}
	if (store_check_open(x, url, state_dir, full, err) < 0)
		goto done;
	report->scratch = mem_dup(x->client[0].lock->url);
	status = store_check_connect(x, err);
	if (status == 0)
		status = store_check_own(x, url, err);
	if (status == 0)
		store_check_all(x, full);
done:
	for (int i = 0; i < STORE_WRITERS; i++)
		lock_client_close(&x->client[i]);
	for (int i = 0; i < 2; i++)
		driver_faults_free(x->faults[i]);
	if (x->loop)
		ev_loop_destroy(x->loop);
	free(x->scratch);
	free(x);
	return status;
}
