#include "lock.h"

#include "file_swap.h"
#include "file_turn.h"
#include "lock_hub.h"
#include "lock_path.h"
#include "mem.h"
#include "offload.h"
#include "reading.h"

#include <ev.h>
#include <linux/magic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

/* Where the directory lives decides what may be done on the loop. */
enum place {
	IN_MEMORY, /* tmpfs: no device to wait for, nothing to make durable: all of it on the loop */
	ON_DISK,   /* local: a record is in the page cache, since it is written or watched all the time, so it is read on the
	            * loop; writing waits for the device and goes off it */
	REMOTE,    /* a server that may not answer, or a file system we do not know: everything off the loop */
};

struct file_lock;

/* One operation. The lock's until it is done; once abandoned, its thread's. */
struct job {
	struct offload_job off; /* first */
	struct file_lock *lock; /* NULL: abandoned */
	bool writing;
	char *path, *text;      /* what swap borrows */
	struct instant sent_at;
	struct file_swap swap;
};

/* 1,000 of these are in one process: kept small. */
struct file_lock {
	struct lock base;       /* first */
	struct lock_env *env;
	char *path;
	enum place place;
	unsigned number, serial;/* for the names of temporary files */
	struct file_turn turn;  /* waiting: what was asked for has not begun */
	struct job *job;        /* what has */
	const struct record *record; /* to write; NULL: read, or remove */
	bool removing;
	const struct version *expected;
	bool durable;
	struct reading *last;   /* NULL: no record, or one of ours */
	bool looked;            /* read once, so that a notice about an earlier change is due when a watch begins */
	struct instant by;
	ev_timer timer;         /* goes off then */
	lock_done_fn *done;
	void *arg;
	struct lock_notice notice;
	lock_changed_fn *changed;
	void *changed_arg;
};

/* out: PATH_MAX bytes. */
static void dir_of(const struct file_lock *l, char *out)
{
	size_t len = (size_t)(l->notice.name - 1 - l->path);

	memcpy(out, l->path, len);
	strcpy(out + len, len ? "" : "/");
}

/* otherwise: if the directory cannot be looked at. */
static enum place place_of(const char *dir, enum place otherwise)
{
	struct statfs fs;

	if (statfs(dir, &fs) < 0)
		return otherwise;
	switch ((unsigned long)fs.f_type) {
	case TMPFS_MAGIC:
	case RAMFS_MAGIC:
		return IN_MEMORY;
	case EXT4_SUPER_MAGIC: /* and ext2, ext3 */
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case OVERLAYFS_SUPER_MAGIC:
	case 0x2fc12fc1: /* zfs, bcachefs: in no header */
	case 0xca451a4e:
		return ON_DISK;
	default:
		return REMOTE;
	}
}

/* ---- jobs ---- */

/* Nearer than the caller's deadline, so that a thread that still can says what it was waiting for. */
static struct instant give_up_at(struct instant by)
{
	nsec left = instant_until(by, clock_now());
	nsec early = left / 8 < 100 * NSEC_PER_MS ? left / 8 : 100 * NSEC_PER_MS;

	return (struct instant){ .boot = by.boot - early, .raw = by.raw - early };
}

static struct job *job_new(struct file_lock *l)
{
	struct job *j = mem_zero(sizeof *j);

	j->lock = l;
	j->writing = l->record || l->removing;
	j->sent_at = clock_now();
	j->path = mem_dup(l->path);
	j->swap.path = j->path;
	j->swap.local = l->place != REMOTE;
	j->swap.in_memory = l->place == IN_MEMORY;
	j->swap.may_wait = l->place != IN_MEMORY;
	j->swap.by = give_up_at(l->by);
	return j;
}

static void job_free(struct job *j)
{
	file_swap_fini(&j->swap);
	free(j->path);
	free(j->text);
	free(j);
}

/* The last step of a read: what was found is ours, or it is not. */
static void parse(struct file_lock *l, const struct job *j, struct lock_result *r, struct record *record)
{
	struct err why;

	if (j->writing || r->outcome != LOCK_OK)
		return;
	if (reading_parse(&l->last, record, file_swap_content(&j->swap), j->swap.len, &why) == 0) {
		r->record = record;
		return;
	}
	r->outcome = LOCK_FOREIGN;
	err_set(&r->err, why.code,
	        "%s is no election record: %s. It is not overwritten: repair it, choose another path, or remove it if nothing uses it",
	        j->path, why.text);
}

