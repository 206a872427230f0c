/* The newest state of a node that was seen, and whether what is shown now is older: then its servers have lost writes.
 * Not what follows from that (lock_failover.h), and not whether a look was synchronised: no I/O and no clock.
 * Used by the ZooKeeper lock. */
#ifndef LUNARCH_ZK_SEEN_H
#define LUNARCH_ZK_SEEN_H

#include <stdbool.h>
#include <stdint.h>

/* As in a node's Stat (ZooKeeper's programmer's guide, "ZooKeeper Stat Structure"). All zero: none was seen. */
struct zk_seen {
	int64_t czxid;   /* of the change that made the node, */
	int64_t mzxid;   /*     and of the one that set it last */
	int32_t version; /* how often it was set */
};

/* A look at what all servers agree on, or a write of ours, shows `now`, which is remembered. true: it is none that can
 * follow upon what was seen before. Each write makes mzxid and version larger, a node that is made again has a czxid
 * above all that it had before, and nothing else changes them; so a node whose version and mzxid have not both grown,
 * and which was not made since, had been in a state that is lost. */
bool zk_seen_goes_back(struct zk_seen *seen, struct zk_seen now);

#endif
