#include "term/script_metrics.h"

#include "base/log.h"
#include "base/mem.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NAME_MAX_BYTES 100
#define LABELS_MAX_BYTES 1000
#define LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

/* The length of the name that s begins with; 0: none. */
static size_t name_length(const char *s)
{
	return strspn(s, LETTERS) ? strspn(s, LETTERS "0123456789") : 0;
}

/* NAME="VALUE", with commas between; in a value a backslash, a quote and a newline are escaped. */
static bool labels_are_valid(const char *s)
{
	while (*s) {
		size_t len = name_length(s);
		if (!len || strncmp(s + len, "=\"", 2) != 0)
			return false;
		for (s += len + 2; *s && *s != '"'; s++)
			if (*s == '\n' || (*s == '\\' && !strchr("\\\"n", *++s)) || !*s)
				return false;
		if (*s != '"' || (s[1] && (s[1] != ',' || !s[2])))
			return false;
		s += s[1] ? 2 : 1;
	}
	return true;
}

static bool metric_is_valid(const struct wire_metric *w, double *value)
{
	char *end;

	*value = strtod(w->value, &end);
	return *w->value && !*end && isfinite(*value) && (!w->counter || *value >= 0) && *w->name &&
	       strlen(w->name) <= NAME_MAX_BYTES && name_length(w->name) == strlen(w->name) &&
	       strlen(w->labels) <= LABELS_MAX_BYTES && labels_are_valid(w->labels);
}

static struct script_metric *metrics_add(struct script_metrics *m, struct script_metric **at,
                                         const struct wire_metric *w)
{
	char *copies[2];

	if (m->count == SCRIPT_METRICS_MAX) {
		if (!m->full)
			log_event(LOG_WARN, NULL, "metrics_full",
			          "the script has set more than %d metrics: %s{%s} and others are dropped",
			          SCRIPT_METRICS_MAX, w->name, w->labels);
		m->full = true;
		return NULL;
	}
	m->count++;
	struct script_metric *new = mem_zero(sizeof *new);
	mem_pack(2, (const char *const[]){ w->name, w->labels }, copies);
	*new = (struct script_metric){ .counter = w->counter, .name = copies[0], .labels = copies[1] };
	*at = new;
	return new;
}

bool script_metrics_put(struct script_metrics *m, const struct wire_metric *w, uint64_t term)
{
	struct script_metric **at = &m->first;
	double value;

	if (!metric_is_valid(w, &value))
		return false;
	if (!w->counter && w->term && w->term != term)
		return true;
	while (*at && ((*at)->counter != w->counter || strcmp((*at)->name, w->name) != 0 ||
	               strcmp((*at)->labels, w->labels) != 0))
		at = &(*at)->next;
	struct script_metric *s = *at ? *at : metrics_add(m, at, w);
	if (!s)
		return true;
	s->term = w->term;
	s->value = w->counter ? fmin(s->value + value, DBL_MAX) : value;
	return true;
}

/* Drops the gauges that belong to a term; all: every gauge. */
static void metrics_drop_gauges(struct script_metrics *m, bool all)
{
	for (struct script_metric **at = &m->first; *at;) {
		struct script_metric *s = *at;
		if (s->counter || (!s->term && !all)) {
			at = &s->next;
			continue;
		}
		*at = s->next;
		m->count--;
		free(s->name);
		free(s);
	}
}

void script_metrics_term_over(struct script_metrics *m)
{
	metrics_drop_gauges(m, false);
}

void script_metrics_worker_gone(struct script_metrics *m)
{
	metrics_drop_gauges(m, true);
}

void script_metrics_fini(struct script_metrics *m)
{
	while (m->first) {
		struct script_metric *s = m->first;
		m->first = s->next;
		free(s->name);
		free(s);
	}
}
