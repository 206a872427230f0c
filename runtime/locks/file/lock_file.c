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
#include "locks/lock_user.h"
#include "loop/offload.h"

#include <fcntl.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

struct file_lock;

/* The work of one operation. It is the lock's until it is done. If the operation ends before, what a thread has begun
 * is left to it: it may come back from the file system at any time, or never. */
struct file_job {
	struct offload_job off; /* first */
	struct file_lock *lock; /* NULL: left to its thread */
	bool writing;
	char *path, *marker, *spelt, *text; /* what op borrows */
	bool listing;
	struct lock_listing found;
	struct file_op op;
};

/* 1,000 of these are in one process: kept small. */
struct file_lock {
	struct lock_user user; /* first */
	char *path;
	char *marker;  /* ?must_exist=; NULL: none */
	char *spelt;   /* see file_op_keep_out; NULL: no options, or none that could be a part of a name */
	bool kept_out; /* the directory `spelt` was made */
	bool unclean;  /* what was to remove dead processes' files from the directory has not been done */
	bool shared;   /* ?shared=link */
	/* What may be done on the loop, by the kind of file system: in memory all; on disk reads alone, since a record is
	 * in the page cache; elsewhere nothing. */
	enum file_system place;
	const struct file_system_type *type; /* of the directory when it was opened */
	unsigned number, serial;             /* for the names of temporary files */
	struct file_turn turn;               /* waiting: the operation has not begun its work */
	struct file_job *job;                /* the work of the operation, once it has begun */
	struct reading *last;                /* NULL: no record, or one of ours */
	bool looked; /* read once, so that a notice about an earlier change is due when a watch begins */
	struct file_notice notice;
	lock_changed_fn *changed;
	void *changed_arg;
};

static struct file_lock *file_of(struct lock_user *u)
{
	return (struct file_lock *)u;
}

/* out: PATH_MAX bytes. */
static void file_dir_of(const struct file_lock *l, char *out)
{
	size_t len = (size_t)(l->notice.name - 1 - l->path);

	memcpy(out, l->path, len);
	strcpy(out + len, len ? "" : "/");
}

static enum file_system file_place_of(const struct file_lock *l)
{
	if (l->shared || (l->marker && *l->marker == '/')) /* which may be anywhere */
		return FILE_SYSTEM_SHARED;
	return l->type->is;
}

/* What file system the directory is on now. If it cannot be asked, what was known stays. */
static void file_look_at_place(struct file_lock *l)
{
	char dir[PATH_MAX];
	struct statfs fs;

	file_dir_of(l, dir);
	if (statfs(dir, &fs) == 0)
		l->type = file_system_type((uint32_t)fs.f_type);
	l->place = file_place_of(l);
}

/* ---- jobs ---- */

/* A little before the operation's deadline, so that a thread that is not stuck can still say what it waited for. */
static struct instant give_up_at(struct instant by)
{
	nsec left = instant_until(by, clock_now());
	nsec early = left / 8 < 100 * NSEC_PER_MS ? left / 8 : 100 * NSEC_PER_MS;

	return (struct instant){ .boot = by.boot - early, .raw = by.raw - early };
}

static struct file_job *job_new(struct file_lock *l)
{
	struct file_job *j = mem_zero(sizeof *j);

	j->lock = l;
	j->writing = l->user.op.writing;
	j->listing = l->user.listing != NULL;
	j->path = mem_dup(l->path);
	j->marker = l->marker ? mem_dup(l->marker) : NULL;
	j->op.path = j->path;
	j->op.marker = j->marker;
	j->op.shared = l->shared;
	j->op.local = l->place < FILE_SYSTEM_LOCAL;
	j->op.in_memory = l->place == FILE_SYSTEM_MEMORY;
	j->op.may_wait = l->place != FILE_SYSTEM_MEMORY;
	j->op.by = give_up_at(l->user.op.by);
	return j;
}

static void job_free(struct file_job *j)
{
	file_op_fini(&j->op);
	lock_listing_fini(&j->found);
	free(j->path);
	free(j->marker);
	free(j->spelt);
	free(j->text);
	free(j);
}

/* What the directory is, for doctor. */
static void file_fill_about(const struct file_lock *l)
{
	struct lock_about *a = l->user.about;

	*a = (struct lock_about){ 0 };
	snprintf(a->server, sizeof a->server, "%s%s%s", l->type->name, l->shared ? ", by shared=link" : "",
	         l->marker ? ", with must_exist set" : "");
	if (l->type->is == FILE_SYSTEM_SHARED && !l->marker)
		snprintf(
			a->warning, sizeof a->warning,
			"no must_exist=FILE is set: a machine on which this is not mounted would lead by itself, in what is there instead; "
			"name a file that is only there if it is");
}

static void file_forget_last(struct file_lock *l)
{
	reading_free(l->last);
	l->last = NULL;
}

