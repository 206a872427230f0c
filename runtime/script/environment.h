/* What the processes that a term starts are told in their environment: whose they are, and the token.
 * Not the configuration of this process: nothing of Lunarch reads these variables back but the sweep of a term's
 * leftovers. Used by the scheduler, before each task runs, so that os.execute, io.popen and os.getenv see the right
 * term too. */
#ifndef LUNARCH_ENVIRONMENT_H
#define LUNARCH_ENVIRONMENT_H

#include <stddef.h>
#include <stdint.h>

#define MARKER_VARIABLES 5

/* What a term's own entries say: LUNARCH_TERM=slot.term, LUNARCH_TOKEN, LUNARCH_TERM_LOCK, _IDENTITY, _ADDRESS.
 * Constant, and so are its texts, which are borrowed: written out only when a task of the term runs, since a process
 * may lead a thousand. */
struct marker {
	uint32_t slot;
	uint64_t term;
	int64_t token;
	const char *lock, *identity, *address;
};

struct environment {
	char **entries; /* what environ points to: the inherited entries, then a marker's, then NULL */
	size_t inherited;
	uint32_t slot; /* whose entries are there: a slot's terms have different numbers; 0 and 0: nobody's */
	uint64_t term;
	char *text; /* of the marker's entries */
};

/* Takes over environ. The process' own entries are borrowed: they live as long as the process. */
void environment_init(struct environment *e);
void environment_fini(struct environment *e);

/* From now on children, and getenv, see this marker; NULL: LUNARCH_TERM=- alone. The entries are good until the next
 * call. What a C module did with setenv meanwhile is kept. */
void environment_enter(struct environment *e, const struct marker *m);

#endif
