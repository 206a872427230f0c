/* The states of a node that were seen, and whether what is shown now is older: then its servers have lost writes, or
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
	char child[17];  /* the random name that its term made; "" = it is not known, or there is none */
};

struct zk_seen { /* zero before the first use */
	struct zk_state last;
	bool doubted; /* since a step back */
	struct zk_state
		lost; /* the newest one, which that did not show any more; zero: the doubt is not to be answered */
};

enum zk_look {
	ZK_FOLLOWS,
	ZK_BACK,     /* it is none that can follow upon the last one: a doubt begins, or begins anew */
	ZK_RETURNED, /* the term of the newest state is there after all: the doubt is over */
};

/* A look at what all servers agree on, or a write of ours, shows `now`, which is remembered.
 *
 * ZK_BACK: each write makes mzxid and version larger, a node that is made again has a czxid above all that it had
 * before, and nothing else changes them; so a node whose version and mzxid have not both grown, and which was not made
 * since, had been in a state that is lost. Or a server has answered that is the leader no more, and does not know it
 * yet: sync asks no majority (ZOOKEEPER-2136). It lets a new session begin only with localSessionsEnabled.
 *
 * ZK_RETURNED: the state is the newest one that was seen, or has a larger version and mzxid and the same child. The
 * numbers alone prove nothing, since servers that lost writes count versions again, and those that were restored count
 * zxids again. The child's name is random, made by the one write that began the term: so that write is not lost, and
 * only that term's leader has written since. It is not told if, since the step back, anything else was shown than the
 * same state again or states of that term (another term may then be lost in turn), nor after a second step back. */
enum zk_look zk_seen_look(struct zk_seen *seen, const struct zk_state *now);

/* The doubt was waited out: a next one is told from it. */
void zk_seen_settle(struct zk_seen *seen);
