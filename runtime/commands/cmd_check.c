#include "commands/commands.h"

#include "base/mem.h"
#include "client/lock_client.h"
#include "commands/script_probe.h"
#include "commands/unit_env.h"
#include "lease/lease.h"
#include "script/worker/inspect.h"
#include "service/service.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct check {
	struct options options;
	const char *script;
	bool is_text;
	bool is_lock; /* a lock file, which is no script */
	struct script_probe script_probe;
	char *fallback; /* the lock's name if nobody gives one */
	char **locks;   /* as opened, per election; NULL where it could not be */
	int problems;
	bool told; /* something about the text */
};

static void say_list(const char *label, bool plain, const char *fmt, va_list ap)
{
	char text[4096];
	struct buf b = { 0 };

	vsnprintf(text, sizeof text, fmt, ap);
	if (plain)
		buf_adds(&b, text);
	else
		buf_plain(&b, text);
	printf("  %-10s %s\n", label, b.data ? b.data : "");
	buf_fini(&b);
}

static void __attribute__((format(printf, 3, 4))) say(const char *label, bool plain, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	say_list(label, plain, fmt, ap);
	va_end(ap);
}

static void __attribute__((format(printf, 2, 3))) problem(struct check *c, const char *fmt, ...)
{
	va_list ap;

	c->problems++;
	va_start(ap, fmt);
	say_list("PROBLEM", false, fmt, ap);
	va_end(ap);
}

/* ---- hooks ---- */

static void show_hooks(const struct election_settings *p)
{
	say("hooks", true, "%s%s%s",
	    p->flags & WIRE_ELECTION_OBSERVER ? "no on_leading: it only observes and never campaigns; " : "", p->hooks,
	    p->flags & WIRE_ELECTION_ISOLATE ? "; in a worker of its own" : "");
}

static void show_identity(const struct check *c, const struct election_settings *p)
{
	const char *identity = options_text(&c->options, OPTION_IDENTITY, p->identity);
	const char *address = options_text(&c->options, OPTION_ADDRESS, p->address);

	say("identity", false, "%s", *identity ? identity : "hostname and a UUID, new for each process");
	if (election_number(&c->options, p, OPTION_RECLAIM))
		say("", true, "lives only once (reclaim): takes its own old record at once");
	if (p->flags & WIRE_ELECTION_ADDRESS_FUNCTION && !options_set(&c->options, OPTION_ADDRESS))
		say("address", true, "what the script's function says");
	else if (*address)
		say("address", false, "%s", address);
}

/* A hook of a term in an election that has no terms. */
static void check_hooks(struct check *c, const struct election_settings *p)
{
	if (!(p->flags & WIRE_ELECTION_OBSERVER))
		return;
	if (p->flags & WIRE_ELECTION_ON_STOPPED)
		problem(c, "on_stopped never runs: without on_leading this election only observes");
	if (p->flags & WIRE_ELECTION_MAY_LEAD)
		problem(c, "may_lead is never asked: without on_leading this election only observes");
}

/* ---- the text ---- */

static void check_on_found(void *arg, uint32_t line, bool is_problem, const char *text)
{
	struct check *c = arg;
	if (!c->told)
		puts("text");
	c->told = true;
	if (is_problem)
		problem(c, "line %u: %s", line, text);
	else
		say("note", false, "line %u: %s", line, text);
}

/* Loading it has worked, so it can be read, and is not too large. */
static void check_text(struct check *c)
{
	struct buf text = { 0 };
	char bytes[65536];
	size_t n;
	FILE *f = c->is_text ? NULL : fopen(c->script, "re");

	if (c->is_text)
		buf_adds(&text, c->script);
	while (f && (n = fread(bytes, 1, sizeof bytes, f)) > 0)
		buf_add(&text, bytes, n);
	if (f)
		fclose(f);
	inspect_script(text.data ? text.data : "", text.len, c->is_text, c->is_lock, check_on_found, c);
	buf_fini(&text);
}

/* ---- timing ---- */

#define BAR 60

static void add_stretch(struct buf *b, nsec length, const struct lease_times *t, char fill, nsec *at)
{
	nsec from = *at * BAR / t->lease, to = (*at + length) * BAR / t->lease;

	for (; from < to; from++)
		buf_add(b, &fill, 1);
	*at += length;
}

