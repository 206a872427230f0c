/* The lock in a PostgreSQL database: its operations, and what each answer means for them. The row and the statements
 * are described in pg_sql.h, what happens when a server is promoted in pg_failover.h. */
#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/module.h"
#include "locks/lock_op.h"
#include "locks/lock_url.h"
#include "locks/postgres/pg_failover.h"
#include "locks/postgres/pg_server.h"
#include "locks/postgres/pg_sql.h"
#include "locks/postgres/pg_url.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TABLE "lunarch_locks"

/* ASK is the operation itself. CREATE and MARK come before it if the table or the timeline asks for them. INQUIRE is
 * doctor's. */
enum pg_stage { ASK, CREATE, MARK, INQUIRE };

struct pg_lock {
	struct lock lock;
	struct pg_server *server;
	char *name, *table, *quoted;
	char channel[32];
	struct lock_op op;
	struct lock_call call;
	struct lock_member member;
	enum pg_stage stage;
	bool created, marked; /* in this operation */
	char stamp[PG_STAMP]; /* of the question under way */

	struct version expected; /* of the write under way, as are these */
	bool acquiring, leads, removing;
	struct lock_about *about;
	nsec lease;

	struct lock_failover doubt;
};

static struct pg_lock *pg_of_call(struct lock_call *c)
{
	return (struct pg_lock *)(void *)((char *)c - offsetof(struct pg_lock, call));
}

/* ---- asking ---- */

/* A new term waits for transactions that hold the row, but not so long that another lock's, behind it, is late. */
static int pg_patience_ms(const struct pg_lock *l, int left_ms)
{
	if (!l->op.writing || !l->acquiring)
		return left_ms / 5;
	return l->server->base.users == 1 || l->op.link->queue.count == 0 ? left_ms * 3 / 5 : left_ms / 10;
}

static struct pg_question pg_question(struct pg_lock *l)
{
	int left_ms = lock_op_left_ms(&l->op);

	return (struct pg_question){
		.link = l->op.link,
		.call = &l->call,
		.table = l->quoted,
		.stamp = l->stamp,
		.statement_ms = left_ms,
		.lock_ms = pg_patience_ms(l, left_ms),
	};
}

static void pg_send_write(struct pg_lock *l, const struct pg_question *q)
{
	struct instant now = clock_now();
	char floor[24];

	lock_failover_sends(&l->doubt, l->leads, l->lease, now);
	snprintf(floor, sizeof floor, "%" PRId64, l->lock.token_floor);
	const char *const values[PG_SWAP_VALUES] = {
		[PG_NAME] = l->name,
		[PG_RECORD] = l->op.text,
		[PG_EXPECTED] = l->expected.text,
		[PG_CHANNEL] = l->channel,
		[PG_MEMBER] = l->member.name,
		[PG_WAITED_OUT] = lock_failover_over(&l->doubt, l->lease, now),
		[PG_OWN] = lock_failover_own(&l->doubt, &l->expected, now) ? "t" : "f",
		[PG_FLOOR] = floor,
	};

	pg_sql_swap(q, l->acquiring, values);
}

static void pg_send_remove(struct pg_lock *l, const struct pg_question *q)
{
	lock_failover_sends(&l->doubt, false, 0, l->op.sent_at);
	pg_sql_remove(q, l->name, l->expected.text);
}

static void pg_on_ready(struct lock_call *c)
{
	struct pg_lock *l = pg_of_call(c);

	pg_server_stamp(l->server, l->stamp);
	if (l->stage == ASK)
		lock_op_sent(&l->op);
	struct pg_question q = pg_question(l);
	if (l->stage == CREATE)
		pg_sql_create(&q);
	else if (l->stage == MARK)
		pg_failover_mark(&q);
	else if (l->stage == INQUIRE)
		pg_sql_about(&q);
	else if (l->removing)
		pg_send_remove(l, &q);
	else if (l->op.writing)
		pg_send_write(l, &q);
	else
		pg_sql_read(&q, l->name);
}

static void pg_ask(struct pg_lock *l, enum pg_stage stage)
{
	l->stage = stage;
	lock_op_ask(&l->op, pg_server_link(l->server, l->op.writing && l->acquiring), &l->call);
}

