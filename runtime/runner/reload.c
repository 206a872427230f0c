#include "runner/reload.h"

#include "base/log.h"
#include "runner/candidate.h"
#include "runner/run.h"
#include "runner/sd_notify.h"
#include "runner/worker_set.h"

#include <stdio.h>
#include <string.h>

/* The set whose worker runs the hooks of the shared elections (isolated = 0), or of one isolated election. */
static struct worker_set *reload_current_set(struct run *r, uint32_t isolated)
{
	for (struct worker_set *s = r->worker_sets; s; s = s->next)
		if (s->isolated == isolated && !s->pending && !s->leaving)
			return s;
	return NULL;
}

/* Starts the set that is to take over from old. NULL with *err. */
static struct worker_set *reload_spawn(struct worker_set *old, struct err *err)
{
	struct worker_set *reloaded = worker_set_new(old->run, old->isolated);

	reloaded->pending = reloaded->on_start_ran = true;
	if (worker_set_spawn(reloaded, NULL, err) == 0) {
		old->reloaded = reloaded;
		return reloaded;
	}
	worker_set_free(reloaded);
	return NULL;
}

/* Makes the sets of this reload quit. The earlier ones stay. */
static void reload_abandon(struct run *r)
{
	for (struct worker_set *s = r->worker_sets; s; s = s->next) {
		s->reloaded = NULL;
		if (s->pending)
			worker_set_quit(s);
	}
}

/* A worker is still loading the new script, or has not started. */
static bool reload_under_way(const struct run *r)
{
	for (const struct worker_set *s = r->worker_sets; s; s = s->next)
		if (!s->leaving && (s->pending || !s->started))
			return true;
	return false;
}

/* Answers those who asked for the reload; not those whose own reload is still to come. */
static void reload_report(struct run *r, const char *error)
{
	if (!r->reload_due)
		control_finish(r->program.control, "reload", error);
}

void reload_failed(struct run *r, const char *why)
{
	char text[1000];

	const char *stays = r->crontab_count ? "the old jobs go on" : "the old script runs on";
	log_event(LOG_WARN, NULL, "reload_failed", "%s", stays);
	reload_abandon(r);
	sd_notify_send("READY=1");
	snprintf(text, sizeof text, "%s: %s", stays, why);
	reload_report(r, text);
}

/* The next reload begins when every candidate has moved: one whose term is still ending has the old set until then. */
static bool reload_must_wait(const struct run *r)
{
	for (const struct worker_set *s = r->worker_sets; s; s = s->next)
		if (!s->leaving && s->reloaded)
			return true;
	return reload_under_way(r) || !r->candidates || r->starting_over;
}

void reload_begin(struct run *r)
{
	struct err err;

	r->reload_due = reload_must_wait(r);
	if (r->reload_due)
		return;
	sd_notify_reloading();
	log_event(LOG_INFO, NULL, "reloading", "loading %s anew",
	          r->crontab_count ? "the crontabs"
	          : r->is_text     ? "the text"
	                           : r->script);
	struct worker_set *first = r->worker_sets;
	for (struct worker_set *s = first; s; s = s->next)
		if (!s->pending && !s->leaving && !reload_spawn(s, &err)) {
			log_event(LOG_ERROR, NULL, "spawn_failed", "%s", err.text);
			reload_failed(r, err.text);
			return;
		}
}

void reload_if_due(struct run *r)
{
	if (r->reload_due && !r->ending)
		reload_begin(r);
}

static bool reload_same_election(struct run *r, const struct candidate *p, const struct election_settings *new)
{
	const struct options *o = &r->options;

	return strcmp(p->settings.name, new->name) == 0 && strcmp(p->settings.lock, new->lock) == 0 &&
	       strcmp(options_text(o, OPTION_IDENTITY, p->settings.identity),
	              options_text(o, OPTION_IDENTITY, new->identity)) == 0 &&
	       (p->settings.flags & WIRE_ELECTION_ISOLATE) == (new->flags &WIRE_ELECTION_ISOLATE) &&
	       (p->settings.flags & WIRE_ELECTION_OBSERVER) == (new->flags &WIRE_ELECTION_OBSERVER) &&
	       (p->settings.flags & WIRE_ELECTION_MAY_LEAD) == (new->flags &WIRE_ELECTION_MAY_LEAD);
}

