/* What the user asked for: the options and their environment variables, parsed.
 * Not how they join with what a script says: that is options_election.h. No I/O.
 * Used by the commands; the one table of options also makes --help, the completion and the suggestions. */
#ifndef LUNARCH_OPTIONS_H
#define LUNARCH_OPTIONS_H

#include "base/duration.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* C(NAME, name): the commands, in the order of the help. cmd_name is the function of each, in commands/cmd_name.c. */
#define COMMAND_TABLE(C)    \
	C(RUN, run)         \
	C(EXEC, exec)       \
	C(CRON, cron)       \
	C(LEADER, leader)   \
	C(STATUS, status)   \
	C(HISTORY, history) \
	C(LIST, list)       \
	C(RELEASE, release) \
	C(CHECK, check)     \
	C(DOCTOR, doctor)   \
	C(CTL, ctl)         \
	C(TEST, test)       \
	C(NEW, new)

#define COMMAND_NUMBER(NAME, name) COMMAND_##NAME,
enum command { COMMAND_TABLE(COMMAND_NUMBER) COMMANDS };
#undef COMMAND_NUMBER
extern const char *const command_names[COMMANDS + 1]; /* "run" ...; NULL at the end */

enum option {
	OPTION_LOCK,
	OPTION_IDENTITY,
	OPTION_ADDRESS,
	OPTION_SERVICE, /* run, exec, check, doctor: of Kubernetes; service/service_target.h reads it */
	OPTION_LEASE_DURATION,
	OPTION_RENEW_DEADLINE,
	OPTION_RETRY_PERIOD,
	OPTION_STOP_GRACE,
	OPTION_KILL_ALLOWANCE,
	OPTION_DRIFT_ALLOWANCE,
	OPTION_SHUTDOWN_GRACE,
	OPTION_MAY_LEAD_TIMEOUT,
	OPTION_START_TIMEOUT,
	OPTION_PRIORITY, /* these four: who comes next, and when it takes over; options_next joins them */
	OPTION_PREEMPT,
	OPTION_PREEMPT_AFTER,
	OPTION_MAX_TERM,
	OPTION_RECLAIM,
	OPTION_NO_RELEASE,
	OPTION_ONCE,
	OPTION_EVAL,          /* run, check: text instead of a script; options_script reads it */
	OPTION_SHELL,         /* exec: a line for /bin/sh instead of a command */
	OPTION_NO_WAIT,       /* exec */
	OPTION_WAIT,          /* exec, leader */
	OPTION_AT_LEAST,      /* exec */
	OPTION_RESTART,       /* exec: number is an enum restart */
	OPTION_WARM,          /* exec */
	OPTION_CONFLICT_EXIT, /* exec: the status when the lock was not acquired */
	OPTION_LEADER_ELECT,  /* these four as in kube-scheduler, for people who come from there */
	OPTION_RESOURCE_LOCK, /* a choice; its text goes into the lock's URL */
	OPTION_RESOURCE_NAME,
	OPTION_RESOURCE_NAMESPACE,
	OPTION_LISTEN,       /* run, exec: the admin endpoint */
	OPTION_STATE_FILE,   /* run, exec: where the elections stand, as a file */
	OPTION_STATE_DIR,    /* no variable on purpose: where locks lie must not depend on the environment */
	OPTION_USER,         /* run, exec; no variable, either: as whom a program runs */
	OPTION_NO_NEW_PRIVS, /* run, exec */
	OPTION_RUN_WAIT,     /* cron run: --wait, which takes no time */
	OPTION_CONTROL,      /* run, exec: where to listen */
	OPTION_CTL_SOCKET,   /* ctl: where to ask; --control too, but another variable */
	OPTION_CTL_ELECTION,
	OPTION_TO,               /* these two: ctl handover */
	OPTION_HANDOVER_TIMEOUT, /* "timeout", as exec's other name of --wait */
	OPTION_LIST,
	OPTION_WATCH,
	OPTION_PREFIX, /* status --watch */
	OPTION_VERIFY,
	OPTION_JSON,
	OPTION_SYSTEM, /* these six: cron */
	OPTION_ENV,
	OPTION_ENV_FILE,
	OPTION_ON_FAILURE,
	OPTION_OUTPUT_DIR,
	OPTION_SENDMAIL,
	OPTION_FULL,     /* doctor */
	OPTION_NEW_LOCK, /* new; "lock", as the lock's URL elsewhere */
	OPTION_FORCE,    /* these three: release */
	OPTION_TOKEN,
	OPTION_REASON,
	OPTION_LOG_FORMAT, /* number is an enum log_format */
	OPTION_LOG_LEVEL,  /* number is an enum log_level */
	OPTION_VERBOSE,
	OPTION_HELP,
	OPTION_VERSION,
	OPTIONS
};

enum restart { RESTART_NEVER, RESTART_ON_LOSS, RESTART_ALWAYS };

#define OPTION_NUMBER_MAX 1000000000
enum option_type {
	OPTION_FLAG, /* number 0 or 1; "--once", "--once=no", LUNARCH_ONCE=yes */
	OPTION_TEXT,
	OPTION_DURATION, /* number in milliseconds */
	OPTION_WAITING,  /* the same; without a unit it is in seconds, as in flock(1) */
	OPTION_PERIOD,   /* the same, and longer than 0 */
	OPTION_PATIENCE, /* the same, from 1 s to 1 h */
	OPTION_CHOICE,   /* number is the position in value_name, "text|json" */
	OPTION_STATUS,   /* 0 to 255 */
	OPTION_NUMBER,   /* whole, from -OPTION_NUMBER_MAX to OPTION_NUMBER_MAX */
};

struct option_info {
	const char *name;  /* "lock", without dashes */
	const char *alias; /* another name, as kube-scheduler or flock(1) has it; NULL = none */
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
	/* What these were given, each time: --lock (status --watch takes several), --env and --env-file. */
	const char *locks[OPTION_WORDS], *env[OPTION_WORDS], *env_files[OPTION_WORDS];
	int lock_count, env_count, env_file_count;
	char resource[700]; /* the lock's URL, where the options name a Kubernetes resource instead */
	char **rest;        /* what follows "--" (exec: the first word and on), NULL-terminated, never NULL */
};

/* argv[0] is the command's name. On --help and --version parsing ends at once, successfully. ERR_USAGE: *err names the
 * option or the variable, its value, what was expected, and for an unknown one the nearest there is. */
int options_parse(struct options *o, enum command command, int argc, char **argv, struct err *err);

/* Of run and check: the script, or NULL. *is_text: its text. Else its path: the first word, or what LUNARCH_SCRIPT says
 * beginning with '/', as no Lua text does. Borrowed. */
const char *options_script(const struct options *o, bool *is_text);

bool options_set(const struct options *o, enum option which); /* given as an option or in the environment */
const char *options_text(const struct options *o, enum option which, const char *script); /* what counts: option,
                                             environment, script ("" or NULL: says nothing), preset ("" if none) */
bool options_flag(const struct options *o, enum option which, bool script);

/* The environment variables of all options, NULL-terminated: to be removed for what a term starts. */
extern const char *const option_variables[];

/* Where a value came from, for messages: "--lock" or "LUNARCH_LOCK"; out is used if it must be. */
const char *options_source(enum option which, enum option_from from, char *out, size_t size);

/* The word of a NULL-terminated list that was probably meant; NULL if none is near. */
const char *options_nearest(const char *word, const char *const *words);

#endif
