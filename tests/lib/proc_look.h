/* What /proc says of a process of a test: its state, and its only child.
 * Not what Lunarch makes of that: base/proc.h and base/proc_tree.h have tests of their own.
 * Used by tests/unit of what has processes. */
#pragma once

#include "base/proc.h"
#include "base/proc_tree.h"

/* The letter of proc_pid_stat(5); 0: there is no such process. */
__attribute__((unused)) static char state_of(pid_t pid)
{
	struct proc_stat s;

	return proc_stat((uint64_t)pid, &s) == 0 ? s.state : 0;
}

__attribute__((unused)) static bool remember_child(void *arg, pid_t pid)
{
	*(pid_t *)arg = pid;
	return false;
}

__attribute__((unused)) static pid_t child_of(pid_t pid)
{
	static struct tree below;
	pid_t child = 0;

	tree_walk(&below, pid, remember_child, &child);
	return child;
}
