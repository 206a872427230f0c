/* What the user asked for: options, their environment variables, and how they join with the script's keys.
 * Not the running elector's state, and no I/O but looking at the script's path: it parses and merges.
 * Used by the commands; the one table of options also makes --help, the completion and the suggestions. */
#ifndef LUNARCH_OPTIONS_H
#define LUNARCH_OPTIONS_H

#include "base/duration.h"
#include "base/err.h"
#include "lease/lease.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum command {
	COMMAND_RUN,
	COMMAND_EXEC,
	COMMAND_LEADER,
	COMMAND_STATUS,
	COMMAND_CHECK,
	COMMAND_DOCTOR,
	COMMAND_CTL,
	COMMAND_TEST,
	COMMAND_NEW,
	COMMANDS
};
extern const char *const command_names[COMMANDS + 1]; /* "run" ...; NULL at the end */

enum option {
	OPTION_LOCK,
	OPTION_IDENTITY,
	OPTION_ADDRESS,
	OPTION_LEASE_DURATION,
	OPTION_RENEW_DEADLINE,
	OPTION_RETRY_PERIOD,
	OPTION_STOP_GRACE,
	OPTION_KILL_ALLOWANCE,
	OPTION_DRIFT_ALLOWANCE,
	OPTION_SHUTDOWN_GRACE,
	OPTION_RECLAIM,
	OPTION_NO_RELEASE,
	OPTION_ONCE,
	OPTION_EVAL,          /* run, check: text instead of a script */
	OPTION_NO_WAIT,       /* exec */
	OPTION_WAIT,          /* exec, leader */
	OPTION_AT_LEAST,      /* exec */
	OPTION_RESTART,       /* exec: number is an enum restart */
	OPTION_CONFLICT_EXIT, /* exec: the status when the lock was not had */
	OPTION_LEADER_ELECT,  /* these four as in kube-scheduler, for people who come from there */
	OPTION_RESOURCE_LOCK, /* a choice; its text goes into the lock's URL */
	OPTION_RESOURCE_NAME,
	OPTION_RESOURCE_NAMESPACE,
	OPTION_LISTEN,     /* run, exec: the admin endpoint */
	OPTION_CONTROL,    /* run, exec: where to listen */
	OPTION_CTL_SOCKET, /* ctl: where to ask; --control too, but another variable */
	OPTION_CTL_ELECTION,
	OPTION_LIST,
	OPTION_WATCH,
	OPTION_VERIFY,
	OPTION_JSON,
	OPTION_LOG_FORMAT, /* number is an enum log_format */
	OPTION_LOG_LEVEL,  /* number is an enum log_level */
	OPTION_HELP,
	OPTION_VERSION,
	OPTIONS
};

enum restart { RESTART_NEVER, RESTART_ON_LOSS, RESTART_ALWAYS };

enum option_type {
	OPTION_FLAG, /* number 0 or 1; "--once", "--once=no", LUNARCH_ONCE=yes */
	OPTION_TEXT,
	OPTION_DURATION, /* number in milliseconds */
	OPTION_PERIOD,   /* the same, and longer than 0 */
	OPTION_CHOICE,   /* number is the position in value_name, "text|json" */
	OPTION_STATUS,   /* 0 to 255 */
};

struct option_info {
	const char *name;  /* "lock", without dashes */
	const char *alias; /* another name, as kube-scheduler has it; NULL = none */
	char letter;       /* 'n', or 0 */
	enum option_type type;
	const char *value_name; /* "URL"; NULL for a flag */
	const char *env;        /* "LUNARCH_LOCK", or NULL */
	const char *preset;     /* the value when nobody gives one; NULL = none */
	unsigned commands;      /* 1 << COMMAND_RUN | ... */
	const char *help;
};
extern const struct option_info option_table[OPTIONS];

enum option_from { OPTION_PRESET, OPTION_FROM_ENV, OPTION_GIVEN };
struct option_value {
	enum option_from from;
	const char *text; /* borrowed from argv or the environment; the preset; NULL = none */
	int64_t number;
};

#define OPTION_WORDS 64
struct options {
	enum command command;
	struct option_value value[OPTIONS];
	const char *word[OPTION_WORDS]; /* arguments that are no options, before "--"; exec has none, test many */
	int words;
	char resource[700]; /* the lock's URL, where the options name a Kubernetes resource instead */
	char **rest;        /* what follows "--" (exec: the first word and on), NULL-terminated, never NULL */
};

/* argv[0] is the command's name. On --help and --version parsing ends at once, successfully. ERR_USAGE: *err names the
 * option or the variable, its value, what was expected, and for an unknown one the nearest there is. */
int options_parse(struct options *o, enum command command, int argc, char **argv, struct err *err);

bool options_set(const struct options *o, enum option which); /* given as an option or in the environment */
const char *options_text(const struct options *o, enum option which, const char *script); /* what counts: option,
                                             environment, script ("" or NULL: says nothing), preset ("" if none) */
bool options_flag(const struct options *o, enum option which, bool script);

/* The environment variables of all options, NULL-terminated: to be removed for what a term starts. */
extern const char *const option_variables[];

/* What a script says about times, in milliseconds; -1 = nothing. */
struct script_times {
	int64_t lease_ms, renew_ms, retry_ms, stop_grace_ms, shutdown_grace_ms;
};
#define SCRIPT_TIMES_NONE ((struct script_times){ -1, -1, -1, -1, -1 })

/* Joins options, script and defaults, and checks the sum. shutdown_grace may be NULL. ERR_USAGE names the numbers, and
 * where those that were given come from. */
int options_times(const struct options *o, const struct script_times *script, struct lease_times *t,
                  nsec *shutdown_grace, struct err *err);

/* The lock's name for a script without --lock: file name and a hash of the real path, or of the text (-e). The caller
 * frees; NULL with ERR_MISSING. */
char *options_default_lock(const char *script, bool is_text, struct err *err);

/* Which lock an election uses: --lock with {name} filled in, else the script's, else fallback (options_default_lock),
 * which gets "-NAME" behind it when there are several. script_lock and name may be "". The caller frees; NULL with
 * ERR_USAGE. */
char *options_election_lock(const struct options *o, const char *script_lock, const char *fallback, const char *name,
                            bool several, struct err *err);

/* The candidate (NULL-terminated) that word was probably meant to be, NULL if none is near. */
const char *options_nearest(const char *word, const char *const *candidates);

#endif
