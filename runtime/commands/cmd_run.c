#include "commands/commands.h"

#include "base/log.h"
#include "base/mem.h"
#include "runner/run.h"
#include "runner/sd_notify.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* timeout(1) and terminals signal a process and then its group: that is one wish, not two. */
#define SAME_SIGNAL (250 * NSEC_PER_MS)
#define LAST_CALL_S 3. /* for what cannot be told to leave any more */

static bool once(const struct run *r)
{
	return options_flag(&r->options, OPTION_ONCE, false);
}

static void tell_systemd(struct run *r)
{
	uint32_t leading = 0;

	for (uint32_t i = 0; i < r->candidate_count; i++)
		leading += r->candidates[i]->hook == HOOK_LEADING;
	notify("%sSTATUS=leading %u of %u election%s", r->ready ? "" : "READY=1\n", leading, r->candidate_count,
	       r->candidate_count == 1 ? "" : "s");
	r->ready = true;
}

/* ---- leaving ---- */

static bool all_finished(const struct run *r)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (!r->candidates[i]->finished || r->candidates[i]->hook != HOOK_NONE)
			return false;
	return true;
}

static void quit_squads(struct run *r)
{
	struct worker_set *next;

	for (struct worker_set *s = r->worker_sets; s; s = next) {
		next = s->next;
		worker_set_quit(s);
		if (!s->supervisor)
			worker_set_free(s);
	}
	if (!r->worker_sets)
		ev_break(r->program.loop, EVBREAK_ALL);
	ev_timer_again(r->program.loop, &r->last_call);
}

static void on_last_call(struct ev_loop *loop, ev_timer *w, int revents)
{
	struct run *r = w->data;
	bool again = r->killing;

	(void)revents;
	r->killing = true;
	for (struct worker_set *s = r->worker_sets; s; s = s->next)
		if (s->supervisor)
			supervisor_kill(s->supervisor);
	if (again || !r->worker_sets)
		ev_break(loop, EVBREAK_ALL);
}

void run_end(struct run *r, int status, enum lease_reason reason)
{
	if (r->ending) {
		r->status = r->status ? r->status : status;
		return;
	}
	r->ending = true;
	r->asked_at = clock_now();
	r->moving = false;
	r->status = status;
	notify("STOPPING=1");
	for (uint32_t i = 0; i < r->candidate_count; i++)
		candidate_end(r->candidates[i], reason);
	if (all_finished(r))
		quit_squads(r);
}

/* A second signal: no more waiting for the script; what is dead and reaped is released once. */
static void kill_everything(struct run *r)
{
	r->killing = true;
	r->status = EXIT_TERMINATED;
	log_event(LOG_WARN, NULL, "killing", "a second signal: the script is killed");
	for (uint32_t i = 0; i < r->candidate_count; i++)
		candidate_kill(r->candidates[i]);
	for (struct worker_set *s = r->worker_sets; s; s = s->next)
		if (s->supervisor)
			supervisor_kill(s->supervisor);
	ev_timer_again(r->program.loop, &r->last_call);
}

static void start_over(struct run *r);

void run_post_finished(struct run *r)
{
	if (!all_finished(r))
		return;
	quit_squads(r);
}

static int once_status(enum lease_reason reason)
{
	switch (reason) {
	case LEASE_EXPIRED:
	case LEASE_STOLEN:
	case LEASE_DELETED:
		return EXIT_LOST;
	case LEASE_ERROR:
	case LEASE_KILLED:
	case LEASE_WORKER:
		return EXIT_FAILED_SCRIPT;
	case LEASE_RESIGNED:
	case LEASE_DECLINED:
	case LEASE_SHUTDOWN:
	case LEASE_RELOAD:
	case LEASE_REASONS:
		return EXIT_DONE;
	}
	return EXIT_DONE;
}

/* ---- loading ---- */

static int cannot(struct run *r, const char *text)
{
	log_event(LOG_ERROR, NULL, "cannot_run", "%s", text);
	run_end(r, EXIT_USAGE, LEASE_SHUTDOWN);
	return -1;
}

