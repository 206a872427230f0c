/* The lock in a PostgreSQL database: its operations, and what each answer means for them. The row, the statements, and
 * what happens when a server is promoted, are described in pg_sql.h. */
#include "base/buf.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "locks/lock_listing.h"
#include "locks/lock_url.h"
#include "locks/lock_user.h"
#include "locks/postgres/pg_server.h"
#include "locks/postgres/pg_sql.h"
#include "locks/postgres/pg_url.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "lunarch_locks"

struct pg_lock {
	struct lock_user user; /* first */
	char *name, *table;
	char *quoted; /* the table with its schema; NULL: no table of that name was found yet */
	bool met;     /* the table has been there */
	/* What is asked: the operation itself, or, before it if the table or the timeline asks for it, PG_FIND,
	 * PG_CREATE or PG_MARK. */
	enum pg_asked stage, operation;
	bool created, marked; /* in this operation */
	bool advises;         /* counted in the server's advice */
	char stamp[PG_STAMP]; /* of the question under way */
};

static struct pg_server *pg_server_of(const struct pg_lock *l)
{
	return (struct pg_server *)l->user.server;
}

static bool pg_is_operation(const struct pg_lock *l)
{
	return l->stage == l->operation;
}

/* ---- asking ---- */

/* A new term waits for transactions that hold the row, but not so long that another lock's, behind it, is late. Advice
 * waits for nobody: renewals may be behind it. */
static int pg_patience_ms(const struct pg_lock *l, int left_ms)
{
	if (l->user.lock.advice)
		return 0;
	if (!l->user.acquiring)
		return left_ms / 5;
	return pg_server_locks(pg_server_of(l)) == 1 || l->user.op.link->queue.count == 0 ? left_ms * 3 / 5
	                                                                                  : left_ms / 10;
}

static struct pg_question pg_question(struct pg_lock *l)
{
	int left_ms = lock_op_left_ms(&l->user.op);

	return (struct pg_question){
		.link = l->user.op.link,
		.call = &l->user.call,
		.table = l->quoted,
		.stamp = l->stamp,
		.statement_ms = left_ms,
		.lock_ms = pg_patience_ms(l, left_ms),
	};
}

static void pg_send(struct pg_lock *l)
{
	const struct lock_user *u = &l->user;
	struct pg_question q = pg_question(l);
	struct instant now = clock_now();
	char floor[24];
	char *name = mem_dupn(l->name, l->stage == PG_LIST ? lock_listing_prefix(l->name) : strlen(l->name));

	snprintf(floor, sizeof floor, "%" PRId64, u->lock.token_floor);
	const char *const values[PG_VALUES] = {
		[PG_NAME] = l->stage == PG_FIND ? l->table : name,
		[PG_EXPECTED] = u->expected.text,
		[PG_RECORD] = u->op.text,
		[PG_CHANNEL] = u->channel,
		[PG_MEMBER] = u->member.name,
		[PG_WAITED_OUT] = lock_failover_over(&u->doubt, u->op.lease, now),
		[PG_OWN] = lock_failover_own(&u->doubt, &u->expected, now) ? "t" : "f",
		[PG_FLOOR] = floor,
	};
	pg_sql_ask(&q, l->stage, values);
	free(name);
}

static void pg_ask(struct pg_lock *l, enum pg_asked stage)
{
	l->stage = stage;
	l->created = l->created || stage == PG_CREATE;
	l->marked = l->marked || stage == PG_MARK;
	lock_op_ask(&l->user.op, pg_server_link(pg_server_of(l), l->user.acquiring), &l->user.call);
}

static void pg_begin(struct lock_user *u)
{
	struct pg_lock *l = (struct pg_lock *)u;

	l->created = l->marked = false;
	if (u->op.writing && u->lock.advice)
		l->operation = u->op.removing ? PG_REMOVE : PG_ADVISE;
	else if (u->op.writing)
		l->operation = u->op.removing ? PG_REMOVE : u->acquiring ? PG_BEGIN : PG_WRITE;
	else
		l->operation = u->about ? PG_ABOUT : u->listing ? PG_LIST : PG_READ;
	pg_ask(l, l->quoted || l->operation == PG_ABOUT ? l->operation : PG_FIND);
}

/* ---- answers ---- */