static void show_picture(const struct lease_times *t)
{
	nsec at = 0, spare = t->lease - t->renew - t->grace - t->kill - t->drift;
	struct buf b = { 0 };

	add_stretch(&b, t->renew, t, '=', &at);
	add_stretch(&b, t->grace, t, 's', &at);
	add_stretch(&b, t->kill, t, 'k', &at);
	add_stretch(&b, spare + t->drift, t, '.', &at);
	say("", true, "|%s|", b.data);
	buf_fini(&b);
}

static const char *text_of(nsec d, char out[32])
{
	duration_print(d / NSEC_PER_MS, out, 32);
	return out;
}

/* may_lead: 0 = the script has none. */
static void show_times(const struct lease_times *t, nsec shutdown_grace, nsec may_lead)
{
	char a[32], b[32], c[32];

	say("timing", true, "lease %s, renew deadline %s, retry period %s", text_of(t->lease, a), text_of(t->renew, b),
	    text_of(t->retry, c));
	say("", true, "stop grace %s, kill allowance %s, drift allowance %s", text_of(t->grace, a), text_of(t->kill, b),
	    text_of(t->drift, c));
	say("", true, "shutdown grace %s", text_of(shutdown_grace, a));
	if (may_lead)
		say("", true, "may_lead timeout %s", text_of(may_lead, a));
	say("silence", true, "when the lock cannot be written, counted from the last good write:");
	show_picture(t);
	say("", true, "= leads until %s   s is told to stop, killed at %s", text_of(t->renew, a),
	    text_of(t->renew + t->grace, b));
	say("", true, "k gone by %s        . untouched until others may lead at %s",
	    text_of(t->renew + t->grace + t->kill, a), text_of(t->lease, b));
	say("clocks", true, "may run at rates that differ by up to %.1f%%", 100 * lease_drift_tolerance(t));
}

static void check_times(struct check *c, const struct election_settings *p)
{
	struct lease_times t;
	nsec may_lead = 0;
	struct err err;

	if (p->flags & WIRE_ELECTION_MAY_LEAD)
		may_lead = election_time(&c->options, p, OPTION_MAY_LEAD_TIMEOUT);
	if (election_times(&c->options, p, &t, &err) < 0)
		problem(c, "%s", err.text);
	else if (!(p->flags & WIRE_ELECTION_OBSERVER))
		show_times(&t, election_time(&c->options, p, OPTION_SHUTDOWN_GRACE), may_lead);
}

/* ---- who comes next ---- */

static void check_next(struct check *c, const struct election_settings *p)
{
	struct next_options next;
	char after[32];
	struct err err;

	if (election_next(&c->options, p, &next, &err) < 0) {
		problem(c, "%s", err.text);
		return;
	}
	if (p->flags & WIRE_ELECTION_OBSERVER)
		return;
	if (p->flags & WIRE_ELECTION_PRIORITY_FUNCTION)
		say("next", true, "priority among the standbys: as the script's function says");
	else
		say("next", true, "priority %" PRId64 " among the standbys", next.priority);
	if (next.preempt)
		say("", true, "a leader hands over to a larger priority after %s", text_of(next.preempt_after, after));
	if (next.max_term)
		say("", true, "a leader hands over after %s, if somebody comes next", text_of(next.max_term, after));
}

/* ---- the lock ---- */

/* The record of who comes next. An election works without it, so this is no problem. */
static void check_next_record(struct lock_client *l, const char *url)
{
	struct lock *own = l->lock;
	struct err err = { 0 };

	if (!own->ops->next && !own->ops->next_url && !own->ops->open_next)
		return; /* a lock of nothing */
	l->lock = lock_open_next(&l->env, own, url, &err);
	if (l->lock) {
		enum lock_outcome o = lock_client_read(l);
		if (o != LOCK_OK && o != LOCK_ABSENT)
			err = l->result.err;
		else if (o == LOCK_OK && !lock_client_found_next(l))
			err_set(&err, ERR_FOREIGN, "%s is the record of something else", l->lock->url);
		l->lock->ops->close(l->lock);
	}
	l->lock = own;
	if (err.code != ERR_NONE)
		say("note", false,
		    "nobody will be told who comes next: %s. Everything else works, but nobody prepares to lead, and at a hand-over all "
		    "standbys compete. The pages in docs/stores have the rights that this takes",
		    err.text);
}

