#include "locks/zookeeper/zk_seen.h"

#include <string.h>

static bool follows(const struct zk_state *before, const struct zk_state *now)
{
	if (now->czxid != before->czxid)
		return now->czxid > before->mzxid;
	if (now->mzxid == before->mzxid)
		return now->version == before->version;
	return now->mzxid > before->mzxid && now->version > before->version;
}

static bool same_term(const struct zk_state *a, const struct zk_state *b)
{
	return *a->child && a->czxid == b->czxid && strcmp(a->child, b->child) == 0;
}

static enum zk_look step_back(struct zk_seen *seen)
{
	static const struct zk_state none;

	seen->lost = seen->doubted ? none : seen->last;
	seen->doubted = true;
	return ZK_BACK;
}

static enum zk_look step_on(struct zk_seen *seen, const struct zk_state *now)
{
	if (seen->lost.mzxid == 0 || now->mzxid == seen->last.mzxid)
		return ZK_FOLLOWS;
	if (!same_term(&seen->lost, now)) {
		seen->lost = (struct zk_state){ 0 };
		return ZK_FOLLOWS;
	}
	if (!follows(&seen->lost, now))
		return ZK_FOLLOWS;
	zk_seen_settle(seen);
	return ZK_RETURNED;
}

enum zk_look zk_seen_look(struct zk_seen *seen, const struct zk_state *now)
{
	bool back = seen->last.mzxid > 0 && !follows(&seen->last, now);
	enum zk_look look = back ? step_back(seen) : step_on(seen, now);

	seen->last = *now;
	return look;
}

void zk_seen_settle(struct zk_seen *seen)
{
	seen->doubted = false;
	seen->lost = (struct zk_state){ 0 };
}
