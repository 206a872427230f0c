#include "base/duration.h"
#include "base/mem.h"
#include "lease/debt_record.h"
#include "lease/leadership.h"
#include "lease/next_record.h"
#include "lease/past_rows.h"
#include "locks/lock.h"
#include "locks/lock_listing.h"
#include "loop/offload.h"
#include "script/api/api.h"
#include "script/bind.h"
#include "script/scheduler.h"

#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>

/* Locks that are read and never written. lua/lunarch/lock.lua makes of them what a script calls, and lua/commands/ the
 * commands that show records. */

#define PLACE_TYPE "lunarch.lock.env"
#define LOCK_TYPE "lunarch.lock.handle"
#define ENVS_KEY "lunarch.lock.envs"

/* One lock, with what was seen of it; or, opened by lock_place, the beginning of a URL, which is listed. */
struct lock_handle {
	struct lock *lock; /* NULL: it is closed */
	struct wait answer, notice;
	struct lock_listing names;
	struct lock_result result; /* of the last operation; without its record */
	struct record record;      /* what was read, if `present` */
	char *prefix;              /* of lock_place; has the secrets that were given with it */
	bool busy, watched, noticed;
	bool read, present;
	bool moved; /* the record was seen to change */
	uint64_t sight;
	struct instant since; /* what is there now was first seen then */
};

static struct lock_handle *handle_at(lua_State *L)
{
	return luaL_checkudata(L, 1, LOCK_TYPE);
}

static struct lock_handle *handle_open(lua_State *L)
{
	struct lock_handle *h = handle_at(L);

	if (!h->lock)
		luaL_error(L, "lock: it is closed");
	return h;
}

static struct lock_handle *handle_idle(lua_State *L)
{
	struct lock_handle *h = handle_open(L);

	if (h->busy || h->notice.task)
		luaL_error(L, "lock: another task uses this handle");
	return h;
}

/* ---- failures ---- */

/* nil, err: with `outcome`, as lock_outcome_name says it; `usage`: the mistake is in what was asked for. */
static int push_failure(lua_State *L, const struct err *err, enum lock_outcome o)
{
	bind_fail_err(L, err);
	lua_pushstring(L, lock_outcome_name(o));
	lua_setfield(L, -2, "outcome");
	lua_pushboolean(L, err->code == ERR_USAGE);
	lua_setfield(L, -2, "usage");
	return 2;
}

/* ---- opening ---- */

static int env_gc(lua_State *L)
{
	struct lock_env *env = lua_touserdata(L, 1);

	lock_env_fini(env);
	if (env->offload)
		offload_free(env->offload);
	return 0;
}

/* Pushes what the locks of this state directory share. It stays for as long as the Lua state. */
static struct lock_env *push_env(lua_State *L, const char *state_dir)
{
	struct err err;

	luaL_getsubtable(L, LUA_REGISTRYINDEX, ENVS_KEY);
	if (lua_getfield(L, -1, state_dir) == LUA_TNIL) {
		lua_pop(L, 1);
		struct lock_env *env = lua_newuserdatauv(L, sizeof *env, 1);
		*env = (struct lock_env){ .loop = sched_loop(sched_of(L)) };
		env->state_dir = lua_pushstring(L, state_dir);
		lua_setiuservalue(L, -2, 1);
		if (luaL_newmetatable(L, PLACE_TYPE)) {
			lua_pushcfunction(L, env_gc);
			lua_setfield(L, -2, "__gc");
		}
		lua_setmetatable(L, -2);
		env->offload = offload_new(env->loop, 1, &err);
		if (!env->offload)
			luaL_error(L, "lock: %s", err.text);
		lua_pushvalue(L, -1);
		lua_setfield(L, -3, state_dir);
	}
	return lua_touserdata(L, -1);
}

