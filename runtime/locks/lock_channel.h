/* Which locks of a process wait for notices on which of a server's channels.
 * Not a subscription: asking the server for a channel, and telling when one speaks, is the link's.
 * Used by the locks in stores that publish changes on named channels. */
#pragma once

#include "locks/lock.h"

#include <ev.h>

struct lock_channel {
	char *name;
	struct lock_member *members;
	bool deaf;  /* there are no notices on this one: its members poll */
	bool given; /* by lock_board_answer */
};

struct lock_board { /* one per server; zero but for the loop before the first use */
	struct ev_loop *loop;
	void *channels; /* tree (search.h) of struct lock_channel */
	bool deaf;      /* there are no notices here: members poll */
};

struct lock_member {   /* embedded in the lock; zero before the first use */
	char name[33]; /* random; published with our own changes, so that they are no notices to us */
	lock_changed_fn *changed;
	void *arg;
	struct lock_board *board;
	struct lock_channel *channel; /* NULL: waits for nothing */
	struct lock_member *next;
	ev_timer timer;
};

void lock_member_init(struct lock_member *m, struct lock_board *b);

/* Takes another name. Called before an acquisition: after a virtual machine was cloned, its copies have the same name,
 * and would take each other's notices for their own. */
void lock_member_rename(struct lock_member *m);

/* Waits for notices on the channel. Returns the channel if it is new to this board, so that the caller asks the server
 * for it; else NULL. A second call changes only whom to tell. */
struct lock_channel *lock_member_enter(struct lock_member *m, const char *channel, lock_changed_fn *changed, void *arg);

/* Tells it by way of the loop, so that it may close any lock. */
void lock_member_tell(struct lock_member *m);

/* Stops waiting. true: it was the last one on its channel, whose name is in *channel (to be freed): the caller tells
 * the server. */
bool lock_member_leave(struct lock_member *m, char **channel);

/* Tells who waits on the channel, by way of the loop, so that a callback may close any lock. but: not the one of that
 * name. */
void lock_board_tell(struct lock_board *b, const char *channel, const char *but);

/* From now on all members poll, or those of one channel. */
void lock_board_deafen(struct lock_board *b);
void lock_board_deafen_channel(struct lock_board *b, const char *channel);

/* The server has said whether it tells of each change on this channel from now on. Its members poll until it has said
 * yes. They are told then, of what happened before, and when it takes that back. For backends whose servers say so, and
 * where nothing that is asked later tells it. */
void lock_board_answer(struct lock_board *b, const char *channel, bool yes);
bool lock_member_is_given(const struct lock_member *m);

/* Does it poll? */
bool lock_member_is_deaf(const struct lock_member *m);

/* Calls act for each channel. */
void lock_board_each(struct lock_board *b, void (*act)(void *arg, const struct lock_channel *c), void *arg);

/* Seconds until the link of lost notices is brought up again. With each refusal by the server (a wrong password) they
 * become more, up to a minute. *refusals: how many in a row, counted here; the caller sets it to 0 when there are
 * notices again. */
double lock_channel_again_s(int *refusals, enum lock_outcome why);
