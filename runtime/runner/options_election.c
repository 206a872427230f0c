#include "runner/options_election.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct times_join {
	struct buf origins; /* "lease_duration 3s from the script, ..." */
	struct err *err;
	int failed;
};

/* One duration by precedence; 0 where nobody says anything. */
static nsec times_join(struct times_join *j, const struct options *o, enum option which, int64_t script_ms)
{
	const struct option_value *v = &o->value[which];
	char name[64], text[32];
	bool given = v->from != OPTION_PRESET;
	int64_t ms = given ? v->number : script_ms;

	if (ms < 0)
		return 0;
	const char *from = given ? options_source(which, v->from, name, sizeof name) : "the script";
	if (ms == 0 || ms > DURATION_MAX_MS)
		j->failed = err_set(j->err, ERR_USAGE, "%s from %s must be longer than 0 and at most 10000h",
		                    option_table[which].name, from);
	duration_print(ms, text, sizeof text);
	buf_printf(&j->origins, "%s%s %s from %s", j->origins.len ? ", " : "", option_table[which].name, text, from);
	return ms * NSEC_PER_MS;
}

static int times_join_shutdown(const struct options *o, int64_t script_ms, nsec *out, struct err *err)
{
	int64_t ms = o->value[OPTION_SHUTDOWN_GRACE].number;

	if (!options_set(o, OPTION_SHUTDOWN_GRACE) && script_ms >= 0)
		ms = script_ms;
	if (ms > DURATION_MAX_MS)
		return err_set(err, ERR_USAGE, "shutdown-grace from the script is too long: at most 10000h");
	*out = ms * NSEC_PER_MS;
	return 0;
}

/* R >= L is the commonest mistake, and is said first: the messages of lease_times_check divide what is between R and L.
 */
static int times_check(const struct lease_times *t, struct err *err)
{
	char lease[32], renew[32];

	if (t->renew < t->lease)
		return lease_times_check(t, err);
	duration_print(t->lease / NSEC_PER_MS, lease, sizeof lease);
	duration_print(t->renew / NSEC_PER_MS, renew, sizeof renew);
	return err_set(err, ERR_USAGE, "the renew deadline, %s, must be shorter than the lease duration, %s", renew,
	               lease);
}

int options_times(const struct options *o, const struct script_times *script, struct lease_times *t,
                  nsec *shutdown_grace, struct err *err)
{
	struct times_join j = { .err = err };

	*t = (struct lease_times){
		.lease = times_join(&j, o, OPTION_LEASE_DURATION, script->lease_ms),
		.renew = times_join(&j, o, OPTION_RENEW_DEADLINE, script->renew_ms),
		.retry = times_join(&j, o, OPTION_RETRY_PERIOD, script->retry_ms),
		.grace = times_join(&j, o, OPTION_STOP_GRACE, script->stop_grace_ms),
		.kill = times_join(&j, o, OPTION_KILL_ALLOWANCE, -1),
		.drift = times_join(&j, o, OPTION_DRIFT_ALLOWANCE, -1),
	};
	if (!j.failed) {
		lease_times_default(t);
		j.failed = times_check(t, err);
		if (j.failed && j.origins.len)
			err_wrap(err, "%s", j.origins.data);
	}
	buf_fini(&j.origins);
	if (j.failed || !shutdown_grace)
		return j.failed;
	return times_join_shutdown(o, script->shutdown_grace_ms, shutdown_grace, err);
}

nsec options_may_lead_timeout(const struct options *o, const struct script_times *script)
{
	bool by_script = !options_set(o, OPTION_MAY_LEAD_TIMEOUT) && script->may_lead_timeout_ms > 0;

	return (by_script ? script->may_lead_timeout_ms : o->value[OPTION_MAY_LEAD_TIMEOUT].number) * NSEC_PER_MS;
}

nsec options_start_timeout(const struct options *o)
{
	return o->value[OPTION_START_TIMEOUT].number * NSEC_PER_MS;
}

/* ---- who comes next ---- */

/* One duration by precedence, in milliseconds; 0 where nobody says anything and there is no preset. -1 with *err. */
static int64_t next_duration(const struct options *o, enum option which, int64_t script_ms, struct err *err)
{
	if (options_set(o, which) || script_ms < 0)
		script_ms = o->value[which].number;
	else if (script_ms == 0)
		return err_set(err, ERR_USAGE, "%s from the script must be longer than 0", option_table[which].name);
	if (script_ms > DURATION_MAX_MS)
		return err_set(err, ERR_USAGE, "%s from the script is too long: at most 10000h",
		               option_table[which].name);
	return script_ms;
}

/* A preempt-after that does nothing is a mistake, unless somebody has switched preempting off. */
static int check_preempt(const struct options *o, const struct script_next *script, struct err *err)
{
	enum option_from from = o->value[OPTION_PREEMPT_AFTER].from;
	char name[64];

	if (options_set(o, OPTION_PREEMPT) || script->preempt || script->no_preempt ||
	    (from == OPTION_PRESET && script->preempt_after_ms < 0))
		return 0;
	return err_set(err, ERR_USAGE, "%s does nothing without --preempt (in a script: preempt = true)",
	               from == OPTION_PRESET ? "preempt_after from the script"
	                                     : options_source(OPTION_PREEMPT_AFTER, from, name, sizeof name));
}