static int open_at(lua_State *L, bool place)
{
	const char *url = luaL_checkstring(L, 1);
	struct lock_env *env = push_env(L, luaL_optstring(L, 2, ""));
	struct lock_handle *h = lua_newuserdatauv(L, sizeof *h, 0);
	struct err err;

	*h = (struct lock_handle){ 0 };
	record_init(&h->record);
	luaL_setmetatable(L, LOCK_TYPE);
	h->lock = place ? lock_open_prefix(env, url, &h->prefix, &err) : lock_open(env, url, &err);
	if (!h->lock)
		return push_failure(L, &err, LOCK_FOREIGN);
	return 1;
}

/* lock_open(url, state_dir) -> handle, or nil, err */
static int lock_open_one(lua_State *L)
{
	return open_at(L, false);
}

/* lock_place(url, state_dir) -> handle for `list`, or nil, err */
static int lock_open_place(lua_State *L)
{
	return open_at(L, true);
}

static void handle_close(struct lock_handle *h)
{
	if (h->lock)
		h->lock->ops->close(h->lock);
	h->lock = NULL;
	lock_listing_fini(&h->names);
	record_fini(&h->record);
	record_init(&h->record);
	free(h->prefix);
	h->prefix = NULL;
}

static int handle_leave(lua_State *L)
{
	struct lock_handle *h = handle_at(L);

	if (!h->busy)
		handle_close(h);
	return 0;
}

static int handle_gc(lua_State *L)
{
	struct lock_handle *h = handle_at(L);

	handle_close(h);
	record_fini(&h->record);
	return 0;
}

static int handle_url(lua_State *L)
{
	lua_pushstring(L, handle_idle(L)->lock->url);
	return 1;
}

/* kind(handle) -> scheme, whether it can be listed, what follows the name of a record of who comes next, or nil */
static int handle_kind(lua_State *L)
{
	const struct lock_ops *ops = handle_idle(L)->lock->ops;

	lua_pushstring(L, ops->scheme);
	lua_pushboolean(L, ops->list != NULL);
	lua_pushstring(L, ops->next);
	return 3;
}

/* beside(handle, name) -> the URL of a name that was listed; it has the secrets of the place's */
static int handle_beside(lua_State *L)
{
	struct lock_handle *h = handle_idle(L);
	char *url = lock_url_beside(h->lock, h->prefix, luaL_checkstring(L, 2));

	lua_pushstring(L, url);
	free(url);
	return 1;
}

/* ---- operations ---- */

static void handle_look(struct lock_handle *h, const struct lock_result *r)
{
	uint64_t sight = r->record ? record_sight_id(r->record) : 0;

	if (!h->read || h->present != (r->record != NULL) || h->sight != sight) {
		h->moved = h->read;
		h->since = clock_now();
	}
	h->read = true;
	h->present = r->record != NULL;
	h->sight = sight;
	if (r->record)
		record_copy(&h->record, r->record);
}

static void handle_on_done(void *arg, const struct lock_result *r)
{
	struct lock_handle *h = arg;

	if (r->outcome == LOCK_ABSENT || r->record)
		handle_look(h, r);
	h->result = *r;
	h->result.record = NULL;
	h->busy = false;
	wait_done(&h->answer);
}

static void answer_left(struct wait *w)
{
	struct lock_handle *h = (struct lock_handle *)((char *)w - offsetof(struct lock_handle, answer));

	h->lock->ops->cancel(h->lock);
}

static struct instant handle_begin(lua_State *L, struct lock_handle *h)
{
	double most = 1e9,
	       seconds = fmin(luaL_checknumber(L, 2), most); /* a number of nanoseconds has no room for all */
	struct instant by = instant_add(clock_now(), (nsec)(seconds * (double)NSEC_PER_SEC));

	sched_may_wait(L, "lock");
	h->busy = true;
	h->answer = (struct wait){ .left = answer_left };
	return by;
}