static int check_locks_differ(struct run *r)
{
	struct elector_status a, b;
	char text[600];

	for (uint32_t i = 0; i < r->candidate_count; i++)
		for (uint32_t k = 0; k < i; k++) {
			elector_status(r->candidates[i]->elector, &a);
			elector_status(r->candidates[k]->elector, &b);
			if (strcmp(a.lock, b.lock) != 0)
				continue;
			snprintf(text, sizeof text,
			         "%s: the lock %s is listed twice (also by %s): each election needs a lock of its own",
			         r->candidates[i]->settings.where, a.lock, r->candidates[k]->settings.where);
			return cannot(r, text);
		}
	return 0;
}

static void drop_posts(struct run *r)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		candidate_free(r->candidates[i]);
	free(r->candidates);
	r->candidates = NULL;
	r->candidate_count = 0;
}

/* All of them or none: whoever walks the posts finds an elector in each. */
static int open_posts(struct run *r)
{
	struct err err;
	char *fallback = options_default_lock(r->script, r->is_text, &err);
	int result = fallback ? 0 : -1;

	for (uint32_t i = 0; result == 0 && i < r->candidate_count; i++)
		result = candidate_open(r->candidates[i], r->candidate_count > 1, fallback, &err);
	free(fallback);
	if (result == 0)
		return 0;
	drop_posts(r);
	return cannot(r, err.text);
}

/* The elections that asked for it get a squad of their own, which loads the script again. */
static void assign_squads(struct run *r, struct worker_set *shared)
{
	struct err err;

	for (uint32_t i = 0; i < r->candidate_count; i++) {
		if (!(r->candidates[i]->settings.flags & WIRE_ELECTION_ISOLATE) || r->candidate_count == 1)
			continue;
		struct worker_set *own = worker_set_new(r, i + 1);
		own->began = shared->began;
		r->candidates[i]->worker_set = own;
		if (worker_set_spawn(own, &err) < 0) {
			cannot(r, err.text);
			return;
		}
	}
}

static bool in_charge_of_any(const struct run *r, const struct worker_set *s)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == s)
			return true;
	return false;
}

/* Its on_stopped is what everything else waits for. */
static bool owes_hooks(const struct run *r, const struct worker_set *s)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == s && r->candidates[i]->hook == HOOK_OWED)
			return true;
	return false;
}

static void make_posts(struct run *r, struct worker_set *s)
{
	r->candidate_count = s->settings_count;
	r->candidates = mem_zero(sizeof *r->candidates * r->candidate_count);
	for (uint32_t i = 0; i < r->candidate_count; i++) {
		r->candidates[i] = candidate_new(r, s, i, &s->settings[i]);
		s->settings[i] = (struct election_settings){ 0 };
	}
}

static void first_load(struct run *r, struct worker_set *s)
{
	make_posts(r, s);
	if (open_posts(r) < 0) {
		quit_squads(r);
		return;
	}
	if (check_locks_differ(r) < 0)
		return;
	assign_squads(r, s);
	if (in_charge_of_any(r, s))
		worker_set_go(s, !s->began);
	else
		worker_set_quit(s);
}

/* ---- reloading ---- */

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

static void reload_failed(struct run *r)
{
	log_event(LOG_WARN, NULL, "reload_failed", "the old script runs on");
	abandon_heirs(r);
	notify("READY=1");
}

static bool is_loading(const struct run *r)
{
	for (const struct worker_set *s = r->worker_sets; s; s = s->next)
		if (!s->leaving && (s->on_trial || !s->started))
			return true;
	return !r->candidates || r->moving;
}

