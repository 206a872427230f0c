#include "locks/lua/driver_place.h"

#include "base/buf.h"
#include "base/mem.h"
#include "locks/lock.h"
#include "locks/lock_url.h"
#include "locks/lua/driver_wire.h"

#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct parsed {
	char *scheme;
	const char *driver; /* built in; NULL: the file */
	char *file;
	struct lock_url url; /* of lua: no host */
	char *key;
	bool fragment; /* the key is behind a '#' */
};

/* ---- parsing ---- */

static const char *built_in(const char *scheme)
{
	for (const struct lock_backend *b = lock_backends; b->scheme; b++)
		if (strcmp(b->scheme, scheme) == 0)
			return b->driver;
	return NULL;
}

/* lua:FILE[?OPTIONS] */
static int parse_file(struct parsed *p, const char *text, struct err *err)
{
	size_t len = strcspn(text, "?");
	char *path = lock_url_decode(text, len), here[PATH_MAX];

	if (!path || !*path) {
		free(path);
		return err_set(err, ERR_USAGE, "expected lua:FILE#KEY, with a path as FILE");
	}
	if (*path == '/')
		p->file = path;
	else if (getcwd(here, sizeof here))
		p->file = mem_printf("%s/%s", here, path);
	if (*path != '/')
		free(path);
	if (!p->file)
		return err_sys(err, "the current directory is not known, and FILE is no absolute path");
	if (access(p->file, F_OK) < 0)
		return err_set(err, errno == ENOENT || errno == ENOTDIR ? ERR_MISSING : ERR_DENIED,
		               "the lock file %s cannot be opened: %s", p->file, strerror(errno));
	if (lock_url_parse_options(&p->url, p->file, text[len] ? text + len + 1 : "", lock_url_any, err) < 0)
		return -1;
	p->url.user = mem_dup("");
	p->url.path = mem_dup("");
	return lock_url_find_password(&p->url, err);
}

static int parse_text(struct parsed *p, const char *text, struct err *err)
{
	if (strcmp(p->scheme, "lua") == 0)
		return parse_file(p, text, err);
	p->driver = built_in(p->scheme);
	if (!p->driver)
		p->file = mem_printf("%s/%s.lua", lock_files_dir(), p->scheme);
	return lock_url_parse(&p->url, p->scheme, text, 0, lock_url_any, err);
}

static int parse_key(struct parsed *p, const char *hash, struct err *err)
{
	p->fragment = hash != NULL || strcmp(p->scheme, "lua") == 0;
	p->key = hash ? lock_url_decode(hash + 1, strlen(hash + 1)) : p->fragment ? mem_dup("") : mem_dup(p->url.path);
	if (!p->key)
		return err_set(err, ERR_USAGE, "the key has a bad percent escape");
	if (!*p->key)
		return err_set(err, ERR_USAGE, "a key is missing: expected one behind %s",
		               p->fragment ? "the #" : "the host and a slash");
	if (strlen(p->key) > DRIVER_KEY_MAX)
		return err_set(err, ERR_USAGE, "the key has %zu bytes, at most %d are allowed", strlen(p->key),
		               DRIVER_KEY_MAX);
	return buf_is_utf8(p->key) ? 0 : err_set(err, ERR_USAGE, "the key is not valid UTF-8");
}

static int parse(struct parsed *p, const char *url, struct err *err)
{
	const char *text = strchr(url, ':') + 1, *hash = strchr(text, '#');
	char *before = mem_dupn(text, hash ? (size_t)(hash - text) : strlen(text));

	p->scheme = mem_dupn(url, (size_t)(text - 1 - url));
	int failed = parse_text(p, before, err) < 0 || parse_key(p, hash, err) < 0;
	explicit_bzero(before, strlen(before));
	free(before);
	return failed ? -1 : 0;
}

static void parsed_fini(struct parsed *p)
{
	free(p->scheme);
	free(p->file);
	free(p->key);
	lock_url_fini(&p->url);
}

