/* The state of a node that was seen last, and whether what is shown now is older: then its servers have lost writes, or
 * one that is cut off has answered. Not what follows from that (lock_failover.h), and not whether a look was
 * synchronised: no I/O and no clock. Used by the ZooKeeper lock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* As in a node's Stat (ZooKeeper's programmer's guide, "ZooKeeper Stat Structure"). All zero: none was seen. */
struct zk_state {
	int64_t czxid;   /* of the change that made the node */
	int64_t mzxid;   /* of the change that set it last */
	int32_t version; /* how often it was set */
};

/* A look at what all servers agree on, or a write of ours, shows `now`, which becomes the last one. true: it cannot follow
 * upon the last one, so a doubt begins, or begins anew. Each write makes mzxid and version larger, a node that is made
 * again has a czxid above all that it had before, and nothing else changes them; so a node whose version and mzxid have
 * not both grown, and which was not made since, had been in a state that is lost. Or a server has answered that is the
 * leader no more, and does not know it yet: sync asks no majority (ZOOKEEPER-2136). It lets a new session begin only with
 * localSessionsEnabled. That the newest state is shown again later proves nothing of what was written between. */
bool zk_seen_back(struct zk_state *last, const struct zk_state *now);
