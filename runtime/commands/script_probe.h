/* What a script says about its elections: a worker of its own loads it, and ends before any hook runs.
 * Not a run: no lock is opened, no hook is called.
 * Used by check, by cron, and where a command means the lock of a script (named_lock.h). */
#pragma once

#include "config/election_settings.h"

struct script_probe {
	struct election_settings *settings;
	uint32_t count;
	char *lock_file; /* it is no script, but this lock file; NULL: it is none */
	char *schemes;   /* of a lock file: a blank between two */
};

/* Loads the script (or the text) for at most 10 s, and fills *s: script_probe_fini it. NULL: it has these elections.
 * Else what is wrong, in the script's own words; the caller frees. Blocks. */
char *script_probe_load(struct script_probe *s, const struct options *o, const char *source, bool is_text);
void script_probe_fini(struct script_probe *s);
