#include "locks/etcd/etcd_client.h"

#include "base/buf.h"
#include "base/json_bound.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

/* gRPC's status codes (grpc.io, status codes) as etcd's gateway passes them on. */
enum grpc_code {
	CANCELLED = 1,
	INVALID_ARGUMENT = 3,
	NOT_FOUND = 5,
	PERMISSION_DENIED = 7,
	EXHAUSTED = 8,
	UNIMPLEMENTED = 12,
	UNAUTHENTICATED = 16
};

int64_t etcd_number(const struct json_t *object, const char *name)
{
	const json_t *j = json_object_get(object, name);
	char *end;

	if (!j)
		return 0;
	if (json_is_integer(j))
		return json_integer_value(j) < 0 ? -1 : json_integer_value(j);
	if (!json_is_string(j))
		return -1;
	errno = 0;
	long long n = strtoll(json_string_value(j), &end, 10);
	return errno || *end || n < 0 ? -1 : n;
}

/* 3.4: {"error":"text","message":"text","code":5}; 3.6: {"code":5,"message":"text","details":[]};
 * a line of a stream: {"error":{"grpc_code":14,"http_code":503,"message":"text"}}. */
int etcd_error_of(const struct json_t *json, const char *endpoint, struct err *err)
{
	const json_t *inner = json_object_get(json, "error");
	const json_t *from = json_is_object(inner) ? inner : json;
	const char *text = json_string_value(json_object_get(from, "message"));
	int64_t code = etcd_number(from, json_is_object(inner) ? "grpc_code" : "code");

	if (code == 0 && json_is_object(inner))
		code = etcd_number(from, "code");
	if (code <= 0 || code > 16 || !text)
		return 0;
	struct buf plain = { 0 };
	buf_plain(&plain, text);
	err_set(err, ERR_UNREACHABLE, "etcd at %s says: %.300s", endpoint, plain.data ? plain.data : "");
	buf_fini(&plain);
	return (int)code;
}

static void meaning_is_final(struct etcd_meaning *m, enum lock_outcome outcome, enum err_code code)
{
	m->verdict = ETCD_FINAL;
	m->maybe = outcome == LOCK_UNKNOWN;
	m->outcome = outcome;
	m->err.code = code;
}

static void meaning_is_elsewhere(struct etcd_meaning *m, bool maybe)
{
	m->verdict = ETCD_ELSEWHERE;
	m->maybe = maybe;
	m->outcome = maybe ? LOCK_UNKNOWN : LOCK_FAILED;
}

static bool meaning_says(const struct etcd_meaning *m, const char *text)
{
	return strstr(m->err.text, text) != NULL;
}

static void meaning_is_login(struct etcd_meaning *m, const char *user)
{
	m->verdict = ETCD_LOGIN;
	m->outcome = LOCK_REFUSED;
	m->err.code = ERR_DENIED;
	if (!*user)
		err_wrap(&m->err, "it wants a user and a password, and the URL has none");
}

static void understand_error(struct etcd_meaning *m, const char *user)
{
	switch (m->code) {
	case UNAUTHENTICATED:
		meaning_is_login(m, user);
		return;
	case INVALID_ARGUMENT:
		if (meaning_says(m, "user name is empty") || meaning_says(m, "auth store is old") ||
		    meaning_says(m, "invalid auth token"))
			meaning_is_login(m, user);
		else
			meaning_is_final(m, LOCK_INVALID, ERR_INVALID);
		return;
	case PERMISSION_DENIED:
		meaning_is_final(m, LOCK_REFUSED, ERR_DENIED);
		if (*user)
			err_wrap(&m->err, "the user %s has no right to do this", user);
		return;
	case EXHAUSTED:
		if (meaning_says(m, "space exceeded")) /* said also of the very write that fills it, which is applied */
			meaning_is_final(m, LOCK_UNKNOWN, ERR_FULL);
		else
			meaning_is_elsewhere(m, !meaning_says(m, "too many requests"));
		return;
	case NOT_FOUND:
	case UNIMPLEMENTED:
		meaning_is_final(m, LOCK_FAILED, ERR_INVALID);
		return;
	default:
		meaning_is_elsewhere(m, true);
	}
}

/* Neither etcd's answer nor its error. */
static void understand_stranger(struct etcd_meaning *m, const struct http_result *r, const char *endpoint)
{
	bool done_nothing = r->status >= 300 && r->status < 500 && r->status != 408 && r->status != 429;

	if (r->status == 404) {
		m->verdict = ETCD_OTHER_PATH;
		m->outcome = LOCK_FAILED;
		err_set(&m->err, ERR_INVALID,
		        "%s speaks HTTP, but has no path /v3/kv of etcd's JSON gateway: is this etcd, and is its gateway on "
		        "(--enable-grpc-gateway)?",
		        endpoint);
		return;
	}
	meaning_is_elsewhere(m, !done_nothing);
	err_set(&m->err, ERR_INVALID, "%s answers with HTTP status %d%s, which is not what etcd says: is this etcd?",
	        endpoint, r->status,
	        r->status == 421  ? " (Misdirected Request: is this host's name in etcd's --host-whitelist?)"
	        : r->status < 300 ? " and no JSON object"
	                          : "");
}

void etcd_understand(const struct http_result *r, const char *endpoint, const char *user, struct etcd_meaning *m)
{
	*m = (struct etcd_meaning){ .err = r->err, .queued = r->err.code == ERR_TIMEOUT && r->queued };
	if (r->err.code != ERR_NONE) {
		meaning_is_elsewhere(m, !r->unsent);
		return;
	}
	json_t *j = json_bound_load(r->body, r->len, 0, ETCD_ANSWER_VALUES, NULL);
	if (r->status == 200 && json_is_object(j) && json_is_object(json_object_get(j, "header"))) {
		m->verdict = ETCD_ANSWERED;
		m->outcome = LOCK_OK;
		m->json = j;
		return;
	}
	m->code = json_is_object(j) ? etcd_error_of(j, endpoint, &m->err) : 0;
	json_decref(j);
	if (m->code)
		understand_error(m, user);
	else
		understand_stranger(m, r, endpoint);
}
