/* The URL of a lock in PostgreSQL: a libpq URI, with ?table=NAME among its options and the lock's name behind a '#'.
 * Not the server's settings: those are libpq's to understand (pg_place.h).
 * Used by the PostgreSQL lock. */
#ifndef LUNARCH_PG_URL_H
#define LUNARCH_PG_URL_H

struct pg_place;

struct pg_url {
	char *uri; /* for libpq, without what is ours */
	char *name;
	char *table; /* NULL: not given */
};

/* text: what follows "postgres:". NULL: it is fine; else what is wrong with it. pg_url_fini is due in both cases. */
const char *pg_url_parse(struct pg_url *u, const char *text);
void pg_url_fini(struct pg_url *u); /* u->uri's bytes are wiped: a password may be among them */

/* The same for every spelling of the same lock, without secrets. malloc'd. */
char *pg_url_print(const struct pg_url *u, const struct pg_place *place);

#endif