static void pg_found(struct pg_lock *l, const PGresult *r)
{
	char what[400];

	if (PQntuples(r) == 0) {
		lock_user_end(&l->user, LOCK_ABSENT);
		return;
	}
	snprintf(what, sizeof what, "the row '%.200s' of %.150s", l->name, l->table);
	lock_failover_see(&l->user.doubt, PQgetvalue(r, 0, 4), clock_now());
	if (PQgetisnull(r, 0, 0))
		lock_op_fail(&l->user.op, LOCK_FOREIGN, ERR_INVALID,
		             "%s has a record of %s bytes, which is no election record. It is not touched", what,
		             PQgetvalue(r, 0, 3));
	else
		lock_op_found(&l->user.op, what, PQgetvalue(r, 0, 0), (size_t)PQgetlength(r, 0, 0), PQgetvalue(r, 0, 1),
		              strtoll(PQgetvalue(r, 0, 2), NULL, 10));
}

/* Nothing was changed. A new term needs a mark with the server's timeline, and no doubt; if that is so, or a term goes
 * on, the row is not the one that was expected. */
static void pg_not_written(struct pg_lock *l, const PGresult *r)
{
	const char *doubt = PQgetvalue(r, 0, 3);
	bool marked = !PQgetisnull(r, 0, 3) && strcmp(doubt, "?") != 0;

	if (!l->user.acquiring || (marked && !*doubt))
		lock_user_end(&l->user, LOCK_CONFLICT);
	else if (marked)
		lock_user_doubts(&l->user, doubt, "the server was promoted and may have lost a leader's record");
	else if (!l->marked)
		pg_ask(l, PG_MARK);
	else
		lock_op_fail(&l->user.op, LOCK_FAILED, ERR_UNREACHABLE, "the server's timeline changes all the time");
}

/* A leader whose term goes on after a promotion names the doubt, so that it is over when he hands over. */
static void pg_learn(struct pg_lock *l, const char *mark)
{
	struct pg_question q = pg_question(l);

	q.call = NULL;
	if (strcmp(mark, "?") == 0)
		pg_sql_ask(&q, PG_MARK, NULL);
	else
		lock_failover_see(&l->user.doubt, mark, clock_now());
}

static void pg_written(struct pg_lock *l, const PGresult *r)
{
	if (PQgetisnull(r, 0, 0)) {
		pg_not_written(l, r);
		return;
	}
	pg_learn(l, PQgetvalue(r, 0, 3));
	lock_user_wrote(&l->user, PQgetvalue(r, 0, 0), l->user.acquiring ? strtoll(PQgetvalue(r, 0, 1), NULL, 10) : 0);
}

static void pg_advised(struct pg_lock *l, const PGresult *r)
{
	if (PQgetisnull(r, 0, 0))
		lock_user_end(&l->user, LOCK_CONFLICT);
	else
		lock_user_wrote(&l->user, PQgetvalue(r, 0, 0), 0);
}

static void pg_removed(struct pg_lock *l, const PGresult *r)
{
	lock_user_end(&l->user, PQntuples(r) == 1 ? LOCK_OK : LOCK_CONFLICT);
}

static void pg_listed(struct pg_lock *l, const PGresult *r)
{
	size_t len = lock_listing_prefix(l->name);

	for (int i = 0; i < PQntuples(r); i++)
		if (strncmp(PQgetvalue(r, i, 0), l->name, len) == 0)
			lock_listing_add(l->user.listing, PQgetvalue(r, i, 0) + len, LOCK_URL_PATH);
	lock_user_end(&l->user, LOCK_OK);
}

static void pg_told_about(struct pg_lock *l, const PGresult *r)
{
	pg_sql_judge(l->user.about, r);
	lock_user_end(&l->user, LOCK_OK);
}

static void pg_go_on(struct pg_lock *l, const PGresult *)
{
	pg_ask(l, l->operation);
}

/* Candidates that are other users, or whose tables were made at the same time, may be in two schemas. Who sees only one
 * has looked before the other one's was there, so that other one sees both. */
static void pg_made(struct pg_lock *l, const PGresult *)
{
	if (!strchr(l->table, '.')) {
		free(l->quoted);
		l->quoted = NULL;
	}
	pg_ask(l, l->quoted ? l->operation : PG_FIND);
}

static bool pg_without_table(struct pg_lock *l);

