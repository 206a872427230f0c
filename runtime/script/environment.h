/* The variables that a term's processes find in their environment: which term started them, and its token; or which
 * on_next did.
 * Not configuration: Lunarch reads them only to find the processes that a term or an on_next has left.
 * Used by the scheduler (and by `lunarch test`) before each task runs, so that os.execute, io.popen and os.getenv see
 * the right term, too. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define MARKER_VARIABLES 6

/* The values of a term's variables: LUNARCH_TERM=slot.term, LUNARCH_TOKEN, LUNARCH_TERM_LOCK, _IDENTITY, _ADDRESS. They
 * do not change, and the texts are borrowed. The variables are printed only when a task of the term runs, since a
 * process may have a thousand terms. */
struct marker {
	uint32_t slot;
	uint32_t next; /* LUNARCH_NEXT=slot.next alone, if not 0: there is no term yet */
	uint64_t term;
	int64_t token;
	const char *lock, *identity, *address;
};

struct environment {
	char **before;  /* what environ was; it is that again in the end */
	char **entries; /* what environ points to: the inherited entries, then a marker's, then NULL */
	size_t inherited;
	uint32_t slot, next; /* whose variables are set; next and term 0: none are */
	uint64_t term;
	char *text; /* the memory of the marker's entries */
};

/* Replaces environ, until environment_fini. The entries that the process was started with are borrowed: they live as
 * long as the process. */
void environment_init(struct environment *e);
void environment_fini(struct environment *e);

/* From now on children and getenv see this marker; NULL: only LUNARCH_TERM=-. The entries are valid until the next
 * call. What a C module has set with setenv is kept. */
void environment_enter(struct environment *e, const struct marker *m);
