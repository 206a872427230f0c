/* What the examination of a store found: each finding as it is made, and the report at the end. Types only.
 * Not how it is found: that is store_check.h.
 * Used by doctor and by the files of the examination. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* STORE_UNSURE: a rule that safety rests upon could not be tried, so it is not proved. */
enum store_verdict { STORE_GOOD, STORE_NOTE, STORE_UNSURE, STORE_UNFIT };

struct store_finding {
	const char *name; /* "race": one word, the same in every examination */
	enum store_verdict verdict;
	char text[2000];
};
typedef void store_found_fn(void *arg, const struct store_finding *f);

/* Microseconds; n = 0: not measured. */
struct store_times {
	int n;
	int64_t median_us, p99_us, most_us;
};

struct store_report {
	char *scratch;    /* the scratch lock's URL, as people see it; the caller frees */
	char server[120]; /* "" = it was not asked, or did not say */
	int writers, rounds;
	struct store_times renewals, acquisitions, notices;
	int64_t shortest_ms; /* the shortest lease to trust; 0: not known */
	bool fit;
	bool unfit; /* it breaks a rule. Neither: a rule could not be tried */
	int signal; /* SIGINT or SIGTERM, which broke it off; 0: none did */
};