/* A read has found this content. */
static void file_found(struct file_lock *l, const struct file_job *j)
{
	struct lock_result foreign = { .outcome = LOCK_FOREIGN };
	struct record record;
	struct err why;

	record_init(&record);
	if (reading_parse(&l->last, &record, file_op_content(&j->op), j->op.len, &why) == 0) {
		lock_op_found_record(&l->user.op, &record, j->op.version.text, 0);
	} else {
		err_set(&foreign.err, why.code,
		        "%s is no election record: %s. It is not overwritten: repair it, choose another path, or remove it if nothing uses it",
		        j->path, why.text);
		lock_op_finish(&l->user.op, &foreign);
	}
	record_fini(&record);
}

/* The text of an error names the path already. done may close the lock. */
static void file_finish(struct file_lock *l, struct file_job *j)
{
	struct lock_result r = { .outcome = j->op.outcome, .err = j->op.err };

	if (r.outcome == LOCK_OK)
		r.version = j->op.version;
	if (r.outcome == LOCK_OK && l->user.listing)
		lock_listing_move(l->user.listing, &j->found);
	if (l->user.about && (r.outcome == LOCK_OK || r.outcome == LOCK_ABSENT || r.outcome == LOCK_FOREIGN)) {
		file_fill_about(l);
		r = (struct lock_result){ .outcome = LOCK_OK };
	}
	lock_op_finish(&l->user.op, &r);
}

static void file_complete(struct file_lock *l)
{
	struct file_job *j = l->job;

	l->job = NULL;
	l->looked |= !j->writing;
	if (j->writing && j->op.outcome == LOCK_OK) {
		file_forget_last(l); /* a leader reads no more */
		l->kept_out = !l->user.op.removing;
	}
	file_turn_over(l->user.env);
	if (j->op.outcome == LOCK_OK && !j->writing && !j->listing && !l->user.about)
		file_found(l, j);
	else
		file_finish(l, j);
	job_free(j);
}

static void file_on_detach(struct lock_op *op)
{
	struct file_lock *l = file_of(lock_user_of_op(op));

	file_turn_leave(l->user.env, &l->turn);
	if (!l->job)
		return;
	struct file_job *j = l->job;
	atomic_store(&j->op.cancelled, true);
	j->lock = NULL;
	l->job = NULL;
	if (offload_take_back(l->user.env->offload, &j->off)) {
		l->unclean |= j->op.clean;
		file_swap_drop(&j->op);
		job_free(j);
	}
	file_turn_over(l->user.env);
}

/* false: the kernel lock is another's, and may not be waited for here. */
static bool job_do(struct file_job *j)
{
	if (j->writing && !j->op.shared)
		return file_swap_write(&j->op);
	if (j->listing)
		file_list(&j->op, &j->found);
	else if (j->writing)
		file_link_write(&j->op);
	else
		(j->op.shared ? file_link_read : file_swap_read)(&j->op);
	return true;
}

static void job_work(struct offload_job *off)
{
	struct file_job *j = (struct file_job *)off;

	if (file_op_too_late(&j->op)) {
		err_set(&j->op.err, ERR_TIMEOUT, "no thread was free in time for %s; nothing was changed", j->path);
		file_op_fail(&j->op);
		file_swap_drop(&j->op);
		return;
	}
	job_do(j);
}

static void job_on_worked(struct offload_job *off)
{
	struct file_job *j = (struct file_job *)off;

	if (j->lock)
		file_complete(j->lock);
	else
		job_free(j);
}

static void file_run_off_loop(struct file_lock *l)
{
	l->job->op.may_wait = true;
	l->job->off = (struct offload_job){ .work = job_work, .done = job_on_worked };
	offload_run(l->user.env->offload, &l->job->off);
}

/* Does the work here, on the loop, if it cannot block. false: a thread has to do it, or, if another process has the
 * kernel lock, the rest of it. */
static bool file_try_here(struct file_lock *l)
{
	struct file_job *j = l->job;

	if (j->op.outcome != LOCK_OK)
		return true;
	if (j->listing || l->place >= FILE_SYSTEM_LOCAL || (j->writing && l->place == FILE_SYSTEM_DISK))
		return false;
	return job_do(j);
}

static void file_name_temp(struct file_lock *l, struct file_op *o)
{
	size_t room = sizeof o->temp;

	o->tag = *file_hub_tag(l->user.env);
	file_hub_temp_prefix(l->user.env, l->notice.name, l->number, o->temp, room);
	size_t len = strlen(o->temp);
	snprintf(o->temp + len, room - len, "%u.tmp", l->serial++);
}

static void file_fill_write(struct file_lock *l, struct file_job *j)
{
	char dir[PATH_MAX];

	j->op.expected = l->user.expected;
	j->op.durable = l->user.durable;
	if (l->spelt && !l->user.lock.advice && (!l->kept_out || l->user.op.removing))
		j->op.spelt = j->spelt = mem_dup(l->spelt);
	file_dir_of(l, dir);
	if (l->user.op.removing)
		return;
	j->op.text = j->text = mem_dup(l->user.op.text);
	j->op.clean = file_hub_first_use(l->user.env, l->shared ? l->path : dir) || l->unclean;
	l->unclean = false;
	file_name_temp(l, &j->op);
}

