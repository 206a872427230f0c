/* The names that `list` of struct lock_ops found: at most so many, sorted, each once.
 * Not records: what is under a name, a read tells.
 * Used by the lock backends and by whoever lists. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define LOCK_LISTING_MOST 1000

struct lock_listing { /* zero before the first use */
	char **name;  /* what follows the prefix, as it stands in a URL: see lock_url_beside. Sorted by its bytes */
	size_t count; /* 0 to LOCK_LISTING_MOST */
	bool more;    /* there is more than this: not all was looked at, or there were more names */
};

/* Adds a copy of the name, unless it is there. also: the characters that the backend's URLs do not percent-encode
 * (lock_url_encode); NULL: they encode nothing. false: there is no room, and `more` says so: any further one is
 * superfluous. */
bool lock_listing_add(struct lock_listing *l, const char *name, const char *also);

/* How much of the key of a lock that lock_open_prefix opened is the prefix. */
size_t lock_listing_prefix(const char *key);

/* Makes `to`, whose names are freed, what `from` is, which then is empty. */
void lock_listing_move(struct lock_listing *to, struct lock_listing *from);

void lock_listing_fini(struct lock_listing *l); /* leaves it empty */
