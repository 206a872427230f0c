#include "lock_dir.h"

#include "mem.h"

#include <ev.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#define BUCKETS 256
#define EVENTS (IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR)

struct lock_dir {
	int watch;
	char *path;
	size_t users;
	struct lock_dir *next;
	struct lock_notice *bucket[BUCKETS];
};

struct lock_hub {
	struct lock_env *env;
	ev_io readable;
	struct lock_dir *dirs;
};

static unsigned bucket_of(const char *name)
{
	unsigned h = 2166136261u;

	while (*name)
		h = (h ^ (unsigned char)*name++) * 16777619u;
	return h % BUCKETS;
}

static struct lock_dir **find(struct lock_hub *hub, int watch)
{
	struct lock_dir **at = &hub->dirs;

	while (*at && (*at)->watch != watch)
		at = &(*at)->next;
	return at;
}

static void tell(struct lock_dir *d, unsigned bucket, const char *name)
{
	struct lock_notice *next;

	for (struct lock_notice *n = d->bucket[bucket]; n; n = next) {
		next = n->next;
		if (!name || strcmp(n->name, name) == 0)
			n->changed(n->arg);
	}
}

static void tell_all(struct lock_dir *d)
{
	for (unsigned i = 0; i < BUCKETS; i++)
		tell(d, i, NULL);
}

/* The directory is gone or elsewhere: whoever watched looks, finds that, and watches again when there is something. */
static void dir_gone(struct lock_hub *hub, struct lock_dir **at)
{
	struct lock_dir *d = *at;

	*at = d->next;
	inotify_rm_watch(hub->readable.fd, d->watch);
	for (unsigned i = 0; i < BUCKETS; i++)
		while (d->bucket[i]) {
			struct lock_notice *n = d->bucket[i];
			d->bucket[i] = n->next;
			n->dir = NULL;
			n->changed(n->arg);
		}
	free(d->path);
	free(d);
}

static void dispatch(struct lock_hub *hub, const struct inotify_event *e)
{
	if (e->mask & IN_Q_OVERFLOW) {
		for (struct lock_dir *d = hub->dirs; d; d = d->next)
			tell_all(d);
		return;
	}
	struct lock_dir **at = find(hub, e->wd);
	if (!*at)
		return;
	if (e->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT))
		dir_gone(hub, at);
	else if (e->len)
		tell(*at, bucket_of(e->name), e->name);
}

static void on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
	struct lock_hub *hub = w->data;
	char buffer[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	ssize_t n;

	(void)loop;
	(void)revents;
	while ((n = read(w->fd, buffer, sizeof buffer)) > 0)
		for (char *at = buffer; at < buffer + n;) {
			const struct inotify_event *e = (const struct inotify_event *)at;
			dispatch(hub, e);
			at += sizeof *e + e->len;
		}
}

static struct lock_hub *hub_of(struct lock_env *env)
{
	if (env->hub)
		return env->hub;
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (fd < 0)
		return NULL;
	env->hub = mem_zero(sizeof *env->hub);
	env->hub->env = env;
	ev_io_init(&env->hub->readable, on_readable, fd, EV_READ);
	env->hub->readable.data = env->hub;
	ev_io_start(env->loop, &env->hub->readable);
	return env->hub;
}

static struct lock_dir *dir_of(struct lock_hub *hub, const char *path)
{
	int watch = inotify_add_watch(hub->readable.fd, path, EVENTS);

	if (watch < 0)
		return NULL;
	struct lock_dir *d = *find(hub, watch);
	if (d)
		return d;
	d = mem_zero(sizeof *d);
	d->watch = watch;
	d->path = mem_dup(path);
	d->next = hub->dirs;
	hub->dirs = d;
	return d;
}

bool lock_dir_watch(struct lock_env *env, struct lock_notice *n, const char *dir)
{
	struct lock_hub *hub = hub_of(env);
	struct lock_dir *d = hub ? dir_of(hub, dir) : NULL;

	if (!d)
		return false;
	if (n->dir == d)
		return true;
	lock_dir_forget(env, n);
	unsigned b = bucket_of(n->name);
	n->dir = d;
	n->next = d->bucket[b];
	d->bucket[b] = n;
	d->users++;
	return true;
}

void lock_dir_forget(struct lock_env *env, struct lock_notice *n)
{
	struct lock_dir *d = n->dir;

	if (!d)
		return;
	struct lock_notice **at = &d->bucket[bucket_of(n->name)];
	while (*at != n)
		at = &(*at)->next;
	*at = n->next;
	n->dir = NULL;
	if (--d->users > 0)
		return;
	struct lock_dir **place = find(env->hub, d->watch);
	*place = d->next;
	inotify_rm_watch(env->hub->readable.fd, d->watch);
	free(d->path);
	free(d);
}

void lock_env_fini(struct lock_env *env)
{
	struct lock_hub *hub = env->hub;

	if (!hub)
		return;
	while (hub->dirs) {
		struct lock_dir *d = hub->dirs;
		hub->dirs = d->next;
		free(d->path);
		free(d);
	}
	ev_io_stop(env->loop, &hub->readable);
	close(hub->readable.fd);
	free(hub);
	env->hub = NULL;
}
