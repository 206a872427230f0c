#include "locks/redis/redis_place.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/lock_link.h"

#include <stdlib.h>
#include <string.h>

#define PORT 6379
#define SENTINEL_PORT 26379
#define REPLICAS_MOST 100
#define DB_MOST 99999
#define VERIFIED                                                                                            \
	"certificates are always verified, and for the host's name: leave it out, and name by ca=FILE the " \
	"authority of one that the system does not know"

#define EXPECTED "redis+sentinel://S1,S2,S3/MASTER#KEY"
#define BY_SENTINELS "Sentinels are named by " EXPECTED
#define OPTIONS "replicas", "max_age", "db", "ca", "cert", "key", "server_name"

static const char *const known[] = { OPTIONS, NULL };
static const char *const known_of_sentinels[] = { OPTIONS, "sentinel_username", "sentinel_password",
	                                          "sentinel_password_file", NULL };
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
	{ "master_name", BY_SENTINELS },
	{ "sentinelMasterId", BY_SENTINELS },
	{ "service_name", BY_SENTINELS },
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

/* The digits with which a text begins that are a database's number; 0: there is none. */
static size_t db_digits(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 5 || (text[digits] && text[digits] != '/') ? 0 : digits;
}

/* Takes the option db, in the place of the number that the path has, or has not (digits: 0). *put: there was none. */
static int take_db(struct redis_place *p, const char *text, size_t digits, bool *put, struct err *err)
{
	int db;

	p->db = digits ? atoi(text) : 0;
	*put = !digits && lock_url_option(&p->url, "db");
	if (lock_url_number(&p->url, "db", 0, DB_MOST, p->db, &db, err) < 0)
		return -1;
	if (digits && db != p->db)
		return err_set(err, ERR_USAGE, "two databases are named, %d in the path and db=%d", p->db, db);
	p->db = db;
	drop_option(&p->url, "db");
	return 0;
}

static void set_path(struct lock_url *u, char *path)
{
	free(u->path);
	u->path = path;
}

/* "DB/KEY", if DB is a number. NULL: *err. */
static char *take_key(struct redis_place *p, struct err *err)
{
	struct lock_url *u = &p->url;
	size_t digits = db_digits(u->path);
	bool put;

	if (!*u->path)
		err_set(err, ERR_USAGE, "the key's name is missing (expected redis://HOST:PORT/KEY)");
	else if (digits && (!u->path[digits] || !u->path[digits + 1]))
		err_set(err, ERR_USAGE,
		        "the database %.*s is named, and no key: expected redis://HOST:PORT/%.*s/KEY (the key \"%s\" of the "
		        "database 0 is redis://HOST:PORT/0/%s)",
		        (int)digits, u->path, (int)digits, u->path, u->path, u->path);
	else if (take_db(p, u->path, digits, &put, err) == 0) {
		char *key = mem_dup(u->path + (digits ? digits + 1 : 0));
		if (put)
			set_path(u, mem_printf("%d/%s", p->db, key));
		return key;
	}
	return NULL;
}

static bool names_twice(const struct lock_url *u)
{
	for (int i = 0; i < u->hosts; i++)
		for (int j = 0; j < i; j++)
			if (u->host[i].port == u->host[j].port && strcmp(u->host[i].name, u->host[j].name) == 0)
				return true;
	return false;
}

/* "MASTER" or "MASTER/DB". */
static int take_master(struct redis_place *p, struct err *err)
{
	struct lock_url *u = &p->url;
	const char *slash = strchr(u->path, '/'), *db = slash ? slash + 1 : "";
	size_t digits = db_digits(db);
	bool put;

	if (!*u->path || u->path == slash)
		return err_set(err, ERR_USAGE,
		               "the name that the Sentinels have for the primary is missing (expected " EXPECTED ")");
	if (*db && !digits)
		return err_set(err, ERR_USAGE, "behind the primary's name a database's number is expected, found %s",
		               db);
	if (names_twice(u))
		return err_set(err, ERR_USAGE, "a Sentinel is named twice, and would count twice");
	p->master = mem_dupn(u->path, slash ? (size_t)(slash - u->path) : strlen(u->path));
	if (take_db(p, db, digits, &put, err) < 0)
		return -1;
	set_path(u, p->db ? mem_printf("%s/%d", p->master, p->db) : mem_dup(p->master));
	return 0;
}

