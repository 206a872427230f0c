#include "locks/postgres/pg_url.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/lock_link.h"
#include "locks/lock_url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the place ---- */

void pg_place_free(struct pg_place *p)
{
	PQconninfoFree(p->options);
	if (p->password)
		explicit_bzero(p->password, strlen(p->password));
	explicit_bzero(p->uri, strlen(p->uri));
	free(p->password);
	free(p->uri);
	free(p);
}

const char *pg_place_option(const struct pg_place *p, const char *keyword)
{
	for (const PQconninfoOption *o = p->options; o->keyword; o++)
		if (strcmp(o->keyword, keyword) == 0)
			return o->val && *o->val ? o->val : NULL;
	return NULL;
}

/* libpq quotes what it did not understand, which may be a password: what stands in quotes is left out. */
static int place_refuse(const char *message, struct err *err)
{
	char text[300];
	size_t n = strcspn(message, "\"\n");

	snprintf(text, sizeof text, "%.*s", (int)n, message);
	n = strlen(text);
	while (n && (isspace((unsigned char)text[n - 1]) || text[n - 1] == ':'))
		text[--n] = '\0';
	return err_set(err, ERR_USAGE, "libpq does not understand it: %s", text);
}

static bool texts_equal(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool options_equal(const PQconninfoOption *a, const PQconninfoOption *b)
{
	for (; a->keyword && b->keyword; a++, b++)
		if (strcmp(a->keyword, b->keyword) != 0 || !texts_equal(a->val, b->val))
			return false;
	return !a->keyword && !b->keyword;
}

/* Without memory libpq has none (PQconninfo), or leaves out the one for which there was none and does not say so
 * (fe-connect.c: PQconninfo reports no error of conninfo_storeval). What it says twice is whole. */
static PQconninfoOption *options_whole(PGconn *c)
{
	PQconninfoOption *all = PQconninfo(c), *again = PQconninfo(c);

	if (!all || !again || !options_equal(all, again))
		mem_end();
	PQconninfoFree(again);
	return all;
}

/* All the settings that libpq would use, service file and environment included, without asking for a connection: an SSL
 * mode that does not exist makes it give up once it has them (fe-connect.c: connectOptions2). */
static int place_look(struct pg_place *p, struct err *err)
{
	const char *const keywords[] = { "dbname", "sslmode", NULL }, *const values[] = { p->uri, "?", NULL };
	PGconn *c = PQconnectStartParams(keywords, values, 1);

	if (!c)
		mem_end();
	const char *said = PQerrorMessage(c);
	if (!*said || strncmp(said, "out of memory", 13) == 0)
		mem_end();
	int result = strstr(said, "sslmode") ? 0 : place_refuse(said, err);
	if (result == 0)
		p->options = options_whole(c);
	/* libpq knows a user, or has not come so far: then it was something else with "sslmode" in it that is wrong. */
	if (result == 0 && !pg_place_option(p, "user"))
		result = place_refuse(said, err);
	PQfinish(c);
	return result;
}

/* Takes uri. */
static struct pg_place *place_new(char *uri, struct err *err)
{
	struct pg_place *p = mem_zero(sizeof *p);
	const char *given = getenv(LOCK_URL_PASSWORD);

	p->uri = uri;
	if (place_look(p, err) < 0) {
		pg_place_free(p);
		return NULL;
	}
	if (!pg_place_option(p, "password") && given && *given)
		p->password = mem_dup(given);
	return p;
}

bool pg_place_item(const char *list, int i, char *out, size_t size)
{
	while (list && i-- > 0) {
		list = strchr(list, ',');
		list = list ? list + 1 : NULL;
	}
	size_t n = list ? strcspn(list, ",") : 0;
	snprintf(out, size, "%.*s", (int)n, list ? list : "");
	return list != NULL;
}

static void place_print_hosts(struct buf *b, const struct pg_place *p)
{
	const char *hosts = pg_place_option(p, "host"), *ports = pg_place_option(p, "port");
	char host[256], port[16];

	if (!hosts)
		hosts = pg_place_option(p, "hostaddr");
	for (int i = 0; hosts && pg_place_item(hosts, i, host, sizeof host); i++) {
		if (!ports || !pg_place_item(ports, strchr(ports, ',') ? i : 0, port, sizeof port))
			snprintf(port, sizeof port, "5432");
		buf_adds(b, i ? "," : "");
		if (strchr(host, ':'))
			buf_printf(b, "[%s]", host);
		else
			lock_url_encode(b, host, "");
		buf_adds(b, ":");
		lock_url_encode(b, port, ""); /* libpq looks at it later, when it connects */
	}
}

/* ---- the URL ---- */

static bool url_take_age(struct pg_url *u, const char *text, size_t len)
{
	char digits[8], *end;

	snprintf(digits, sizeof digits, "%.*s", (int)len, text);
	u->max_age = isdigit((unsigned char)*digits) ? (int)strtol(digits, &end, 10) : 0;
	return len < sizeof digits && u->max_age >= 1 && !*end && u->max_age <= LOCK_LINK_AGE_MAX;
}

/* Takes our own options out of the query; libpq knows the others. */
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
		} else if (n >= 8 && strncmp(query, "max_age=", 8) == 0) {
			if (!url_take_age(u, query + 8, n - 8))
				return "max_age: expected seconds, a number from 1 to 86400";
		} else if (n) {
			buf_adds(uri, before);
			buf_add(uri, query, n);
			before = "&";
		}
		query += n + 1;
	}
	return NULL;
}

