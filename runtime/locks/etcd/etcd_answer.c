#include "locks/etcd/etcd_answer.h"

#include <string.h>

/* gRPC's status codes (grpc.io, status codes). */
enum grpc_code {
	INVALID_ARGUMENT = 3,
	NOT_FOUND = 5,
	PERMISSION_DENIED = 7,
	EXHAUSTED = 8,
	UNIMPLEMENTED = 12,
	UNAUTHENTICATED = 16
};

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

static void meaning_is_login(struct etcd_meaning *m, const char *user)
{
	m->verdict = ETCD_LOGIN;
	m->outcome = LOCK_REFUSED;
	m->err.code = ERR_DENIED;
	if (!*user)
		err_wrap(&m->err, "it wants a user and a password, or a user's certificate, and the URL has none");
}

static void understand_status(struct etcd_meaning *m, const char *text, const char *user)
{
	/* It is said before the request is put to the others, whatever its code: 3.4 to 3.6 send "unknown" (2). */
	if (strstr(text, "too many requests")) {
		meaning_is_elsewhere(m, false);
		return;
	}
	switch (m->code) {
	case UNAUTHENTICATED:
		meaning_is_login(m, user);
		return;
	case INVALID_ARGUMENT:
		if (strstr(text, "user name is empty") || strstr(text, "auth store is old") ||
		    strstr(text, "invalid auth token"))
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
		if (strstr(text, "space exceeded")) /* said also of the very write that fills it, which is applied */
			meaning_is_final(m, LOCK_UNKNOWN, ERR_FULL);
		else
			meaning_is_elsewhere(m, true);
		return;
	case NOT_FOUND:
	case UNIMPLEMENTED:
		meaning_is_final(m, LOCK_FAILED, ERR_INVALID);
		return;
	default:
		/* This covers Unavailable, too: a request may have been applied that is answered "leader changed",
		 * "request timed out" or "server stopped". */
		meaning_is_elsewhere(m, true);
	}
}

struct etcd_meaning etcd_understand(const struct grpc_end *end, const char *peer, const char *user,
                                    const struct err *lost)
{
	struct etcd_meaning m = { .verdict = ETCD_ANSWERED, .outcome = LOCK_OK, .code = end->status };

	if (end->status == 0)
		return m;
	if (lost)
		m.err = *lost;
	else
		err_set(&m.err, ERR_UNREACHABLE, end->replied ? "etcd at %s says: %.300s" : "%s: %.300s", peer,
		        end->text);
	/* A proxy's HTTP status, as 401, 403 or 404, is said instead of passing the request on. */
	bool turned_away =
		!end->replied && (m.code == UNAUTHENTICATED || m.code == PERMISSION_DENIED || m.code == UNIMPLEMENTED);
	if (!end->replied || end->unseen)
		meaning_is_elsewhere(&m, !end->unseen && !turned_away);
	else
		understand_status(&m, end->text, user);
	return m;
}
