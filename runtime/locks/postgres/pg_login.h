/* Connecting and logging in to the PostgreSQL server at a place, off the loop: host names are looked up on threads, and
 * each step of libpq's is taken on a thread, since a server may ask it for hours of hashing (RFC 5802: iterations).
 * Not the session that follows, and no deadline: both are the link's. Used by the link. */
#pragma once

#include "locks/lock_link.h"
#include "locks/postgres/pg_url.h"

#include <stdint.h>

/* How much a server has sent since its last whole answer. libpq takes a message of any length, and results of any
 * number of rows, until its memory is used up: its caller has to stop it. */
struct pg_meter {       /* zero at the start of a connection */
	uint64_t taken; /* private, as are these: bytes of it, up to the end of the last answer */
	bool ended;     /* an answer, or a notice, has ended since */
	size_t mapped;  /* bytes of large pieces of the heap, before libpq read */
};
void pg_meter_begin(struct pg_meter *m); /* before libpq reads */
void pg_meter_end(struct pg_meter *m);   /* an answer, or a notice, has ended */

/* After libpq has read: more has come than any answer needs, or a message says that it will be longer. libpq tells no
 * message's length, but makes room for the whole message as soon as it has read its length, and then reads for as long
 * as the sender keeps up: so room that is too large is the end of the connection before any of it is filled. What has
 * come is known of TCP connections; at the other end of a Unix socket is this machine's own server, which is never
 * over. */
bool pg_meter_is_over(struct pg_meter *m, const PGconn *conn);
#define PG_METER_OVER "the server's answer is longer than any that was asked for"

struct pg_login;

/* conn: logged in, the callee's. NULL: it failed; outcome (LOCK_FAILED or LOCK_REFUSED) and why say how. */
typedef void pg_login_done_fn(struct lock_link *link, PGconn *conn, enum lock_outcome outcome, const struct err *why);

/* One for each link, which waits for the socket for it (lock_link_wait). place: borrowed. done may free it. */
struct pg_login *pg_login_new(struct lock_link *link, const struct pg_place *place, pg_login_done_fn *done);
void pg_login_free(struct pg_login *l); /* cancels */

/* Starts an attempt. If there are several addresses, each gets an equal part of the time until `by` to be connected to,
 * and each attempt begins with another one, so that one that takes connections and then says nothing is not always the
 * first. Only while none is under way. done is called once, perhaps from inside this. */
void pg_login_start(struct pg_login *l, struct instant by);

/* What the link waited for has happened. */
void pg_login_step(struct pg_login *l);

/* The time of lock_link_tick, which a log-in may ask for, has come. done may be called from inside this. */
void pg_login_tick(struct pg_login *l);

/* done is not called any more. What a thread has begun is finished when it comes back; what waits for one is ended. */
void pg_login_cancel(struct pg_login *l);

/* What libpq says of a connection that failed, on one line, and whether that is a refusal. */
enum lock_outcome pg_login_judge(PGconn *conn, struct err *why);
