/* PostgreSQL's failovers: a promoted server is on a new timeline, and may lack the last records of the one before.
 * Not the wait that follows, which is the same for every store (lock_failover.h), and no connection.
 * Used by the statements of the PostgreSQL lock and by the lock. How it works: docs/locks.md.
 *
 * The table's row named '' is the mark. Its token is the timeline on which the table was last known to be. Its server
 * is the name of the doubt that the last change of timeline left; '' is none. In a lock's row, server is the doubt
 * under which that row was last sound. */
#ifndef LUNARCH_PG_FAILOVER_H
#define LUNARCH_PG_FAILOVER_H

#include "locks/postgres/pg_question.h"

/* SQL: microseconds of the server's clock. */
#define PG_CLOCK "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint"

/* SQL, where e is the mark: the doubt that a lock's row with this `server` is in; '' is none. */
#define PG_DOUBT_OF(server) "CASE WHEN e.server IN ('', " server ") THEN '' ELSE e.server END"

/* SQL: the server's timeline; "0" where it cannot say it. Only while the link is up. */
const char *pg_failover_timeline(const struct lock_link *link);

/* The statement that makes the mark in a new table. malloc'd, as are the others. */
char *pg_failover_first_mark(const struct pg_question *q);

/* The condition of a write that begins a term: $7 says that the row is our own term's, or the mark has the server's
 * timeline, and its doubt is none, or is $6, or is the row's own (there: there is a row, named r). */
char *pg_failover_condition(const struct pg_question *q, bool there);

/* The expression that a write returns about the doubt of the row w: '?' is a timeline that the mark does not have. */
char *pg_failover_after_write(const struct pg_question *q);

/* The statement that asks, in the same question as a write, why nothing was written. $1: the lock's name, $2: as $6
 * above. */
char *pg_failover_why(const struct pg_question *q);

enum pg_why {
	PG_ROW_CHANGED,    /* the row is not the one that was expected */
	PG_OTHER_TIMELINE, /* the mark has another timeline than the server: pg_failover_mark is due */
	PG_IN_DOUBT,       /* *doubt is its name, borrowed from r: it has not been waited out */
};
enum pg_why pg_failover_read_why(const PGresult *r, const char **doubt);

/* Asks the server to put its timeline into the mark and to name the doubt, for all, unless somebody has. */
void pg_failover_mark(const struct pg_question *q);

#endif
