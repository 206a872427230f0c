#include "admin/admin_metrics.h"

#include "admin/state_file.h"
#include "base/buf.h"
#include "base/duration.h"
#include "base/module.h"
#include "election/elector.h"
#include "admin/script_metrics.h"
#include "service/service.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const double limits_s[ADMIN_BUCKETS] = { 0.001, 0.0025, 0.01, 0.025, 0.1, 0.25, 1, 2.5, 10 };

void admin_renewed(struct admin_renewals *r, nsec took)
{
	int i = 0;

	while (i < ADMIN_BUCKETS && (double)took > limits_s[i] * NSEC_PER_SEC)
		i++;
	r->bucket[i]++;
	r->sum += took;
}

struct metric {
	const char *name, *type, *help;
	void (*add)(struct buf *out, const struct metric *m, const struct standing *e);
};

static void add_label_value(struct buf *out, const char *s)
{
	for (; *s; s++)
		if (*s == '\n')
			buf_adds(out, "\\n");
		else
			buf_printf(out, "%s%c", *s == '"' || *s == '\\' ? "\\" : "", *s);
}

/* A sample's name and labels; more: further labels, or "". */
static void add_sample(struct buf *out, const char *name, const char *suffix, const struct standing *e,
                       const char *more)
{
	buf_printf(out, "%s%s{name=\"", name, suffix);
	add_label_value(out, standing_name(e));
	buf_printf(out, "\"%s} ", more);
}

static void add_value(struct buf *out, const struct metric *m, const struct standing *e, int64_t value)
{
	add_sample(out, m->name, "", e, "");
	buf_printf(out, "%" PRId64 "\n", value);
}

static void add_master(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_value(out, m, e, e->status->leading);
}

static void add_could_lead(struct buf *out, const struct metric *m, const struct standing *e)
{
	if (!e->status->standing.observer)
		add_value(out, m, e, !e->status->lacks);
}

static void add_slow_paths(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_value(out, m, e, (int64_t)e->status->slow_paths);
}

static void add_token(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_value(out, m, e, e->status->leading ? e->status->token : 0);
}

static void add_transitions(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_value(out, m, e, (int64_t)e->status->transitions);
}

static void add_namesake_writes(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_value(out, m, e, (int64_t)e->status->namesake_writes);
}

static void add_hook_errors(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_value(out, m, e, e->hook_errors);
}

static void add_seconds(struct buf *out, const struct metric *m, const struct standing *e, nsec value)
{
	add_sample(out, m->name, "", e, "");
	buf_printf(out, "%.3f\n", (double)value / NSEC_PER_SEC);
}

static void add_remaining(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_seconds(out, m, e, e->status->leading ? e->status->remaining : 0);
}

static void add_term_seconds(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_seconds(out, m, e, e->status->since_began < 0 ? 0 : e->status->since_began);
}

static void add_worker_silent(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_seconds(out, m, e, e->silent ? e->silent_for : 0);
}

static void add_last_contact(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_seconds(out, m, e, e->status->store_silence);
}

static void add_store_failures(struct buf *out, const struct metric *m, const struct standing *e)
{
	const struct store_contact *c = &e->status->store;

	add_sample(out, m->name, "", e, ",operation=\"read\"");
	buf_printf(out, "%" PRIu64 "\n", c->reads_failed);
	add_sample(out, m->name, "", e, ",operation=\"write\"");
	buf_printf(out, "%" PRIu64 "\n", c->writes_failed);
	add_sample(out, m->name, "", e, ",operation=\"watch\"");
	buf_printf(out, "%" PRIu64 "\n", c->watches_failed);
}

static void add_durations(struct buf *out, const struct metric *m, const struct standing *e)
{
	const struct lease_times *t = &e->status->times;
	const struct {
		const char *label;
		nsec value;
	} all[] = {
		{ "lease_duration", t->lease }, { "renew_deadline", t->renew }, { "retry_period", t->retry },
		{ "stop_grace", t->grace },     { "kill_allowance", t->kill },  { "drift_allowance", t->drift },
	};
	struct buf labels = { 0 };
	char text[32];

	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		duration_print(all[i].value / NSEC_PER_MS, text, sizeof text);
		buf_printf(&labels, ",%s=\"%s\"", all[i].label, text);
	}
	add_sample(out, m->name, "", e, labels.data);
	buf_adds(out, "1\n");
	buf_fini(&labels);
}

