/* Room locks/etcd: a record in a key of etcd.
 *
 * What those etcd locks of a process share that have the same endpoints and the same user: a connection, the user's
 * token, the stream of notices, and whose call is next. Not etcd's lease, lock or election services, which elect dead
 * candidates (etcd's issue 19597): only transactions and watches. Not a lock: it knows of no record. Used by the etcd
 * lock. */
#pragma once

#include "locks/etcd/etcd_answer.h"
#include "locks/etcd/etcd_link.h"
#include "locks/etcd/etcd_messages.h"
#include "locks/lock_server.h"

struct etcd_hub; /* etcd_watch.h */

struct etcd_place {
	struct lock_url url; /* the path is nobody's */
	bool tls;
};

struct etcd_server {
	struct lock_server base; /* first; its link serves for all */
	struct etcd_place place;
	struct etcd_hub *hub;

	char *token;         /* NULL: to be asked for, if there is a user; "": the server wants none */
	unsigned generation; /* counts tokens */
	struct grpc_call login;
	uint64_t login_number;   /* of the connection that it goes by */
	struct grpc_call status; /* asks which cluster the connection leads to, before anything is written by it */
	struct err strange;      /* that it leads to another one; a code of none: it does not */
	bool agreed;             /* each endpoint that answers was asked which cluster it is of */
	int walks;               /* so many connections were left for that */
	/* the cluster of an endpoint that is not of the first one's; "": there is none */
	char stray[LOCK_IDENTITY_SIZE];
	uint64_t proved;                    /* the connection that has said so (its number and one); 0: none */
	struct instant answered;            /* when the last call of a lock was */
	struct lock_pipeline askers, crowd; /* who waits for a token; for others to be answered */
	int busy;                           /* calls under way that were not urgent */
};

/* For lock_server_get, with a struct etcd_place. */
extern const struct lock_server_ops etcd_server_ops;

extern const char *const etcd_options[]; /* what a URL may say, for lock_url_parse */

/* Inside c->ready: may the call be sent by now? true: the link is up, there is a token if one is needed, and not many
 * others are under way; who is urgent waits for none of those. writes: the server has said that it is of the cluster
 * that is used. false: c->ready or c->lost is called again. lost: sent: the question was lost with its connection, or
 * another endpoint may do better. */
bool etcd_server_admits(struct etcd_server *s, struct lock_call *c, bool urgent, bool writes);

/* Inside c->ready, of a call that is to make a key. true: it has to wait, until each endpoint has said which cluster
 * it is of: a process that has just begun knows none, and a key that is missing in one cluster may be there in
 * another. This is done once in a process. */
bool etcd_server_asks_all(struct etcd_server *s, struct lock_call *c);
/* etcd_server_asks_all found endpoints of two clusters: *err says which. Then no key is made. */
bool etcd_server_disputed(const struct etcd_server *s, struct err *err);

/* An answer came by the connection of this number. false with *err: it is of another cluster than those before, and
 * counts for nothing. The connection ends soon, and the next host is asked. May be called from everywhere. */
bool etcd_server_heard(struct etcd_server *s, uint64_t number, const Etcd__ResponseHeader *header, struct err *err);

/* An admitted call has ended. */
void etcd_server_done(struct etcd_server *s, bool urgent);

/* The call waits no more for what etcd_server_admits made it wait for. true: that was for others to be answered. */
bool etcd_server_forget(struct etcd_server *s, struct lock_call *c);

/* What goes along with calls: the token. Valid until the token changes. */
struct etcd_metadata {
	const char *pair[6];
};
struct etcd_metadata etcd_server_metadata(const struct etcd_server *s);

/* The token was refused. Nothing if there is a newer one by now. */
void etcd_server_drop_token(struct etcd_server *s, unsigned generation);
