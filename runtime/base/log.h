/* The log: one line for each event on stderr, text for people or JSON for programs. It never waits for its reader.
 * Not the script's output: stdout belongs to the script and the command. Used by every process but the guard.
 * Its state is the one global variable beside const tables, and clock.c's simulated time. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_DEBUG, LOG_INFO, LOG_WARN, LOG_ERROR };
enum log_format { LOG_TEXT, LOG_JSON };

/* Which election a line is about. Fields that are 0 are left out. A NULL pointer: the line is about the program.
 * identity and election are in JSON lines alone. NULL or "": what log_program was told; an election of no name is
 * called after its lock. */
struct log_about {
	const char *lock; /* without secrets */
	const char *identity, *election;
	uint64_t term;
	int64_t token;
};

/* Chooses format and level, and finds out what stderr is. A line that would have to wait, because a pipe is full, is
 * dropped and counted; the next line that is written says the count. Call it once, before the first line. */
void log_init(enum log_format format, enum log_level least);

/* The identity and election of JSON lines about the program, and of lines that do not name them. Both are copied;
 * NULL where it is not known, or where there are several. Call it again whenever that changes. */
void log_program(const char *identity, const char *election);

/* What the roles of the program are started with, so that their lines look as ours do. Borrowed until the next call of
 * log_program. */
struct log_settings {
	const char *format, *level; /* "json", "warn" */
	const char *identity;       /* ""; not known */
};
struct log_settings log_settings(void);

/* On a terminal a line names its lock, term and token only where they have changed. After this call it does not name
 * term and token at all: another process of the program does, and that one's lines stand above. For the worker. */
void log_follow(void);

/* Writes one line. `event` is a snake_case word for programs ("became_leader"); the text is for people. A newline in
 * the text is written as "\n"; on a terminal it begins an indented line. The text is cut at 8 KB. */
void log_event(enum log_level level, const struct log_about *about, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* The same, with fields: a JSON object, which a JSON line has as "fields". A text line does not show them; nor does a
 * JSON line that would not fit with them into what a pipe takes in one piece. NULL: none. */
void log_fields(enum log_level level, const struct log_about *about, const char *event, const char *fields,
                const char *text);

/* Passes lines to this function from now on, uncut, instead of writing them. NULL: they go to stderr again. For
 * `lunarch test`, which simulates other processes. */
typedef void log_divert_fn(void *arg, enum log_level level, const struct log_about *about, const char *event,
                           const char *text);
void log_divert(log_divert_fn *to, void *arg);

/* The level of "debug", "info", "warn" or "error"; -1: another text. */
int log_level_parse(const char *s);

/* Lines dropped since the start. */
uint64_t log_dropped(void);
