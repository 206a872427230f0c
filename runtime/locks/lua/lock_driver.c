/* The lock that a lock file in Lua serves: its operations, and what each answer of its driver means for them. */
#include "base/json_bound.h"
#include "base/mem.h"
#include "locks/lock_listing.h"
#include "locks/lock_url.h"
#include "locks/lock_user.h"
#include "locks/lua/driver_server.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIST_VALUES (2 * LOCK_LISTING_MOST) /* of an answer's JSON */
#define ABOUT_VALUES 32
#define PAUSE_MOST_S 3600.

static const char *file_name(const struct lock_user *u)
{
	return ((const struct driver_server *)u->server)->place.name;
}

/* ---- asking ---- */

static uint8_t write_flags(struct lock_user *u, struct instant now)
{
	return (uint8_t)((u->durable ? DRIVER_WRITE_DURABLE : 0) | (u->acquiring ? DRIVER_WRITE_BEGINS : 0) |
	                 (u->lock.advice ? DRIVER_WRITE_ADVICE : 0) |
	                 (lock_failover_own(&u->doubt, &u->expected, now) ? DRIVER_WRITE_OWN : 0));
}

static void put_question(struct buf *m, struct lock_user *u, uint64_t id)
{
	struct instant now = clock_now();
	bool writes = u->op.writing && !u->op.removing;
	int read = u->about ? DRIVER_ABOUT : u->listing ? DRIVER_LIST : DRIVER_READ;
	char *key = mem_dupn(u->channel, u->listing ? lock_listing_prefix(u->channel) : strlen(u->channel));
	struct driver_ask ask = { .id = id,
		                  .kind = (uint8_t)(u->op.removing ? DRIVER_REMOVE
		                                    : writes       ? DRIVER_WRITE
		                                                   : read),
		                  .by_raw = u->op.by.raw,
		                  .by_boot = u->op.by.boot,
		                  .key = key,
		                  .expected = u->op.writing ? u->expected.text : "" };

	if (writes) {
		ask.flags = write_flags(u, now);
		ask.waited_out = lock_failover_over(&u->doubt, u->op.lease, now);
		ask.floor = u->lock.token_floor;
		ask.text = u->op.text;
	}
	driver_ask_put(m, &ask);
	free(key);
}

/* A token above all that the elector knows of is the record's first one, which begins a term. */
static void driver_lock_begin(struct lock_user *u)
{
	u->acquiring =
		u->op.writing && !u->op.removing && !u->lock.advice && u->op.leads && u->token > u->lock.token_floor;
	lock_op_ask(&u->op, u->server->notices, &u->call);
}

/* What the lock file has no function for. true: it is answered, soon. */
static bool driver_lock_lacks(struct lock_user *u)
{
	uint8_t can = driver_link_can(u->op.link);

	if (u->listing && !(can & DRIVER_CAN_LIST)) {
		lock_op_fail_soon(&u->op, LOCK_FAILED, ERR_MISSING, "the lock file %s has no function `list`",
		                  file_name(u));
	} else if (u->op.removing && !(can & DRIVER_CAN_REMOVE)) {
		lock_op_fail_soon(&u->op, LOCK_REFUSED, ERR_MISSING, "the lock file %s has no function `remove`",
		                  file_name(u));
	} else {
		return false;
	}
	return true;
}

static void about_the_file(struct lock_op *op)
{
	struct lock_user *u = lock_user_of_op(op);

	snprintf(u->about->server, sizeof u->about->server, "lock file %s", file_name(u));
	lock_user_end(u, LOCK_OK);
}

static void driver_lock_on_ready(struct lock_call *c)
{
	struct lock_user *u = lock_user_of_call(c);
	struct lock_link *link = u->op.link;
	struct buf m = { 0 };

	if (driver_lock_lacks(u))
		return;
	if (u->about && !(driver_link_can(link) & DRIVER_CAN_ABOUT)) {
		lock_op_soon(&u->op, about_the_file);
		return;
	}
	uint64_t id = driver_link_id(link);
	lock_op_sent(&u->op); /* before put_question, which sends what this notes of a doubt */
	put_question(&m, u, id);
	if (!driver_link_ask(link, c, id, &m))
		lock_op_fail_soon(&u->op, u->op.writing ? LOCK_INVALID : LOCK_FAILED, ERR_INVALID,
		                  "the message to the driver has %zu bytes, which is more than its socket takes",
		                  m.len);
	buf_fini(&m);
}

