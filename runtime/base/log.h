/* The log: one line per event on stderr, text for people or JSON for programs, never waiting for its reader.
 * Not the script's output: stdout belongs to the script and the command.
 * Used in the elector and the worker; not by the guard. The one global besides const tables. */
#ifndef LUNARCH_LOG_H
#define LUNARCH_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* Which election a line is about. Zero fields are left out; a NULL pointer to it is a line about the program. */
struct log_about {
	const char *lock; /* without secrets */
	uint64_t term;
	int64_t token;
};

/* Chooses format and level. Finds out what stderr is, so that a full pipe drops lines instead of stopping the
 * loop; dropped lines are counted and the count is said in the next line that gets through.
 * Call once, before the first line. */
void log_init(enum log_format format, enum log_level least);

bool log_enabled(enum log_level level);

/* One line. `event` is a snake_case word for programs ("became_leader"); the text says why, for people.
 * Newlines in the text become "\n" in text format. Cut at 8 KB. */
void log_event(enum log_level level, const struct log_about *about, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Lines go there instead of stderr from now on, the whole text; NULL: to stderr again. For a program that simulates
 * others. */
typedef void log_divert_fn(void *arg, enum log_level level, const struct log_about *about, const char *event,
                           const char *text);
void log_divert(log_divert_fn *to, void *arg);

/* "debug" ... "error" -> level; -1 if it is none. */
int log_level_parse(const char *s);

/* Lines dropped since the start. */
uint64_t log_dropped(void);

#endif
