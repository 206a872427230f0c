#include "locks/lock_url.h"

#include "base/buf.h"
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PASSWORD_BYTES 4096

/* ---- percent encoding (RFC 3986, 2.1) ---- */

static int hex_digit(char c)
{
	return isdigit((unsigned char)c)    ? c - '0'
	       : isxdigit((unsigned char)c) ? tolower((unsigned char)c) - 'a' + 10
	                                    : -1;
}

char *lock_url_decode(const char *s, size_t len)
{
	char *out = mem_zero(len + 1), *to = out;

	for (size_t i = 0; i < len; i++) {
		if (s[i] != '%') {
			*to++ = s[i];
			continue;
		}
		int high = i + 2 < len ? hex_digit(s[i + 1]) : -1, low = i + 2 < len ? hex_digit(s[i + 2]) : -1;
		if (high < 0 || low < 0 || high + low == 0) {
			free(out);
			return NULL;
		}
		*to++ = (char)(high * 16 + low);
		i += 2;
	}
	return out;
}

void lock_url_encode(struct buf *b, const char *s, const char *also)
{
	for (; *s; s++) {
		unsigned char c = (unsigned char)*s;
		if (isalnum(c) || strchr("-._~", c) || strchr(also, c))
			buf_add(b, s, 1);
		else
			buf_printf(b, "%%%02X", c);
	}
}

/* ---- messages ---- */

static const char *authority_end(const char *authority)
{
	return authority + strcspn(authority, "/?#");
}

/* The last @ ends the user and password, so that an unescaped one in a password is not shown as part of a host. */
static const char *userinfo_end(const char *authority)
{
	const char *at = NULL;

	for (const char *p = authority; p < authority_end(authority); p++)
		if (*p == '@')
			at = p;
	return at;
}

/* How the names of options end whose values are secrets: password=, libpq's sslpassword=, what lock files have. */
static const char *const secrets[] = { "password=", "secret=", "token=",  "secret_key=", "access_key=",
	                               "api_key=",  "apikey=", "passwd=", "passphrase=", NULL };

/* Where the value of the next one begins; NULL: there is none. */
static const char *find_secret(const char *text)
{
	const char *first = NULL;

	for (const char *const *s = secrets; *s; s++) {
		const char *at = strcasestr(text, *s);
		if (at && (!first || at + strlen(*s) < first))
			first = at + strlen(*s);
	}
	return first;
}

/* What is shown of each character, and of the place before it: an empty secret is not told either. */
enum { SHOWN, HIDDEN, EMPTY };

static void hide(char *mask, size_t from, size_t len)
{
	if (!len && mask[from] == SHOWN)
		mask[from] = EMPTY;
	memset(mask + from, HIDDEN, len);
}

static void hide_password(char *mask, const char *text)
{
	const char *slashes = strstr(text, "//");
	/* Behind an @ they begin no authority: where a slash was forgotten, as in redis:/u:p@h//x. */
	const char *authority = slashes && !memchr(text, '@', (size_t)(slashes - text)) ? slashes + 2 : text;
	/* An unescaped slash in the password would end the authority too early: the last @ of the whole text counts. */
	const char *at = strrchr(authority, '@'), *colon = at ? memchr(authority, ':', (size_t)(at - authority)) : NULL;

	if (colon)
		hide(mask, (size_t)(colon + 1 - text), (size_t)(at - colon - 1));
}

/* One secret may begin within another one: ?password=a:b@c looks like a user and a password too. */
static char *redact_once(const char *text)
{
	struct buf b = { 0 };
	char *mask = mem_zero(strlen(text) + 1), before = SHOWN;

	hide_password(mask, text);
	for (const char *at = text; (at = find_secret(at)); at += strcspn(at, "&#"))
		hide(mask, (size_t)(at - text), strcspn(at, "&#"));
	for (size_t i = 0; i == 0 || text[i - 1]; i++) {
		if (mask[i] != SHOWN && before != HIDDEN)
			buf_adds(&b, "***");
		if (mask[i] != HIDDEN)
			buf_add(&b, text + i, text[i] ? 1 : 0);
		before = mask[i];
	}
	free(mask);
	return b.data;
}

/* Until nothing changes: an @ or slashes inside of one secret decide where another one is looked for. */
char *lock_url_redact(const char *text)
{
	char *shown = redact_once(text), *again = redact_once(shown);

	while (strcmp(shown, again) != 0) {
		free(shown);
		shown = again;
		again = redact_once(shown);
	}
	free(again);
	return shown;
}

