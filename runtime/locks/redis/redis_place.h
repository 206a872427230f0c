/* Where a Redis lock is: what its URL says, with what people paste from the URLs of other clients.
 * Not a connection. Used by the Redis lock. */
#pragma once

#include "locks/lock_url.h"

/* What locks have in common that share connections. */
struct redis_place {
	struct lock_url url; /* hosts, user and password; its path is the database and the key */
	bool tls;            /* with the URL's ca, cert, key and server_name */
	/* NULL: the hosts are the servers. Else they are Sentinels, which know the primary by this name; the path is
	 * this name and the database; user and password are the servers', and the Sentinels have these. */
	char *master, *sentinel_user, *sentinel_password;
	int db, replicas, max_age; /* the last in seconds */
};

/* text: what follows "scheme:". *key is to be freed, and so is *shown, the URL as people see it. -1: *err, and nothing is
 * to be freed. */
int redis_place_parse(struct redis_place *p, char **key, char **shown, const char *scheme, const char *text,
                      struct err *err);
bool redis_place_same(const struct redis_place *a, const struct redis_place *b);
void redis_place_fini(struct redis_place *p);