/* uri: what libpq is to get of it. NULL: it is fine; else what is wrong. */
static const char *url_split(struct pg_url *u, const char *text, struct buf *uri)
{
	const char *hash = strrchr(text, '#');

	if (strncmp(text, "//", 2) != 0)
		return "expected a libpq URI, as //USER@HOST:PORT/DATABASE#NAME";
	if (!hash || !hash[1])
		return "the lock's name is missing: it stands behind a #, as in //USER@HOST:PORT/DATABASE#NAME";
	u->name = lock_url_decode(hash + 1, strlen(hash + 1));
	if (!u->name)
		return "the lock's name has a bad percent escape";
	const char *query = memchr(text, '?', (size_t)(hash - text));
	buf_adds(uri, "postgresql:");
	buf_add(uri, text, (size_t)((query ? query : hash) - text));
	return query ? url_split_query(u, query + 1, (size_t)(hash - query - 1), uri) : NULL;
}

int pg_url_parse(struct pg_url *u, const char *text, struct err *err)
{
	struct buf uri = { 0 };

	*u = (struct pg_url){ .name = NULL };
	const char *wrong = url_split(u, text, &uri);
	if (!wrong)
		u->place = place_new(uri.data, err);
	else
		err_set(err, ERR_USAGE, "%s", wrong);
	if (u->place) {
		u->place->max_age = u->max_age;
		return 0;
	}
	if (wrong && uri.data) {
		explicit_bzero(uri.data, uri.len);
		buf_fini(&uri);
	}
	free(u->name);
	free(u->table);
	return -1;
}

char *pg_url_print(const struct pg_url *u)
{
	const char *user = pg_place_option(u->place, "user"), *db = pg_place_option(u->place, "dbname");
	struct buf b = { 0 };

	buf_adds(&b, "postgres://");
	if (user) {
		lock_url_encode(&b, user, "");
		buf_adds(&b, "@");
	}
	place_print_hosts(&b, u->place);
	buf_adds(&b, "/");
	lock_url_encode(&b, db ? db : user ? user : "", "");
	if (u->table) {
		buf_adds(&b, "?table=");
		lock_url_encode(&b, u->table, "");
	}
	buf_adds(&b, "#");
	lock_url_encode(&b, u->name, LOCK_URL_PATH);
	return b.data;
}