static void check_record(struct check *c, struct lock_client *l, const char *url)
{
	enum lock_outcome o = lock_client_read(l);

	if (o != LOCK_OK && o != LOCK_ABSENT) {
		problem(c, "%s", l->result.err.text);
		return;
	}
	if (o == LOCK_OK && lock_client_found_next(l)) {
		problem(c, "%s is no lock, but the record of who comes next beside one: name that lock",
		        lock_client_url(l));
		return;
	}
	char *now = command_record_text("headline", lock_client_url(l), o == LOCK_OK ? &l->record : NULL);
	say("now", true, "%s", now);
	free(now);
	check_next_record(l, url);
}

static void check_twice(struct check *c, uint32_t index)
{
	for (uint32_t i = 0; i < index; i++) {
		if (!c->locks[i] || strcmp(c->locks[i], c->locks[index]) != 0)
			continue;
		problem(c, "the lock %s is listed twice: also by %s", c->locks[index],
		        c->script_probe.settings[i].where);
		return;
	}
}

/* With the lock's own environment, as run has it. */
static void check_service(struct check *c, struct lock_client *l, const struct election_settings *p, const char *lock)
{
	bool later = p->flags & WIRE_ELECTION_ADDRESS_FUNCTION && !options_set(&c->options, OPTION_ADDRESS);
	struct err err;
	char *target = election_service(&c->options, p->name, c->script_probe.count > 1, &err);
	struct service_config s = { .env = &l->env,
		                    .target = target ? target : "",
		                    .lock = lock,
		                    .name = p->name,
		                    .address = options_text(&c->options, OPTION_ADDRESS, p->address),
		                    .address_later = later };
	bool asked = !target || (*target && !(p->flags & WIRE_ELECTION_OBSERVER));
	struct service *service = target && asked ? service_open(&s, &err) : NULL;
	struct service_status st;

	if (service)
		service_status(service, &st);
	if (asked && (!service || service_check(service, SERVICE_CHECK_WITHIN, &err) < 0)) {
		problem(c, "%s%s%s%s", service ? "the Service " : "", service ? st.name : "", service ? ": " : "",
		        err.text);
	} else if (asked) {
		say("service", false, "%s can be kept at the leader's address", st.name);
	}
	service_free(service);
	free(target);
}

static void check_lock(struct check *c, uint32_t index)
{
	const struct election_settings *p = &c->script_probe.settings[index];
	struct err err;
	uint32_t count = c->script_probe.count;
	bool several = election_several(&c->script_probe.settings[count - 1], count);
	char *url = election_lock(&c->options, p, c->fallback, several, &err);
	struct lock_client l = { .env.state_dir = options_text(&c->options, OPTION_STATE_DIR, NULL) };

	if (!url || lock_client_open(&l, NULL, url, &err) < 0) {
		election_blame_lock(&c->options, NULL, &err);
		problem(c, "%s", err.text);
	} else {
		c->locks[index] = mem_dup(lock_client_url(&l));
		say("lock", false, "%s", c->locks[index]);
		bool trying_out = c->is_text && !options_set(&c->options, OPTION_LOCK);
		if (isatty(STDOUT_FILENO) && !trying_out && lock_is_plain_name(url))
			say("", false, "this machine's alone: for several give a store's URL (file:%s: one is meant)",
			    url);
		check_twice(c, index);
		check_record(c, &l, url);
		check_service(c, &l, p, url);
	}
	lock_client_close(&l);
	free(url);
}

/* ---- the command ---- */

static void check_election(struct check *c, uint32_t index)
{
	const struct election_settings *p = &c->script_probe.settings[index];
	struct buf b = { 0 };

	buf_printf(&b, "election %u", index + 1);
	if (*p->name) {
		buf_adds(&b, " ");
		buf_plain(&b, p->name);
	}
	buf_adds(&b, " (");
	buf_plain(&b, p->where);
	buf_adds(&b, ")");
	puts(b.data);
	buf_fini(&b);
	show_hooks(p);
	check_hooks(c, p);
	show_identity(c, p);
	check_times(c, p);
	check_next(c, p);
	check_lock(c, index);
}

