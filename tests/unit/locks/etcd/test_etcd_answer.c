/* What etcd's answers mean, in the three shapes its versions give errors: which of them surely changed nothing decides
 * whether a write may be tried elsewhere, or is unknown. */
#include "tap.h"

#include "base/err.h"
#include "locks/etcd/etcd_client.h"

#include <jansson.h>
#include <string.h>

static const struct {
	const char *what;
	int status;
	const char *body, *user;
	enum etcd_verdict verdict;
	bool maybe;
	enum lock_outcome outcome;
} cases[] = {
	{ "an answer", 200, "{\"header\":{\"revision\":\"7\"},\"succeeded\":true}", "", ETCD_ANSWERED, false, LOCK_OK },
	{ "3.4's shape: no user was given", 400,
	  "{\"error\":\"etcdserver: user name is empty\",\"code\":3,\"message\":\"etcdserver: user name is empty\"}",
	  "", ETCD_LOGIN, false, LOCK_REFUSED },
	{ "3.6's shape: the same", 400, "{\"code\":3,\"message\":\"etcdserver: user name is empty\",\"details\":[]}",
	  "", ETCD_LOGIN, false, LOCK_REFUSED },
	{ "a stream's shape: the same", 200,
	  "{\"error\":{\"grpc_code\":3,\"http_code\":400,\"message\":\"etcdserver: user name is empty\"}}", "",
	  ETCD_LOGIN, false, LOCK_REFUSED },
	{ "a token that has expired", 401, "{\"code\":16,\"message\":\"etcdserver: invalid auth token\"}", "me",
	  ETCD_LOGIN, false, LOCK_REFUSED },
	{ "a token of an older list of users", 400,
	  "{\"code\":3,\"message\":\"etcdserver: revision of auth store is old\"}", "me", ETCD_LOGIN, false,
	  LOCK_REFUSED },
	{ "no right", 403, "{\"code\":7,\"message\":\"etcdserver: permission denied\"}", "me", ETCD_FINAL, false,
	  LOCK_REFUSED },
	{ "a request that is too large", 400, "{\"code\":3,\"message\":\"etcdserver: request is too large\"}", "",
	  ETCD_FINAL, false, LOCK_INVALID },
	{ "no space, which is said of the write that fills it, too", 429,
	  "{\"code\":8,\"message\":\"etcdserver: mvcc: database space exceeded\"}", "", ETCD_FINAL, true,
	  LOCK_UNKNOWN },
	{ "too many requests: it was not taken", 429, "{\"code\":8,\"message\":\"etcdserver: too many requests\"}", "",
	  ETCD_ELSEWHERE, false, LOCK_FAILED },
	{ "another thing that is exhausted", 429, "{\"code\":8,\"message\":\"grpc: received message larger than max\"}",
	  "", ETCD_ELSEWHERE, true, LOCK_UNKNOWN },
	{ "no leader", 503, "{\"error\":\"etcdserver: no leader\",\"code\":14,\"message\":\"etcdserver: no leader\"}",
	  "", ETCD_ELSEWHERE, true, LOCK_UNKNOWN },
	{ "a timeout inside", 504, "{\"code\":4,\"message\":\"etcdserver: request timed out\"}", "", ETCD_ELSEWHERE,
	  true, LOCK_UNKNOWN },
	{ "a service that is not there", 501, "{\"code\":12,\"message\":\"unknown service\"}", "", ETCD_FINAL, false,
	  LOCK_FAILED },
	{ "no such path, as of another version", 404, "404 page not found\n", "", ETCD_OTHER_PATH, false, LOCK_FAILED },
	{ "a host that is not let in", 421, "Misdirected Request", "", ETCD_ELSEWHERE, false, LOCK_FAILED },
	{ "a gateway's own error", 502, "<html>Bad Gateway</html>", "", ETCD_ELSEWHERE, true, LOCK_UNKNOWN },
	{ "a gateway that is in a hurry", 429, "slow down", "", ETCD_ELSEWHERE, true, LOCK_UNKNOWN },
	{ "a web server's page", 200, "<html>hello</html>", "", ETCD_ELSEWHERE, true, LOCK_UNKNOWN },
	{ "half an answer", 200, "{\"header\":{\"revi", "", ETCD_ELSEWHERE, true, LOCK_UNKNOWN },
	{ "a code that is none", 400, "{\"code\":99,\"message\":\"x\"}", "", ETCD_ELSEWHERE, false, LOCK_FAILED },
};

static void understood(size_t i)
{
	struct http_result r = { .status = cases[i].status, .body = cases[i].body, .len = strlen(cases[i].body) };
	struct etcd_meaning m;

	etcd_understand(&r, "there", cases[i].user, &m);
	ok(m.verdict == cases[i].verdict && m.maybe == cases[i].maybe && m.outcome == cases[i].outcome,
	   "%s: verdict %d, may have been applied %d, %s", cases[i].what, m.verdict, m.maybe,
	   lock_outcome_name(m.outcome));
	ok((m.verdict == ETCD_ANSWERED) == (m.err.text[0] == '\0'), "%s: and it is said in words: %s", cases[i].what,
	   m.err.text);
	json_decref(m.json);
}

static void cut(bool unsent, enum lock_outcome outcome)
{
	struct http_result r = { .body = "", .unsent = unsent, .err = { .code = ERR_UNREACHABLE } };
	struct etcd_meaning m;

	etcd_understand(&r, "there", "", &m);
	ok(m.verdict == ETCD_ELSEWHERE && m.maybe == !unsent && m.outcome == outcome,
	   "a connection that was cut, %s: %s", unsent ? "before the request left" : "after it left",
	   lock_outcome_name(m.outcome));
}

int main(void)
{
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		understood(i);
	cut(true, LOCK_FAILED);
	cut(false, LOCK_UNKNOWN);
	return tap_done();
}
