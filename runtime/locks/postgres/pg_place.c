#include "locks/postgres/pg_place.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/lock_url.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *option_value(const PQconninfoOption *all, const char *keyword)
{
	for (; all->keyword; all++)
		if (strcmp(all->keyword, keyword) == 0)
			return all->val && *all->val ? all->val : NULL;
	return NULL;
}

const char *pg_place_option(const struct pg_place *p, const char *keyword)
{
	return option_value(p->options, keyword);
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

/* All the settings that libpq would use, service file and environment included, without asking for a connection: an SSL
 * mode that does not exist makes it give up once it has them (fe-connect.c: connectOptions2). */
static int place_look(struct pg_place *p, struct err *err)
{
	const char *const keywords[] = { "dbname", "sslmode", NULL }, *const values[] = { p->uri, "?", NULL };
	PGconn *c = PQconnectStartParams(keywords, values, 1);

	if (!c)
		abort(); /* out of memory */
	const char *said = PQerrorMessage(c);
	int result = strstr(said, "sslmode") ? 0 : place_refuse(said, err);
	if (result == 0)
		p->options = PQconninfo(c);
	PQfinish(c);
	return result;
}

struct pg_place *pg_place_new(const char *uri, struct err *err)
{
	struct pg_place *p = mem_zero(sizeof *p);
	const char *given = getenv(LOCK_URL_PASSWORD);

	p->uri = mem_dup(uri);
	if (place_look(p, err) < 0) {
		pg_place_free(p);
		return NULL;
	}
	if (!pg_place_option(p, "password") && given && *given)
		p->password = mem_dup(given);
	return p;
}

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

bool pg_place_same(const struct pg_place *a, const struct pg_place *b)
{
	return strcmp(a->uri, b->uri) == 0;
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
		buf_printf(b, ":%s", port);
	}
}

char *pg_place_print(const struct pg_place *p)
{
	const char *user = pg_place_option(p, "user"), *db = pg_place_option(p, "dbname");
	struct buf b = { 0 };

	buf_adds(&b, "postgres://");
	if (user) {
		lock_url_encode(&b, user, "");
		buf_adds(&b, "@");
	}
	place_print_hosts(&b, p);
	buf_adds(&b, "/");
	lock_url_encode(&b, db ? db : user ? user : "", "");
	return b.data;
}