/* ---- a lock file ---- */

/* A scheme of Lunarch's own is never looked for among the lock files. */
static void check_schemes(struct check *c, const char *schemes)
{
	for (const struct lock_backend *b = lock_backends; b->scheme; b++) {
		size_t len = strlen(b->scheme);
		for (const char *s = schemes; *s; s += strcspn(s, " "), s += *s == ' ') {
			if (strcspn(s, " ") != len || strncmp(s, b->scheme, len) != 0)
				continue;
			problem(c,
			        "the scheme '%s' is built in: no URL with it ever opens this file. Give it another one",
			        b->scheme);
		}
	}
}

/* A file for the driver of a lock (docs/write-a-lock.md) has no elections to show. */
static void check_lock_file(struct check *c)
{
	say("lock file", false, "%s", c->script_probe.lock_file);
	c->is_lock = true;
	check_schemes(c, c->script_probe.schemes);
	check_text(c);
	if (!c->problems)
		say("next", true,
		    "lunarch doctor --full examines it on a store: `lunarch help doctor`, docs/write-a-lock.md");
}

static int check_end(const struct check *c)
{
	if (c->problems)
		printf("%d problem%s\n", c->problems, c->problems > 1 ? "s" : "");
	else
		puts("no problem found");
	return c->problems ? EXIT_FAILED_SCRIPT : EXIT_DONE;
}

static void check_elections(struct check *c)
{
	c->locks = mem_zero(c->script_probe.count * sizeof *c->locks);
	for (uint32_t i = 0; i < c->script_probe.count; i++)
		check_election(c, i);
	check_text(c);
	for (uint32_t i = 0; i < c->script_probe.count; i++)
		free(c->locks[i]);
	free(c->locks);
}

static int check_script(struct check *c)
{
	struct err err;

	c->fallback = election_default_lock(c->script, c->is_text, &err);
	if (!c->fallback)
		return command_fail(COMMAND_CHECK, EXIT_FAILED_SCRIPT, "%s", err.text);
	char *wrong = script_probe_load(&c->script_probe, &c->options, c->script, c->is_text);
	int status;
	if (!wrong) {
		check_elections(c);
		status = check_end(c);
	} else if (c->script_probe.lock_file) {
		check_lock_file(c);
		status = check_end(c);
	} else {
		status = command_fail(COMMAND_CHECK, EXIT_FAILED_SCRIPT, "%s", wrong);
	}
	free(wrong);
	free(c->fallback);
	script_probe_fini(&c->script_probe);
	return status;
}

/* The options are read again with the variables that the script's unit has. -1: go on. */
static int check_as_unit(struct check *c, int argc, char **argv)
{
	struct buf told = { 0 };
	struct err err;
	int status = -1;

	if (unit_env_load(c->script, &told, &err) < 0)
		status = command_fail(COMMAND_CHECK, EXIT_FAILED_SCRIPT, "%s", err.text);
	else if (told.len)
		status = command_begin(&c->options, COMMAND_CHECK, argc, argv);
	if (status < 0 && told.len) {
		c->script = options_script(&c->options, &c->is_text);
		say("unit", false, "with the variables of %s", told.data);
	}
	buf_fini(&told);
	return status;
}

int cmd_check(int argc, char **argv)
{
	struct check c = { 0 };
	int status = command_begin(&c.options, COMMAND_CHECK, argc, argv);

	if (status >= 0)
		return status;
	c.script = options_script(&c.options, &c.is_text);
	if (c.script && !c.is_text && (status = check_as_unit(&c, argc, argv)) >= 0)
		return status;
	if (c.is_text && c.options.words)
		return command_fail(COMMAND_CHECK, EXIT_USAGE, "a script or -e CODE, not both");
	if (!c.script || c.options.words > 1)
		return command_fail(COMMAND_CHECK, EXIT_USAGE, "which script? lunarch check SCRIPT.lua");
	return check_script(&c);
}
