/* Several locks that are watched at once, over connections that they share: a read of one that hangs holds up no other.
 * Not what is shown of them (board_text.h). Used by status --watch. */
#ifndef LUNARCH_WATCH_BOARD_H
#define LUNARCH_WATCH_BOARD_H

#include "client/lock_client.h"
#include "lease/leadership.h"
#include "locks/lock_listing.h"

struct board_lock {
	struct lock_client client;
	char *name;           /* in the listing of the prefix; NULL: it was named itself */
	bool reading;         /* a read is under way */
	bool answered;        /* at least once; before that nothing is known */
	bool present;         /* client.record is what the lock holds, as far as is known */
	bool failed;          /* the last read: client.result.err says why */
	bool hidden;          /* of a prefix: it is gone, or no election */
	bool moved;           /* it was found otherwise before that: whoever holds it was seen to write */
	struct instant since; /* when the lock was first found as it is, */
	uint64_t sight;       /* record_sight_id of that */
	int64_t read_us;      /* wall clock: when it was last read; 0: never */
};

struct watch_board { /* zeroed before it is opened. Read by its users */
	struct lock_client base;
	struct board_lock **lock; /* in the order in which they were named, or found */
	size_t count;
	char *prefix; /* NULL: each was named */
	bool more;    /* there is more below the prefix than was looked at */
	struct instant listed;
};

/* state_dir: as in struct lock_env. -1 with *err: a URL is none, or cannot be opened; watch_board_close all the
 * same. */
int watch_board_open(struct watch_board *b, const char *const *urls, size_t count, const char *state_dir,
                     struct err *err);

/* The elections whose lock URL begins so, as lock_open_prefix has it: those that come later, too. Blocks while it
 * lists, for at most some seconds. -1 with *err: the place cannot be listed. */
int watch_board_open_prefix(struct watch_board *b, const char *prefix, const char *state_dir, struct err *err);
void watch_board_close(struct watch_board *b);

/* Reads what is due, and waits for what happens: until shortly after an answer or a notice of a change, for at most
 * `most`. Blocks. */
void watch_board_look(struct watch_board *b, nsec most);

/* Whether each that is shown has answered or failed once. */
bool watch_board_complete(const struct watch_board *b);

/* What was seen of a record that somebody holds since it was first found. */
enum leadership_watched board_lock_watched(const struct board_lock *l);

#endif
