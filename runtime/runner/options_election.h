/* What an election uses: its times, its lock and what decides who comes next, joined from options, environment, the
 * script's keys and defaults. Not the options themselves (options.h). No I/O but looking at the script's path.
 * Used by run, exec and check, and by the simulation. */
#ifndef LUNARCH_OPTIONS_ELECTION_H
#define LUNARCH_OPTIONS_ELECTION_H

#include "election/elector.h"
#include "lease/lease.h"
#include "runner/options.h"

/* What a script says about times, in milliseconds; -1 = nothing. */
struct script_times {
	int64_t lease_ms, renew_ms, retry_ms, stop_grace_ms, shutdown_grace_ms, may_lead_timeout_ms;
};
#define SCRIPT_TIMES_NONE ((struct script_times){ -1, -1, -1, -1, -1, -1 })

/* Joins options, script and defaults, and checks the sum. shutdown_grace may be NULL. ERR_USAGE names the numbers, and
 * where those that were given come from. */
int options_times(const struct options *o, const struct script_times *script, struct lease_times *t,
                  nsec *shutdown_grace, struct err *err);

/* How long one answer of may_lead may take. */
nsec options_may_lead_timeout(const struct options *o, const struct script_times *script);

/* How long a worker may take to load and to start, and to answer when it is told to lead. */
nsec options_start_timeout(const struct options *o);

/* What a script says about who comes next. */
struct script_next {
	bool has_priority;
	int64_t priority;
	bool preempt, no_preempt;              /* preempt = true, preempt = false */
	int64_t preempt_after_ms, max_term_ms; /* -1 = nothing */
};
#define SCRIPT_NEXT_NONE ((struct script_next){ .preempt_after_ms = -1, .max_term_ms = -1 })

/* Joins options, script and presets. ERR_USAGE names what is wrong, and where it comes from: a number that is too
 * large, or a preempt-after where nobody asked to preempt. */
int options_next(const struct options *o, const struct script_next *script, struct elector_next_options *next,
                 struct err *err);

/* The lock's name for a script without --lock: file name and a hash of the real path, or of the text (-e). The caller
 * frees; NULL with ERR_MISSING. */
char *options_default_lock(const char *script, bool is_text, struct err *err);

/* Which lock an election uses: --lock with {name} filled in, else the script's, else fallback (options_default_lock),
 * which gets "-NAME" behind it when there are several. script_lock and name may be "". The caller frees; NULL with
 * ERR_USAGE. */
char *options_election_lock(const struct options *o, const char *script_lock, const char *fallback, const char *name,
                            bool several, struct err *err);

/* The Service of --service with {name} filled in; "": none. The caller frees; NULL with ERR_USAGE: several elections
 * cannot share one. */
char *options_election_service(const struct options *o, const char *name, bool several, struct err *err);

/* Puts before an error of an election's lock who named that lock: --lock or its variable; else where, which is a place
 * in the script, or NULL. Returns -1. */
int options_blame_lock(const struct options *o, const char *where, struct err *err);

#endif