static void reload(struct run *r)
{
	struct err err;

	r->reload_due = is_loading(r);
	if (r->reload_due)
		return;
	notify_reloading();
	log_event(LOG_INFO, NULL, "reloading", "loading %s anew", r->is_text ? "the text" : r->script);
	struct worker_set *first = r->worker_sets;
	for (struct worker_set *s = first; s; s = s->next)
		if (!s->on_trial && !s->leaving && !heir_of(s, &err)) {
			log_event(LOG_ERROR, NULL, "spawn_failed", "%s", err.text);
			reload_failed(r);
			return;
		}
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

static void heir_loaded(struct run *r, struct worker_set *heir)
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

static void hand_over(struct run *r, struct candidate *p, struct worker_set *heir)
{
	p->worker_set = heir;
	(void)r;
}

static void retire_if_idle(struct run *r, struct worker_set *old)
{
	if (!in_charge_of_any(r, old))
		worker_set_quit(old);
}

static struct worker_set *parent_of(struct run *r, const struct worker_set *heir)
{
	for (struct worker_set *s = r->worker_sets; s; s = s->next)
		if (s->heir == heir)
			return s;
	return NULL;
}

static void heir_started(struct run *r, struct worker_set *heir)
{
	struct worker_set *old = parent_of(r, heir);
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
		if (p->hook == HOOK_NONE)
			hand_over(r, p, heir);
		candidate_reload(p, &heir->settings[i], &times);
	}
	notify("READY=1");
	if (old)
		retire_if_idle(r, old);
}

static void reload_if_due(struct run *r)
{
	if (r->reload_due && !r->ending)
		reload(r);
}

/* ---- what squads and posts report ---- */

void run_loaded(struct run *r, struct worker_set *s)
{
	if ((r->ending || r->moving) && !owes_hooks(r, s))
		worker_set_quit(s);
	else if (s->on_trial)
		heir_loaded(r, s);
	else if (!r->candidates)
		first_load(r, s);
	else
		worker_set_go(s, !s->began);
}

void run_load_failed(struct run *r, struct worker_set *s, const char *text)
{
	log_event(LOG_ERROR, NULL, "load_failed", "%s", text);
	if (s->on_trial) {
		reload_failed(r);
		reload_if_due(r);
	} else if (!r->candidates) {
		run_end(r, EXIT_FAILED_SCRIPT, LEASE_ERROR);
	} else {
		supervisor_kill(s->supervisor); /* a replacement: another one tries again later, the script may have
		                                   been repaired by then */
	}
}

void run_started(struct run *r, struct worker_set *s)
{
	if (s->on_trial) {
		heir_started(r, s);
	} else {
		for (uint32_t i = 0; i < r->candidate_count; i++)
			if (r->candidates[i]->worker_set == s)
				candidate_worker_ready(r->candidates[i]);
		tell_systemd(r);
	}
	reload_if_due(r);
}

void run_term_began(struct run *r)
{
	tell_systemd(r);
}

void run_term_over(struct run *r, struct candidate *p)
{
	struct worker_set *old = p->worker_set;

	if (old->heir && !old->heir->on_trial) {
		hand_over(r, p, old->heir);
		retire_if_idle(r, old);
	}
	if (once(r) && !r->ending)
		run_end(r, once_status(p->reason), LEASE_SHUTDOWN);
	tell_systemd(r);
}

static void restart_later(struct run *r, struct worker_set *s, bool had_started)
{
	if (elapsed_standby(s->born, clock_now()) > 60 * NSEC_PER_SEC)
		s->failures = 0;
	/* The first replacement comes at once, and one that owes an on_stopped, while the lease is still ours: there is
	 * a new term, and with it a new debt, only after a back-off. But one that died before it had started will die
	 * again. */
	bool at_once = s->failures++ == 0 || (had_started && owes_hooks(r, s));
	double after = at_once ? 0. : (double)program_back_off(s->failures - 1) / NSEC_PER_SEC;
	ev_timer_set(&s->restart, after, 0.);
	ev_timer_start(r->program.loop, &s->restart);
}

static void inherit_posts(struct run *r, struct worker_set *old)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (r->candidates[i]->worker_set == old) {
			hand_over(r, r->candidates[i], old->heir);
			candidate_worker_ready(r->candidates[i]);
		}
}

