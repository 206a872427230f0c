/* How much a PostgreSQL server has sent since its last whole answer. libpq takes a message of any length, and results
 * of any number of rows, until its memory is used up: its caller has to stop it. Not a limit of libpq's own.
 * Used by the link and its log-in, which look after each time that libpq has read. */
#ifndef LUNARCH_PG_METER_H
#define LUNARCH_PG_METER_H

#include <postgresql/libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pg_meter {       /* zero at the start of a connection */
	uint64_t taken; /* bytes of it, up to the end of the last answer */
	bool ended;     /* private: an answer, or a notice, has ended since */
	size_t mapped;  /* private: bytes of large pieces of the heap, before libpq read */
};

/* An answer, or a notice, has ended. */
static inline void pg_meter_end(struct pg_meter *m)
{
	m->ended = true;
}

/* To be called before libpq reads. */
void pg_meter_begin(struct pg_meter *m);

/* More has come than any answer needs, or a message says that it will be longer. libpq tells no message's length, but
 * makes room for the whole message as soon as it has read its length, and then reads for as long as the sender keeps
 * up: so room that is too large is the end of the connection before any of it is filled. What has come is known of TCP
 * connections; at the other end of a Unix socket is this machine's own server, which is never over. */
bool pg_meter_is_over(struct pg_meter *m, const PGconn *conn);

#define PG_METER_OVER "the server's answer is longer than any that was asked for"

#endif