/* The end of what was asked for: done may close the lock, or ask for more. */
static void tell(struct file_lock *l, const struct lock_result *r)
{
	ev_timer_stop(l->env->loop, &l->timer);
	l->record = NULL;
	l->removing = false;
	l->done(l->arg, r);
}

static void forget_last(struct file_lock *l)
{
	reading_free(l->last);
	l->last = NULL;
}

static void complete(struct file_lock *l)
{
	struct job *j = l->job;
	struct record record;
	struct lock_result r = {
		.outcome = j->swap.outcome, .sent_at = j->sent_at, .version = j->swap.version, .err = j->swap.err,
	};

	l->job = NULL;
	l->looked |= !j->writing;
	record_init(&record);
	parse(l, j, &r, &record);
	if (j->writing && r.outcome == LOCK_OK)
		forget_last(l); /* a leader reads no more */
	if (r.outcome != LOCK_OK)
		r.version.text[0] = '\0';
	job_free(j);
	file_turn_over(l->env);
	tell(l, &r);
	record_fini(&record);
}

/* Its thread may come back from the file system at any time, or never: the job stays behind for it. What has not begun was
 * surely not done. */
static void abandon(struct file_lock *l, enum err_code code, const char *why)
{
	struct job *j = l->job;
	struct lock_result r = { .outcome = j && j->writing ? LOCK_UNKNOWN : LOCK_FAILED, .sent_at = j ? j->sent_at : clock_now() };

	err_set(&r.err, code, "%s %s: %s", l->record ? "writing" : l->removing ? "removing" : "reading", l->path, why);
	if (j) {
		atomic_store(&j->swap.cancelled, true);
		j->lock = NULL;
		l->job = NULL;
		file_turn_over(l->env);
	}
	file_turn_leave(l->env, &l->turn);
	tell(l, &r);
}

static void work(struct offload_job *off)
{
	struct job *j = (struct job *)off;

	if (j->writing)
		file_swap_write(&j->swap);
	else
		file_swap_read(&j->swap);
}

static void worked(struct offload_job *off)
{
	struct job *j = (struct job *)off;

	if (j->lock)
		complete(j->lock);
	else
		job_free(j);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	abandon(w->data, ERR_TIMEOUT, "the file system has not answered before the deadline");
}

static void run_off_loop(struct file_lock *l)
{
	l->job->swap.may_wait = true;
	l->job->off = (struct offload_job){ .work = work, .done = worked };
	offload_run(l->env->offload, &l->job->off);
}

/* On the loop, if that cannot block; a write whose kernel lock is taken goes on off the loop. */
static bool try_here(struct file_lock *l)
{
	struct job *j = l->job;

	if (j->swap.outcome != LOCK_OK)
		return true;
	if (l->place == REMOTE || (j->writing && l->place == ON_DISK))
		return false;
	if (j->writing)
		return file_swap_write(&j->swap);
	file_swap_read(&j->swap);
	return true;
}

static void name_temp(struct file_lock *l, struct file_swap *s)
{
	size_t room = sizeof s->temp;

	s->tag = *lock_hub_tag(l->env);
	lock_hub_temp_prefix(l->env, l->notice.name, l->number, s->temp, room);
	size_t len = strlen(s->temp);
	snprintf(s->temp + len, room - len, "%u.tmp", l->serial++);
}

static void fill_write(struct file_lock *l, struct job *j)
{
	char dir[PATH_MAX];

	j->swap.expected = *l->expected;
	j->swap.durable = l->durable;
	dir_of(l, dir);
	if (l->removing)
		return;
	j->text = record_print(l->record);
	j->swap.text = j->text;
	j->swap.clean = lock_hub_first_use(l->env, dir);
	name_temp(l, &j->swap);
	size_t len = strlen(j->text);
	if (len <= RECORD_MAX_BYTES)
		return;
	j->swap.outcome = LOCK_INVALID;
	err_set(&j->swap.err, ERR_INVALID, "the record for %s would have %zu bytes, at most %d are allowed: nothing was changed",
	        l->path, len, RECORD_MAX_BYTES);
}

