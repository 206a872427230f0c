#include "program/admin_metrics.h"

#include "base/buf.h"
#include "base/duration.h"
#include "base/module.h"
#include "election/elector.h"
#include "program/state_file.h"
#include "service/service.h"
#include "term/script_metrics.h"

#include <inttypes.h>
#include <math.h>
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

enum sample_unit { COUNT, SECONDS, RENEWALS, DURATIONS };

#define ROW(name, type, labels, unit, value, help) { name, type, labels, unit, help },
static const struct sample {
	const char *name, *type, *labels;
	enum sample_unit unit;
	const char *help;
} samples[] = {
#include "program/metrics_table.h"
	{ NULL, "", "", COUNT, "" },
};
#undef ROW
#define SAMPLES (sizeof samples / sizeof *samples - 1)

/* Fills in the value of each row in the row's unit; times are in nanoseconds. */
static void sample_values(const struct standing *e, long double out[SAMPLES])
{
	const struct elector_status *s = e->status;
	struct service_status sv = { 0 };

	if (e->service)
		service_status(e->service, &sv);
#define ROW(name, type, labels, unit, value, help) (long double)(value), /* which holds each token */
	const long double values[SAMPLES] = {
#include "program/metrics_table.h"
	};
#undef ROW
	memcpy(out, values, sizeof values);
}

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

static void add_durations(struct buf *out, const struct sample *m, const struct standing *e)
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

static void add_histogram(struct buf *out, const struct sample *m, const struct standing *e)
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

struct metric_walk {
	const struct sample *first; /* of a name */
	struct buf *out;
};

static void add_metric(void *arg, const struct standing *e)
{
	const struct metric_walk *w = arg;
	long double values[SAMPLES];

	sample_values(e, values);
	for (const struct sample *m = w->first; m->name && strcmp(m->name, w->first->name) == 0; m++) {
		long double value = values[m - samples];
		if (m->unit == RENEWALS) {
			add_histogram(w->out, m, e);
		} else if (m->unit == DURATIONS) {
			add_durations(w->out, m, e);
		} else if (!isnan(value)) {
			add_sample(w->out, m->name, "", e, m->labels);
			buf_printf(w->out, m->unit == SECONDS ? "%.3Lf\n" : "%.0Lf\n",
			           m->unit == SECONDS ? value / NSEC_PER_SEC : value);
		}
	}
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
	for (const struct sample *m = samples; m->name; m++) {
		struct metric_walk w = { m, out };
		if (!m->type)
			continue;
		buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", m->name, m->help, m->name, m->type);
		a->list(a->arg, add_metric, &w);
	}
	buf_adds(out, "# HELP lunarch_build_info Which build this is.\n# TYPE lunarch_build_info gauge\n"
	              "lunarch_build_info{version=\"" LUNARCH_BUILD "\"} 1\n");
	state_file_metrics(a->state_file, out);
	admin_own_metrics(a, out);
}
