/* Starts a program by posix_spawn(3): the caller first says what the program inherits, then starts it, unless one of
 * these steps has failed. Not the wait for its end (loop/reaper.h), and not the term that it belongs to. Used by
 * whatever executes a program: guard, driver, a script's programs, a login of Kubernetes. */
#pragma once

#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <sys/types.h>

struct spawn {
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	int error; /* of the first step that failed, as for want of memory; 0: none yet */
};

/* blocked: the signals that it has blocked; defaults: those whose action is the default one; group: it has a process
 * group of its own. spawn_run ends what this begins. */
void spawn_init(struct spawn *s, const sigset_t *blocked, const sigset_t *defaults, bool group);

/* The program reads nothing: its standard input is /dev/null. */
void spawn_no_input(struct spawn *s);

/* The program gets our descriptor `fd` under the number `as`. If both are the same, the descriptor loses O_CLOEXEC,
 * in the new process alone (posix_spawn_file_actions_adddup2(3p)). */
void spawn_pass(struct spawn *s, int fd, int as);

/* The program starts in that directory. */
void spawn_directory(struct spawn *s, const char *path);

/* Starts it if every step before succeeded, and frees `s`. program: a path, or a name that is looked for in PATH.
 * Returns 0, or the number of the error of the first step that failed. */
int spawn_run(struct spawn *s, pid_t *pid, const char *program, char *const *argv, char *const *env);
