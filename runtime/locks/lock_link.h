/* One connection to the one of several servers that serves: brought up when somebody wants it, shared by many locks.
 * Not a protocol, which is the backend's, and no lock: it repeats nothing, and knows no record.
 * Used by the backends whose connection this process drives itself: etcd, Redis, PostgreSQL,
 * ZooKeeper, and the socket to a driver. */
#pragma once

#include "locks/lock_pipeline.h"
#include "locks/lock_url.h"

#include <ev.h>

struct dial;
struct lock_link;

/* What the backend gives, a const table. A member marked (may lose) may end in lock_link_lose. */
struct lock_link_ops {
	nsec attempt;  /* to connect to one host and greet it */
	nsec rest;     /* how long no host is asked after the last host of a round has refused us. 0: no rest */
	bool moves_on; /* when a connection that was up is lost, the next round begins with the next host */

	/* Connects, and calls lock_link_dialed. NULL: the link connects to the URL's host by TCP. (may lose) */
	void (*dial)(struct lock_link *k);
	/* The connection is there; k->fd is its descriptor, if the link has made it. Begins the greeting, which ends
	 * with lock_link_up. (may lose) */
	void (*greet)(struct lock_link *k);
	/* The descriptor of lock_link_wait can be written to, or read from. (may lose) */
	void (*send)(struct lock_link *k);
	void (*parse)(struct lock_link *k);
	/* The time of lock_link_tick has come. NULL: none is asked for. (may lose) */
	void (*tick)(struct lock_link *k);
	/* The attempt has taken too long: calls lock_link_lose with a message that says what was waited for. */
	void (*overdue)(struct lock_link *k);
	/* Frees what the backend has for this connection, but k->fd. Called at the end of each connection and of each
	 * attempt. NULL: there is nothing to free. */
	void (*close)(struct lock_link *k);
	/* The last call: frees the backend's struct. NULL: free. */
	void (*free)(struct lock_link *k);
};

/* What the owner is told, a const table; every member may be NULL. May free the link. */
struct lock_link_events {
	/* The link is up. Called before `ready` of those who wait for it. */
	void (*up)(void *arg);
	/* A round of attempts failed, or the connection was lost. Called after `lost` of those who asked. outcome:
	 * LOCK_FAILED or LOCK_REFUSED. */
	void (*down)(void *arg, enum lock_outcome outcome, const struct err *why);
	/* The last call, after lock_link_free: nothing of the link runs any more, so what its library may have called
	 * with can be freed. */
	void (*freed)(void *arg);
};

enum lock_link_state { LOCK_LINK_DOWN, LOCK_LINK_DIALING, LOCK_LINK_GREETING, LOCK_LINK_UP };

struct lock_link { /* first member of the backend's struct; written here alone, but for fd, host, ending and queue */
	struct lock_env *env;
	const struct lock_url *url;
	const struct lock_link_ops *ops;
	const struct lock_link_events *events;
	void *arg;

	enum lock_link_state state;
	int host, tried; /* which of the URL's hosts is asked, or was last; how many were asked in this round */
	unsigned failed; /* attempts that have, in all */
	char peer[300];  /* "127.0.0.1:6379", of that host */
	struct dial *dial;
	bool ending;     /* set by a backend inside a library that cannot be left yet: lock_link_lose follows soon */
	int fd;          /* of the connection, closed with it; -1: none, or it is somebody else's */
	uint64_t number; /* of the connection: one more with each that ends */
	ev_io io;
	ev_timer timer, ticker; /* timer: of an attempt; while down, the turn of those who wait */
	ev_timer sender;        /* never started: of lock_link_send_soon */
	ev_timer ager;          /* of lock_link_limit_age */
	int age_s, aged;        /* its limit; how often the connection was too old, and somebody waited for an answer */
	struct lock_pipeline queue;
	struct instant heard; /* when bytes came last, or the greeting began */

	bool resting; /* until */
	struct instant until;
	enum lock_outcome outcome; /* how the last connection or attempt ended */
	struct err why;            /* why it ended, in words */
	int busy;                  /* so many callbacks are running */
	bool dead;                 /* the link is freed, and its memory goes when the callbacks have returned */
};

/* url: whose hosts are asked in turn; borrowed, outlives the link. NULL: there is one place, which ops->dial knows, and
 * messages name no peer. Opens nothing yet. */
void lock_link_init(struct lock_link *k, struct lock_env *env, const struct lock_url *url,
                    const struct lock_link_ops *ops, const struct lock_link_events *events, void *arg);

/* May be called from the link's callbacks: memory goes when they have returned. Nobody's call may be under way. NULL:
 * nothing. */
void lock_link_free(struct lock_link *k);

#define LOCK_LINK_AGE_MAX 86400 /* seconds; for the URL's option */

/* A connection ends after so many seconds, as soon as nobody waits for an answer, but a second later in any case; and
 * another one is made, which goes to wherever the name leads by then. 0: it may stay for ever. Before it is up. */
void lock_link_limit_age(struct lock_link *k, int seconds);

/* ---- for locks ---- */

/* Calls c->ready when the link is up, now if it is; else it is brought up, from the loop, and if that fails c->lost is
 * called. */
void lock_link_want(struct lock_link *k, struct lock_call *c);

/* The call is not told anything any more; its answer, if one comes, is dropped. late: its deadline has passed (see
 * lock_link_late). */
void lock_link_forget(struct lock_link *k, struct lock_call *c, bool late);

/* A question that was sent then has had no answer by its deadline. If nothing at all came on the connection since, the
 * connection is given up. */
void lock_link_late(struct lock_link *k, struct instant sent_at);

/* Brings the link up although nobody asks: the owner wants its events. */
void lock_link_raise(struct lock_link *k);
bool lock_link_is_up(const struct lock_link *k);

/* ---- for the backend ---- */

/* For an ops->dial of one's own: it is connected, so ops->greet is called. */
void lock_link_dialed(struct lock_link *k);

/* The greeting is over: tells the owner, then all who wait. */
void lock_link_up(struct lock_link *k);

/* The connection, or the attempt, ends for this reason, which is put behind the peer's name. An attempt goes on with
 * the next host, while there is one that was not asked in this round; else all who wait and all who were not answered
 * are told. When a connection ends that was up, only those are told who were not answered: a call that has begun to
 * wait since waits on. */
void lock_link_lose(struct lock_link *k, enum lock_outcome outcome, enum err_code code, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Waits for these events (EV_READ, EV_WRITE; 0: none) of this descriptor, instead of those before. A descriptor that
 * was closed and opened again under the same number is another one: wait for none first. */
void lock_link_wait(struct lock_link *k, int fd, int events);

/* Calls ops->parse from the loop, soon, whatever the descriptor says. */
void lock_link_poke(struct lock_link *k);

/* Calls ops->send from the loop, behind all that is due now, if the connection lasts: what is asked at the same time
 * leaves together. Who is in a hurry sends by itself. */
void lock_link_send_soon(struct lock_link *k);

/* Calls ops->tick once, after_s from now, if the connection lasts. This replaces an earlier request. */
void lock_link_tick(struct lock_link *k, double after_s);

/* Around callbacks of locks: the link's memory stays until leave. Those of ops need none. */
void lock_link_enter(struct lock_link *k);
void lock_link_leave(struct lock_link *k);

/* After a callback: the connection that had this number is gone. */
bool lock_link_ended(const struct lock_link *k, uint64_t number);
