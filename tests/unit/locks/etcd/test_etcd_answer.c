/* What the ends of etcd's calls mean: which of them surely changed nothing decides whether a write may be tried
 * elsewhere, or is unknown. */
#include "tap.h"

#include "base/err.h"
#include "locks/etcd/etcd_answer.h"

#include <string.h>

static const struct {
	const char *what;
	struct grpc_end end;
	const char *user;
	enum etcd_verdict verdict;
	bool maybe;
	enum lock_outcome outcome;
} cases[] = {
	{ "an answer", { 0, .replied = true, .text = "" }, "", ETCD_ANSWERED, false, LOCK_OK },
	{ "no user was given",
	  { 3, .replied = true, .text = "etcdserver: user name is empty" },
	  "",
	  ETCD_LOGIN,
	  false,
	  LOCK_REFUSED },
	{ "a token that has expired",
	  { 16, .replied = true, .text = "etcdserver: invalid auth token" },
	  "me",
	  ETCD_LOGIN,
	  false,
	  LOCK_REFUSED },
	{ "a token of an older list of users",
	  { 3, .replied = true, .text = "etcdserver: revision of auth store is old" },
	  "me",
	  ETCD_LOGIN,
	  false,
	  LOCK_REFUSED },
	{ "no right",
	  { 7, .replied = true, .text = "etcdserver: permission denied" },
	  "me",
	  ETCD_FINAL,
	  false,
	  LOCK_REFUSED },
	{ "a request that is too large",
	  { 3, .replied = true, .text = "etcdserver: request is too large" },
	  "",
	  ETCD_FINAL,
	  false,
	  LOCK_INVALID },
	{ "no space, which is said of the write that fills it, too",
	  { 8, .replied = true, .text = "etcdserver: mvcc: database space exceeded" },
	  "",
	  ETCD_FINAL,
	  true,
	  LOCK_UNKNOWN },
	{ "too many requests: it was not taken",
	  { 8, .replied = true, .text = "etcdserver: too many requests" },
	  "",
	  ETCD_ELSEWHERE,
	  false,
	  LOCK_FAILED },
	{ "too many requests, as etcd's servers send it",
	  { 2, .replied = true, .text = "etcdserver: too many requests" },
	  "",
	  ETCD_ELSEWHERE,
	  false,
	  LOCK_FAILED },
	{ "another thing that is exhausted",
	  { 8, .replied = true, .text = "grpc: received message larger than max" },
	  "",
	  ETCD_ELSEWHERE,
	  true,
	  LOCK_UNKNOWN },
	{ "no leader",
	  { 14, .replied = true, .text = "etcdserver: no leader" },
	  "",
	  ETCD_ELSEWHERE,
	  true,
	  LOCK_UNKNOWN },
	{ "a leader that changed",
	  { 14, .replied = true, .text = "etcdserver: leader changed" },
	  "",
	  ETCD_ELSEWHERE,
	  true,
	  LOCK_UNKNOWN },
	{ "a timeout inside",
	  { 4, .replied = true, .text = "etcdserver: request timed out" },
	  "",
	  ETCD_ELSEWHERE,
	  true,
	  LOCK_UNKNOWN },
	{ "a server that is corrupt",
	  { 15, .replied = true, .text = "etcdserver: corrupt cluster" },
	  "",
	  ETCD_ELSEWHERE,
	  true,
	  LOCK_UNKNOWN },
	{ "a service that is not there",
	  { 12, .replied = true, .text = "unknown service" },
	  "",
	  ETCD_FINAL,
	  false,
	  LOCK_FAILED },
	{ "a proxy's 404", { 12, .text = "HTTP status 404" }, "", ETCD_ELSEWHERE, false, LOCK_FAILED },
	{ "a proxy's 403", { 7, .text = "HTTP status 403" }, "", ETCD_ELSEWHERE, false, LOCK_FAILED },
	{ "a proxy's 503", { 14, .text = "HTTP status 503" }, "", ETCD_ELSEWHERE, true, LOCK_UNKNOWN },
	{ "a stream that was reset", { -1, .text = "reset" }, "", ETCD_ELSEWHERE, true, LOCK_UNKNOWN },
	{ "a stream that was refused",
	  { -1, .unseen = true, .text = "refused" },
	  "",
	  ETCD_ELSEWHERE,
	  false,
	  LOCK_FAILED },
	{ "a code that is none", { 99, .replied = true, .text = "x" }, "", ETCD_ELSEWHERE, true, LOCK_UNKNOWN },
};

static void understood(size_t i)
{
	struct etcd_meaning m = etcd_understand(&cases[i].end, "there", cases[i].user, NULL);

	ok(m.verdict == cases[i].verdict && m.maybe == cases[i].maybe && m.outcome == cases[i].outcome,
	   "%s: verdict %d, may have been applied %d, %s", cases[i].what, m.verdict, m.maybe,
	   lock_outcome_name(m.outcome));
	ok((m.verdict == ETCD_ANSWERED) == (m.err.text[0] == '\0'), "%s: and it is said in words: %s", cases[i].what,
	   m.err.text);
}

static void cut(bool unsent, enum lock_outcome outcome)
{
	struct grpc_end end = { .status = -1, .unseen = unsent, .text = "" };
	struct err lost = { .code = ERR_UNREACHABLE, .text = "there: cut" };
	struct etcd_meaning m = etcd_understand(&end, "there", "", &lost);

	ok(m.verdict == ETCD_ELSEWHERE && m.maybe == !unsent && m.outcome == outcome &&
	           strcmp(m.err.text, lost.text) == 0,
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
