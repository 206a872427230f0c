#include "locks/postgres/pg_url.h"

#include "base/buf.h"
#include "locks/lock_url.h"
#include "locks/postgres/pg_place.h"

#include <stdlib.h>
#include <string.h>

void pg_url_fini(struct pg_url *u)
{
	if (u->uri)
		explicit_bzero(u->uri, strlen(u->uri));
	free(u->uri);
	free(u->name);
	free(u->table);
}

/* Takes our own option out of the query; libpq knows the others. */
static const char *url_split_query(struct pg_url *u, const char *query, size_t len, struct buf *uri)
{
	const char *end = query + len, *before = "?";

	while (query < end) {
		const char *stop = memchr(query, '&', (size_t)(end - query));
		size_t n = (size_t)((stop ? stop : end) - query);
		if (n > 6 && strncmp(query, "table=", 6) == 0) {
			free(u->table);
			u->table = lock_url_decode(query + 6, n - 6);
			if (!u->table)
				return "the table's name has a bad percent escape";
		} else if (n) {
			buf_adds(uri, before);
			buf_add(uri, query, n);
			before = "&";
		}
		query += n + 1;
	}
	return NULL;
}

const char *pg_url_parse(struct pg_url *u, const char *text)
{
	const char *hash = strrchr(text, '#');
	struct buf uri = { 0 };

	*u = (struct pg_url){ .uri = NULL };
	if (strncmp(text, "//", 2) != 0)
		return "expected a libpq URI, as //USER@HOST:PORT/DATABASE#NAME";
	if (!hash || !hash[1])
		return "the lock's name is missing: it stands behind a #, as in //USER@HOST:PORT/DATABASE#NAME";
	u->name = lock_url_decode(hash + 1, strlen(hash + 1));
	if (!u->name)
		return "the lock's name has a bad percent escape";
	const char *query = memchr(text, '?', (size_t)(hash - text));
	buf_adds(&uri, "postgresql:");
	buf_add(&uri, text, (size_t)((query ? query : hash) - text));
	const char *wrong = query ? url_split_query(u, query + 1, (size_t)(hash - query - 1), &uri) : NULL;
	u->uri = uri.data;
	return wrong;
}

char *pg_url_print(const struct pg_url *u, const struct pg_place *place)
{
	char *at = pg_place_print(place);
	struct buf b = { 0 };

	buf_adds(&b, at);
	if (u->table) {
		buf_adds(&b, "?table=");
		lock_url_encode(&b, u->table, "");
	}
	buf_adds(&b, "#");
	lock_url_encode(&b, u->name, "/{}:@!$&'()*+,;=");
	free(at);
	return b.data;
}
