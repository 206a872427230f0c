/* Which lock a command means: --lock URL, or the lock that `run` takes for a script.
 * Not an open lock, and nothing is read from one: that is lock_client.h.
 * Used by the commands that read a lock in Lua, by release and by fence. */
#pragma once

#include "config/options.h"

#include <stddef.h>

/* If a script was given, its text is run (but no hook) for at most 10 s, since it may name its lock. If it has
 * several elections, --election says which. -1: *url is the lock's, the caller frees it; else it was said what is
 * wrong, and this is the exit status. Blocks. */
int named_lock(const struct options *o, char **url);

/* The same for a command that can show several locks, if it shall (several): each --lock, or all elections of the
 * script, unless --election names one. The locks of --slots, and for status those of a script's only election, are all
 * shown in any case. */
struct named_locks { /* zeroed before; named_locks_fini */
	char **url;
	size_t count;
};
int named_locks(const struct options *o, bool several, struct named_locks *out);
void named_locks_fini(struct named_locks *n);
