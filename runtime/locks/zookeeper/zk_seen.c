#include "locks/zookeeper/zk_seen.h"

static bool follows(const struct zk_seen *seen, const struct zk_seen *now)
{
	if (now->czxid != seen->czxid)
		return now->czxid > seen->mzxid;
	if (now->mzxid == seen->mzxid)
		return now->version == seen->version;
	return now->mzxid > seen->mzxid && now->version > seen->version;
}

bool zk_seen_goes_back(struct zk_seen *seen, struct zk_seen now)
{
	bool back = seen->mzxid > 0 && !follows(seen, &now);

	*seen = now;
	return back;
}