/* Called before an operation ends without its answer. */
static void driver_lock_detach(struct lock_op *op)
{
	if (op->link)
		driver_link_cancel(op->link, op->call);
}

/* ---- answers ---- */

static enum err_code code_of(const struct driver_answer *a)
{
	return a->code > ERR_NONE && a->code <= ERR_SYSTEM ? (enum err_code)a->code : ERR_SYSTEM;
}

static bool is_version(const char *text)
{
	return *text && strlen(text) <= DRIVER_VERSION_MAX;
}

/* An outcome that no answer of this kind has, or one that lacks a version, says nothing of what was done. */
static void driver_lock_puzzled(struct lock_user *u, const char *what)
{
	lock_op_fail(&u->op, u->op.writing ? LOCK_UNKNOWN : LOCK_FAILED, ERR_INVALID,
	             "the driver of %s has given an answer %s", file_name(u), what);
}

static void driver_lock_failed(struct lock_user *u, const struct driver_answer *a)
{
	const char *text = *a->text ? a->text : "the lock file gave no reason";
	enum lock_outcome o = (enum lock_outcome)a->outcome;
	bool fits = o == LOCK_REFUSED || o == LOCK_FAILED ||
	            (u->op.writing ? o == LOCK_UNKNOWN || o == LOCK_INVALID
	                           : o == LOCK_FOREIGN && !u->about && !u->listing);

	if (!fits)
		driver_lock_puzzled(u, "of a kind that does not fit the question");
	else if (o == LOCK_FOREIGN)
		lock_op_fail(&u->op, o, code_of(a), "what is at %s is no election record: %s. It is not overwritten",
		             u->channel, text);
	else
		lock_op_fail(&u->op, o, code_of(a), "%s", text);
}

static void driver_lock_found(struct lock_user *u, const struct driver_answer *a)
{
	const char *text = (const char *)a->bytes.at;
	size_t len = (size_t)(a->bytes.end - a->bytes.at);
	struct lock_result absent = { .outcome = LOCK_ABSENT };
	char what[1200];

	if (a->outcome == LOCK_OK || a->outcome == LOCK_ABSENT)
		lock_failover_see(&u->doubt, a->doubt, clock_now());
	if (a->outcome == LOCK_ABSENT && strlen(a->version) <= DRIVER_VERSION_MAX) {
		snprintf(absent.version.text, sizeof absent.version.text, "%s", a->version);
		lock_op_finish(&u->op, &absent);
	} else if (a->outcome == LOCK_OK && is_version(a->version)) {
		snprintf(what, sizeof what, "what is at %s", u->channel);
		lock_op_found(&u->op, what, text, len, a->version, 0);
	} else if (a->outcome == LOCK_OK || a->outcome == LOCK_ABSENT) {
		driver_lock_puzzled(u, "without a version of 1 to 63 bytes");
	} else {
		driver_lock_failed(u, a);
	}
}

static void driver_lock_written(struct lock_user *u, const struct driver_answer *a)
{
	char why[300];

	if (a->outcome == LOCK_CONFLICT) {
		lock_user_end(u, LOCK_CONFLICT);
	} else if (a->outcome == LOCK_OK && is_version(a->version)) {
		/* A leader whose term goes on names the doubt, so that it is over when he hands over. */
		lock_failover_see(&u->doubt, a->doubt, clock_now());
		lock_user_wrote(u, a->version, 0);
	} else if (a->outcome == LOCK_OK) {
		driver_lock_puzzled(u, "without a version of 1 to 63 bytes");
	} else if (a->outcome == LOCK_FAILED && *a->doubt) {
		snprintf(why, sizeof why, "the store may have lost a leader's record (it says \"%s\")", a->doubt);
		lock_user_doubts(u, a->doubt, why);
	} else {
		driver_lock_failed(u, a);
	}
}

static void driver_lock_removed(struct lock_user *u, const struct driver_answer *a)
{
	if (a->outcome == LOCK_OK || a->outcome == LOCK_ABSENT || a->outcome == LOCK_CONFLICT)
		lock_user_end(u, (enum lock_outcome)a->outcome);
	else
		driver_lock_failed(u, a);
}

