/* The examination of a store: the proofs that a lock stands on, done with a scratch record beside the user's.
 * Not an election, and it never touches the record at the URL itself.
 * Used by doctor. */
#ifndef LUNARCH_EXAM_H
#define LUNARCH_EXAM_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

enum exam_verdict { EXAM_GOOD, EXAM_NOTE, EXAM_UNFIT };

struct exam_finding {
	const char *name;           /* "race": one word, the same in every examination */
	enum exam_verdict verdict;
	char text[900];
};
typedef void exam_found_fn(void *arg, const struct exam_finding *f);

/* Microseconds; n = 0: not measured. */
struct exam_times {
	int n;
	int64_t median_us, p99_us, most_us;
};

struct exam_report {
	char *scratch;              /* the scratch lock's URL, as people see it; exam_report_fini */
	char server[120];           /* "" = it was not asked, or did not say */
	int writers, rounds;
	struct exam_times renewals, acquisitions, notices;
	int64_t shortest_ms;        /* lease; 0: not known */
	bool fit;
	int signal;                 /* SIGINT or SIGTERM, which broke it off; 0: none did */
};

/* Opens the URL with a scratch key, proves, measures and removes that key. found is called for each finding as it is made.
 * 0: the report is filled (fit or not). -1: the store could not be reached, or the URL is wrong: *err. A first SIGINT or
 * SIGTERM breaks it off, and the key is removed all the same. Blocks, typically for a second or two, for a few minutes with a store that answers at the last moment. */
int exam_run(const char *url, exam_found_fn *found, void *arg, struct exam_report *report, struct err *err);
void exam_report_fini(struct exam_report *r);

#endif
