#include "locks/file/file_hub.h"

#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <ev.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <unistd.h>

#define BUCKETS 256
#define EVENTS (IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

struct file_hub_dir {
	int watch;
	size_t users;
	struct file_hub_dir *next;
	struct file_notice *bucket[BUCKETS];
};

struct used_dir {
	struct used_dir *next;
	char path[];
};

struct file_hub {
	struct lock_env *env;
	struct file_temp_tag tag;
	char tag_text[FILE_TEMP_TAG];
	unsigned numbers;
	struct used_dir *used;
	ev_io readable; /* fd -1: no inotify to be had yet, everybody polls */
	bool refused;   /* the log has said so, since inotify was to be had last */
	ev_timer late;
	struct file_hub_dir *dirs;
	struct file_notice *due; /* who has to be told; each callback may forget any other */
	uint32_t cookie;         /* of the last file that was renamed away, and its name */
	char from[NAME_MAX + 1];
};

static unsigned hash_of(const char *name)
{
	return (unsigned)hash_bytes(HASH_SEED, name, strlen(name));
}

/* ---- telling ---- */

static void hub_make_due(struct file_hub *hub, struct file_notice *n)
{
	if (n->due)
		return;
	n->due = true;
	n->due_next = hub->due;
	hub->due = n;
}

static void hub_make_all_due(struct file_hub *hub, struct file_hub_dir *d)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct file_notice *n = d->bucket[i]; n; n = n->next)
			hub_make_due(hub, n);
}

static void hub_tell_due(struct file_hub *hub, const char *replaced_by)
{
	while (hub->due) {
		struct file_notice *n = hub->due;
		hub->due = n->due_next;
		n->due = false;
		n->changed(n->arg, replaced_by);
	}
}

static void hub_on_late(struct ev_loop *, ev_timer *w, int)
{
	hub_tell_due(w->data, NULL);
}

/* ---- directories ---- */

static struct file_hub_dir **hub_find_dir(struct file_hub *hub, int watch)
{
	struct file_hub_dir **at = &hub->dirs;

	while (*at && (*at)->watch != watch)
		at = &(*at)->next;
	return at;
}

static void hub_drop_dir(struct file_hub *hub, struct file_hub_dir **at)
{
	struct file_hub_dir *d = *at;

	*at = d->next; // NOLINT(clang-analyzer-core.NullDereference): hub_find_dir() found it
	inotify_rm_watch(hub->readable.fd, d->watch);
	free(d);
}

/* The directory was removed or moved: whoever watched looks, finds that, and watches again when there is something. */
static void hub_on_dir_gone(struct file_hub *hub, struct file_hub_dir **at)
{
	hub_make_all_due(hub, *at);
	for (unsigned i = 0; i < BUCKETS; i++)
		for (struct file_notice *n = (*at)->bucket[i]; n; n = n->next)
			n->dir = NULL;
	hub_drop_dir(hub, at);
}

/* A user has 128 descriptors of inotify on most machines, and others of its programs may give one back. false: errno says
 * why. */
static bool hub_listen(struct file_hub *hub)
{
	if (hub->readable.fd >= 0)
		return true;
	ev_io_set(&hub->readable, inotify_init1(IN_NONBLOCK | IN_CLOEXEC), EV_READ);
	if (hub->readable.fd < 0)
		return false;
	hub->refused = false;
	ev_io_start(hub->env->loop, &hub->readable);
	ev_unref(hub->env->loop); /* waiting for notices must not keep a loop running */
	return true;
}

/* A directory that is gone, or may not be read, is not said here: each operation in it says so. */
static void hub_say_refused(struct file_hub *hub, const char *path)
{
	const char *limit = errno == EMFILE   ? "fs.inotify.max_user_instances"
	                    : errno == ENOSPC ? "fs.inotify.max_user_watches"
	                                      : "";

	if (hub->refused || !(*limit || errno == ENFILE || errno == ENOMEM))
		return;
	hub->refused = true;
	log_event(LOG_WARN, NULL, "watch_refused",
	          "the kernel gives no notices of changes in %s, so this polls, and hand-overs take longer: %s%s%s%s",
	          path, strerror(errno), *limit ? " (this user's programs have used up the limit " : "", limit,
	          *limit ? " of sysctl, or this process has too many files open)" : "");
}

static struct file_hub_dir *hub_dir_of(struct file_hub *hub, const char *path)
{
	int watch = hub_listen(hub) ? inotify_add_watch(hub->readable.fd, path, EVENTS) : -1;

	if (watch < 0) {
		hub_say_refused(hub, path);
		return NULL;
	}
	struct file_hub_dir *d = *hub_find_dir(hub, watch);
	if (d)
		return d;
	d = mem_zero(sizeof *d);
	d->watch = watch;
	d->next = hub->dirs;
	hub->dirs = d;
	return d;
}

/* ---- events ---- */

static void hub_on_file_changed(struct file_hub *hub, struct file_hub_dir *d, const struct inotify_event *e)
{
	bool replaced = (e->mask & IN_MOVED_TO) && e->cookie == hub->cookie;
	unsigned h = hash_of(e->name);

	if (e->mask & IN_MOVED_FROM) {
		hub->cookie = e->cookie;
		memcpy(hub->from, e->name, strnlen(e->name, sizeof hub->from - 1) + 1);
		hub->from[sizeof hub->from - 1] = '\0';
	}
	for (struct file_notice *n = d->bucket[h % BUCKETS]; n; n = n->next)
		if (n->hash == h && strcmp(n->name, e->name) == 0)
			hub_make_due(hub, n);
	hub_tell_due(hub, replaced ? hub->from : NULL);
}

