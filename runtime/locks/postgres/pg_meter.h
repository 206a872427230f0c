/* How much a PostgreSQL server has sent since its last whole answer. libpq takes a message of any length, and results
 * of any number of rows, until its memory is used up: its caller has to stop it.
 * Not a limit of one message, whose length libpq does not tell. Used by the link and its log-in. */
#ifndef LUNARCH_PG_METER_H
#define LUNARCH_PG_METER_H

#include <postgresql/libpq-fe.h>
#include <stdbool.h>
#include <stdint.h>

struct pg_meter {       /* zero at the start of a connection */
	uint64_t taken; /* bytes of it, up to the end of the last answer */
	bool ended;     /* private: an answer, or a notice, has ended since */
};

/* An answer, or a notice, has ended. */
static inline void pg_meter_end(struct pg_meter *m)
{
	m->ended = true;
}

/* More has come than any answer needs. What has come is known of TCP connections; at the other end of a Unix socket is
 * this machine's own server, which is never over. */
bool pg_meter_is_over(struct pg_meter *m, const PGconn *conn);

#define PG_METER_OVER "the server's answer is longer than any that was asked for"

#endif