static void add_results(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_sample(out, m->name, "", e, ",result=\"ok\"");
	buf_printf(out, "%" PRIu64 "\n", e->status->renewals_ok);
	add_sample(out, m->name, "", e, ",result=\"failed\"");
	buf_printf(out, "%" PRIu64 "\n", e->status->renewals_failed);
}

static void add_histogram(struct buf *out, const struct metric *m, const struct standing *e)
{
	uint64_t count = 0;
	char limit[32];

	for (int i = 0; i < ADMIN_BUCKETS; i++) {
		count += e->renewals->bucket[i];
		snprintf(limit, sizeof limit, ",le=\"%g\"", limits_s[i]);
		add_sample(out, m->name, "_bucket", e, limit);
		buf_printf(out, "%" PRIu64 "\n", count);
	}
	count += e->renewals->bucket[ADMIN_BUCKETS];
	add_sample(out, m->name, "_bucket", e, ",le=\"+Inf\"");
	buf_printf(out, "%" PRIu64 "\n", count);
	add_sample(out, m->name, "_sum", e, "");
	buf_printf(out, "%.6f\n", (double)e->renewals->sum / NSEC_PER_SEC);
	add_sample(out, m->name, "_count", e, "");
	buf_printf(out, "%" PRIu64 "\n", count);
}

static void add_next_known(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_value(out, m, e, e->status->next.known);
}

static void add_is_next(struct buf *out, const struct metric *m, const struct standing *e)
{
	add_value(out, m, e, e->status->next.self);
}

static void add_handovers(struct buf *out, const struct metric *m, const struct standing *e)
{
	static const char *const labels[] = { [NEXT_REQUEST] = ",why=\"request\"",
		                              [NEXT_PRIORITY] = ",why=\"priority\"",
		                              [NEXT_ROTATION] = ",why=\"rotation\"" };

	for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
		add_sample(out, m->name, "", e, labels[i]);
		buf_printf(out, "%" PRIu64 "\n", e->status->next.handovers[i]);
	}
}

static void add_service_published(struct buf *out, const struct metric *m, const struct standing *e)
{
	struct service_status st;

	if (!e->service)
		return;
	service_status(e->service, &st);
	add_value(out, m, e, st.published);
}

static void add_service_failures(struct buf *out, const struct metric *m, const struct standing *e)
{
	struct service_status st;

	if (!e->service)
		return;
	service_status(e->service, &st);
	add_value(out, m, e, (int64_t)st.failures);
}

