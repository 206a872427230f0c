/* Whose turn it is among the file locks of one process: a thousand operations that are asked for at once begin in
 * order, a few at a time, so that not all of them hold buffers and threads. Not a scheduler: it knows nothing of
 * deadlines; who waits too long leaves. Used by lock_file.c. */
#pragma once

#include <stdbool.h>

struct lock_env;

struct file_turn { /* embedded in who waits; all private but begin */
	void (*begin)(struct file_turn *t);
	struct file_turn *next;
	bool waiting;
};

/* begin is called from the loop, never from inside this call. It ends with file_turn_over, in begin or later. */
void file_turn_ask(struct lock_env *env, struct file_turn *t);

/* Gives its place up, if it waits. */
void file_turn_leave(struct lock_env *env, struct file_turn *t);

void file_turn_over(struct lock_env *env);