void run_squad_gone(struct run *r, struct worker_set *s, bool had_started)
{
	bool never_loaded = !r->candidates && !r->ending;

	if (s->heir && !s->heir->on_trial)
		inherit_posts(r, s);
	if (s->on_trial && !s->leaving && !r->ending)
		reload_failed(r);
	if (never_loaded && !r->moving)
		run_end(r, EXIT_FAILED_SCRIPT, LEASE_ERROR);
	if (r->killing || s->leaving || s->on_trial || !r->candidates || (r->ending && all_finished(r))) {
		struct worker_set *parent = parent_of(r, s);
		if (parent)
			parent->heir = NULL;
		if (!in_charge_of_any(r, s) || s->leaving || r->killing)
			worker_set_free(s);
	} else {
		restart_later(r, s, had_started);
	}
	if (r->worker_sets)
		reload_if_due(r);
	else if (r->moving && !r->ending)
		start_over(r);
	else if (r->ending && all_finished(r))
		ev_break(r->program.loop, EVBREAK_ALL);
}

static void start_over(struct run *r)
{
	struct err err;

	drop_posts(r);
	ev_timer_stop(r->program.loop, &r->last_call);
	r->moving = false;
	struct worker_set *s = worker_set_new(r, 0);
	s->began = true;
	if (worker_set_spawn(s, &err) < 0)
		cannot(r, err.text);
}

/* ---- orders from outside ---- */

static void resign_all(struct run *r, nsec sit_out, const char *name)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (!*name || strcmp(candidate_name(r->candidates[i]), name) == 0)
			candidate_resign(r->candidates[i], sit_out);
}

static void on_signal(void *arg, int signal)
{
	struct run *r = arg;

	if (signal == SIGHUP && !r->ending)
		reload(r);
	else if (signal == SIGUSR1)
		resign_all(r, NSEC_NEVER, "");
	else if ((signal == SIGTERM || signal == SIGINT) && r->ending &&
	         elapsed_holder(r->asked_at, clock_now()) > SAME_SIGNAL)
		kill_everything(r);
	else if (signal == SIGTERM || signal == SIGINT)
		run_end(r, EXIT_DONE, LEASE_SHUTDOWN);
}

static void on_look(void *arg)
{
	struct run *r = arg;

	for (uint32_t i = 0; i < r->candidate_count; i++)
		elector_look(r->candidates[i]->elector);
}

static void reply_status(struct run *r, const char *name, struct buf *reply)
{
	struct elector_status st;
	const char *comma = "";

	buf_printf(reply, "{\"ok\":true,\"pid\":%d,\"elections\":[", (int)getpid());
	for (uint32_t i = 0; i < r->candidate_count; i++) {
		if (*name && strcmp(candidate_name(r->candidates[i]), name) != 0)
			continue;
		buf_adds(reply, comma);
		elector_status(r->candidates[i]->elector, &st);
		control_add_election(reply, candidate_name(r->candidates[i]), &st);
		comma = ",";
	}
	buf_adds(reply, "]}");
}

static void reply_leading(struct run *r, const char *name, struct buf *reply)
{
	struct elector_status st;
	bool all = r->candidate_count > 0;

	for (uint32_t i = 0; i < r->candidate_count; i++) {
		elector_status(r->candidates[i]->elector, &st);
		if (!*name || strcmp(candidate_name(r->candidates[i]), name) == 0)
			all = all && st.leading;
	}
	buf_printf(reply, "{\"ok\":true,\"leading\":%s}", all ? "true" : "false");
}

static void reply_why(struct run *r, const char *name, struct buf *reply)
{
	struct buf text = { 0 };

	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (!*name || strcmp(candidate_name(r->candidates[i]), name) == 0)
			elector_why(r->candidates[i]->elector, &text);
	buf_adds(reply, "{\"ok\":true,\"text\":");
	buf_json(reply, text.data ? text.data : "");
	buf_adds(reply, "}");
	buf_fini(&text);
}

static void pause_all(struct run *r, const char *name, bool pause)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (!*name || strcmp(candidate_name(r->candidates[i]), name) == 0)
			candidate_pause(r->candidates[i], pause);
}

static bool knows(const struct run *r, const char *name)
{
	for (uint32_t i = 0; i < r->candidate_count; i++)
		if (strcmp(candidate_name(r->candidates[i]), name) == 0)
			return true;
	return !*name;
}