/* The Sentinels' own. Options are copied, since they are printed. */
static int take_login(struct redis_place *p, struct err *err)
{
	char *path = (char *)lock_url_option(&p->url, "sentinel_password_file");
	struct lock_url login = { .options = 1, .option = { { "password_file", path } } };

	p->sentinel_user = mem_dup(lock_url_option(&p->url, "sentinel_username"));
	p->sentinel_password = mem_dup(lock_url_option(&p->url, "sentinel_password"));
	if (p->sentinel_user && !p->sentinel_password && !path)
		return err_set(err, ERR_USAGE, "sentinel_username is given without sentinel_password_file");
	if (p->sentinel_password || !path)
		return 0;
	int rc = lock_url_find_password(&login, err);
	p->sentinel_password = login.password;
	return rc;
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

/* Else one of them would count, and nobody could say which. */
static int check_once(const struct lock_url *u, struct err *err)
{
	for (int i = 0; i < u->options; i++)
		if (lock_url_option(u, u->option[i].name) != u->option[i].value)
			return err_set(err, ERR_USAGE, "the option %s is given twice", u->option[i].name);
	return 0;
}

static int parse_options(struct redis_place *p, struct err *err)
{
	if (check_once(&p->url, err) < 0)
		return -1;
	if (check_tls(p, err) < 0 || lock_url_number(&p->url, "replicas", 0, REPLICAS_MOST, 0, &p->replicas, err) < 0)
		return -1;
	return lock_url_number(&p->url, "max_age", 1, LOCK_LINK_AGE_MAX, 0, &p->max_age, err);
}

/* fragment: what follows the '#'; NULL: there is none. */
static char *parse_parts(struct redis_place *p, bool sentinels, const char *fragment, struct err *err)
{
	char *key = NULL;

	if (parse_options(p, err) < 0)
		return NULL;
	if (!sentinels)
		return take_key(p, err);
	if (take_master(p, err) < 0 || take_login(p, err) < 0)
		return NULL;
	if (!fragment || !*fragment)
		err_set(err, ERR_USAGE, "the key's name is missing (expected " EXPECTED ")");
	else if (!(key = lock_url_decode(fragment, strlen(fragment))))
		err_set(err, ERR_USAGE, "the key has a bad percent escape");
	return key;
}

static char *place_print(const struct redis_place *p, const char *scheme, const char *key)
{
	struct buf b = { 0 };
	char *url = lock_url_print(&p->url, scheme);

	if (!p->master || !key)
		return url;
	buf_printf(&b, "%s#", url);
	lock_url_encode(&b, key, LOCK_URL_PATH);
	free(url);
	return b.data;
}

int redis_place_parse(struct redis_place *p, char **key, char **shown, const char *scheme, const char *text,
                      struct err *err)
{
	bool sentinels = strstr(scheme, "+sentinel");
	const char *hash = sentinels ? strchr(text, '#') : NULL;
	char *front = mem_dupn(text, hash ? (size_t)(hash - text) : strlen(text));
	int rc = refuse_foreign(scheme, front, err);

	*p = (struct redis_place){ .tls = strncmp(scheme, "rediss", 6) == 0 };
	if (rc == 0)
		rc = lock_url_parse(&p->url, scheme, front, sentinels ? SENTINEL_PORT : PORT,
		                    sentinels ? known_of_sentinels : known, err);
	explicit_bzero(front, strlen(front));
	free(front);
	if (rc < 0)
		return -1;
	*key = parse_parts(p, sentinels, hash ? hash + 1 : NULL, err);
	*shown = place_print(p, scheme, *key);
	if (*key)
		return 0;
	err_wrap(err, "lock \"%s\"", *shown);
	free(*shown);
	redis_place_fini(p);
	return -1;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

bool redis_place_same(const struct redis_place *a, const struct redis_place *b)
{
	bool same = a->tls == b->tls && a->db == b->db && a->replicas == b->replicas && a->max_age == b->max_age &&
	            same_text(a->master, b->master) && same_text(a->sentinel_user, b->sentinel_user) &&
	            same_text(a->sentinel_password, b->sentinel_password) && lock_url_same_servers(&a->url, &b->url);

	for (const char *const *o = tls_options; same && *o; o++)
		same = same_text(lock_url_option(&a->url, *o), lock_url_option(&b->url, *o));
	return same;
}

void redis_place_fini(struct redis_place *p)
{
	char *word = (char *)lock_url_option(&p->url, "sentinel_password");

	if (word)
		explicit_bzero(word, strlen(word));
	lock_url_fini(&p->url);
	free(p->master);
	free(p->sentinel_user);
	if (p->sentinel_password)
		explicit_bzero(p->sentinel_password, strlen(p->sentinel_password));
	free(p->sentinel_password);
}
