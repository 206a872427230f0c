/* A PostgreSQL server and database, as libpq's URIs, service files and environment variables name them.
 * Not a connection, and no network: names are looked up by the link.
 * Used by the PostgreSQL lock and its link. */
#ifndef LUNARCH_PG_PLACE_H
#define LUNARCH_PG_PLACE_H

#include "base/err.h"

#include <postgresql/libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

struct pg_place {
	char *uri;
	char *password;            /* from LUNARCH_LOCK_PASSWORD; NULL */
	PQconninfoOption *options; /* every one that libpq would use */
	unsigned timeline;         /* the newest that a link has seen there; 0: none */
};

/* uri: anything that libpq takes for a connection. NULL with *err, in which nothing of it is that may be a password. */
struct pg_place *pg_place_new(const char *uri, struct err *err);
void pg_place_free(struct pg_place *p);
bool pg_place_same(const struct pg_place *a, const struct pg_place *b);

/* "postgres://USER@HOST:PORT/DATABASE", malloc'd. */
char *pg_place_print(const struct pg_place *p);

/* NULL: not set. */
const char *pg_place_option(const struct pg_place *p, const char *keyword);

/* The i-th item of a list with commas. false: there is none. */
bool pg_place_item(const char *list, int i, char *out, size_t size);

#endif
