#include "locks/zookeeper/zk_seen.h"

static bool follows(const struct zk_state *before, const struct zk_state *now)
{
	if (now->czxid != before->czxid)
		return now->czxid > before->mzxid;
	if (now->mzxid == before->mzxid)
		return now->version == before->version;
	return now->mzxid > before->mzxid && now->version > before->version;
}

bool zk_seen_back(struct zk_state *last, const struct zk_state *now)
{
	bool back = last->mzxid > 0 && !follows(last, now);

	*last = *now;
	return back;
}