static void pg_found_none(struct pg_lock *l, const PGresult *r)
{
	const char *schema = PQgetisnull(r, 0, 3) ? NULL : PQgetvalue(r, 0, 3);
	bool makes = l->user.op.writing && !*l->user.expected.text;

	if (makes && !schema) {
		lock_op_fail(
			&l->user.op, LOCK_REFUSED, ERR_MISSING,
			"the table %s is in no schema, and this user's search_path names none to make it in: name one "
			"with ?table=SCHEMA.NAME",
			l->table);
		return;
	}
	if (makes)
		l->quoted = pg_sql_qualify(schema, strlen(schema), l->table);
	if (!pg_without_table(l))
		lock_op_fail(&l->user.op, LOCK_FAILED, ERR_MISSING, "the table %s was made, and is not there",
		             l->table);
}

static void pg_found_table(struct pg_lock *l, const PGresult *r)
{
	long long count = strtoll(PQgetvalue(r, 0, 0), NULL, 10);
	const char *schema = PQgetvalue(r, 0, 1);

	if (count == 0) {
		pg_found_none(l, r);
	} else if (count == 1) {
		l->quoted = pg_sql_qualify(schema, strlen(schema), l->table);
		l->met = true;
		bool expected = strcmp(schema, PQgetvalue(r, 0, 3)) == 0;
		if (!l->user.lock.advice)
			log_event(expected ? LOG_DEBUG : LOG_INFO, &(struct log_about){ .lock = l->user.lock.url },
			          "lock_table", "the lock's table is %s%s", l->quoted,
			          expected ? "" : ", which is not where this user's search_path begins");
		pg_server_expect(pg_server_of(l), l->quoted);
		pg_ask(l, l->operation);
	} else {
		lock_op_fail(&l->user.op, LOCK_REFUSED, ERR_USAGE,
		             "there are the tables %s: each candidate might mean another one. Say which it is by "
		             "?table=SCHEMA.NAME",
		             PQgetvalue(r, 0, 2));
	}
}

/* r: result 1 (pg_sql.h). */
static void (*const takes[])(struct pg_lock *l, const PGresult *r) = {
	[PG_READ] = pg_found,     [PG_WRITE] = pg_written,    [PG_BEGIN] = pg_written, [PG_REMOVE] = pg_removed,
	[PG_LIST] = pg_listed,    [PG_ABOUT] = pg_told_about, [PG_CREATE] = pg_made,   [PG_MARK] = pg_go_on,
	[PG_ADVISE] = pg_advised, [PG_FIND] = pg_found_table,
};

/* The table is missing: there is no record in it, unless it was there before. true: that is answered, or it is being
 * made. */
static bool pg_without_table(struct pg_lock *l)
{
	if (l->met)
		lock_op_fail(
			&l->user.op, LOCK_FAILED, ERR_MISSING,
			"the table %s is not there any more. This process makes no other one: put it back, or start "
			"all candidates again when no lease runs",
			l->quoted);
	else if (!l->user.op.writing)
		lock_user_end(&l->user, l->operation == PG_LIST ? LOCK_OK : LOCK_ABSENT);
	else if (*l->user.expected.text)
		lock_user_end(&l->user, LOCK_CONFLICT);
	else if (l->created)
		return false;
	else
		pg_ask(l, PG_CREATE);
	return true;
}

/* stamped: the answer surely belongs to this question. */
static void pg_refused(struct pg_lock *l, const PGresult *r, bool stamped)
{
	const char *state = pg_sql_state(r), *said = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	const struct pg_refusal *f = pg_sql_refusal(state);
	enum lock_outcome outcome = f->outcome;

	if (pg_is_operation(l) && l->stage != PG_ABOUT && pg_sql_is_missing_table(state) && pg_without_table(l))
		return;
	if (l->stage == PG_CREATE && pg_sql_is_made_already(state)) {
		pg_made(l, NULL);
		return;
	}
	if (!l->user.op.writing && outcome != LOCK_REFUSED)
		outcome = LOCK_FAILED;
	if (l->user.op.writing && !stamped)
		outcome = LOCK_UNKNOWN;
	if (outcome == LOCK_UNKNOWN && !pg_is_operation(l))
		outcome = LOCK_FAILED;
	lock_op_fail(&l->user.op, outcome, f->code, "the server says: %s (SQLSTATE %s)%s", said ? said : "nothing",
	             state, f->advice);
}

static void pg_on_ready(struct lock_call *c)
{
	struct pg_lock *l = (struct pg_lock *)lock_user_of_call(c);

	pg_server_stamp(pg_server_of(l), l->stamp);
	if (pg_is_operation(l))
		lock_op_sent(&l->user.op);
	pg_send(l);
}