int options_next(const struct options *o, const struct script_next *script, struct elector_next_options *next,
                 struct err *err)
{
	bool by_script = !options_set(o, OPTION_PRIORITY) && script->has_priority;
	int64_t priority = by_script ? script->priority : o->value[OPTION_PRIORITY].number;

	if (priority > OPTION_NUMBER_MAX || priority < -OPTION_NUMBER_MAX)
		return err_set(err, ERR_USAGE, "priority from the script is %" PRId64 ": it is from %d to %d", priority,
		               -OPTION_NUMBER_MAX, OPTION_NUMBER_MAX);
	int64_t after = next_duration(o, OPTION_PREEMPT_AFTER, script->preempt_after_ms, err);
	int64_t longest = after < 0 ? -1 : next_duration(o, OPTION_MAX_TERM, script->max_term_ms, err);
	if (longest < 0 || check_preempt(o, script, err) < 0)
		return -1;
	*next = (struct elector_next_options){
		.priority = priority,
		.preempt = options_flag(o, OPTION_PREEMPT, script->preempt),
		.preempt_after = after * NSEC_PER_MS,
		.max_term = longest * NSEC_PER_MS,
	};
	return 0;
}

/* ---- which lock ---- */

/* Tells paths and texts apart. It need not resist attacks: who can write in that directory has the lock anyway. */
static uint64_t hash_text(const char *s)
{
	return hash_fnv(HASH_FNV_SEED, s, strlen(s));
}

static bool is_plain(char c)
{
	return isalnum((unsigned char)c) || c == '-' || c == '_' || c == '.';
}

char *options_default_lock(const char *script, bool is_text, struct err *err)
{
	char path[PATH_MAX];

	if (is_text)
		return mem_printf("eval-%016" PRIx64, hash_text(script));
	if (!realpath(script, path)) {
		err_sys(err, "%s", script);
		return NULL;
	}
	char *name = mem_dup(strrchr(path, '/') + 1);
	size_t len = strlen(name);
	if (len > 4 && strcmp(name + len - 4, ".lua") == 0)
		name[len - 4] = '\0';
	for (char *p = name; *p; p++)
		if (!is_plain(*p))
			*p = '_';
	char *lock = mem_printf("%s%.100s-%016" PRIx64, *name == '.' ? "_" : "", name, hash_text(path));
	free(name);
	return lock;
}

/* An election's name becomes part of a path or a URL only if it cannot change their meaning. */
static int check_name(const char *name, struct err *err)
{
	if (!*name)
		return err_set(err, ERR_USAGE,
		               "the lock is named after the election, which has no name: give it `name = ...`");
	for (const char *p = name; *p; p++)
		if (!is_plain(*p))
			return err_set(err, ERR_USAGE,
			               "the lock is named after the election, but '%s' has other characters than "
			               "letters, digits, '.', '_' and '-'",
			               name);
	return 0;
}

static char *fill_in_name(const char *lock, const char *name)
{
	struct buf b = { 0 };

	for (const char *hole; (hole = strstr(lock, "{name}")); lock = hole + strlen("{name}")) {
		buf_add(&b, lock, (size_t)(hole - lock));
		buf_adds(&b, name);
	}
	buf_adds(&b, lock);
	return b.data;
}

char *options_election_lock(const struct options *o, const char *script_lock, const char *fallback, const char *name,
                            bool several, struct err *err)
{
	const struct option_value *v = &o->value[OPTION_LOCK];
	bool given = options_set(o, OPTION_LOCK);
	bool hole = given && strstr(v->text, "{name}");
	char from[64];

	if (!o->value[OPTION_LEADER_ELECT].number)
		return mem_printf("none:%s", several ? name : "");
	if (given && several && !hole) {
		err_set(err, ERR_USAGE, "%s %s is one lock, but the script has several elections: put {name} in it",
		        options_source(OPTION_LOCK, v->from, from, sizeof from), v->text);
		return NULL;
	}
	if (given && !hole)
		return mem_dup(v->text);
	if (!given && script_lock && *script_lock)
		return mem_dup(script_lock);
	if ((hole || several) && check_name(name, err) < 0)
		return NULL;
	if (hole)
		return fill_in_name(v->text, name);
	return several ? mem_printf("%s-%s", fallback, name) : mem_dup(fallback);
}

char *options_election_service(const struct options *o, const char *name, bool several, struct err *err)
{
	const struct option_value *v = &o->value[OPTION_SERVICE];
	const char *text = options_text(o, OPTION_SERVICE, NULL);
	char from[64];

	if (!strstr(text, "{name}")) {
		if (!*text || !several)
			return mem_dup(text);
		err_set(err, ERR_USAGE, "%s %s is one Service, but the script has several elections: put {name} in it",
		        options_source(OPTION_SERVICE, v->from, from, sizeof from), text);
		return NULL;
	}
	return check_name(name, err) < 0 ? NULL : fill_in_name(text, name);
}

int options_blame_lock(const struct options *o, const char *where, struct err *err)
{
	const char *source = where;
	char name[64];

	if (options_set(o, OPTION_LOCK))
		source = options_source(OPTION_LOCK, o->value[OPTION_LOCK].from, name, sizeof name);
	if (source && strncmp(err->text, source, strlen(source)) != 0)
		err_wrap(err, "%s", source);
	return -1;
}
