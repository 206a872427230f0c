/* What those locks of one process share that are in the same place: one object for each place and user, with its
 * connections and the count of its users; and which of them wait for notices.
 * Not a connection: that is a link (lock_link.h). Used by the backends of networked stores. */
#pragma once

#include "locks/lock_channel.h"
#include "locks/lock_identity.h"
#include "locks/lock_link.h"

/* What the backend gives, a const table. place: what open parsed, of the backend's own kind. */
struct lock_server_ops {
	bool (*serves)(const struct lock_server *s, const void *place); /* the same place and user */
	/* A new one; takes what is in place. notices is set by the backend; its events are lock_server_on_up and
	 * lock_server_on_down, or call these. */
	struct lock_server *(*make)(struct lock_env *env, void *place);
	void (*spare)(void *place); /* frees what is in place, since there is a server for it already */
	void (*free)(struct lock_server *s);
	/* The link of notices is up: asks the server for the channel, or, if not `on`, not to tell of it any longer.
	 * NULL: the backend has its own way. */
	void (*listen)(struct lock_server *s, const char *channel, bool on);
};

struct lock_server { /* first member of the backend's struct, zero when make returns but for notices */
	const struct lock_server_ops *ops;
	struct lock_env *env;
	struct lock_server *next;
	struct lock_link *notices; /* on which they come */
	struct lock_board board;
	struct lock_identity identity; /* the backend tells it what it hears; of a store without a name nothing */
	ev_timer raise;                /* brings the notices back */
	int refusals, users;
};

/* The server of that place, made on first use; the caller is a user of it until it puts it. place is spent. */
struct lock_server *lock_server_get(struct lock_env *env, const struct lock_server_ops *ops, void *place);

/* One more user, who has to put it, too: keeps the server while something is called that may close its last lock. */
void lock_server_hold(struct lock_server *s);
void lock_server_put(struct lock_server *s); /* frees it after its last user */

/* watch of struct lock_ops: enters, and asks for the channel or brings up the link. true: the channel is new here. */
bool lock_server_watch(struct lock_server *s, struct lock_member *m, const char *channel, lock_changed_fn *changed,
                       void *arg);

/* Call it before the lock closes, also if it never watched. With the last user the connection goes, so the server is
 * not told: in a handover that would be in the way of the other candidate. */
void lock_server_unwatch(struct lock_server *s, struct lock_member *m);

/* The events of the link of notices (lock_link.h); arg: the struct lock_server. up asks for all channels again; down
 * brings the link up after a while, as long as somebody waits for notices: a server that refuses us is asked ever more
 * rarely. */
void lock_server_on_up(void *arg);
void lock_server_on_down(void *arg, enum lock_outcome outcome, const struct err *why);
