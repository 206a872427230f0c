#include "config/election_settings.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"

#include <ctype.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- what the script says ---- */

bool election_settings_copy(struct election_settings *to, const struct wire_election *from)
{
	const char *const texts[] = {
		from->name, from->lock, from->identity, from->address, from->where, from->hooks,
	};
	char *copies[sizeof texts / sizeof *texts];
	struct wire said = from->said;
	struct wire_said one;

	mem_pack(sizeof texts / sizeof *texts, texts, copies);
	*to = (struct election_settings){
		.name = copies[0],
		.lock = copies[1],
		.identity = copies[2],
		.address = copies[3],
		.where = copies[4],
		.hooks = copies[5],
		.flags = from->flags,
		.slot = from->slot,
	};
	while (said.at < said.end) {
		if (!wire_said_get(&said, &one) || one.option >= OPTIONS || !option_table[one.option].is_key)
			return false;
		to->said = mem_resize(to->said, sizeof *to->said * (to->said_count + 1));
		to->said[to->said_count++] = (struct said){ (enum option)one.option, one.number };
	}
	return true;
}

void election_settings_fini(struct election_settings *s)
{
	free(s->name);
	free(s->said);
	*s = (struct election_settings){ 0 };
}

/* ---- joined with the options ---- */

/* What counts of one option: option, variable, script, preset. s NULL: there is no script. */
static struct option_value value_of(const struct options *o, const struct election_settings *s, enum option which)
{
	struct option_value v = o->value[which];

	for (uint32_t i = 0; s && v.from == OPTION_PRESET && i < s->said_count; i++)
		if (s->said[i].option == which)
			v = (struct option_value){ .from = OPTION_FROM_SCRIPT, .number = s->said[i].number };
	return v;
}

int64_t election_number(const struct options *o, const struct election_settings *s, enum option which)
{
	return value_of(o, s, which).number;
}

/* A script's numbers have not passed the checks of options_parse, so they are checked here. */
static int check_said(const struct said *s, struct err *err)
{
	const struct option_info *info = &option_table[s->option];
	int64_t least = info->type == OPTION_NUMBER ? -OPTION_NUMBER_MAX : info->type == OPTION_PERIOD;
	int64_t most = info->type == OPTION_FLAG     ? 1
	               : info->type == OPTION_NUMBER ? OPTION_NUMBER_MAX
	                                             : DURATION_MAX_MS;

	if (s->number >= least && s->number <= most)
		return 0;
	if (info->type == OPTION_NUMBER || info->type == OPTION_FLAG)
		return err_set(err, ERR_USAGE, "%s from the script is %" PRId64 ": it is from %" PRId64 " to %" PRId64,
		               info->name, s->number, least, most);
	return err_set(err, ERR_USAGE, "%s from the script must be %s and at most 10000h", info->name,
	               least ? "longer than 0" : "0 or longer");
}

static int check_all_said(const struct election_settings *s, struct err *err)
{
	for (uint32_t i = 0; s && i < s->said_count; i++)
		if (check_said(&s->said[i], err) < 0)
			return -1;
	return 0;
}

/* One of the times; 0 where nobody says anything. Adds where it comes from: "lease-duration 3s from the script,
 * ...". */
static nsec time_of(const struct options *o, const struct election_settings *s, enum option which, struct buf *origins)
{
	struct option_value v = value_of(o, s, which);
	char name[64], text[32];

	if (v.from == OPTION_PRESET)
		return 0;
	duration_print(v.number, text, sizeof text);
	buf_printf(origins, "%s%s %s from %s", origins->len ? ", " : "", option_table[which].name, text,
	           options_source(which, v.from, name, sizeof name));
	return v.number * NSEC_PER_MS;
}

/* R >= L is the commonest mistake, and is said first: the messages of lease_times_check divide what is between R and
 * L. */
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