static int handle_was_read(lua_State *L, int, lua_KContext)
{
	struct lock_handle *h = handle_at(L);

	sched_resumed(L);
	if (h->result.outcome != LOCK_OK && h->result.outcome != LOCK_ABSENT)
		return push_failure(L, &h->result.err, h->result.outcome);
	lua_pushboolean(L, 1);
	return 1;
}

/* read(handle, seconds) -> true, or nil, err */
static int handle_read(lua_State *L)
{
	struct lock_handle *h = handle_idle(L);
	struct instant by = handle_begin(L, h);

	h->noticed = false; /* what changes while it is read may be newer than what was read */
	h->lock->ops->read(h->lock, by, handle_on_done, h);
	return sched_wait(L, &h->answer, -1, 0, handle_was_read);
}

static int handle_was_listed(lua_State *L, int, lua_KContext)
{
	struct lock_handle *h = handle_at(L);

	sched_resumed(L);
	if (h->result.outcome != LOCK_OK)
		return push_failure(L, &h->result.err, h->result.outcome);
	lua_createtable(L, (int)h->names.count, 1);
	for (size_t i = 0; i < h->names.count; i++) {
		lua_pushstring(L, h->names.name[i]);
		lua_rawseti(L, -2, (lua_Integer)i + 1);
	}
	lua_pushboolean(L, h->names.more);
	return 2;
}

/* list(handle, seconds) -> names, whether there are more; or nil, err */
static int handle_list(lua_State *L)
{
	struct lock_handle *h = handle_idle(L);
	struct instant by = handle_begin(L, h);

	lock_listing_fini(&h->names);
	h->lock->ops->list(h->lock, &h->names, by, handle_on_done, h);
	return sched_wait(L, &h->answer, -1, 0, handle_was_listed);
}

static void handle_on_change(void *arg)
{
	struct lock_handle *h = arg;

	h->noticed = true;
	wait_done(&h->notice);
}

/* watch(handle) -> whether the store tells of changes from now on */
static int handle_watch(lua_State *L)
{
	struct lock_handle *h = handle_idle(L);

	h->watched = h->lock->ops->watch && h->lock->ops->watch(h->lock, handle_on_change, h);
	lua_pushboolean(L, h->watched);
	return 1;
}

static int handle_was_told(lua_State *L, int, lua_KContext)
{
	lua_pushboolean(L, sched_resumed(L));
	return 1;
}

/* changed(handle, seconds): waits for so long, or until the store has told of a change since the last read began */
static int handle_changed(lua_State *L)
{
	struct lock_handle *h = handle_idle(L);
	double seconds = luaL_checknumber(L, 2);

	sched_may_wait(L, "lock");
	h->notice = (struct wait){ 0 };
	return sched_wait(L, &h->notice, h->noticed ? 0 : seconds, 0, handle_was_told);
}

/* ---- what was read ---- */

static void set_text(lua_State *L, const char *name, const char *text)
{
	if (!text || !*text)
		return;
	lua_pushstring(L, text);
	lua_setfield(L, -2, name);
}

static void set_number(lua_State *L, const char *name, int64_t n, bool known)
{
	if (!known)
		return;
	lua_pushinteger(L, n);
	lua_setfield(L, -2, name);
}

static void set_time(lua_State *L, const char *name, int64_t us)
{
	set_number(L, name, us, us != RECORD_TIME_UNKNOWN);
}

static void set_candidate(lua_State *L, const char *name, const struct advice_candidate *who)
{
	if (!*who->identity)
		return;
	lua_createtable(L, 0, 3);
	set_text(L, "identity", who->identity);
	set_text(L, "address", who->address);
	set_number(L, "priority", who->priority, true);
	lua_setfield(L, -2, name);
}

static void set_advice(lua_State *L, const struct record *r)
{
	if (advice_has(r->advice, ADVICE_NEXT))
		set_candidate(L, "next", &r->advice->next);
	if (advice_has(r->advice, ADVICE_WANTED))
		set_text(L, "wanted", r->advice->wanted.identity);
	if (advice_has(r->advice, ADVICE_FOR))
		set_text(L, "released_for", r->advice->given.identity);
}

