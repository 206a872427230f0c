/* A tree of processes, found through /proc: walked, killed, and asked for their environment. It does not call waitpid:
 * its callers do. It uses no heap, no stdio and no recursion. Used by the guard, by the supervisor and the reaper for
 * what a guard has left, and by a script's programs (script/child.c). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TREE_MOST 16384

/* Memory for a walk; too large for a stack. A page of it is only used when a tree is large enough to need it. */
struct tree {
	pid_t pid[TREE_MOST];
	pid_t parent[TREE_MOST]; /* used by tree_walk_scan only */
	int n;
};

/* Called for each descendant, zombies too, parents before their children. It may kill the process. Returns true if its
 * descendants are to be visited. */
typedef bool tree_visit(void *arg, pid_t pid);

/* Visits the descendants of root, not root itself. false: some processes may not have been seen, because there are more
 * than TREE_MOST, or because a part of /proc could not be read (no descriptor or no memory is left).
 *
 * The tree may change during the walk: a process whose parent dies meanwhile may be missed, or visited twice. Only this
 * is certain: if root is the calling process, and it does not call waitpid during the walk, all its own children are
 * visited, since only waitpid removes a child. Orphans of the tree become children of a process that is a subreaper
 * (PR_SET_CHILD_SUBREAPER). So such a process repeats walk and waitpid until no child is left.
 *
 * Uses /proc/PID/task/TID/children (proc(5)), or tree_walk_scan if the kernel has no such file. */
bool tree_walk(struct tree *t, pid_t root, tree_visit *visit, void *arg);

/* The same from the parents in /proc/PID/stat: it reads all processes of the machine. */
bool tree_walk_scan(struct tree *t, pid_t root, tree_visit *visit, void *arg);

/* One walk that sends SIGKILL to all descendants of root. Returns how many processes it saw. */
int tree_kill(struct tree *t, pid_t root);

/* True if the process is a zombie, and all of its threads have ended, or no process has that number. One whose first
 * thread alone has ended (pthread_exit(3) in main) looks like a zombie in /proc, and lives. */
bool tree_dead(pid_t pid);

/* True if it is sure that child, a child of root, is the only descendant of root that was there at the time of the call
 * and lives on; what child starts meanwhile may live, too. root is a subreaper and has one thread, and has not reaped
 * child, or is about to end its tree. Unlike a walk, it looks at these two processes only. false says nothing: also if
 * the kernel has no `children` files, or child has more than TREE_ONLY_THREADS threads. */
#define TREE_ONLY_THREADS 16
bool tree_is_only(pid_t root, pid_t child);

/* A descriptor with which the caller can list its own children even when the machine has no memory left: the kernel has
 * already allocated what it needs. The caller has one thread. O_CLOEXEC; -1 if the kernel has no such file. */
int tree_own_children(void);

/* Sends SIGKILL to the children that such a descriptor lists. If the tree's subreaper repeats it, the whole tree ends,
 * one generation after the other. */
void tree_kill_children(int fd);

/* Sends the signal to all descendants of root, but not to this process and the process group `but`, that hold this
 * pipe open for writing: as "pipe:[INODE]", readlink(2) of its descriptor in /proc. A process that hides its
 * descriptors from us (another user's) is not seen. */
void tree_signal_writers(struct tree *t, pid_t root, pid_t but, const char *pipe, int signal);

enum tree_env {
	TREE_ENV_FOUND,      /* value holds the variable's value, cut to size */
	TREE_ENV_MISSING,    /* the process lives and has no such variable; also for a moment during execve(2) */
	TREE_ENV_UNREADABLE, /* the process lives, and we may not read its environment (another user, set-id) */
	TREE_ENV_GONE,       /* the process is dead */
};

/* Reads a variable from the environment with which the process was started, as /proc shows it. If the variable is there
 * twice, the first counts. */
enum tree_env tree_env(pid_t pid, const char *name, char *value, size_t size);
