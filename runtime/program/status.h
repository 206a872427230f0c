/* The standing of all elections of this process as one JSON object: what /status answers, and what the state file has.
 * Not one election's: standing.h. What `ctl status` answers has the same elections, and says more of the program.
 * Used by admin.c and state_file.c. */
#pragma once

#include "program/standing.h"

#include <stdint.h>

/* Appends {"version":TEXT,"pid":N,"startTicks":N,"boot":TEXT,"stopped":false,"at":TIME,"elections":[...]} and a
 * newline. startTicks: field 22 of /proc/PID/stat, with pid and boot the process that wrote this; 0, "": they cannot be
 * read. Each of the elections is as standing_json has it. source NULL: the process ends, stopped is true, and there
 * are no elections. */
void status_json(struct buf *out, const struct standing_source *source);

/* What a text that status_json made says of who made it, by its beginning. */
struct status_author {
	uint64_t pid, start; /* start: in ticks */
	char boot[37];
	bool stopped;
};

/* false: status_json did not make that. */
bool status_author(const char *text, struct status_author *out);

/* Whether that process still runs, is another than this one, and has not said that it stops. A process of another PID
 * namespace counts as one that does not run. */
bool status_author_lives(const struct status_author *a);
