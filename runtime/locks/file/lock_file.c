#include "locks/lock.h"

#include "base/buf.h"
#include "base/mem.h"
#include "lease/reading.h"
#include "locks/file/file_hub.h"
#include "locks/file/file_link.h"
#include "locks/file/file_list.h"
#include "locks/file/file_path.h"
#include "locks/file/file_swap.h"
#include "locks/file/file_system.h"
#include "locks/file/file_turn.h"
#include "locks/lock_url.h"
#include "loop/offload.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

/* Where the directory lives decides what may be done on the loop. */
enum place {
	IN_MEMORY, /* no device to wait for, nothing to make durable: all of it on the loop */
	ON_DISK, /* local: a record is in the page cache, since it is written or watched all the time, so it is read on
	          * the loop; writing waits for the device and goes off it */
	REMOTE,  /* a server that may not answer, or a file system of which little is known: everything off the loop */
};

struct file_lock;

/* One operation. The lock's until it is done; once abandoned, its thread's. */
struct job {
	struct offload_job off; /* first */
	struct file_lock *lock; /* NULL: abandoned */
	bool writing;
	char *path, *marker, *spelt, *text; /* what op borrows */
	struct instant sent_at;
	bool listing;
	struct lock_listing found;
	struct file_op op;
};

/* 1,000 of these are in one process: kept small. */
struct file_lock {
	struct lock base; /* first */
	struct lock_env *env;
	char *path;
	char *marker;  /* ?must_exist=; NULL: none */
	char *spelt;   /* the name with its options, where an older Lunarch could take that for a name; else NULL */
	bool kept_out; /* which it cannot any more */
	bool shared;   /* ?shared=link */
	enum place place;
	const struct file_system_type *type; /* of the directory when it was opened */
	unsigned number, serial;             /* for the names of temporary files */
	struct file_turn turn;               /* waiting: what was asked for has not begun */
	struct job *job;                     /* what has */
	const struct record *record;         /* to write; NULL: read, or remove */
	bool removing;
	struct lock_about *about;     /* to fill after a look; NULL */
	struct lock_listing *listing; /* to fill; NULL: no list is under way */
	const struct version *expected;
	bool durable;
	struct reading *last; /* NULL: no record, or one of ours */
	bool looked;          /* read once, so that a notice about an earlier change is due when a watch begins */
	struct instant by;
	ev_timer timer; /* goes off then */
	lock_done_fn *done;
	void *arg;
	struct lock_channel notice;
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

static enum place place_of(const struct file_lock *l)
{
	if (l->shared || (l->marker && *l->marker == '/')) /* which may be anywhere */
		return REMOTE;
	return l->type->is == FILE_SYSTEM_MEMORY ? IN_MEMORY : l->type->is == FILE_SYSTEM_DISK ? ON_DISK : REMOTE;
}

/* What file system the directory is on now. If it cannot be asked, what was known stays. */
static void file_look_at_place(struct file_lock *l)
{
	char dir[PATH_MAX];
	struct statfs fs;

	dir_of(l, dir);
	if (statfs(dir, &fs) == 0)
		l->type = file_system_type((uint32_t)fs.f_type);
	l->place = place_of(l);
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
	j->listing = l->listing != NULL;
	j->sent_at = clock_now();
	j->path = mem_dup(l->path);
	j->marker = l->marker ? mem_dup(l->marker) : NULL;
	j->op.path = j->path;
	j->op.marker = j->marker;
	j->op.shared = l->shared;
	j->op.local = l->place != REMOTE;
	j->op.in_memory = l->place == IN_MEMORY;
	j->op.may_wait = l->place != IN_MEMORY;
	j->op.by = give_up_at(l->by);
	return j;
}

static void job_free(struct job *j)
{
	file_op_fini(&j->op);
	lock_listing_fini(&j->found);
	free(j->path);
	free(j->marker);
	free(j->spelt);
	free(j->text);
	free(j);
}

/* The last step of a read: what was found is ours, or it is not. */
static void file_parse(struct file_lock *l, const struct job *j, struct lock_result *r, struct record *record)
{
	struct err why;

	if (j->writing || j->listing || r->outcome != LOCK_OK)
		return;
	if (reading_parse(&l->last, record, file_op_content(&j->op), j->op.len, &why) == 0) {
		r->record = record;
		return;
	}
	r->outcome = LOCK_FOREIGN;
	err_set(&r->err, why.code,
	        "%s is no election record: %s. It is not overwritten: repair it, choose another path, or remove it if nothing uses it",
	        j->path, why.text);
}

/* What the directory is, for doctor. */
static void file_fill_about(struct file_lock *l, struct lock_result *r)
{
	struct lock_about *a = l->about;

	if (r->outcome != LOCK_OK && r->outcome != LOCK_ABSENT && r->outcome != LOCK_FOREIGN)
		return;
	r->outcome = LOCK_OK;
	r->err = (struct err){ 0 };
	*a = (struct lock_about){ 0 };
	snprintf(a->server, sizeof a->server, "%s%s", l->type->name, l->shared ? ", by shared=link" : "");
	if (l->type->is == FILE_SYSTEM_SHARED && !l->marker)
		snprintf(
			a->warning, sizeof a->warning,
			"no must_exist=FILE is set: a machine on which this is not mounted would lead by itself, in what is there instead; "
			"name a file that is only there if it is");
	else if (l->marker)
		snprintf(a->server, sizeof a->server, "%s%s, with must_exist set", l->type->name,
		         l->shared ? ", by shared=link" : "");
}

/* The end of what was asked for: done may close the lock, or ask for more. */
static void file_tell(struct file_lock *l, struct lock_result *r)
{
	ev_timer_stop(l->env->loop, &l->timer);
	if (l->about)
		file_fill_about(l, r);
	l->record = NULL;
	l->removing = false;
	l->about = NULL;
	l->listing = NULL;
	l->done(l->arg, r);
}

static void file_forget_last(struct file_lock *l)
{
	reading_free(l->last);
	l->last = NULL;
}

static void file_complete(struct file_lock *l)
{
	struct job *j = l->job;
	struct record record;
	struct lock_result r = {
		.outcome = j->op.outcome,
		.sent_at = j->sent_at,
		.version = j->op.version,
		.err = j->op.err,
	};

	l->job = NULL;
	l->looked |= !j->writing;
	record_init(&record);
	file_parse(l, j, &r, &record);
	if (j->writing && r.outcome == LOCK_OK) {
		file_forget_last(l); /* a leader reads no more */
		l->kept_out = !l->removing;
	}
	if (r.outcome != LOCK_OK)
		r.version.text[0] = '\0';
	else if (j->listing)
		lock_listing_move(l->listing, &j->found);
	job_free(j);
	file_turn_over(l->env);
	file_tell(l, &r);
	record_fini(&record);
}

/* Its thread may come back from the file system at any time, or never: the job stays behind for it. What has not begun
 * was surely not done. */
static void file_abandon(struct file_lock *l, enum err_code code, const char *why)
{
	struct job *j = l->job;
	struct lock_result r = { .outcome = j && j->writing ? LOCK_UNKNOWN : LOCK_FAILED,
		                 .sent_at = j ? j->sent_at : clock_now() };

	err_set(&r.err, code, "%s %s: %s", l->record ? "writing" : l->removing ? "removing" : "reading", l->path, why);
	if (j) {
		atomic_store(&j->op.cancelled, true);
		j->lock = NULL;
		l->job = NULL;
		file_turn_over(l->env);
	}
	file_turn_leave(l->env, &l->turn);
	file_tell(l, &r);
}

static void job_work(struct offload_job *off)
{
	struct job *j = (struct job *)off;

	if (j->listing)
		file_list(&j->op, &j->found);
	else if (j->op.shared)
		(j->writing ? file_link_write : file_link_read)(&j->op);
	else if (j->writing)
		file_swap_write(&j->op);
	else
		file_swap_read(&j->op);
}

static void job_on_worked(struct offload_job *off)
{
	struct job *j = (struct job *)off;

	if (j->lock)
		file_complete(j->lock);
	else
		job_free(j);
}

static void file_on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	file_abandon(w->data, ERR_TIMEOUT, "the file system has not answered before the deadline");
}

