/* Room commands: the command line: one file for each command (`cmd_NAME.c`).
 *
 * The commands: one function each, called by main with argv[0] the command's name; the result is the exit status.
 * Not their help texts (help.c, help.txt) and not their options (options.h).
 * Used by main.c and help.c; each cmd_NAME.c implements its own. */
#pragma once

#include "config/options.h"
#include "program/exit_status.h"

#include <stdio.h>

#define COMMAND_DECLARATION(NAME, name, words) int cmd_##name(int argc, char **argv);
COMMAND_TABLE(COMMAND_DECLARATION)
#undef COMMAND_DECLARATION

/* Parses the options, sets up the log, and answers --help and --version. >= 0: leave with this exit status;
 * -1: go on. */
int command_begin(struct options *o, enum command command, int argc, char **argv);

/* Prints "lunarch COMMAND: text" on stderr and returns the status, so that `return command_fail(...)` reads well. */
int command_fail(enum command command, enum exit_status status, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Prints lines that may quote a script or a record: of its control characters only the line breaks count. */
void command_lines(FILE *out, const char *text);

/* The exit status for an error of a lock or a file: 2 for what the user got wrong, else 69. */
enum exit_status command_status_of(const struct err *err);

/* A record for people, by lua/commands/record_text.lua: its "headline", "NAME leads, token 3, term 2", or its "lines".
 * lock: its URL without secrets. r NULL: there is none. The caller frees it. */
struct record;
char *command_record_text(const char *form, const char *lock, const struct record *r);

void help_print(FILE *out); /* lunarch --help */
void help_command(enum command command);
int help_api(const char *name); /* what scripts can call: a section or a function, NULL = all; the exit status */
void help_api_names(void);      /* their names, one a line */
char *help_summary(enum command command); /* the caller frees */
/* The schemes of the user's own lock files (lock_files_dir), that nothing built in has. scheme is borrowed. */
void help_own_locks(void (*found)(void *arg, const char *scheme), void *arg);
void help_version(void);

/* Completion in a shell: the words of a command line behind the program's name, up to the one that is completed, which
 * may be "". Prints what may stand there, one a line, with a tab and what it is; options only where one has begun, or
 * nothing else can stand. Behind "--option=" it is the value alone. A word in angle brackets says what to look for:
 * <file>, <directory>, <script>, <test>, <program>; <command N>: from word N on it is another program's command line.
 * The exit status: 1 if the command is none. */
int complete_line(int argc, char **argv);