static bool reload_same_elections(struct run *r, const struct worker_set *reloaded)
{
	if (reloaded->settings_count != r->candidate_count)
		return false;
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (!reload_same_election(r, r->candidates[i], &reloaded->settings[i]))
			return false;
	return true;
}

/* The elections themselves have changed, so no lease can be kept: all are released, and the run starts over. */
static void reload_start_over(struct run *r)
{
	log_event(LOG_INFO, NULL, "moving", "the script's elections have changed: releasing, then starting over");
	reload_abandon(r);
	r->starting_over = true;
	reload_report(r, NULL);
	for (uint32_t i = 0; i < r->candidate_count; i++)
		candidate_end(r->candidates[i], LEASE_RELOAD);
}

void reload_loaded(struct run *r, struct worker_set *reloaded)
{
	struct worker_set *old = reload_current_set(r, reloaded->isolated);

	if (!old || old->reloaded != reloaded) {
		worker_set_quit(reloaded);
		return;
	}
	if (!reload_same_elections(r, reloaded)) {
		reload_start_over(r);
		return;
	}
	/* worker_set_go names the candidates of the set it is given. So they are the new set's during the call, and the
	 * old one's again until the new one has started. */
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == old)
			r->candidates[i]->worker_set = reloaded;
	worker_set_go(reloaded, false);
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == reloaded)
			r->candidates[i]->worker_set = old;
}

void reload_quit_if_unused(struct run *r, struct worker_set *old)
{
	if (!run_in_charge(r, old))
		worker_set_quit(old);
}

struct worker_set *reload_replaced_by(struct run *r, const struct worker_set *reloaded)
{
	for (struct worker_set *s = r->worker_sets; s; s = s->next)
		if (s->reloaded == reloaded)
			return s;
	return NULL;
}

bool reload_is_due_to_move(const struct candidate *p)
{
	const struct worker_set *to = p->worker_set->reloaded;

	return to && !to->pending;
}

bool reload_move(struct candidate *p)
{
	struct worker_set *old = p->worker_set;

	if (!reload_is_due_to_move(p) || !term_supervision_idle(&p->term))
		return false;
	p->worker_set = old->reloaded;
	script_metrics_worker_gone(&p->metrics);
	script_jobs_clear(&p->jobs);
	reload_quit_if_unused(p->run, old);
	return true;
}

void reload_started(struct run *r, struct worker_set *reloaded)
{
	struct worker_set *old = reload_replaced_by(r, reloaded);
	struct elector_next_options next;
	struct lease_times times;
	char wrong[1000] = "";
	struct err err;

	reloaded->pending = false;
	for (uint32_t i = 0; old && i < r->candidate_count; i++) {
		struct candidate *p = r->candidates[i];
		if (p->worker_set != old)
			continue;
		if (options_times(&r->options, &reloaded->settings[i].times, &times, NULL, &err) < 0 ||
		    options_next(&r->options, &reloaded->settings[i].next, &next, &err) < 0) {
			log_event(LOG_ERROR, NULL, "reload_times", "%s: the old times stay in force: %s",
			          reloaded->settings[i].where, err.text);
			snprintf(wrong, sizeof wrong, "the script is loaded, but the old times stay in force: %s: %s",
			         reloaded->settings[i].where, err.text);
			times = p->times;
			next = p->next;
		}
		bool moved = reload_move(p);
		if (moved)
			candidate_tell_leader(p);
		candidate_reload(p, &reloaded->settings[i], &times, &next);
		if (moved)
			term_supervision_moved(&p->term);
		else
			term_supervision_move(&p->term);
	}
	sd_notify_send("READY=1");
	if (*wrong || !reload_under_way(r))
		reload_report(r, *wrong ? wrong : NULL);
	if (old)
		reload_quit_if_unused(r, old);
}

void reload_move_candidates(struct run *r, struct worker_set *old)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == old) {
			r->candidates[i]->worker_set = old->reloaded;
			candidate_worker_ready(r->candidates[i]);
		}
	reload_quit_if_unused(r, old); /* its worker is dead, and none follows it */
}
