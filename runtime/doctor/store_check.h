/* Room doctor: the examination of a store, with a scratch record beside the user's: for `lunarch doctor` and its --full.
 *
 * The examination of a store: the proofs that a lock stands on.
 * Not an election, and it never touches the record at the URL itself.
 * Used by doctor. */
#pragma once

#include "base/err.h"
#include "doctor/store_report.h"

/* Opens the URL (state_dir: as in struct lock_env) with a scratch key, proves, measures and removes that key. full: and
 * everything else that a lock must do (store_full.h), which takes a minute or two. found is called for each finding as
 * it is made. 0: the report is filled (fit or not). -1: the store could not be reached, or the URL is wrong: *err. A
 * first SIGINT or SIGTERM breaks it off, and the key is removed all the same. Blocks, typically for a second or two,
 * for a few minutes with a store that answers at the last moment. */
int store_check_run(const char *url, const char *state_dir, bool full, store_found_fn *found, void *arg,
                    struct store_report *report, struct err *err);
