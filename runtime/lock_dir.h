/* Notices about files in directories: one inotify descriptor per process, however many locks watch.
 * Not for network file systems, whose other hosts' changes it never sees.
 * Used by the file lock. */
#ifndef LUNARCH_LOCK_DIR_H
#define LUNARCH_LOCK_DIR_H

#include "lock.h"

struct lock_notice { /* embedded in who watches; private but for the first two */
	void (*changed)(void *arg);
	void *arg;
	const char *name;  /* in the directory; outlives the notice */
	struct lock_notice *next;
	struct lock_dir *dir;
};

/* Watches name in dir. Again for one that is watched is a no-op. false: the directory cannot be watched now. */
bool lock_dir_watch(struct lock_env *env, struct lock_notice *n, const char *dir);
void lock_dir_forget(struct lock_env *env, struct lock_notice *n);

#endif