static void file_run_off_loop(struct file_lock *l)
{
	l->job->op.may_wait = true;
	l->job->off = (struct offload_job){ .work = job_work, .done = job_on_worked };
	offload_run(l->env->offload, &l->job->off);
}

/* On the loop, if that cannot block; a write whose kernel lock is taken goes on off the loop. */
static bool file_try_here(struct file_lock *l)
{
	struct job *j = l->job;

	if (j->op.outcome != LOCK_OK)
		return true;
	if (j->listing || l->place == REMOTE || (j->writing && l->place == ON_DISK))
		return false;
	if (j->writing)
		return file_swap_write(&j->op);
	file_swap_read(&j->op);
	return true;
}

static void file_name_temp(struct file_lock *l, struct file_op *o)
{
	size_t room = sizeof o->temp;

	o->tag = *lock_hub_tag(l->env);
	lock_hub_temp_prefix(l->env, l->notice.name, l->number, o->temp, room);
	size_t len = strlen(o->temp);
	snprintf(o->temp + len, room - len, "%u.tmp", l->serial++);
}

static void file_fill_write(struct file_lock *l, struct job *j)
{
	char dir[PATH_MAX];

	j->op.expected = *l->expected;
	j->op.durable = l->durable;
	if (l->spelt && (!l->kept_out || l->removing))
		j->op.spelt = j->spelt = mem_dup(l->spelt);
	dir_of(l, dir);
	if (l->removing)
		return;
	j->text = record_print(l->record);
	j->op.text = j->text;
	j->op.clean = lock_hub_first_use(l->env, l->shared ? l->path : dir);
	file_name_temp(l, &j->op);
	size_t len = strlen(j->text);
	if (len <= RECORD_MAX_BYTES)
		return;
	j->op.outcome = LOCK_INVALID;
	err_set(&j->op.err, ERR_INVALID,
	        "the record for %s would have %zu bytes, at most %d are allowed: nothing was changed", l->path, len,
	        RECORD_MAX_BYTES);
}