/* ---- answers ---- */

static void pg_end(struct pg_lock *l, enum lock_outcome outcome)
{
	lock_op_finish(&l->op, &(struct lock_result){ .outcome = outcome });
}

/* The table is missing: there is no record in it. true: that is answered, or it is being made. */
static bool pg_without_table(struct pg_lock *l)
{
	if (!l->op.writing)
		pg_end(l, LOCK_ABSENT);
	else if (*l->expected.text)
		pg_end(l, LOCK_CONFLICT);
	else if (l->created)
		return false;
	else {
		l->created = true;
		pg_ask(l, CREATE);
	}
	return true;
}

/* stamped: the answer surely belongs to this question. */
static void pg_refused(struct pg_lock *l, const PGresult *r, bool stamped)
{
	const char *state = pg_sql_state(r), *said = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
	const struct pg_refusal *f = pg_sql_refusal(state);
	enum lock_outcome outcome = f->outcome;

	if (l->stage == ASK && pg_sql_is_missing_table(state) && pg_without_table(l))
		return;
	if (l->stage == CREATE && pg_sql_is_made_already(state)) {
		pg_ask(l, ASK);
		return;
	}
	if (!l->op.writing && outcome != LOCK_REFUSED)
		outcome = LOCK_FAILED;
	if (l->op.writing && !stamped)
		outcome = LOCK_UNKNOWN;
	if (outcome == LOCK_UNKNOWN && l->stage != ASK)
		outcome = LOCK_FAILED;
	lock_op_fail(&l->op, outcome, f->code, "the server says: %s (SQLSTATE %s)%s", said ? said : "nothing", state,
	             f->advice);
}

static void pg_found(struct pg_lock *l, const PGresult *r)
{
	char what[400];

	if (PQntuples(r) == 0) {
		pg_end(l, LOCK_ABSENT);
		return;
	}
	snprintf(what, sizeof what, "the row '%.200s' of %.150s", l->name, l->table);
	lock_failover_see(&l->doubt, PQgetvalue(r, 0, 4), clock_now());
	if (PQgetisnull(r, 0, 0))
		lock_op_fail(&l->op, LOCK_FOREIGN, ERR_INVALID,
		             "%s has a record of %s bytes, which is no election record. It is not touched", what,
		             PQgetvalue(r, 0, 3));
	else
		lock_op_found(&l->op, what, PQgetvalue(r, 0, 0), (size_t)PQgetlength(r, 0, 0), PQgetvalue(r, 0, 1),
		              strtoll(PQgetvalue(r, 0, 2), NULL, 10));
}

/* Another term than the one it shows may have been lost with the server before. */
static void pg_in_doubt(struct pg_lock *l, const char *mark)
{
	struct instant now = clock_now();

	lock_failover_see(&l->doubt, mark, now);
	lock_op_fail(
		&l->op, LOCK_FAILED, ERR_UNREACHABLE,
		"the server was promoted and may have lost a leader's record: nobody is elected for another %.1f s",
		(double)lock_failover_left(&l->doubt, l->lease, now) / NSEC_PER_SEC);
}

/* Nothing was changed: the row is another, or, for a new term, the timeline. */
static void pg_not_written(struct pg_lock *l, const struct pg_answer *a)
{
	const char *doubt = "";

	switch (l->acquiring ? pg_failover_read_why(a->results[2], &doubt) : PG_ROW_CHANGED) {
	case PG_ROW_CHANGED:
		pg_end(l, LOCK_CONFLICT);
		break;
	case PG_IN_DOUBT:
		pg_in_doubt(l, doubt);
		break;
	case PG_OTHER_TIMELINE:
		if (l->marked)
			lock_op_fail(&l->op, LOCK_FAILED, ERR_UNREACHABLE,
			             "the server's timeline changes all the time");
		else
			pg_ask(l, MARK);
		break;
	}
}

/* A leader whose term goes on after a promotion names the doubt, so that it is over when he hands over. */
static void pg_learn(struct pg_lock *l, const char *mark)
{
	struct pg_question q = pg_question(l);

	q.call = NULL;
	if (strcmp(mark, "?") == 0)
		pg_failover_mark(&q);
	else
		lock_failover_see(&l->doubt, mark, clock_now());
}