/* The question was lost, or has an answer that cannot be believed: a write that was sent may have been carried out. */
static enum lock_outcome pg_lost_outcome(const struct pg_lock *l, bool sent, enum lock_outcome otherwise)
{
	return l->user.op.writing && sent && pg_is_operation(l) ? LOCK_UNKNOWN : otherwise;
}

static void pg_on_answered(struct lock_call *c, const void *answer)
{
	struct pg_lock *l = (struct pg_lock *)lock_user_of_call(c);
	const struct pg_answer *a = answer;
	bool stamped = pg_sql_is_stamped(l->stamp, a->results[0]);

	if (a->error ? !stamped && a->error != a->results[0] : !stamped || !pg_sql_fits(l->stage, a->results[1])) {
		lock_link_lose(l->user.op.link, LOCK_FAILED, ERR_INVALID, LOCK_QUEUE_MIXED_UP);
		lock_op_fail(&l->user.op, pg_lost_outcome(l, true, LOCK_FAILED), ERR_INVALID, LOCK_QUEUE_MIXED_UP);
	} else if (a->error) {
		pg_refused(l, a->error, stamped);
	} else {
		l->met = l->met || (pg_is_operation(l) && l->stage != PG_ABOUT);
		takes[l->stage](l, a->results[1]);
	}
}

static void pg_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct pg_lock *l = (struct pg_lock *)lock_user_of_call(c);

	if (lock_op_repeat(&l->user.op, sent))
		pg_ask(l, l->stage);
	else
		lock_op_fail(&l->user.op, pg_lost_outcome(l, sent, outcome), why->code, "%s", why->text);
}

/* ---- the lock ---- */

static bool pg_watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct pg_lock *l = (struct pg_lock *)lock;

	bool watching = lock_user_watch(lock, changed, arg);
	pg_server_expect(pg_server_of(l), l->quoted);
	return watching;
}

static void pg_free(struct lock_user *u)
{
	struct pg_lock *l = (struct pg_lock *)u;

	pg_server_of(l)->advice -= l->advises;
	free(l->name);
	free(l->table);
	free(l->quoted);
	free(l);
}

/* A name of letters and digits; two locks with the same one are told of each other's changes, which does no harm. */
static char *pg_channel(const struct pg_lock *l)
{
	char *quoted = pg_sql_quote(l->table);
	uint64_t h = hash_fnv(HASH_FNV_SEED, quoted, strlen(quoted));

	free(quoted);
	return mem_printf("lunarch_%016" PRIx64, hash_fnv(h, l->name, strlen(l->name)));
}

static const struct lock_ops ops;

static struct lock *pg_open(struct lock_env *env, const char *text, struct err *err)
{
	static const struct lock_user_ops user_ops = {
		.begin = pg_begin,
		.free = pg_free,
		.call = { .ready = pg_on_ready, .answered = pg_on_answered, .lost = pg_on_lost },
	};
	struct pg_url u;

	if (pg_url_parse(&u, text, err) < 0) {
		char *shown = lock_url_redact(text);
		err_wrap(err, "lock \"%s:%s\"", ops.scheme, shown);
		free(shown);
		return NULL;
	}
	struct pg_lock *l = mem_zero(sizeof *l);
	char *shown = pg_url_print(&u);
	l->name = u.name;
	l->table = u.table ? u.table : mem_dup(TABLE);
	if (strchr(l->table, '.'))
		l->quoted = pg_sql_quote(l->table);
	lock_user_init(&l->user, &ops, &user_ops, shown, &pg_server_get(env, u.place)->base, pg_channel(l));
	l->advises = env->opens_next;
	pg_server_of(l)->advice += l->advises;
	return &l->user.lock;
}

static const struct lock_ops ops = {
	.scheme = "postgres",
	.open = pg_open,
	.watch = pg_watch,
	LOCK_USER_OPS,
	.key_last = true,
	.next = ".next",
};
static const struct lock_ops long_ops = { .scheme = "postgresql", .open = pg_open, .key_last = true };

static const struct lock_ops *const locks[] = { &ops, &long_ops, NULL };

static void name_libraries(struct buf *out)
{
	int v = PQlibVersion();

	buf_printf(out, "libpq %d.%d", v / 10000, v % 10000);
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .locks = locks };