void lock_url_hide(char **text)
{
	size_t len = strlen(*text);
	char *shown = lock_url_redact(*text), *kept = mem_dup(*text);

	memset(*text, 0, len);
	memcpy(*text, shown, strnlen(shown, len));
	*text = kept;
	free(shown);
}

static int url_refuse(const char *scheme, const char *text, const char *why, struct err *err)
{
	char *shown = lock_url_redact(text);

	err_set(err, ERR_USAGE, "lock \"%s:%s\": %s", scheme, shown, why);
	free(shown);
	return -1;
}

int lock_url_check(const char *url, struct err *err)
{
	for (const char *slashes = strstr(url, "//"); slashes; slashes = strstr(slashes + 2, "//")) {
		const char *authority = slashes + 2, *end = authority_end(authority);
		if (!memchr(authority, ':', (size_t)(end - authority)) || !strchr(end, '@'))
			continue;
		char *shown = lock_url_redact(url);
		err_set(err, ERR_USAGE,
		        "lock \"%s\": an @ stands behind the host: write %%2F, %%3F and %%23 for /, ? and # in a user or "
		        "password, and %%40 for an @ in what follows the host",
		        shown);
		free(shown);
		return -1;
	}
	return 0;
}

/* ---- parts ---- */

static int take_userinfo(struct lock_url *u, const char *from, const char *to)
{
	const char *colon = memchr(from, ':', (size_t)(to - from));

	u->user = lock_url_decode(from, (size_t)((colon ? colon : to) - from));
	if (colon)
		u->password = lock_url_decode(colon + 1, (size_t)(to - colon - 1));
	return u->user && (!colon || u->password) ? 0 : -1;
}

static int take_port(const char *from, const char *to, int otherwise)
{
	int port = 0;

	if (from == to)
		return otherwise;
	for (; from < to; from++) {
		if (!isdigit((unsigned char)*from))
			return -1;
		port = port * 10 + (*from - '0');
		if (port > 65535)
			return -1;
	}
	return port ? port : -1;
}

/* What is wrong with it; NULL: nothing. */
static const char *take_host(struct lock_url *u, const char *from, const char *to, int port)
{
	const char *name = from, *end, *rest;

	if (u->hosts == LOCK_URL_HOSTS)
		return "too many hosts, at most 8";
	if (from < to && *from == '[') {
		name = from + 1;
		end = memchr(from, ']', (size_t)(to - from));
		if (!end)
			return "the bracket of an IPv6 address is not closed";
		rest = end + 1;
	} else {
		end = memchr(from, ':', (size_t)(to - from));
		end = end ? end : to;
		rest = end;
	}
	if (rest < to && *rest != ':')
		return "after the host a colon and a port are expected";
	if (end == name)
		return "a host is missing (expected HOST or HOST:PORT, several separated by commas)";
	u->host[u->hosts].port = take_port(rest < to ? rest + 1 : to, to, port);
	u->host[u->hosts].name = lock_url_decode(name, (size_t)(end - name));
	if (!u->host[u->hosts++].name)
		return "a host's name has a bad percent escape";
	return u->host[u->hosts - 1].port < 0 ? "a port must be a number from 1 to 65535" : NULL;
}

static const char *take_hosts(struct lock_url *u, const char *from, const char *to, int port)
{
	for (;;) {
		const char *comma = memchr(from, ',', (size_t)(to - from));
		const char *wrong = take_host(u, from, comma ? comma : to, port);
		if (wrong || !comma)
			return wrong;
		from = comma + 1;
	}
}

const char *const lock_url_any[] = { NULL };

static bool option_is_known(const struct lock_url *u, const char *name, const char *const *known)
{
	if (known == lock_url_any)
		return true;
	for (; known && *known; known++)
		if (strcmp(*known, name) == 0)
			return true;
	return u->hosts && strcmp(name, "password_file") == 0;
}

