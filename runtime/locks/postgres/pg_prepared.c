#include "locks/postgres/pg_prepared.h"

#include "base/hash.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_one_of(const PGresult *r, const char *const *states)
{
	const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);

	while (state && *states && strcmp(state, *states) != 0)
		states++;
	return state && *states;
}

/* A table that is missing will be made, and one that is locked will be free: then it is tried again. */
static void prepared_on_answered(struct lock_call *c, const void *answer)
{
	static const char *const passing[] = { "42P01", "55P03", "57014", NULL };
	struct pg_prepared *p = (struct pg_prepared *)(void *)c;
	const struct pg_answer *a = answer;

	p->state = a->error ? PG_FAILED : PG_READY;
	if (a->error && !is_one_of(a->error, passing))
		p->set->plain = true;
}

static void prepared_on_lost(struct lock_call *c, bool sent, enum lock_outcome outcome, const struct err *why)
{
	(void)c;
	(void)sent;
	(void)outcome;
	(void)why;
}

/* Where this statement is, or a free place; -1: there is none left. */
static int place_of(const struct pg_prepared_set *set, const char *sql)
{
	for (int i = 0; i < PG_PREPARED; i++)
		if (!set->each[i].sql || strcmp(set->each[i].sql, sql) == 0)
			return i;
	return -1;
}

/* In a question of its own: one that fails must not undo another, and one that finds the table locked must not wait for
 * that long. Statements of the same name have the same text, whoever's session it is. */
struct lock_call *pg_prepared_want(struct pg_prepared_set *set, PGconn *conn, const struct pg_statement *s, bool *good)
{
	static const char brief[] = "SELECT set_config('lock_timeout', '100', true)";
	int i = place_of(set, s->sql);
	struct pg_prepared *p = &set->each[i < 0 ? 0 : i];

	if (i < 0 || set->plain || (p->sql && p->state != PG_FAILED))
		return NULL;
	if (!p->sql) {
		*p = (struct pg_prepared){ .call = { .answered = prepared_on_answered, .lost = prepared_on_lost },
			                   .set = set,
			                   .sql = mem_dup(s->sql) };
		snprintf(p->name, sizeof p->name, "lunarch_%016" PRIx64,
		         hash_fnv(HASH_FNV_SEED, s->sql, strlen(s->sql)));
	}
	p->state = PG_ASKED;
	*good = PQsendQueryParams(conn, brief, 0, NULL, NULL, NULL, NULL, 0) &&
	        PQsendPrepare(conn, p->name, s->sql, s->count, NULL);
	return &p->call;
}

bool pg_prepared_send(const struct pg_prepared_set *set, PGconn *conn, const struct pg_statement *s)
{
	int i = place_of(set, s->sql);

	if (i >= 0 && set->each[i].sql && set->each[i].state == PG_READY && !set->plain)
		return PQsendQueryPrepared(conn, set->each[i].name, s->count, s->values, NULL, NULL, 0);
	return PQsendQueryParams(conn, s->sql, s->count, NULL, s->values, NULL, NULL, 0);
}

/* The session is not ours alone after all, or the table is another now: the next ones do without. */
void pg_prepared_look(struct pg_prepared_set *set, const PGresult *r)
{
	static const char *const useless[] = { "26000", "0A000", NULL };

	set->plain = set->plain || is_one_of(r, useless);
}

void pg_prepared_stop(struct pg_prepared_set *set)
{
	set->plain = true;
}

void pg_prepared_clear(struct pg_prepared_set *set, struct lock_pipeline *queue)
{
	for (struct pg_prepared *p = set->each; p < set->each + PG_PREPARED && p->sql; p++) {
		lock_pipeline_forget(queue, &p->call);
		free(p->sql);
		*p = (struct pg_prepared){ .sql = NULL };
	}
	set->plain = false;
}
