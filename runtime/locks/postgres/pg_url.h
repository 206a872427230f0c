/* The URL of a lock in PostgreSQL: a libpq URI, with ?table=NAME and ?max_age=SECONDS among its options and the lock's
 * name behind a '#'; and the place that the URI, service files and environment variables name. Not a connection, and no
 * network. Used by the PostgreSQL lock, its servers and links. */
#pragma once

#include "base/err.h"

#include <postgresql/libpq-fe.h>
#include <stdbool.h>
#include <stddef.h>

struct pg_place {                  /* a server and database: the same where uri is the same */
	char *uri;                 /* for libpq, without what is ours */
	char *password;            /* from LUNARCH_LOCK_PASSWORD; NULL */
	PQconninfoOption *options; /* every one that libpq would use */
	int max_age;               /* ?max_age=: seconds; 0: none */
	unsigned timeline;         /* the newest that a link has seen there; 0: none */
};
void pg_place_free(struct pg_place *p);

/* NULL: not set. */
const char *pg_place_option(const struct pg_place *p, const char *keyword);

/* The i-th item of a list with commas. false: there is none. */
bool pg_place_item(const char *list, int i, char *out, size_t size);

struct pg_url { /* all of it the caller's to free */
	struct pg_place *place;
	char *name;
	char *table; /* NULL: not given */
	int max_age; /* the place's; 0: not given */
};

/* text: what follows "postgres:". -1: *err, in which nothing of it is that may be a password; u is empty then. */
int pg_url_parse(struct pg_url *u, const char *text, struct err *err);

/* The same for every spelling of the same lock, without secrets. malloc'd. */
char *pg_url_print(const struct pg_url *u);