/* Of a record that is no lock's. */
static void set_nomination(lua_State *L, const struct record *r)
{
	struct next_record n;

	if (!next_record_read(r, &n))
		return;
	lua_createtable(L, 0, 3);
	set_candidate(L, "who", &n.who);
	set_time(L, "since_us", n.since_us);
	set_time(L, "written_us", n.wall_us);
	lua_setfield(L, -2, "nomination");
}

static void set_past(lua_State *L, const struct record *r, int64_t now_us)
{
	struct past_row row[PAST_ROWS];
	int n = past_rows(r, now_us, row);

	lua_createtable(L, n, 0);
	for (int i = 0; i < n; i++) {
		const struct past_term *t = &row[i].term;
		lua_createtable(L, 0, 8);
		set_text(L, "who", t->who);
		set_text(L, "reason", t->reason);
		set_number(L, "token", t->token, t->token);
		set_time(L, "from_us", t->from_us);
		set_time(L, "to_us", t->to_us);
		set_number(L, "lasted_ms", row[i].lasted_ms, row[i].lasted_ms >= 0);
		set_number(L, "gap_ms", row[i].gap_ms, row[i].gap_ms >= 0);
		lua_pushboolean(L, row[i].lasts);
		lua_setfield(L, -2, "lasts");
		lua_rawseti(L, -2, i + 1);
	}
	lua_setfield(L, -2, "past");
}

static void set_unfenced(lua_State *L, const struct record *r)
{
	struct debt d = { 0 };

	debt_of(&d, r);
	lua_createtable(L, d.count, 0);
	for (int i = 0; i < d.count; i++) {
		lua_createtable(L, 0, 6);
		set_text(L, "identity", d.of[i].identity);
		set_text(L, "address", d.of[i].address);
		set_text(L, "why", d.of[i].why);
		set_number(L, "token", d.of[i].token, d.of[i].token);
		set_time(L, "since_us", d.of[i].since_us);
		lua_pushboolean(L, *r->holder && strcmp(d.of[i].identity, r->holder) == 0 && !d.of[i].older);
		lua_setfield(L, -2, "own");
		lua_rawseti(L, -2, i + 1);
	}
	lua_setfield(L, -2, "unfenced");
	debt_fini(&d);
}

static void set_record(lua_State *L, const struct record *r)
{
	set_text(L, "holder", r->holder);
	set_text(L, "address", record_fences(r) ? "" : r->address); /* there is nobody yet */
	set_text(L, "previous_holder", r->previous_holder);
	set_text(L, "forced", r->forced);
	set_time(L, "acquired_us", r->acquired_us);
	set_time(L, "renewed_us", r->renewed_us);
	set_number(L, "token", r->token, r->token);
	set_number(L, "term", (int64_t)r->term, r->term);
	set_number(L, "lease_ms", r->lease_ms, r->lease_ms);
	set_number(L, "renew_ms", r->renew_ms, r->renew_ms);
	set_number(L, "retry_ms", r->retry_ms, r->retry_ms);
	set_number(L, "transitions", r->transitions, true);
	lua_pushboolean(L, !*r->holder && r->state == RECORD_LEADING);
	lua_setfield(L, -2, "emptied");
	set_advice(L, r);
	set_nomination(L, r);
	set_unfenced(L, r);
}

/* What this process saw itself: as leadership.h counts it. */
static enum leadership_watched handle_saw(const struct lock_handle *h)
{
	if (!h->present)
		return WATCHED_NOTHING;
	if (elapsed_standby(h->since, clock_now()) >= h->record.lease_ms * NSEC_PER_MS)
		return WATCHED_SILENT;
	return h->moved ? WATCHED_RENEWS : WATCHED_NOTHING;
}