static void hub_dispatch(struct file_hub *hub, const struct inotify_event *e)
{
	struct file_hub_dir **at = hub_find_dir(hub, e->wd);

	if (e->mask & IN_Q_OVERFLOW) {
		for (struct file_hub_dir *d = hub->dirs; d; d = d->next)
			hub_make_all_due(hub, d);
		hub_tell_due(hub, NULL);
	} else if (*at && (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT))) {
		hub_on_dir_gone(hub, at);
		hub_tell_due(hub, NULL);
	} else if (*at && e->len) {
		hub_on_file_changed(hub, *at, e);
	}
}

static void hub_on_readable(struct ev_loop *, ev_io *w, int)
{
	char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n = read(w->fd, buffer, sizeof buffer); /* more than that comes with the next turn of the loop */

	for (char *at = buffer; at < buffer + n;) {
		const struct inotify_event *e = (const struct inotify_event *)at;
		hub_dispatch(w->data, e);
		at += sizeof *e + e->len;
	}
}

/* ---- the hub ---- */

static void *hub_make(struct lock_env *env, struct err *)
{
	struct file_hub *hub = mem_zero(sizeof *hub);

	hub->env = env;
	file_temp_tag_init(&hub->tag);
	file_temp_tag_print(&hub->tag, hub->tag_text, sizeof hub->tag_text);
	/* Not from 0: a process may have more than one environment, and each its hub. */
	if (getrandom(&hub->numbers, sizeof hub->numbers, GRND_NONBLOCK) < 0)
		hub->numbers = (unsigned)(uintptr_t)hub;
	ev_timer_init(&hub->late, hub_on_late, 0., 0.);
	hub->late.data = hub;
	ev_io_init(&hub->readable, hub_on_readable, -1, EV_READ);
	hub->readable.data = hub;
	return hub;
}

static void hub_drop(void *object)
{
	struct file_hub *hub = object;

	while (hub->dirs)
		hub_drop_dir(hub, &hub->dirs);
	while (hub->used) {
		struct used_dir *u = hub->used;
		hub->used = u->next;
		free(u);
	}
	ev_timer_stop(hub->env->loop, &hub->late);
	if (hub->readable.fd >= 0) {
		ev_ref(hub->env->loop);
		ev_io_stop(hub->env->loop, &hub->readable);
		close(hub->readable.fd);
	}
	free(hub);
}

static struct file_hub *hub_of(struct lock_env *env)
{
	static const char key;

	return lock_env_share(env, &key, hub_make, hub_drop, NULL);
}

const struct file_temp_tag *file_hub_tag(struct lock_env *env)
{
	return &hub_of(env)->tag;
}

void file_hub_temp_prefix(struct lock_env *env, const char *name, unsigned lock, char *out, size_t size)
{
	snprintf(out, size, ".%s.%s-%u-", name, hub_of(env)->tag_text, lock);
}

/* Asked at every notice, so nothing is printed for it. */
bool file_hub_temp_is_ours(struct lock_env *env, const char *temp, const char *name, unsigned lock)
{
	const char *tag = hub_of(env)->tag_text, *at = temp + 1;
	size_t name_len = strlen(name), tag_len = strlen(tag);

	if (*temp != '.' || strncmp(at, name, name_len) != 0 || at[name_len] != '.')
		return false;
	at += name_len + 1;
	return strncmp(at, tag, tag_len) == 0 && at[tag_len] == '-' && strtoul(at + tag_len + 1, NULL, 10) == lock;
}

unsigned file_hub_number(struct lock_env *env)
{
	return hub_of(env)->numbers++;
}

bool file_hub_first_use(struct lock_env *env, const char *dir)
{
	struct file_hub *hub = hub_of(env);

	for (const struct used_dir *u = hub->used; u; u = u->next)
		if (strcmp(u->path, dir) == 0)
			return false;
	struct used_dir *u = mem_zero(sizeof *u + strlen(dir) + 1);
	memcpy(u->path, dir, strlen(dir));
	u->next = hub->used;
	hub->used = u;
	return true;
}

bool file_hub_watch(struct lock_env *env, struct file_notice *n, const char *dir, bool late)
{
	struct file_hub *hub = hub_of(env);

	if (n->dir)
		return true;
	struct file_hub_dir *d = hub_dir_of(hub, dir);
	if (!d)
		return false;
	n->hash = hash_of(n->name);
	n->dir = d;
	n->next = d->bucket[n->hash % BUCKETS];
	d->bucket[n->hash % BUCKETS] = n;
	d->users++;
	if (!late)
		return true;
	hub_make_due(hub, n);
	ev_timer_start(env->loop, &hub->late);
	return true;
}

bool file_hub_watches(const struct file_notice *n)
{
	return n->dir != NULL;
}

static void hub_forget_due(struct file_hub *hub, struct file_notice *n)
{
	struct file_notice **at = &hub->due;

	while (n->due && *at != n)
		at = &(*at)->due_next;
	if (n->due)
		*at = n->due_next;
	n->due = false;
}

void file_hub_forget(struct lock_env *env, struct file_notice *n)
{
	struct file_hub_dir *d = n->dir;

	if (!d && !n->due)
		return;
	struct file_hub *hub = hub_of(env);
	hub_forget_due(hub, n);
	if (!d)
		return;
	struct file_notice **at = &d->bucket[n->hash % BUCKETS];
	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	n->dir = NULL;
	if (--d->users == 0)
		hub_drop_dir(hub, hub_find_dir(hub, d->watch));
}