static void begin(struct file_turn *t)
{
	struct file_lock *l = (struct file_lock *)((char *)t - offsetof(struct file_lock, turn));

	l->job = job_new(l);
	if (l->job->writing)
		fill_write(l, l->job);
	if (try_here(l))
		complete(l);
	else
		run_off_loop(l);
}

static void ask(struct file_lock *l, struct instant by, lock_done_fn *done, void *arg)
{
	l->by = by;
	l->done = done;
	l->arg = arg;
	ev_now_update(l->env->loop);
	ev_timer_set(&l->timer, (double)instant_until(by, clock_now()) / NSEC_PER_SEC, 0.);
	ev_timer_start(l->env->loop, &l->timer);
	file_turn_ask(l->env, &l->turn);
}

/* ---- the backend ---- */

static void file_read(struct lock *base, struct instant by, lock_done_fn *done, void *arg)
{
	ask((struct file_lock *)base, by, done, arg);
}

static void file_write(struct lock *base, const struct record *r, const struct version *expected, bool durable,
                       struct instant by, lock_done_fn *done, void *arg)
{
	struct file_lock *l = (struct file_lock *)base;

	l->record = r;
	l->expected = expected;
	l->durable = durable;
	ask(l, by, done, arg);
}

static void file_remove(struct lock *base, const struct version *expected, struct instant by, lock_done_fn *done, void *arg)
{
	struct file_lock *l = (struct file_lock *)base;

	l->removing = true;
	l->expected = expected;
	l->durable = false;
	ask(l, by, done, arg);
}

static void file_cancel(struct lock *base)
{
	struct file_lock *l = (struct file_lock *)base;

	if (l->job || l->turn.waiting)
		abandon(l, ERR_CANCELLED, "cancelled");
}

/* A rename that we did ourselves tells us nothing: the temporary file's name says whose it was. */
static bool own_write(const struct file_lock *l, const char *replaced_by)
{
	return replaced_by && lock_hub_temp_is_ours(l->env, replaced_by, l->notice.name, l->number);
}

static void on_notice(void *arg, const char *replaced_by)
{
	struct file_lock *l = arg;

	if (!own_write(l, replaced_by))
		l->changed(l->changed_arg);
}

static bool file_watch(struct lock *base, lock_changed_fn *changed, void *arg)
{
	struct file_lock *l = (struct file_lock *)base;
	char dir[PATH_MAX];

	l->changed = changed;
	l->changed_arg = arg;
	if (lock_hub_watches(&l->notice))
		return true;
	if (l->place == REMOTE)
		return false;
	dir_of(l, dir);
	l->place = place_of(dir, l->place); /* after a directory went away, another file system may be there now */
	return l->place != REMOTE && lock_hub_watch(l->env, &l->notice, dir, l->looked);
}

static void file_close(struct lock *base)
{
	struct file_lock *l = (struct file_lock *)base;

	file_cancel(base);
	lock_hub_forget(l->env, &l->notice);
	forget_last(l);
	free(l->base.url);
	free(l->path);
	free(l);
}

static struct lock *file_open(struct lock_env *env, const char *url, struct err *err)
{
	char *path = lock_path(url, err), dir[PATH_MAX];

	if (!path)
		return NULL;
	struct file_lock *l = mem_zero(sizeof *l);
	l->base.ops = &lock_file;
	l->base.url = mem_printf("file:%s", path);
	l->env = env;
	l->path = path;
	l->number = lock_hub_number(env);
	l->turn.begin = begin;
	l->notice = (struct lock_notice){ .changed = on_notice, .arg = l, .name = strrchr(path, '/') + 1 };
	dir_of(l, dir);
	l->place = place_of(dir, REMOTE);
	ev_timer_init(&l->timer, on_timer, 0., 0.);
	l->timer.data = l;
	return &l->base;
}

const struct lock_ops lock_file = {
	.scheme = "file",
	.token_in_record = true,
	.open = file_open,
	.read = file_read,
	.write = file_write,
	.cancel = file_cancel,
	.watch = file_watch,
	.close = file_close,
	.remove = file_remove,
	.key_last = true,
};