static void file_on_turn(struct file_turn *t)
{
	struct file_lock *l = (struct file_lock *)((char *)t - offsetof(struct file_lock, turn));

	lock_op_sent(&l->user.op);
	l->job = job_new(l);
	if (l->job->writing)
		file_fill_write(l, l->job);
	if (file_try_here(l))
		file_complete(l);
	else
		file_run_off_loop(l);
}

/* ---- the backend ---- */

static void file_begin(struct lock_user *u)
{
	struct file_lock *l = file_of(u);

	u->op.name = l->path;
	u->op.late = "the file system has not answered before the deadline";
	file_turn_ask(u->env, &l->turn);
}

/* A rename that we did ourselves tells us nothing: the temporary file's name says whose it was. */
static bool file_is_own_write(const struct file_lock *l, const char *replaced_by)
{
	return replaced_by && file_hub_temp_is_ours(l->user.env, replaced_by, l->notice.name, l->number);
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
	if (file_hub_watches(&l->notice))
		return true;
	if (l->place >= FILE_SYSTEM_LOCAL)
		return false;
	file_look_at_place(l); /* after a directory went away, another file system may be there now */
	file_dir_of(l, dir);
	return l->place < FILE_SYSTEM_LOCAL && file_hub_watch(l->user.env, &l->notice, dir, l->looked);
}

static void file_free(struct lock_user *u)
{
	struct file_lock *l = file_of(u);

	file_hub_forget(u->env, &l->notice);
	file_forget_last(l);
	free(l->path);
	free(l->marker);
	free(l->spelt);
	free(l);
}

/* ---- opening ---- */

static const char *const known_options[] = { "shared", "must_exist", NULL };

static int file_take_options(struct file_lock *l, const char *url, const char *text, struct err *err)
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

static char *file_print_url(const struct file_lock *l)
{
	struct buf b = { 0 };

	buf_printf(&b, "file:%s%s", l->path, l->shared ? "?shared=link" : "");
	if (l->marker) {
		buf_adds(&b, l->shared ? "&must_exist=" : "?must_exist=");
		lock_url_encode(&b, l->marker, "/");
	}
	return b.data;
}

static int file_take_path(struct file_lock *l, const struct lock_env *env, const char *text, size_t len,
                          struct err *err)
{
	char *given = mem_dupn(text, len);

	l->path = file_path(given, env->state_dir, err);
	free(given);
	if (!l->path)
		return -1;
	const char *name = strrchr(l->path, '/') + 1;
	/* If there is a slash in the options, an older Lunarch would look for a directory that is not there. */
	if (text[len] && !strchr(text + len, '/') && strlen(name) + strlen(text + len) <= NAME_MAX)
		l->spelt = mem_printf("%s%s", name, text + len);
	return 0;
}

/* Each write checks this again, since another file system may be mounted there later. */
static int file_check_place(const struct file_lock *l, struct err *err)
{
	char dir[PATH_MAX];
	struct statfs fs;

	file_dir_of(l, dir);
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
	static const struct lock_user_ops ops = { .begin = file_begin, .detach = file_on_detach, .free = file_free };
	size_t len = strcspn(url, "?");
	struct file_lock *l = mem_zero(sizeof *l);

	l->user = (struct lock_user){ .lock.ops = &lock_file, .ops = &ops, .env = env };
	l->type = file_system_type(0);
	if (file_take_options(l, url, url[len] ? url + len + 1 : "", err) < 0 ||
	    file_take_path(l, env, url, len, err) < 0)
		goto fail;
	l->notice = (struct file_notice){ .changed = file_on_notice, .arg = l };
	l->notice.name = strrchr(l->path, '/') + 1;
	if (file_check_place(l, err) < 0)
		goto fail;
	l->user.lock.url = file_print_url(l);
	l->number = file_hub_number(env);
	l->turn.begin = file_on_turn;
	file_look_at_place(l);
	return &l->user.lock;
fail:
	file_free(&l->user);
	return NULL;
}

/* "file:DIR/.NAME.next?OPTIONS": hidden, as all else that is beside a record. Not made from the URL that was given,
 * which may name a link, or be relative. */
static char *file_next_url(const struct lock *base, const char *)
{
	const struct file_lock *l = (const struct file_lock *)base;
	const char *name = l->notice.name, *options = base->url + strcspn(base->url, "?");

	return mem_printf("file:%.*s.%s.next%s", (int)(name - l->path), l->path, name, options);
}

const struct lock_ops lock_file = {
	.scheme = "file",
	.token_in_record = true,
	.open = file_open,
	LOCK_USER_OPS,
	.watch = file_watch,
	.next_url = file_next_url,
};