static void done(struct buf *reply)
{
	buf_adds(reply, "{\"ok\":true}");
}

static void on_control(void *arg, const struct control_request *q, struct buf *reply)
{
	struct run *r = arg;

	if (!knows(r, q->election)) {
		control_refuse(reply, "there is no election named \"%s\" here", q->election);
	} else if (strcmp(q->command, "status") == 0) {
		reply_status(r, q->election, reply);
	} else if (strcmp(q->command, "is-leading") == 0) {
		reply_leading(r, q->election, reply);
	} else if (strcmp(q->command, "why") == 0) {
		reply_why(r, q->election, reply);
	} else if (strcmp(q->command, "resign") == 0) {
		resign_all(r, q->seconds < 0 ? NSEC_NEVER : (nsec)(q->seconds * (double)NSEC_PER_SEC), q->election);
		done(reply);
	} else if (strcmp(q->command, "pause") == 0 || strcmp(q->command, "resume") == 0) {
		pause_all(r, q->election, *q->command == 'p');
		done(reply);
	} else if (strcmp(q->command, "reload") == 0) {
		reload(r);
		done(reply);
	} else {
		control_refuse(reply, "unknown command \"%s\"", q->command);
	}
}

static void list_elections(void *arg, void (*each)(void *each_arg, const struct admin_election *e), void *each_arg)
{
	static const struct admin_renewals none;
	struct run *r = arg;

	for (uint32_t i = 0; i < r->candidate_count; i++) {
		const struct candidate *p = r->candidates[i];
		struct elector_status st;
		elector_status(p->elector, &st);
		each(each_arg, &(struct admin_election){ .name = candidate_name(p),
		                                         .status = &st,
		                                         .lease = p->times.lease,
		                                         .hook_errors = p->hook_errors,
		                                         .renewals = p->renewals ? p->renewals : &none });
	}
}

static const struct program_ops program_ops = {
	.signal = on_signal,
	.look = on_look,
	.control = on_control,
	.elections = list_elections,
};

/* ---- the command ---- */

static int choose_script(struct run *r)
{
	const struct options *o = &r->options;

	r->is_text = options_set(o, OPTION_EVAL);
	r->script = r->is_text ? options_text(o, OPTION_EVAL, NULL) : o->words > 0 ? o->word[0] : NULL;
	if (!r->script)
		return command_fail(COMMAND_RUN, EXIT_USAGE, "no script: give SCRIPT.lua, or -e CODE");
	if (o->words > (r->is_text ? 0 : 1))
		return command_fail(COMMAND_RUN, EXIT_USAGE,
		                    "one script only, found \"%s\" as well: arguments for the script go behind --",
		                    o->word[r->is_text ? 0 : 1]);
	return -1;
}

static int campaign(struct run *r)
{
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, 0 };
	struct err err;

	if (program_init(&r->program, &r->options, signals, &program_ops, r, &err) < 0)
		return command_fail(COMMAND_RUN, EXIT_FAILED_SCRIPT, "%s", err.text);
	ev_timer_init(&r->last_call, on_last_call, 0., LAST_CALL_S);
	r->last_call.data = r;
	if (worker_set_spawn(worker_set_new(r, 0), &err) < 0)
		return command_fail(COMMAND_RUN, EXIT_FAILED_SCRIPT, "%s", err.text);
	lock_prepare(options_text(&r->options, OPTION_LOCK, "")); /* while the worker loads its script */
	ev_run(r->program.loop, 0);
	ev_timer_stop(r->program.loop, &r->last_call);
	drop_posts(r);
	while (r->worker_sets)
		worker_set_free(r->worker_sets);
	program_fini(&r->program);
	return r->status;
}

int cmd_run(int argc, char **argv)
{
	struct run r = { 0 };
	int status = command_begin(&r.options, COMMAND_RUN, argc, argv);

	if (status >= 0)
		return status;
	status = choose_script(&r);
	return status >= 0 ? status : campaign(&r);
}