static int take_option(struct lock_url *u, const char *from, const char *to, const char *const *known, char *wrong,
                       size_t room)
{
	const char *equals = memchr(from, '=', (size_t)(to - from));

	if (u->options == LOCK_URL_OPTIONS)
		return snprintf(wrong, room, "too many options");
	if (!equals)
		return snprintf(wrong, room, "the option \"%.*s\" has no value", (int)(to - from), from);
	char *name = lock_url_decode(from, (size_t)(equals - from)),
	     *value = lock_url_decode(equals + 1, (size_t)(to - equals - 1));
	u->option[u->options].name = name;
	u->option[u->options++].value = value;
	if (!name || !value)
		return snprintf(wrong, room, "an option has a bad percent escape");
	if (option_is_known(u, name, known))
		return 0;
	int n = snprintf(wrong, room, "there is no option \"%.40s\"; there are %s", name,
	                 u->hosts ? "password_file" : "");
	for (bool first = !u->hosts; known && *known && n > 0 && (size_t)n < room; known++, first = false)
		n += snprintf(wrong + n, room - (size_t)n, "%s%s", first ? "" : ", ", *known);
	return 1;
}

static int take_options(struct lock_url *u, const char *from, const char *const *known, char *wrong, size_t room)
{
	while (*from) {
		const char *to = from + strcspn(from, "&");
		if (to > from && take_option(u, from, to, known, wrong, room) != 0)
			return -1;
		from = *to ? to + 1 : to;
	}
	return 0;
}

/* ---- the password from elsewhere ---- */

/* The first line. */
static int read_password(const char *path, char **out, struct err *err)
{
	char bytes[PASSWORD_BYTES];
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

	if (fd < 0)
		return err_sys(err, "cannot read the password file %s", path);
	ssize_t n = read(fd, bytes, sizeof bytes - 1);
	int saved = errno;
	close(fd);
	errno = saved;
	if (n < 0)
		return err_sys(err, "cannot read the password file %s", path);
	bytes[n] = '\0';
	*out = mem_dupn(bytes, strcspn(bytes, "\r\n"));
	explicit_bzero(bytes, sizeof bytes);
	return 0;
}

int lock_url_find_password(struct lock_url *u, struct err *err)
{
	const char *path = lock_url_option(u, "password_file"), *given = getenv(LOCK_URL_PASSWORD);

	if (u->password)
		return 0;
	if (path)
		return read_password(path, &u->password, err);
	if (given && *given)
		u->password = mem_dup(given);
	return 0;
}

/* ---- the whole ---- */

static const char *take_authority(struct lock_url *u, const char *authority, int port)
{
	const char *end = authority_end(authority), *at = userinfo_end(authority);

	if (at && take_userinfo(u, authority, at) < 0)
		return "user or password has a bad percent escape";
	if (!u->user)
		u->user = mem_dup("");
	return take_hosts(u, at ? at + 1 : authority, end, port);
}

static const char *url_take(struct lock_url *u, const char *text, int port, const char *const *known, char *room,
                            size_t size)
{
	if (strncmp(text, "//", 2) != 0)
		return "expected //HOST:PORT/... after the colon";
	const char *path = authority_end(text + 2), *query = path + strcspn(path, "?#");
	const char *wrong = take_authority(u, text + 2, port);

	if (wrong)
		return wrong;
	if (strchr(query, '#'))
		return "nothing is expected after a #: write %23 if it is part of the name";
	const char *name = *path == '/' ? path + 1 : path;
	u->path = lock_url_decode(name, (size_t)(query - name));
	if (!u->path)
		return "the path has a bad percent escape";
	return *query && take_options(u, query + 1, known, room, size) < 0 ? room : NULL;
}

int lock_url_parse(struct lock_url *u, const char *scheme, const char *text, int port, const char *const *known,
                   struct err *err)
{
	char room[300];

	*u = (struct lock_url){ .hosts = 0 };
	const char *wrong = url_take(u, text, port, known, room, sizeof room);
	if (wrong)
		url_refuse(scheme, text, wrong, err);
	else if (lock_url_find_password(u, err) == 0)
		return 0;
	lock_url_fini(u);
	return -1;
}

int lock_url_parse_options(struct lock_url *u, const char *lock, const char *text, const char *const *known,
                           struct err *err)
{
	char wrong[300];

	*u = (struct lock_url){ .hosts = 0 };
	if (take_options(u, text, known, wrong, sizeof wrong) == 0)
		return 0;
	lock_url_fini(u);
	return err_set(err, ERR_USAGE, "lock \"%s\": %s", lock, wrong);
}

void lock_url_fini(struct lock_url *u)
{
	if (u->password)
		explicit_bzero(u->password, strlen(u->password));
	free(u->password);
	free(u->user);
	free(u->path);
	for (int i = 0; i < u->hosts; i++)
		free(u->host[i].name);
	for (int i = 0; i < u->options; i++) {
		free(u->option[i].name);
		free(u->option[i].value);
	}
	*u = (struct lock_url){ .hosts = 0 };
}