/* The first two have the names that client-go gives them, so that dashboards and alerts made for it work here, too. */
static const struct metric metrics[] = {
	{ "leader_election_master_status", "gauge", "1 while this process leads the election.", add_master },
	{ "leader_election_slowpath_total", "counter", "Renewals that met another version than expected.",
	  add_slow_paths },
	{ "lunarch_could_lead", "gauge",
	  "1 while this process leads, or could if nobody did; `lunarch ctl why` says why not. No series of an observer.",
	  add_could_lead },
	{ "lunarch_token", "gauge", "Fencing token of the running term; 0 while not leading.", add_token },
	{ "lunarch_remaining_seconds", "gauge", "Until the term would end without another renewal.", add_remaining },
	{ "lunarch_transitions_total", "counter",
	  "Terms that this process began; the sum over all candidates counts every change.", add_transitions },
	{ "lunarch_renewals_total", "counter", "Renewals by result.", add_results },
	{ "lunarch_renew_seconds", "histogram", "From sending a renewal to its answer.", add_histogram },
	{ "lunarch_term_seconds", "gauge", "Since the running term began; 0 while there is none.", add_term_seconds },
	{ "lunarch_worker_silent_seconds", "gauge",
	  "Since the worker was told to lead, if it has not answered: no hook of the term has run. Else 0.",
	  add_worker_silent },
	{ "lunarch_store_last_contact_seconds", "gauge",
	  "Since the store last answered an operation; before it ever did, since the start.", add_last_contact },
	{ "lunarch_store_failures_total", "counter",
	  "Reads and writes that failed, and watches that ended by themselves.", add_store_failures },
	{ "lunarch_next_known", "gauge",
	  "1 while the leader names a standby that is to lead after it; 0: a hand-over would have to be competed for.",
	  add_next_known },
	{ "lunarch_is_next", "gauge", "1 while this process is the standby that is to lead next.", add_is_next },
	{ "lunarch_handovers_total", "counter",
	  "Terms that this process ended in order to hand over: by an operator's request (lunarch ctl handover), to a "
	  "larger priority (--preempt), or by rotation (--max-term).",
	  add_handovers },
	{ "lunarch_service_published", "gauge",
	  "1 while this process keeps the address of its Service (--service); no series without one.",
	  add_service_published },
	{ "lunarch_service_failures_total", "counter",
	  "Attempts to keep the Service's address that failed or were refused.", add_service_failures },
	{ "lunarch_same_identity_writes_total", "counter",
	  "Writes of another candidate that has this one's identity, as far as they were seen: give each its own.",
	  add_namesake_writes },
	{ "lunarch_durations_info", "gauge", "The durations in force, as labels; 1.", add_durations },
	{ "lunarch_hook_errors_total", "counter", "Hooks that raised an error or had to be killed.", add_hook_errors },
};

struct metric_walk {
	const struct metric *metric;
	struct buf *out;
};

static void add_metric(void *arg, const struct standing *e)
{
	struct metric_walk *w = arg;

	w->metric->add(w->out, w->metric, e);
}

/* ---- the script's own ---- */

/* All series of one name stand together, below one TYPE: the elections are walked once for each name. */
struct own_walk {
	struct buf *out;
	const char *name;                 /* the present one */
	const struct script_metric *next; /* of the least name above it; NULL: not found */
};

static void find_next(void *arg, const struct standing *e)
{
	struct own_walk *w = arg;

	for (const struct script_metric *m = e->metrics ? e->metrics->first : NULL; m; m = m->next)
		if (strcmp(m->name, w->name) > 0 && (!w->next || strcmp(m->name, w->next->name) < 0))
			w->next = m;
}

static void add_own(void *arg, const struct standing *e)
{
	struct own_walk *w = arg;
	struct buf labels = { 0 };

	for (const struct script_metric *m = e->metrics ? e->metrics->first : NULL; m; m = m->next) {
		if (strcmp(m->name, w->name) != 0)
			continue;
		buf_drop(&labels, labels.len);
		buf_printf(&labels, "%s%s", *m->labels ? "," : "", m->labels);
		add_sample(w->out, m->name, "", e, labels.data ? labels.data : "");
		buf_printf(w->out, "%.17g\n", m->value);
	}
	buf_fini(&labels);
}

static void admin_own_metrics(const struct standing_source *a, struct buf *out)
{
	struct own_walk w = { .out = out, .name = "" };

	while (a->list(a->arg, find_next, &w), w.next) {
		w.name = w.next->name;
		buf_printf(out, "# TYPE %s %s\n", w.name, w.next->counter ? "counter" : "gauge");
		a->list(a->arg, add_own, &w);
		w.next = NULL;
	}
}

void admin_metrics(const struct standing_source *a, struct buf *out)
{
	for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++) {
		struct metric_walk w = { &metrics[i], out };
		buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", metrics[i].name, metrics[i].help, metrics[i].name,
		           metrics[i].type);
		a->list(a->arg, add_metric, &w);
	}
	buf_adds(out, "# HELP lunarch_build_info Which build this is.\n# TYPE lunarch_build_info gauge\n"
	              "lunarch_build_info{version=\"" LUNARCH_BUILD "\"} 1\n");
	state_file_metrics(a->state_file, out);
	admin_own_metrics(a, out);
}
