/* A version of a script (life.h): what one load of it says about its elections, and what is kept of its files, so that
 * a worker that follows a dead one runs the same. Not a worker, and not an election that runs (candidate.h).
 * Used by run.c, reload.c and worker_set.c. */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "config/election_settings.h"

struct worker_set;

struct script_version {                     /* zeroed: there is none */
	struct election_settings *settings; /* of its elections, in its order; the candidates borrow them */
	uint32_t count;
	uint32_t *group; /* of each (life.h) */
	uint32_t groups; /* isolated elections */
	nsec quit_grace; /* the longest shutdown grace: for a worker that is told to leave */
	int kept;        /* descriptor: the texts of its files (sources.h); 0: not made yet */
};

/* The descriptor in which its workers keep the texts of its files. It stays the version's. -1 with *err. */
int script_version_keep(struct script_version *v, struct err *err);
void script_version_fini(struct script_version *v); /* also of a zeroed one */

/* A worker has loaded the script. The first one of a version says what that is: its settings are taken. Each later one
 * must say the same elections, in whatever order: -1 with *err. Then s->slot and s->election are known. */
int script_version_take(struct script_version *v, struct worker_set *s, struct err *err);
