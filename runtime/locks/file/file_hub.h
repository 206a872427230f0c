/* What the file locks of one process share: an inotify descriptor for all of them, and the names of temporary files.
 * Not for network file systems: inotify never sees the changes of other hosts.
 * Used by the file lock. */
#pragma once

#include "locks/file/file_temp.h"
#include "locks/lock.h"

struct file_notice { /* embedded in who watches; the first three are the owner's */
	/* The file changed, or may have. replaced_by: the name it had before it was renamed over ours; NULL: another
	 * change. */
	void (*changed)(void *arg, const char *replaced_by);
	void *arg;
	const char *name; /* in the directory; outlives the notice */
	struct file_notice *next, *due_next;
	struct file_hub_dir *dir;
	unsigned hash; /* of the name */
	bool due;
};

/* Watches name in dir: whatever is renamed there or away, or removed. Not what is written in place: every file that any
 * process writes in the directory would wake this process up, also the temporary file of each renewal. A second call for
 * one that is watched does nothing. true: no change is missed from now on. Notices come from the loop; with `late` there is
 * one for what may have happened before. false: the directory cannot be watched now. */
bool file_hub_watch(struct lock_env *env, struct file_notice *n, const char *dir, bool late);
bool file_hub_watches(const struct file_notice *n);

void file_hub_forget(struct lock_env *env, struct file_notice *n);

const struct file_temp_tag *file_hub_tag(struct lock_env *env);
/* As file_temp_prefix; and whether a name begins with that. */
void file_hub_temp_prefix(struct lock_env *env, const char *name, unsigned lock, char *out, size_t size);
bool file_hub_temp_is_ours(struct lock_env *env, const char *temp, const char *name, unsigned lock);
unsigned file_hub_number(struct lock_env *env);                 /* another one each time */
bool file_hub_first_use(struct lock_env *env, const char *dir); /* of this directory, by this process */