int election_times(const struct options *o, const struct election_settings *s, struct lease_times *t, struct err *err)
{
	struct buf origins = { 0 };

	if (check_all_said(s, err) < 0)
		return -1;
	*t = (struct lease_times){
		.lease = time_of(o, s, OPTION_LEASE_DURATION, &origins),
		.renew = time_of(o, s, OPTION_RENEW_DEADLINE, &origins),
		.retry = time_of(o, s, OPTION_RETRY_PERIOD, &origins),
		.grace = time_of(o, s, OPTION_STOP_GRACE, &origins),
		.kill = time_of(o, s, OPTION_KILL_ALLOWANCE, &origins),
		.drift = time_of(o, s, OPTION_DRIFT_ALLOWANCE, &origins),
	};
	lease_times_default(t);
	int result = times_check(t, err);
	if (result < 0 && origins.len)
		err_wrap(err, "%s", origins.data);
	buf_fini(&origins);
	return result;
}

nsec election_time(const struct options *o, const struct election_settings *s, enum option which)
{
	return election_number(o, s, which) * NSEC_PER_MS;
}

/* A preempt-after that does nothing is a mistake, unless somebody has switched preempting off. */
static int check_preempt(const struct options *o, const struct election_settings *s, struct err *err)
{
	struct option_value after = value_of(o, s, OPTION_PREEMPT_AFTER);
	char name[64];

	if (after.from == OPTION_PRESET || value_of(o, s, OPTION_PREEMPT).from != OPTION_PRESET)
		return 0;
	return err_set(err, ERR_USAGE, "%s%s does nothing without --preempt (in a script: preempt = true)",
	               after.from == OPTION_FROM_SCRIPT ? "preempt_after from " : "",
	               options_source(OPTION_PREEMPT_AFTER, after.from, name, sizeof name));
}

int election_next(const struct options *o, const struct election_settings *s, struct next_options *next,
                  struct err *err)
{
	*next = (struct next_options){
		.priority = election_number(o, s, OPTION_PRIORITY),
		.preempt = election_number(o, s, OPTION_PREEMPT),
		.preempt_after = election_time(o, s, OPTION_PREEMPT_AFTER),
		.max_term = election_time(o, s, OPTION_MAX_TERM),
	};
	return check_all_said(s, err) < 0 ? -1 : check_preempt(o, s, err);
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

char *election_default_lock(const char *script, bool is_text, struct err *err)
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

/* The name of a lock is what its URL ends with: behind the # of PostgreSQL's, else before the options. */
char *election_slot_lock(const char *lock, uint32_t slot)
{
	size_t name_end = strchr(lock, '#') ? strlen(lock) : strcspn(lock, "?");

	return mem_printf("%.*s-%u%s", (int)name_end, lock, slot, lock + name_end);
}

/* What the names of its slots begin with. */
static size_t slots_name(const struct election_settings *s)
{
	return (size_t)(strrchr(s->name, '-') - s->name);
}

bool election_same_slots(const struct election_settings *a, const struct election_settings *b)
{
	return a->slot && b->slot && slots_name(a) == slots_name(b) && strncmp(a->name, b->name, slots_name(a)) == 0;
}

bool election_several(const struct election_settings *last, uint32_t count)
{
	return count > 1 && last->slot != count;
}

int election_slots(const struct options *o, struct err *err)
{
	int64_t n = o->value[OPTION_SLOTS].number;

	if (!options_set(o, OPTION_SLOTS))
		return 0;
	if (n >= 1 && n <= ELECTION_SLOTS_MAX)
		return (int)n;
	return err_set(err, ERR_USAGE, "--slots %" PRId64 ": expected a number from 1 to %d", n, ELECTION_SLOTS_MAX);
}

static char *lock_of_all(const struct options *o, const char *script_lock, const char *fallback, const char *name,
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

char *election_lock(const struct options *o, const struct election_settings *s, const char *fallback, bool several,
                    struct err *err)
{
	char *name = mem_dup(s->name);

	if (s->slot)
		name[slots_name(s)] = '\0';
	char *all = lock_of_all(o, s->lock, fallback, name, several, err);
	char *lock = all && s->slot ? election_slot_lock(all, s->slot) : all;
	free(name);
	if (lock != all)
		free(all);
	return lock;
}

char *election_service(const struct options *o, const char *name, bool several, struct err *err)
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

int election_blame_lock(const struct options *o, const char *where, struct err *err)
{
	const char *source = where;
	char name[64];

	if (options_set(o, OPTION_LOCK))
		source = options_source(OPTION_LOCK, o->value[OPTION_LOCK].from, name, sizeof name);
	if (source && strncmp(err->text, source, strlen(source)) != 0)
		err_wrap(err, "%s", source);
	return -1;
}
