/* A tree of processes, found through /proc: walked, killed, and asked for their environment.
 * Not a reaper: who calls waitpid knows what to do with the status. No heap, no stdio, no recursion.
 * Used by the guard, and by the reaper for what a dead guard left. */
#ifndef LUNARCH_PROC_TREE_H
#define LUNARCH_PROC_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TREE_MOST 16384

/* Workspace of a walk, too large for a stack; memory that was never needed is never touched. */
struct tree {
	pid_t pid[TREE_MOST];
	pid_t parent[TREE_MOST]; /* tree_walk_scan only */
	int n;
};

/* Called as soon as a descendant has been seen, zombies included, parents before children; a process may be killed
 * right away. true: go on to its descendants. */
typedef bool tree_visit(void *arg, pid_t pid);

/* Visits the descendants of root, not root itself. false: there were more than TREE_MOST, or something of /proc could
 * not be read (no descriptor or no memory is left): then nobody knows who was not seen.
 *
 * What it sees of a moving tree is not a snapshot: a process whose parent dies meanwhile may be missed, or seen twice.
 * Only this holds: when root is the caller, and the caller reaps nothing meanwhile, all its own children are seen, as
 * they leave that list by its waitpid alone; and to its reaper (PR_SET_CHILD_SUBREAPER) every orphan is such a child.
 * So one repeats walks until waitpid has nobody left to wait for. Uses /proc/PID/task/TID/children (proc(5)), or
 * tree_walk_scan where the kernel has no such file. */
bool tree_walk(struct tree *t, pid_t root, tree_visit *visit, void *arg);

/* The same by the parents in /proc/PID/stat: reads all processes of the machine. */
bool tree_walk_scan(struct tree *t, pid_t root, tree_visit *visit, void *arg);

/* One walk that sends SIGKILL to everything below root. How many processes it saw. */
int tree_kill(struct tree *t, pid_t root);

/* A zombie, or no process of that number at all. */
bool tree_dead(pid_t pid);

/* A descriptor by which the caller, who has one thread, can list his own children with no memory left: the kernel has
 * all it needs for that by now. O_CLOEXEC; -1 if there is no such file. */
int tree_own_children(void);

/* SIGKILL to the children that such a descriptor lists. Repeated by the reaper of a tree it ends all of it, one
 * generation at a time. */
void tree_kill_children(int fd);

enum tree_env {
	TREE_ENV_FOUND,      /* value holds it, cut to size */
	TREE_ENV_MISSING,    /* it lives without that variable; also for a moment during execve(2) */
	TREE_ENV_UNREADABLE, /* it lives, and we may not look (another user's, set-id) */
	TREE_ENV_GONE,       /* it is dead */
};

/* The variable's value in the environment the process was started with, as /proc shows it; the first if it is there
 * twice. */
enum tree_env tree_env(pid_t pid, const char *name, char *value, size_t size);

#endif