/* ---- printing ---- */

static char *print_url(const struct parsed *p, bool with_key)
{
	struct buf b = { 0 };

	buf_printf(&b, "%s:", p->scheme);
	if (!p->url.hosts)
		lock_url_encode(&b, p->file, LOCK_URL_PATH);
	else
		lock_url_print_authority(&b, &p->url);
	if (p->url.hosts && (with_key || p->fragment)) {
		buf_adds(&b, "/");
		lock_url_encode(&b, p->url.path, LOCK_URL_PATH);
	}
	lock_url_print_options(&b, &p->url);
	if (with_key && p->fragment) {
		buf_adds(&b, "#");
		lock_url_encode(&b, p->key, LOCK_URL_PATH);
	}
	return b.data;
}

static json_t *text_or_null(const char *s)
{
	return s ? json_string(s) : json_null();
}

static json_t *hosts_json(const struct lock_url *u)
{
	json_t *hosts = json_array();

	for (int i = 0; i < u->hosts; i++)
		json_array_append_new(hosts, json_pack("{s:s, s:i}", "name", u->host[i].name, "port", u->host[i].port));
	return hosts;
}

static json_t *options_json(const struct lock_url *u)
{
	json_t *options = json_object();

	for (int i = 0; i < u->options; i++)
		if (strcmp(u->option[i].name, "password_file") != 0)
			json_object_set_new(options, u->option[i].name, json_string(u->option[i].value));
	return options;
}

/* NULL: a part is no UTF-8. */
static char *print_json(const struct parsed *p)
{
	char *shown = print_url(p, false);
	json_t *place = json_pack("{s:o, s:o, s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "driver", text_or_null(p->driver),
	                          "file", text_or_null(p->file), "scheme", p->scheme, "url", shown, "user", p->url.user,
	                          "password", text_or_null(p->url.password), "hosts", hosts_json(&p->url), "path",
	                          text_or_null(p->fragment ? p->url.path : NULL), "options", options_json(&p->url));
	char *text = place ? json_dumps(place, JSON_COMPACT) : NULL;

	json_decref(place);
	free(shown);
	return text;
}

/* json_pack does not say what it could not take, and leaves options out. */
static int check_utf8(const struct lock_url *u, struct err *err)
{
	bool good = buf_is_utf8(u->user) && buf_is_utf8(u->path) && (!u->password || buf_is_utf8(u->password));

	for (int i = 0; i < u->hosts; i++)
		good = good && buf_is_utf8(u->host[i].name);
	for (int i = 0; i < u->options; i++)
		good = good && buf_is_utf8(u->option[i].name) && buf_is_utf8(u->option[i].value);
	return good ? 0 : err_set(err, ERR_USAGE, "a part of it is not valid UTF-8");
}

int driver_place_parse(struct driver_place *p, const char *url, struct err *err)
{
	struct parsed parsed = { .scheme = NULL };
	int failed = parse(&parsed, url, err) < 0 || check_utf8(&parsed.url, err) < 0;

	*p = (struct driver_place){ .json = NULL };
	if (failed) {
		char *shown = lock_url_redact(url);
		if (strncmp(err->text, "lock \"", 6) != 0)
			err_wrap(err, "lock \"%.200s%s\"", shown, strlen(shown) > 200 ? "..." : "");
		free(shown);
	} else {
		p->json = print_json(&parsed);
		p->name = mem_dup(parsed.driver ? parsed.driver : parsed.file);
		p->key = mem_dup(parsed.key);
		p->url = print_url(&parsed, true);
	}
	parsed_fini(&parsed);
	return failed ? -1 : 0;
}

void driver_place_fini(struct driver_place *p)
{
	if (p->json)
		explicit_bzero(p->json, strlen(p->json));
	free(p->json);
	free(p->name);
	free(p->key);
	free(p->url);
	*p = (struct driver_place){ .json = NULL };
}