static void file_begin(struct file_turn *t)
{
	struct file_lock *l = (struct file_lock *)((char *)t - offsetof(struct file_lock, turn));

	l->job = job_new(l);
	if (l->job->writing)
		file_fill_write(l, l->job);
	if (file_try_here(l))
		file_complete(l);
	else
		file_run_off_loop(l);
}

static void file_ask(struct file_lock *l, struct instant by, lock_done_fn *done, void *arg)
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
	file_ask((struct file_lock *)base, by, done, arg);
}

static void file_write(struct lock *base, const struct record *r, const struct version *expected, bool durable,
                       struct instant by, lock_done_fn *done, void *arg)
{
	struct file_lock *l = (struct file_lock *)base;

	l->record = r;
	l->expected = expected;
	l->durable = durable;
	file_ask(l, by, done, arg);
}

static void file_remove(struct lock *base, const struct version *expected, struct instant by, lock_done_fn *done,
                        void *arg)
{
	struct file_lock *l = (struct file_lock *)base;

	l->removing = true;
	l->expected = expected;
	l->durable = false;
	file_ask(l, by, done, arg);
}

static void file_about(struct lock *base, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg)
{
	struct file_lock *l = (struct file_lock *)base;

	l->about = about;
	file_ask(l, by, done, arg);
}

static void file_list_names(struct lock *base, struct lock_listing *out, struct instant by, lock_done_fn *done,
                            void *arg)
{
	struct file_lock *l = (struct file_lock *)base;

	l->listing = out;
	file_ask(l, by, done, arg);
}

static void file_cancel(struct lock *base)
{
	struct file_lock *l = (struct file_lock *)base;

	if (l->job || l->turn.waiting)
		file_abandon(l, ERR_CANCELLED, "cancelled");
}

/* A rename that we did ourselves tells us nothing: the temporary file's name says whose it was. */
static bool file_is_own_write(const struct file_lock *l, const char *replaced_by)
{
	return replaced_by && lock_hub_temp_is_ours(l->env, replaced_by, l->notice.name, l->number);
}

