/* The examination of a store: the proofs that a lock stands on, done with a scratch record beside the user's.
 * Not an election, and it never touches the record at the URL itself.
 * Used by doctor. */
#ifndef LUNARCH_STORE_CHECK_H
#define LUNARCH_STORE_CHECK_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum store_check_verdict { STORE_CHECK_GOOD, STORE_CHECK_NOTE, STORE_CHECK_UNFIT };

struct store_check_finding {
	const char *name; /* "race": one word, the same in every examination */
	enum store_check_verdict verdict;
	char text[900];
};
typedef void store_check_found_fn(void *arg, const struct store_check_finding *f);

/* Microseconds; n = 0: not measured. */
struct store_check_times {
	int n;
	int64_t median_us, p99_us, most_us;
};

struct store_check_report {
	char *scratch;    /* the scratch lock's URL, as people see it; store_check_report_fini */
	char server[120]; /* "" = it was not asked, or did not say */
	int writers, rounds;
	struct store_check_times renewals, acquisitions, notices;
	int64_t shortest_ms; /* lease; 0: not known */
	bool fit;
	int signal; /* SIGINT or SIGTERM, which broke it off; 0: none did */
};

/* Opens the URL with a scratch key, proves, measures and removes that key. found is called for each finding as it is
 * made. 0: the report is filled (fit or not). -1: the store could not be reached, or the URL is wrong: *err. A first
 * SIGINT or SIGTERM breaks it off, and the key is removed all the same. Blocks, typically for a second or two, for a
 * few minutes with a store that answers at the last moment. */
int store_check_run(const char *url, store_check_found_fn *found, void *arg, struct store_check_report *report,
                    struct err *err);
void store_check_report_fini(struct store_check_report *r);

#endif
