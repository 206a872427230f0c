/* One end of a SOCK_SEQPACKET socket between two of our processes: whole messages, in order, without blocking. Not
 * what the messages say (wire.h, guard_wire.h), and not the guard's end, which has neither a loop nor a heap. Used by
 * the supervisor, for its worker and for its guard, by the worker, and by a lock file's driver. */
#pragma once

#include "process/wire.h"

#include <stdbool.h>
#include <stddef.h>

struct channel;
struct ev_loop;

/* What both ends have agreed upon, and who is told. Borrowed until channel_free. */
struct channel_kind {
	size_t message_max; /* bytes of one message, in both directions */
	size_t unsent_max;  /* messages that may wait for the socket; 0: any number */
	int turn_max;       /* messages that one turn of the loop receives, so that others get their turn */
	/* A message of 1 to message_max bytes, which are valid until it returns. */
	void (*message)(void *arg, const void *bytes, size_t len);
	/* No message follows: the other end has closed, failed, or sent an empty message (oversized is 0), or it sent
	 * one of so many bytes, which is more than message_max. At most once. May be NULL. */
	void (*end)(void *arg, size_t oversized);
};

/* Both callbacks come from the loop or from channel_drain. Inside them every channel_ function may be called. */

/* Begins to receive. The socket is the channel's from now on. */
struct channel *channel_new(struct ev_loop *loop, int fd_taken, const struct channel_kind *kind, void *arg);
void channel_free(struct channel *c); /* closes the socket; what was not sent is lost. NULL: does nothing */

/* Sends it now or, in its turn, as soon as the socket has room. -1: unsent_max messages wait already, and this one is
 * lost. 0 also if nobody reads any more: then the message is lost, and the end is heard of by receiving. One that is
 * larger than message_max is a bug, and ends this process. */
int channel_send(struct channel *c, const void *bytes, size_t len);

bool channel_waits(const struct channel *c); /* a message that was sent has not left yet */

void channel_drain(struct channel *c);  /* receives what is there now, however much it is */
void channel_deafen(struct channel *c); /* no callback comes any more; sending goes on */