const char *lock_url_option(const struct lock_url *u, const char *name)
{
	for (int i = 0; i < u->options; i++)
		if (strcmp(u->option[i].name, name) == 0)
			return u->option[i].value;
	return NULL;
}

int lock_url_number(const struct lock_url *u, const char *name, int least, int most, int otherwise, int *out,
                    struct err *err)
{
	const char *text = lock_url_option(u, name);
	char *end;

	*out = otherwise;
	if (!text)
		return 0;
	errno = 0;
	long n = strtol(text, &end, 10);
	if (errno || end == text || *end || n < least || n > most)
		return err_set(err, ERR_USAGE, "the option %s=%s: expected a number from %d to %d", name, text, least,
		               most);
	*out = (int)n;
	return 0;
}

static bool same_text(const char *a, const char *b)
{
	return a && b ? strcmp(a, b) == 0 : a == b;
}

bool lock_url_same_servers(const struct lock_url *a, const struct lock_url *b)
{
	if (a->hosts != b->hosts || !same_text(a->user, b->user) || !same_text(a->password, b->password))
		return false;
	for (int i = 0; i < a->hosts; i++)
		if (a->host[i].port != b->host[i].port || strcmp(a->host[i].name, b->host[i].name) != 0)
			return false;
	return true;
}

/* Of all hosts only an IPv6 address has colons, and gets brackets (RFC 3986, 3.2.2). */
static void put_host(struct buf *b, const struct lock_url *u, int which)
{
	const char *name = u->host[which].name;
	bool brackets = strchr(name, ':') != NULL;

	buf_adds(b, brackets ? "[" : "");
	lock_url_encode(b, name, brackets ? ":" : "");
	buf_adds(b, brackets ? "]" : "");
	if (u->host[which].port)
		buf_printf(b, ":%d", u->host[which].port);
}

void lock_url_print_host(const struct lock_url *u, int which, char *out)
{
	struct buf b = { 0 };

	put_host(&b, u, which);
	snprintf(out, 300, "%s", b.data);
	buf_fini(&b);
}

void lock_url_print_authority(struct buf *b, const struct lock_url *u)
{
	buf_adds(b, "//");
	if (*u->user) {
		lock_url_encode(b, u->user, "");
		buf_adds(b, "@");
	}
	for (int i = 0; i < u->hosts; i++) {
		buf_adds(b, i ? "," : "");
		put_host(b, u, i);
	}
}

/* It may be a URL with a password of its own. */
static void put_value(struct buf *b, const char *value)
{
	char *shown = lock_url_redact(value);

	lock_url_encode(b, strstr(value, "//") ? shown : value, "/:,");
	free(shown);
}

void lock_url_print_options(struct buf *b, const struct lock_url *u)
{
	const char *before = "?";

	for (int i = 0; i < u->options; i++) {
		if (strcmp(u->option[i].name, "password_file") == 0)
			continue;
		struct buf name = { 0 };
		lock_url_encode(&name, u->option[i].name, "");
		buf_adds(&name, "=");
		buf_printf(b, "%s%s", before, name.data);
		if (find_secret(name.data))
			buf_adds(b, "***");
		else
			put_value(b, u->option[i].value);
		buf_fini(&name);
		before = "&";
	}
}

char *lock_url_print(const struct lock_url *u, const char *scheme)
{
	struct buf b = { 0 };

	buf_printf(&b, "%s:", scheme);
	lock_url_print_authority(&b, u);
	buf_adds(&b, "/");
	lock_url_encode(&b, u->path, LOCK_URL_PATH);
	lock_url_print_options(&b, u);
	return b.data;
}

char *lock_url_with_host(const char *url, int which)
{
	const char *begin = strstr(url, "//"), *at;

	if (!begin)
		return NULL;
	begin += 2;
	const char *end = begin + strcspn(begin, "/?#");
	while ((at = memchr(begin, '@', (size_t)(end - begin))))
		begin = at + 1;
	const char *host = begin, *comma;
	while (which-- > 0) {
		if (!(comma = memchr(host, ',', (size_t)(end - host))))
			return NULL;
		host = comma + 1;
	}
	comma = memchr(host, ',', (size_t)(end - host));
	return mem_printf("%.*s%.*s%s", (int)(begin - url), url, (int)((comma ? comma : end) - host), host, end);
}