static void file_on_notice(void *arg, const char *replaced_by)
{
	struct file_lock *l = arg;

	if (!file_is_own_write(l, replaced_by))
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
	file_look_at_place(l); /* after a directory went away, another file system may be there now */
	dir_of(l, dir);
	return l->place != REMOTE && lock_hub_watch(l->env, &l->notice, dir, l->looked);
}

static void file_free(struct file_lock *l)
{
	free(l->base.url);
	free(l->path);
	free(l->marker);
	free(l->spelt);
	free(l);
}

static void file_close(struct lock *base)
{
	struct file_lock *l = (struct file_lock *)base;

	file_cancel(base);
	lock_hub_forget(l->env, &l->notice);
	file_forget_last(l);
	file_free(l);
}

/* ---- opening ---- */

static const char *const known_options[] = { "shared", "must_exist", NULL };

static int take_options(struct file_lock *l, const char *url, const char *text, struct err *err)
{
	struct lock_url u;

	if (lock_url_parse_options(&u, url, text, known_options, err) < 0)
		return -1;
	const char *shared = lock_url_option(&u, "shared"), *marker = lock_url_option(&u, "must_exist");
	int status = 0;
	if (shared && strcmp(shared, "link") != 0)
		status = err_set(err, ERR_USAGE, "lock \"%s\": the option shared is \"%.40s\"; there is shared=link",
		                 url, shared);
	else if (marker && !*marker)
		status = err_set(err, ERR_USAGE, "lock \"%s\": must_exist expects the name of a file", url);
	l->shared = shared != NULL;
	l->marker = marker ? mem_dup(marker) : NULL;
	lock_url_fini(&u);
	return status;
}

static char *print_url(const struct file_lock *l)
{
	struct buf b = { 0 };

	buf_printf(&b, "file:%s%s", l->path, l->shared ? "?shared=link" : "");
	if (l->marker) {
		buf_adds(&b, l->shared ? "&must_exist=" : "?must_exist=");
		lock_url_encode(&b, l->marker, "/");
	}
	return b.data;
}

static int take_path(struct file_lock *l, const char *text, size_t len, struct err *err)
{
	char *given = mem_dupn(text, len);

	l->path = lock_path(given, err);
	free(given);
	if (!l->path)
		return -1;
	const char *name = strrchr(l->path, '/') + 1;
	/* With a slash in its options it would be in a directory that is not there. */
	if (text[len] && !strchr(text + len, '/') && strlen(name) + strlen(text + len) <= NAME_MAX)
		l->spelt = mem_printf("%s%s", name, text + len);
	return 0;
}

/* Asked again by each write, since something else may be mounted there later. */
static int check_place(const struct file_lock *l, struct err *err)
{
	char dir[PATH_MAX];
	struct statfs fs;

	dir_of(l, dir);
	if (!l->shared && statfs(dir, &fs) < 0)
		return err_sys(err, "cannot tell which file system %s is on", dir);
	if (!l->shared && file_op_check_type(dir, (uint32_t)fs.f_type, err) < 0)
		return -1;
	int fd = l->marker ? open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC) : -1;
	if (l->marker && fd < 0)
		return err_sys(err, "cannot use the directory %s of the record", dir);
	int status = file_op_check_marker(fd, l->marker, l->path, err);
	if (fd >= 0)
		close(fd);
	return status;
}

static struct lock *file_open(struct lock_env *env, const char *url, struct err *err)
{
	size_t len = strcspn(url, "?");
	struct file_lock *l = mem_zero(sizeof *l);

	l->type = file_system_type(0);
	if (take_options(l, url, url[len] ? url + len + 1 : "", err) < 0 || take_path(l, url, len, err) < 0)
		goto fail;
	l->notice = (struct lock_channel){ .changed = file_on_notice, .arg = l, .name = strrchr(l->path, '/') + 1 };
	if (check_place(l, err) < 0)
		goto fail;
	l->base.ops = &lock_file;
	l->base.url = print_url(l);
	l->env = env;
	l->number = lock_hub_number(env);
	l->turn.begin = file_begin;
	file_look_at_place(l);
	ev_timer_init(&l->timer, file_on_timer, 0., 0.);
	l->timer.data = l;
	return &l->base;
fail:
	file_free(l);
	return NULL;
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
	.list = file_list_names,
	.about = file_about,
	.remove = file_remove,
};