static void driver_lock_listed(struct lock_user *u, json_t *found)
{
	size_t len = lock_listing_prefix(u->channel), i;
	json_t *name;

	json_array_foreach(json_object_get(found, "names"), i, name)
	{
		const char *key = json_string_value(name);
		if (key && strncmp(key, u->channel, len) == 0)
			lock_listing_add(u->listing, key + len, LOCK_URL_PATH);
	}
	u->listing->more |= json_is_true(json_object_get(found, "more"));
	lock_user_end(u, LOCK_OK);
}

static void copy_text(char *out, size_t size, const json_t *object, const char *name)
{
	const char *text = json_string_value(json_object_get(object, name));

	snprintf(out, size, "%s", text ? text : "");
}

static void driver_lock_told_about(struct lock_user *u, json_t *said)
{
	struct lock_about *about = u->about;
	double pause_s = json_number_value(json_object_get(said, "pause"));

	copy_text(about->server, sizeof about->server, said, "server");
	copy_text(about->warning, sizeof about->warning, said, "warning");
	about->unfit = json_is_true(json_object_get(said, "unfit"));
	about->pause_ms = pause_s > 0 && pause_s <= PAUSE_MOST_S ? (int64_t)(pause_s * 1000) : 0;
	lock_user_end(u, LOCK_OK);
}

static void driver_lock_take_json(struct lock_user *u, const struct driver_answer *a, size_t values,
                                  void (*take)(struct lock_user *u, json_t *object))
{
	struct err why;
	size_t len = (size_t)(a->bytes.end - a->bytes.at);
	json_t *object = json_bound_load((const char *)a->bytes.at, len, 0, values, &why);

	if (!json_is_object(object))
		driver_lock_puzzled(u, "that is no JSON object, or a very long one");
	else
		take(u, object);
	json_decref(object);
}

static void driver_lock_on_answered(struct lock_call *c, const void *answer)
{
	struct lock_user *u = lock_user_of_call(c);
	const struct driver_answer *a = answer;

	if (*a->here)
		snprintf(u->lock.here, sizeof u->lock.here, "%s", a->here);
	if (u->op.removing)
		driver_lock_removed(u, a);
	else if (u->op.writing)
		driver_lock_written(u, a);
	else if (!u->about && !u->listing)
		driver_lock_found(u, a);
	else if (a->outcome != LOCK_OK)
		driver_lock_failed(u, a);
	else if (u->about)
		driver_lock_take_json(u, a, ABOUT_VALUES, driver_lock_told_about);
	else
		driver_lock_take_json(u, a, LIST_VALUES, driver_lock_listed);
}

static void driver_lock_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct lock_user *u = lock_user_of_call(c);

	lock_op_fail(&u->op, sent && u->op.writing ? LOCK_UNKNOWN : outcome, why->code, "%s", why->text);
}

/* ---- the lock ---- */

/* The lock is polled until the driver has said that there are notices, which counts as one. */
static bool driver_lock_watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	lock_user_watch(lock, changed, arg);
	return lock_member_is_given(&((struct lock_user *)lock)->member);
}

static struct lock *driver_lock_open(struct lock_env *env, const char *url, const struct lock_ops *ops, struct err *err)
{
	static const struct lock_user_ops user_ops = {
		.begin = driver_lock_begin,
		.detach = driver_lock_detach,
		.call = { .ready = driver_lock_on_ready,
		          .answered = driver_lock_on_answered,
		          .lost = driver_lock_on_lost },
	};
	struct driver_place place;

	if (driver_place_parse(&place, url, err) < 0)
		return NULL;
	struct lock_user *u = mem_zero(sizeof *u);
	char *key = mem_dup(place.key), *shown = mem_dup(place.url);
	lock_user_init(u, ops, &user_ops, shown, &driver_server_get(env, &place)->base, key);
	return &u->lock;
}

static struct lock *open_path(struct lock_env *env, const char *url, struct err *err)
{
	return driver_lock_open(env, url, &lock_driver_path, err);
}

static struct lock *open_fragment(struct lock_env *env, const char *url, struct err *err)
{
	return driver_lock_open(env, url, &lock_driver_fragment, err);
}

#define DRIVER_LOCK_OPS \
	.scheme = "lua", .token_in_record = true, LOCK_USER_OPS, .watch = driver_lock_watch, .next = ".next"

const struct lock_ops lock_driver_path = { DRIVER_LOCK_OPS, .open = open_path };
const struct lock_ops lock_driver_fragment = { DRIVER_LOCK_OPS, .open = open_fragment, .key_last = true };