static void pg_written(struct pg_lock *l, const struct pg_answer *a)
{
	const PGresult *r = a->results[1];
	struct lock_result result = { .outcome = LOCK_OK };

	if (PQntuples(r) == 0) {
		pg_not_written(l, a);
		return;
	}
	snprintf(result.version.text, sizeof result.version.text, "%s", PQgetvalue(r, 0, 0));
	if (l->acquiring)
		result.token = strtoll(PQgetvalue(r, 0, 1), NULL, 10);
	pg_learn(l, PQgetvalue(r, 0, 3));
	lock_failover_wrote(&l->doubt, &result.version, l->leads, l->lease, l->op.sent_at);
	if (l->acquiring)
		pg_rehearsal_led(&l->server->rehearsal);
	lock_op_finish(&l->op, &result);
}

static void pg_told_about(struct pg_lock *l, const PGresult *r)
{
	pg_sql_judge(l->about, r);
	pg_end(l, LOCK_OK);
}

static bool pg_answer_fits(const struct pg_lock *l, const struct pg_answer *a)
{
	if (l->stage == CREATE || l->stage == MARK)
		return true;
	if (l->stage == INQUIRE)
		return pg_sql_is_row(a->results[1], 5) && PQntuples(a->results[1]) == 1;
	if (!l->op.writing)
		return pg_sql_is_row(a->results[1], 5);
	return l->removing ? pg_sql_is_row(a->results[1], 1)
	                   : pg_sql_is_row(a->results[1], 4) && (!l->acquiring || pg_sql_is_row(a->results[2], 2));
}

static void pg_mixed_up(struct pg_lock *l)
{
	lock_link_lose(l->op.link, LOCK_FAILED, ERR_INVALID, LOCK_QUEUE_MIXED_UP);
	lock_op_fail(&l->op, l->op.writing && l->stage == ASK ? LOCK_UNKNOWN : LOCK_FAILED, ERR_INVALID,
	             LOCK_QUEUE_MIXED_UP);
}

static void pg_on_answered(struct lock_call *c, const void *answer)
{
	struct pg_lock *l = pg_of_call(c);
	const struct pg_answer *a = answer;
	bool stamped = pg_question_is_stamped(l->stamp, a->results[0]);

	if (a->error ? !stamped && a->error != a->results[0] : !stamped || !pg_answer_fits(l, a))
		pg_mixed_up(l);
	else if (a->error)
		pg_refused(l, a->error, stamped);
	else if (l->stage == CREATE || l->stage == MARK) {
		l->marked = l->stage == MARK;
		pg_ask(l, ASK);
	} else if (l->removing)
		pg_end(l, PQntuples(a->results[1]) == 1 ? LOCK_OK : LOCK_CONFLICT);
	else if (l->op.writing)
		pg_written(l, a);
	else if (l->stage == INQUIRE)
		pg_told_about(l, a->results[1]);
	else
		pg_found(l, a->results[1]);
}

static void pg_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	struct pg_lock *l = pg_of_call(c);
	bool unknown = l->op.writing && sent && l->stage == ASK;

	if (lock_op_repeat(&l->op, sent))
		pg_ask(l, l->stage);
	else
		lock_op_fail(&l->op, unknown ? LOCK_UNKNOWN : outcome, why->code, "%s", why->text);
}

/* ---- the operations ---- */

static void pg_begin(struct pg_lock *l, bool writing, struct instant by, lock_done_fn *done, void *arg)
{
	lock_op_begin(&l->op, l->server->base.env, &l->lock, NULL, writing, by, done, arg);
	l->op.doubt = &l->doubt;
	l->created = l->marked = l->removing = false;
}

static void pg_read(struct lock *lock, struct instant by, lock_done_fn *done, void *arg)
{
	struct pg_lock *l = (struct pg_lock *)lock;

	pg_begin(l, false, by, done, arg);
	pg_ask(l, ASK);
}

static void pg_write(struct lock *lock, const struct record *r, const struct version *expected, bool durable,
                     struct instant by, lock_done_fn *done, void *arg)
{
	struct pg_lock *l = (struct pg_lock *)lock;

