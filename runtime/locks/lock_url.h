/* The URL of a lock in a networked store: //[USER[:PASSWORD]@]HOST[:PORT][,HOST[:PORT]...]/PATH[?OPTION=VALUE&...].
 * Not for PostgreSQL, whose library has a syntax of its own. No error text and no printed URL has a password in it.
 * Used by the lock backends. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct buf;

#define LOCK_URL_HOSTS 8
#define LOCK_URL_OPTIONS 64
#define LOCK_URL_PASSWORD "LUNARCH_LOCK_PASSWORD" /* no child sees this variable */

/* Everything percent-decoded. */
struct lock_url {
	char *user;     /* "" = none */
	char *password; /* NULL: none. Also from ?password_file= or the environment */
	char *path;     /* without its first slash; may be "" */
	int hosts;      /* 1 to LOCK_URL_HOSTS */
	struct {
		char *name; /* without brackets */
		int port;
	} host[LOCK_URL_HOSTS];
	int options;
	struct {
		char *name, *value;
	} option[LOCK_URL_OPTIONS];
};

/* Passed as `known`: takes every option, since the caller judges them. */
extern const char *const lock_url_any[];

/* text: what follows "scheme:". port: for hosts without one; 0: they have none. known: the options there are besides
 * password_file, NULL-terminated. Reads the password's file. -1: *err, with scheme but without secrets; u is empty
 * then. */
int lock_url_parse(struct lock_url *u, const char *scheme, const char *text, int port, const char *const *known,
                   struct err *err);

/* Only the options, for a lock without hosts and password. text: what follows the '?'. lock: its name in *err. */
int lock_url_parse_options(struct lock_url *u, const char *lock, const char *text, const char *const *known,
                           struct err *err);

/* If it has no password: that of ?password_file= or the environment, as lock_url_parse does it. */
int lock_url_find_password(struct lock_url *u, struct err *err);
void lock_url_fini(struct lock_url *u); /* the password's bytes are wiped */

/* The option's value; NULL: not given. */
const char *lock_url_option(const struct lock_url *u, const char *name);

/* The option as a whole number within [least, most]; otherwise: if it is not given. -1 with *err: it is something
 * else. */
int lock_url_number(const struct lock_url *u, const char *name, int least, int most, int otherwise, int *out,
                    struct err *err);

/* The canonical URL: every spelling of the same lock gives the same text, of user, hosts with their ports, path, and
 * options but password_file. Parsed and printed again it is the same. malloc'd. */
char *lock_url_print(const struct lock_url *u, const char *scheme);

/* The same hosts in the same order, user and password: one connection can serve both. Path and options are the
 * caller's. */
bool lock_url_same_servers(const struct lock_url *a, const struct lock_url *b);

/* The parts of that text, appended: "//USER@HOST:PORT" without a slash; "?OPTION=VALUE&..." or nothing. */
void lock_url_print_authority(struct buf *b, const struct lock_url *u);
void lock_url_print_options(struct buf *b, const struct lock_url *u);

/* "[::1]:80" or "host:80", percent-encoded as in a URL. out: 300 bytes. */
void lock_url_print_host(const struct lock_url *u, int which, char *out);

/* The URL with one of its hosts alone, whatever it is a URL of. malloc'd; NULL: it has not so many. */
char *lock_url_with_host(const char *url, int which);

/* A lock's URL of any kind, before anything of it is looked at or printed. -1, with *err: an @ stands behind an
 * authority that has a colon, so that a part of a password may look like a host's port and a path. */
int lock_url_check(const char *url, struct err *err);

/* What lock_url_print leaves as it is in a path. */
#define LOCK_URL_PATH "/{}:!$&'()*+,;="

/* Percent encoding (RFC 3986, 2.1). decode: malloc'd; NULL: a bad escape, or one for the terminator. encode: appends s;
 * letters, digits, "-._~" and what is in `also` stay as they are. */
char *lock_url_decode(const char *s, size_t len);
void lock_url_encode(struct buf *b, const char *s, const char *also);

/* text with the password of its authority and the secrets among its options (password=, secret=, token=) as "***": for
 * messages. malloc'd. */
char *lock_url_redact(const char *text);

/* *text: an argument of the command line, which everybody on the host can read. Overwrites it with the redacted text,
 * and sets *text to a copy of what it was, which is never freed. */
void lock_url_hide(char **text);
