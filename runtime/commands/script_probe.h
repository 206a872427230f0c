/* What a script says about its elections: it is loaded in a crew like any other, and let go before any hook runs.
 * Not a run: no lock is opened, no hook is called.
 * Used by check. */
#ifndef LUNARCH_SURVEY_H
#define LUNARCH_SURVEY_H

#include "runner/options.h"
#include "runner/run.h"

struct survey {
	struct plan *plans;
	uint32_t count;
};

/* Loads the script (or the text) for at most 10 s. NULL: *s is filled, survey_fini it. Else what is wrong, in the
 * script's own words; the caller frees. Blocks. */
char *survey_load(struct survey *s, const struct options *o, const char *source, bool is_text);
void survey_fini(struct survey *s);

#endif
