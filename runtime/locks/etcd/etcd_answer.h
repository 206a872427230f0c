/* What a status of gRPC that etcd, or something in its place, ended a call with says of the request: was it acted upon,
 * and who else should be asked? Used by the etcd lock. */
#pragma once

#include "locks/lock.h"
#include "net/grpc/grpc.h"

enum etcd_verdict {
	ETCD_ANSWERED,  /* the message counts */
	ETCD_ELSEWHERE, /* this endpoint cannot; another may */
	ETCD_LOGIN,     /* the token is missing or no longer good; nothing was done */
	ETCD_FINAL,     /* any endpoint would say the same */
};

struct etcd_meaning {
	enum etcd_verdict verdict;
	bool maybe;                /* the request may have been acted upon */
	enum lock_outcome outcome; /* if this is how it ends */
	int code;                  /* gRPC's */
	struct err err;
};

/* peer: "host:port". user: for messages; "": none. lost: why the connection ended under the call; NULL: it did not. */
struct etcd_meaning etcd_understand(const struct grpc_end *end, const char *peer, const char *user,
                                    const struct err *lost);
