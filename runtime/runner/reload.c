#include "runner/run.h"

#include "base/log.h"
#include "runner/sd_notify.h"

#include <string.h>

static struct worker_set *worker_set_for(struct run *r, uint32_t isolated)
{
	for (struct worker_set *s = r->worker_sets; s; s = s->next)
		if (s->isolated == isolated && !s->on_trial && !s->leaving)
			return s;
	return NULL;
}

static struct worker_set *heir_of(struct worker_set *old, struct err *err)
{
	struct worker_set *heir = worker_set_new(old->run, old->isolated);

	heir->on_trial = heir->began = true;
	if (worker_set_spawn(heir, err) == 0) {
		old->heir = heir;
		return heir;
	}
	worker_set_free(heir);
	return NULL;
}

static void abandon_heirs(struct run *r)
{
	for (struct worker_set *s = r->worker_sets; s; s = s->next) {
		s->heir = NULL;
		if (s->on_trial)
			worker_set_quit(s);
	}
}

void reload_failed(struct run *r)
{
	log_event(LOG_WARN, NULL, "reload_failed", "the old script runs on");
	abandon_heirs(r);
	sd_notify_send("READY=1");
}

static bool is_loading(const struct run *r)
{
	for (const struct worker_set *s = r->worker_sets; s; s = s->next)
		if (!s->leaving && (s->on_trial || !s->started))
			return true;
	return !r->candidates || r->moving;
}

void reload_begin(struct run *r)
{
	struct err err;

	r->reload_due = is_loading(r);
	if (r->reload_due)
		return;
	sd_notify_reloading();
	log_event(LOG_INFO, NULL, "reloading", "loading %s anew", r->is_text ? "the text" : r->script);
	struct worker_set *first = r->worker_sets;
	for (struct worker_set *s = first; s; s = s->next)
		if (!s->on_trial && !s->leaving && !heir_of(s, &err)) {
			log_event(LOG_ERROR, NULL, "spawn_failed", "%s", err.text);
			reload_failed(r);
			return;
		}
}

void reload_if_due(struct run *r)
{
	if (r->reload_due && !r->ending)
		reload_begin(r);
}

static bool same_election(struct run *r, const struct candidate *p, const struct election_settings *new)
{
	const struct options *o = &r->options;

	return strcmp(p->settings.name, new->name) == 0 && strcmp(p->settings.lock, new->lock) == 0 &&
	       strcmp(options_text(o, OPTION_IDENTITY, p->settings.identity),
	              options_text(o, OPTION_IDENTITY, new->identity)) == 0 &&
	       (p->settings.flags & WIRE_ELECTION_ISOLATE) == (new->flags &WIRE_ELECTION_ISOLATE) &&
	       (p->settings.flags & WIRE_ELECTION_OBSERVER) == (new->flags &WIRE_ELECTION_OBSERVER) &&
	       (p->settings.flags & WIRE_ELECTION_MAY_LEAD) == (new->flags &WIRE_ELECTION_MAY_LEAD);
}

static bool same_elections(struct run *r, const struct worker_set *heir)
{
	if (heir->settings_count != r->candidate_count)
		return false;
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (!same_election(r, r->candidates[i], &heir->settings[i]))
			return false;
	return true;
}

/* What the elections are has changed: nothing can be kept, so everything is released and begun again. */
static void move(struct run *r)
{
	log_event(LOG_INFO, NULL, "moving", "the script's elections have changed: releasing, then starting over");
	abandon_heirs(r);
	r->moving = true;
	for (uint32_t i = 0; i < r->candidate_count; i++)
		candidate_end(r->candidates[i], LEASE_RELOAD);
}

void reload_loaded(struct run *r, struct worker_set *heir)
{
	struct worker_set *old = worker_set_for(r, heir->isolated);

	if (!old || old->heir != heir) {
		worker_set_quit(heir);
		return;
	}
	if (!same_elections(r, heir)) {
		move(r);
		return;
	}
	/* worker_set_go lists what belongs to the heir: the posts are shown to it, then stay with the old squad until
	 * it has started */
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == old)
			r->candidates[i]->worker_set = heir;
	worker_set_go(heir, false);
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == heir)
			r->candidates[i]->worker_set = old;
}

void reload_hand_over(struct run *r, struct candidate *p, struct worker_set *heir)
{
	p->worker_set = heir;
	(void)r;
}

void reload_retire_if_idle(struct run *r, struct worker_set *old)
{
	if (!run_in_charge(r, old))
		worker_set_quit(old);
}

struct worker_set *reload_parent(struct run *r, const struct worker_set *heir)
{
	for (struct worker_set *s = r->worker_sets; s; s = s->next)
		if (s->heir == heir)
			return s;
	return NULL;
}

void reload_started(struct run *r, struct worker_set *heir)
{
	struct worker_set *old = reload_parent(r, heir);
	struct lease_times times;
	struct err err;

	heir->on_trial = false;
	for (uint32_t i = 0; old && i < r->candidate_count; i++) {
		struct candidate *p = r->candidates[i];
		if (p->worker_set != old)
			continue;
		if (options_times(&r->options, &heir->settings[i].times, &times, NULL, &err) < 0) {
			log_event(LOG_ERROR, NULL, "reload_times", "%s: the old times stay in force: %s",
			          heir->settings[i].where, err.text);
			times = p->times;
		}
		if (p->term.hooks.state == TERM_NONE)
			reload_hand_over(r, p, heir);
		candidate_reload(p, &heir->settings[i], &times);
	}
	sd_notify_send("READY=1");
	if (old)
		reload_retire_if_idle(r, old);
}

void reload_inherit(struct run *r, struct worker_set *old)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == old) {
			reload_hand_over(r, r->candidates[i], old->heir);
			candidate_worker_ready(r->candidates[i]);
		}
}
