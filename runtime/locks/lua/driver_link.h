/* A driver: the process that runs one lock file for one place, and the socket to it. Brought up when somebody wants it,
 * replaced when it dies, hangs or sends nonsense.
 * Not a lock, and no Lua: what a message means for an operation is the lock's.
 * Used by driver_server.h and the driver lock.
 *
 * A driver hangs if a PING has no answer, and nothing else comes either, for 2 seconds. It gets one when an operation
 * was not answered by its deadline, and when nothing has come for a while. */
#pragma once

#include "locks/lock_link.h"
#include "locks/lua/driver_wire.h"

#include <sys/types.h>

/* Stands between links and their drivers, for the examination of a lock file (struct lock_env). started: pid is a new
 * driver, and fd the socket to it, which is its own now; it gives the socket that the link has in its place. ended: a
 * driver has ended, so all that it had said is handed on before this returns. */
struct lock_tap {
	int (*started)(struct lock_tap *tap, pid_t pid, int fd);
	void (*ended)(struct lock_tap *tap);
};

struct driver_link_events {
	struct lock_link_events link;
	void (*changed)(void *arg, const char *key);
	void (*watching)(void *arg, const struct driver_watching *w);
};

/* place: the text of OPEN. name: what messages call the lock file. Both are borrowed, and outlive the link. A link
 * (lock_link.h): of struct lock_call the callback `answered` gets a struct driver_answer; its answers come in any
 * order. If the driver refuses to open, the outcome of `lost` is LOCK_REFUSED where the URL or the lock file is wrong
 * (ERR_USAGE). */
struct lock_link *driver_link_new(struct lock_env *env, const char *place, const char *name,
                                  const struct driver_link_events *events, void *arg);

/* What the lock file has functions for: of enum driver_can. 0 while the link is down. */
uint8_t driver_link_can(const struct lock_link *link);

/* An id for a question: 1, 2, ..., never one twice. */
uint64_t driver_link_id(struct lock_link *link);

/* Sends the question m, which has this id. The link is up. c->answered is called, or, when the driver is lost,
 * c->lost. false: it is larger than the socket takes, and nothing was sent. */
bool driver_link_ask(struct lock_link *link, struct lock_call *c, uint64_t id, const struct buf *m);

/* Sends a message that has no answer. Nothing while the link is down. */
void driver_link_send(struct lock_link *link, const struct buf *m);

/* Nobody waits for this call's answer any more: the driver is told to cancel, and asked whether it is alive. Nothing if
 * it was not asked. */
void driver_link_cancel(struct lock_link *link, const struct lock_call *c);
