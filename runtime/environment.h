/* What the processes that a term starts are told in their environment: whose they are, and the token.
 * Not the configuration of this process: nothing of Lunarch reads these variables back but the sweep of a term's leftovers.
 * Used by the scheduler, before each task runs, so that os.execute, io.popen and os.getenv see the right term too. */
#ifndef LUNARCH_ENVIRONMENT_H
#define LUNARCH_ENVIRONMENT_H

#include <stddef.h>
#include <stdint.h>

#define MARKER_VARIABLES 5

/* A term's own entries: LUNARCH_TERM=slot.term, LUNARCH_TOKEN, LUNARCH_TERM_LOCK, _IDENTITY, _ADDRESS. */
struct marker {
	char *entry[MARKER_VARIABLES]; /* entry[0] owns them all */
};

void marker_init(struct marker *m, uint32_t slot, uint64_t term, int64_t token, const char *lock, const char *identity,
                 const char *address);
void marker_fini(struct marker *m);

struct environment {
	char **entries; /* what environ points to: the inherited entries, then a marker's, then NULL */
	size_t inherited;
};

/* Takes over environ. The process' own entries are borrowed: they live as long as the process. */
void environment_init(struct environment *e);
void environment_fini(struct environment *e);

/* From now on children, and getenv, see this marker; NULL: LUNARCH_TERM=- alone. m is borrowed until the next call.
 * What a C module did with setenv meanwhile is kept. */
void environment_enter(struct environment *e, const struct marker *m);

#endif