	(void)durable; /* always */
	pg_begin(l, true, by, done, arg);
	l->acquiring = r->token == 0;
	if (l->acquiring)
		lock_member_rename(&l->member);
	if (!lock_op_print(&l->op, r))
		return;
	l->expected = *expected;
	l->leads = r->state == RECORD_LEADING && *r->holder;
	l->lease = r->lease_ms * NSEC_PER_MS;
	pg_ask(l, ASK);
}

static void pg_remove(struct lock *lock, const struct version *expected, struct instant by, lock_done_fn *done,
                      void *arg)
{
	struct pg_lock *l = (struct pg_lock *)lock;

	pg_begin(l, true, by, done, arg);
	l->acquiring = false;
	l->removing = true;
	l->expected = *expected;
	pg_ask(l, ASK);
}

static void pg_about(struct lock *lock, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct pg_lock *l = (struct pg_lock *)lock;

	pg_begin(l, false, by, done, arg);
	l->about = about;
	pg_ask(l, INQUIRE);
}

static void pg_cancel(struct lock *lock)
{
	lock_op_cancel(&((struct pg_lock *)lock)->op);
}

static bool pg_watch(struct lock *lock, lock_changed_fn *changed, void *arg)
{
	struct pg_lock *l = (struct pg_lock *)lock;

	return pg_server_watch(l->server, &l->member, l->channel, l->quoted, changed, arg);
}

static void pg_close(struct lock *lock)
{
	struct pg_lock *l = (struct pg_lock *)lock;

	lock_op_cancel(&l->op);
	lock_server_unwatch(&l->server->base, &l->member);
	lock_server_put(&l->server->base);
	free(l->name);
	free(l->table);
	free(l->quoted);
	free(l->lock.url);
	free(l);
}

/* ---- opening ---- */

/* A name of letters and digits; two locks with the same one are told of each other's changes, which does no harm. */
static void pg_name_channel(struct pg_lock *l)
{
	uint64_t h = hash_fnv(HASH_FNV_SEED, l->quoted, strlen(l->quoted));

	h = hash_fnv(h, l->name, strlen(l->name));
	snprintf(l->channel, sizeof l->channel, "lunarch_%016" PRIx64, h);
}

static const struct lock_ops ops;

static struct lock *pg_new(struct lock_env *env, struct pg_place *place, const struct pg_url *u)
{
	struct pg_lock *l = mem_zero(sizeof *l);

	*l = (struct pg_lock){
		.lock = { .ops = &ops, .url = pg_url_print(u, place) },
		.name = mem_dup(u->name),
		.table = mem_dup(u->table ? u->table : TABLE),
		.call = { .ready = pg_on_ready, .answered = pg_on_answered, .lost = pg_on_lost },
	};
	l->quoted = pg_sql_quote(l->table);
	pg_name_channel(l);
	l->server = pg_server_get(env, place);
	lock_member_init(&l->member, &l->server->base.board);
	return &l->lock;
}

static struct lock *pg_open(struct lock_env *env, const char *text, struct err *err)
{
	struct pg_url u;
	const char *wrong = pg_url_parse(&u, text);
	struct pg_place *place = wrong ? NULL : pg_place_new(u.uri, err);
	struct lock *l = place ? pg_new(env, place, &u) : NULL;

	if (wrong)
		err_set(err, ERR_USAGE, "%s", wrong);
	if (!l) {
		char *shown = lock_url_redact(text);
		err_wrap(err, "lock \"%s:%s\"", ops.scheme, shown);
		free(shown);
	}
	pg_url_fini(&u);
	return l;
}

static const struct lock_ops ops = {
	.scheme = "postgres",
	.open = pg_open,
	.read = pg_read,
	.write = pg_write,
	.cancel = pg_cancel,
	.watch = pg_watch,
	.close = pg_close,
	.about = pg_about,
	.remove = pg_remove,
	.key_last = true,
};
static const struct lock_ops long_ops = { .scheme = "postgresql", .open = pg_open };

static const struct lock_ops *const locks[] = { &ops, &long_ops, NULL };

static void name_libraries(struct buf *out)
{
	int v = PQlibVersion();

	buf_printf(out, "libpq %d.%d", v / 10000, v % 10000);
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .locks = locks };
