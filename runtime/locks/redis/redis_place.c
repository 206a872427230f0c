#include "locks/redis/redis_place.h"

#include "base/mem.h"
#include "locks/lock_link.h"

#include <stdlib.h>
#include <string.h>

#define PORT 6379
#define REPLICAS_MOST 100
#define DB_MOST 99999
#define VERIFIED                                                                                            \
	"certificates are always verified, and for the host's name: leave it out, and name by ca=FILE the " \
	"authority of one that the system does not know"

static const char *const known[] = { "replicas", "max_age", "db", "ca", "cert", "key", "server_name", NULL };
static const char *const tls_options[] = { "ca", "cert", "key", "server_name", NULL };

/* Options of other clients' URLs, and what to write here. */
static const struct {
	const char *name, *advice;
} foreign[] = {
	{ "ssl_cert_reqs", VERIFIED },
	{ "ssl_check_hostname", VERIFIED },
	{ "skip_verify", VERIFIED },
	{ "verifyPeer", VERIFIED },
	{ "ssl_ca_certs", "it is ca=FILE here" },
	{ "ssl_certfile", "it is cert=FILE here" },
	{ "ssl_keyfile", "it is key=FILE here" },
	{ "ssl", "TLS is asked for by rediss://" },
	{ "tls", "TLS is asked for by rediss://" },
	{ "database", "it is db=NUMBER here, or rediss://HOST:PORT/NUMBER/KEY" },
};

/* An option of another client; *err says what to write. */
static int refuse_foreign(const char *scheme, const char *text, struct err *err)
{
	const char *query = strchr(text, '?');

	for (size_t i = 0; query && i < sizeof foreign / sizeof *foreign; i++) {
		size_t len = strlen(foreign[i].name);
		for (const char *at = query; at && *at && *at != '#'; at = strpbrk(at + 1, "&#"))
			if (strncmp(at + 1, foreign[i].name, len) == 0 && at[1 + len] == '=') {
				char *shown = lock_url_redact(text);
				err_set(err, ERR_USAGE, "lock \"%s:%s\": there is no option \"%s\": %s", scheme, shown,
				        foreign[i].name, foreign[i].advice);
				free(shown);
				return -1;
			}
	}
	return 0;
}

static void drop_option(struct lock_url *u, const char *name)
{
	int i = 0;

	while (i < u->options && strcmp(u->option[i].name, name) != 0)
		i++;
	if (i == u->options)
		return;
	free(u->option[i].name);
	free(u->option[i].value);
	u->options--;
	memmove(u->option + i, u->option + i + 1, (size_t)(u->options - i) * sizeof *u->option);
}

/* The digits with which a path begins that are a database's number; 0: there is none. */
static size_t db_digits(const char *path)
{
	size_t digits = strspn(path, "0123456789");

	return digits > 5 || (path[digits] && path[digits] != '/') ? 0 : digits;
}

/* "DB/KEY", if DB is a number; or the option db, which is put there. *key: borrowed from the path. */
static int take_key(struct redis_place *p, const char **key, struct err *err)
{
	struct lock_url *u = &p->url;
	size_t digits = db_digits(u->path);

	if (!*u->path)
		return err_set(err, ERR_USAGE, "the key's name is missing (expected redis://HOST:PORT/KEY)");
	if (digits && (!u->path[digits] || !u->path[digits + 1]))
		return err_set(err, ERR_USAGE,
		               "the database %.*s is named, and no key: expected redis://HOST:PORT/%.*s/KEY (the key "
		               "\"%s\" of the database 0 is redis://HOST:PORT/0/%s)",
		               (int)digits, u->path, (int)digits, u->path, u->path, u->path);
	p->db = digits ? atoi(u->path) : 0;
	if (lock_url_option(u, "db")) {
		int db;
		if (lock_url_number(u, "db", 0, DB_MOST, 0, &db, err) < 0)
			return -1;
		if (digits && db != p->db)
			return err_set(err, ERR_USAGE, "two databases are named, %d before the key and db=%d", p->db,
			               db);
		char *path = digits ? mem_dup(u->path) : mem_printf("%d/%s", db, u->path);
		free(u->path);
		u->path = path;
		p->db = db;
		drop_option(u, "db");
		digits = db_digits(path);
	}
	*key = u->path + (digits ? digits + 1 : 0);
	return 0;
}

static int check_tls(const struct redis_place *p, struct err *err)
{
	for (const char *const *o = tls_options; *o && !p->tls; o++)
		if (lock_url_option(&p->url, *o))
			return err_set(err, ERR_USAGE, "ca, cert, key and server_name are for TLS: write rediss://");
	if (lock_url_option(&p->url, "key") && !lock_url_option(&p->url, "cert"))
		return err_set(err, ERR_USAGE, "the option key is given without cert, the certificate it belongs to");
	return 0;
}

int redis_place_parse(struct redis_place *p, char **key, char **shown, const char *scheme, const char *text,
                      struct err *err)
{
	struct lock_url *u = &p->url;
	const char *name;

	*p = (struct redis_place){ .tls = strncmp(scheme, "rediss", 6) == 0 };
	if (refuse_foreign(scheme, text, err) < 0 || lock_url_parse(u, scheme, text, PORT, known, err) < 0)
		return -1;
	if (take_key(p, &name, err) < 0 || check_tls(p, err) < 0 ||
	    lock_url_number(u, "replicas", 0, REPLICAS_MOST, 0, &p->replicas, err) < 0 ||
	    lock_url_number(u, "max_age", 1, LOCK_LINK_AGE_MAX, 0, &p->max_age, err) < 0) {
		char *url = lock_url_print(u, scheme);
		err_wrap(err, "lock \"%s\"", url);
		free(url);
		redis_place_fini(p);
		return -1;
	}
	*shown = lock_url_print(u, scheme);
	*key = mem_dup(name);
	return 0;
}

bool redis_place_same(const struct redis_place *a, const struct redis_place *b)
{
	bool same = a->tls == b->tls && a->db == b->db && a->replicas == b->replicas && a->max_age == b->max_age &&
	            lock_url_same_servers(&a->url, &b->url);

	for (const char *const *o = tls_options; same && *o; o++) {
		const char *x = lock_url_option(&a->url, *o), *y = lock_url_option(&b->url, *o);
		same = x && y ? strcmp(x, y) == 0 : x == y;
	}
	return same;
}

void redis_place_fini(struct redis_place *p)
{
	lock_url_fini(&p->url);
}