static void push_shown(lua_State *L, const char *lock, const struct record *r, int64_t now_us,
                       enum leadership_watched watched)
{
	enum leadership is = leadership_of(r, now_us, watched);

	lua_createtable(L, 0, 24);
	set_text(L, "lock", lock);
	set_number(L, "now_us", now_us, true);
	set_text(L, "state", leadership_name(is));
	lua_pushboolean(L, is >= LEADERSHIP_OVERDUE);
	lua_setfield(L, -2, "held");
	if (watched != WATCHED_NOTHING)
		set_text(L, "watched", watched == WATCHED_RENEWS ? "renews" : "silent");
	if (!r)
		return;
	lua_pushboolean(L, 1);
	lua_setfield(L, -2, "present");
	set_record(L, r);
	set_past(L, r, now_us);
}

void api_push_record(lua_State *L, const char *lock, const struct record *r, int64_t now_us)
{
	push_shown(L, lock, r, now_us, WATCHED_NOTHING);
}

/* shown(handle) -> a table: lock, state, held, watched, now_us, lease_left, and what the record says; `present`: there
 * is one */
static int handle_shown(lua_State *L)
{
	struct lock_handle *h = handle_open(L);

	push_shown(L, h->lock->url, h->present ? &h->record : NULL, clock_wall_us(), handle_saw(h));
	lua_pushnumber(L, (double)(h->record.lease_ms * NSEC_PER_MS - elapsed_standby(h->since, clock_now())) /
	                          NSEC_PER_SEC);
	lua_setfield(L, -2, "lease_left");
	return 1;
}

/* ---- texts, as the program writes them ---- */

static int push_buf(lua_State *L, struct buf *b)
{
	lua_pushlstring(L, b->data ? b->data : "", b->len);
	buf_fini(b);
	return 1;
}

static int text_quoted(lua_State *L)
{
	struct buf b = { 0 };

	buf_json(&b, luaL_checkstring(L, 1));
	return push_buf(L, &b);
}

static int text_plain(lua_State *L)
{
	struct buf b = { 0 };

	buf_plain(&b, luaL_checkstring(L, 1));
	return push_buf(L, &b);
}

static int text_duration(lua_State *L)
{
	char text[32];

	duration_print(luaL_checkinteger(L, 1), text, sizeof text);
	lua_pushstring(L, text);
	return 1;
}

static int text_iso(lua_State *L)
{
	char text[40];

	record_time_print(luaL_checkinteger(L, 1), text, sizeof text);
	lua_pushstring(L, text);
	return 1;
}

static const luaL_Reg methods[] = {
	{ "url", handle_url },       { "kind", handle_kind },
	{ "beside", handle_beside }, { "read", handle_read },
	{ "list", handle_list },     { "watch", handle_watch },
	{ "shown", handle_shown },   { "changed", handle_changed },
	{ "close", handle_leave },   { NULL, NULL },
};

static const luaL_Reg natives[] = {
	{ "lock_open", lock_open_one },
	{ "lock_place", lock_open_place },
	{ NULL, NULL },
};

static const luaL_Reg texts[] = {
	{ "quoted", text_quoted },     /* a JSON string */
	{ "plain", text_plain },       /* for a terminal */
	{ "duration", text_duration }, /* of milliseconds */
	{ "iso", text_iso },           /* of microseconds since 1970 */
	{ NULL, NULL },
};

void api_open_lock(lua_State *L)
{
	luaL_newmetatable(L, LOCK_TYPE);
	luaL_newlib(L, methods);
	lua_setfield(L, -2, "__index");
	lua_pushcfunction(L, handle_gc);
	lua_setfield(L, -2, "__gc");
	lua_pop(L, 1);
	luaL_setfuncs(L, natives, 0);
	luaL_newlib(L, texts);
	lua_setfield(L, -2, "texts");
}
