/* Room config: what the user asked for, and what of it counts.
 *
 * The options and their environment variables, parsed. Not how they join with what a script says: that is
 * election_settings.h. No I/O.
 * Used by the commands; the one table of options also makes --help, the completion and the suggestions. */
#pragma once

#include "base/duration.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* C(NAME, name, words): the commands, in the order of the help. cmd_name is the function of each (commands/). words: what
 * the completion offers behind it that is no option, as complete_line prints it; NULL: nothing. */
#define COMMAND_TABLE(C)                \
	C(RUN, run, "<script>")         \
	C(EXEC, exec, "<program>")      \
	C(CRON, cron, "<file>")         \
	C(LEADER, leader, "<script>")   \
	C(STATUS, status, "<script>")   \
	C(HISTORY, history, "<script>") \
	C(LIST, list, "<directory>")    \
	C(RELEASE, release, "<script>") \
	C(FENCE, fence, "<script>")     \
	C(CHECK, check, "<script>")     \
	C(DOCTOR, doctor, NULL)         \
	C(CTL, ctl, "<script>")         \
	C(TEST, test, "<test>")         \
	C(NEW, new, NULL)

#define COMMAND_NUMBER(NAME, name, words) COMMAND_##NAME,
enum command { COMMAND_TABLE(COMMAND_NUMBER) COMMANDS };
#undef COMMAND_NUMBER
extern const char *const command_names[COMMANDS + 1]; /* "run" ...; NULL at the end */

#define OPTION_ENUM(NAME, ...) OPTION_##NAME,
#define O OPTION_ENUM
#define V OPTION_ENUM
#define KEPT OPTION_ENUM
enum option {
#include "config/options_table.h"
	OPTIONS
};
#undef O
#undef V
#undef KEPT

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
	enum option_type type;
	const char *name;       /* "lock", without dashes */
	const char *alias;      /* another name, as kube-scheduler or flock(1) has it; NULL = none */
	char letter;            /* 'n', or 0 */
	const char *value_name; /* "URL"; NULL for a flag */
	const char *preset;     /* the value when nobody gives one; NULL = none */
	unsigned commands;      /* 1 << COMMAND_RUN | ... */
	bool is_key;            /* an election of a script may say it, by option_key */
	const char *help;
	const char *env; /* "LUNARCH_LOCK", or NULL */
};
extern const struct option_info option_table[OPTIONS];

enum option_from { OPTION_PRESET, OPTION_FROM_SCRIPT, OPTION_FROM_ENV, OPTION_GIVEN };
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

/* For run and check: the script, or NULL. *is_text: its text. Else its path: the first word, or what LUNARCH_SCRIPT
 * says beginning with '/', as no Lua text does. Borrowed. */
const char *options_script(const struct options *o, bool *is_text);

bool options_set(const struct options *o, enum option which); /* given as an option or in the environment */
/* what counts: option, environment, script ("" or NULL: says nothing), preset ("" if none) */
const char *options_text(const struct options *o, enum option which, const char *script);
bool options_flag(const struct options *o, enum option which);

/* The environment variables of all options, NULL-terminated: to be removed for what a term starts. */
extern const char *const option_variables[];

/* The key of a script's table that says what this option does: "lease_duration". Returns out. */
const char *option_key(enum option which, char *out, size_t size);

/* Where a value came from, for messages: "--lock", "LUNARCH_LOCK" or "the script"; out is used if it must be. */
const char *options_source(enum option which, enum option_from from, char *out, size_t size);

/* The word of a NULL-terminated list that was probably meant; NULL if none is near. */
const char *options_nearest(const char *word, const char *const *words);
