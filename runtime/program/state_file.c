#include "program/state_file.h"

#include "base/duration.h"
#include "base/log.h"
#include "base/mem.h"
#include "election/elector.h"
#include "loop/offload.h"
#include "program/changes.h"
#include "program/status.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define RETRY_AFTER (2 * NSEC_PER_SEC)    /* when a write has failed, and nothing changes */
#define REFRESH_LEAST (100 * NSEC_PER_MS) /* between two writes that only say how long it leads */
#define END_PATIENCE (2 * NSEC_PER_SEC)   /* for the last write, on a disk that hangs */
#define HEAD_MAX 512                      /* so much of a file says who wrote it */

struct state_write { /* one try, for a thread; it must not allocate */
	struct offload_job job;
	struct state_file *file;
	struct buf content;
	int error;        /* errno; 0: it is there */
	const char *step; /* what failed */
};

struct state_file {
	const char *path;
	char *temporary;
	struct standing_source source;
	struct changes *changes;
	struct changes_follower follower;
	struct offload
		*offload; /* its own thread: a file system that hangs must not cost the elections one of theirs */
	struct state_write write, last; /* last: the write that says that the process ends */
	bool writing, changed;
	nsec again_at; /* by clock_now().boot; NSEC_NEVER: when something changes */
	int failing;   /* errno of the last write */
	struct instant failing_since;
	uint64_t written, failed;
};

/* ---- writing, also on a thread ---- */

static int write_all(int fd, const char *bytes, size_t len)
{
	while (len) {
		ssize_t n = write(fd, bytes, len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -1;
		bytes += n;
		len -= (size_t)n;
	}
	return 0;
}

static int write_failed(struct state_write *w, const char *step)
{
	w->error = errno;
	w->step = step;
	return -1;
}

/* A file in the temporary's place was left by a killed process, or is a link that somebody put there. It is removed,
 * and not followed. */
static int write_temporary(struct state_write *w, const char *path)
{
	int result = 0;

	unlink(path);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
	if (fd < 0)
		return write_failed(w, "cannot make a file beside it");
	/* Synced before the rename: else a power cut could leave an empty file in the place of a whole one. */
	if (write_all(fd, w->content.data, w->content.len) < 0)
		result = write_failed(w, "cannot write");
	else if (fsync(fd) < 0)
		result = write_failed(w, "cannot sync");
	if (close(fd) < 0 && result == 0)
		result = write_failed(w, "cannot close");
	return result;
}

static void replace_file(struct state_write *w)
{
	const struct state_file *f = w->file;

	w->error = 0;
	if (write_temporary(w, f->temporary) == 0 && rename(f->temporary, f->path) < 0)
		write_failed(w, "cannot put it into its place");
	if (w->error)
		unlink(f->temporary);
}

static void write_work(struct offload_job *j)
{
	replace_file((struct state_write *)j);
}

/* ---- what came of it ---- */

static void log_failure(const struct state_file *f, const struct state_write *w)
{
	char why[128];

	log_event(LOG_WARN, NULL, "state_file_failed", "--state-file %s: %s: %s; it shows an older state until then",
	          f->path, w->step, strerror_r(w->error, why, sizeof why));
}

/* Logs each reason once: a disk that stays full is one line. */
static void note_outcome(struct state_file *f, const struct state_write *w)
{
	if (!w->error)
		f->written++;
	else
		f->failed++;
	if (w->error == f->failing)
		return;
	if (!f->failing)
		f->failing_since = clock_now();
	f->failing = w->error;
	if (w->error)
		log_failure(f, w);
	else
		log_event(LOG_INFO, NULL, "state_file_written", "--state-file %s: it can be written again", f->path);
}

/* What has changed meanwhile is written by the look that follows before the loop waits. */
static void write_done(struct offload_job *j)
{
	struct state_write *w = (struct state_write *)j;
	struct state_file *f = w->file;

	f->writing = false;
	note_outcome(f, w);
	if (w->error) {
		nsec retry_at = clock_now().boot + RETRY_AFTER;
		f->again_at = retry_at < f->again_at ? retry_at : f->again_at;
	}
}

/* ---- when to write ---- */

/* A file that says for how long this process leads is written again when half of that is over: a leader that renews
 * has moved it on by then. */
static void add_claim(void *arg, const struct standing *e)
{
	nsec *half = arg;
	nsec left = e->status->leading ? e->status->remaining / 2 : NSEC_NEVER;

	if (left < REFRESH_LEAST)
		left = REFRESH_LEAST;
	if (left < *half)
		*half = left;
}

static void describe(struct state_file *f, struct buf *out)
{
	nsec half = NSEC_NEVER;

	f->source.list(f->source.arg, add_claim, &half);
	f->again_at = half == NSEC_NEVER ? NSEC_NEVER : clock_now().boot + half;
	f->changed = false;
	buf_drop(out, out->len);
	status_json(out, &f->source);
}

static void file_on_changed(void *arg, uint64_t, const struct standing *)
{
	((struct state_file *)arg)->changed = true;
}

static void file_on_gone(void *arg, uint64_t, const char *)
{
	((struct state_file *)arg)->changed = true;
}

static void file_on_looked(void *arg)
{
	struct state_file *f = arg;

	if (f->writing || (!f->changed && clock_now().boot < f->again_at))
		return;
	describe(f, &f->write.content);
	f->writing = true;
	offload_run(f->offload, &f->write.job);
}

/* ---- beginning and end ---- */

/* Refuses to replace a file that this program did not write, or that another process writes, since each would undo
 * the other's writes. */
static int check_present(const char *path, struct err *err)
{
	struct status_author author;
	char head[HEAD_MAX];
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : err_sys(err, "cannot look at it");
	if (S_ISLNK(st.st_mode))
		return err_set(err, ERR_USAGE,
		               "it is a symbolic link, which the file would replace: name the file itself");
	if (!S_ISREG(st.st_mode))
		return err_set(err, ERR_USAGE, "expected a file, or nothing, there; it is something else");
	if (st.st_size == 0)
		return 0;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return err_sys(err, "cannot read what is there, to see whether it is a state file");
	ssize_t n = read(fd, head, sizeof head - 1);
	close(fd);
	head[n > 0 ? n : 0] = '\0';
	if (!status_author(head, &author))
		return err_set(err, ERR_USAGE,
		               "the file there is no state file, so it is not replaced: name another, or remove it");
	if (status_author_lives(&author))
		return err_set(err, ERR_USAGE, "process %" PRIu64 " writes this file: each needs one of its own",
		               author.pid);
	return 0;
}

/* DIRECTORY/.NAME.lunarch-new */
static char *temporary_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	int dir = slash ? (int)(slash - path) + 1 : 0;

	return mem_printf("%.*s.%s.lunarch-new", dir, path, path + dir);
}

/* Whether another try would fail alike, as it does where a path is wrong. */
static bool is_lasting(int error)
{
	return error != ENOSPC && error != EDQUOT && error != EIO && error != ENOMEM && error != ENFILE &&
	       error != EMFILE && error != ESTALE && error != ETIMEDOUT;
}

/* Before the loop runs: nothing is led yet, and a wrong path is an error of the command line. A thread would have to be
 * waited for just as long, and the first guard is a fork of a process that has none (process/guard_start.h). */
static int write_first(struct state_file *f, struct err *err)
{
	describe(f, &f->write.content);
	replace_file(&f->write);
	if (f->write.error && is_lasting(f->write.error)) {
		errno = f->write.error;
		return err_sys(err, "%s", f->write.step);
	}
	note_outcome(f, &f->write);
	if (f->write.error)
		f->again_at = clock_now().boot + RETRY_AFTER;
	return 0;
}

static void file_release(struct state_file *f)
{
	buf_fini(&f->write.content);
	buf_fini(&f->last.content);
	free(f->temporary);
	free(f);
}

static int file_begin(struct state_file *f, struct ev_loop *loop, struct err *err)
{
	size_t len = strlen(f->path);

	if (!len || f->path[len - 1] == '/')
		return err_set(err, ERR_USAGE, "expected the name of a file");
	if (check_present(f->path, err) < 0 || write_first(f, err) < 0)
		return -1;
	f->offload = offload_new(loop, 1, err);
	return f->offload ? 0 : -1;
}

struct state_file *state_file_new(struct ev_loop *loop, const char *path, const struct standing_source *source,
                                  struct changes *changes, struct err *err)
{
	struct state_file *f = mem_zero(sizeof *f);

	*f = (struct state_file){ .path = path, .temporary = temporary_name(path), .source = *source };
	f->write = (struct state_write){ .job = { .work = write_work, .done = write_done }, .file = f };
	f->last = (struct state_write){ .job = { .work = write_work, .done = write_done }, .file = f };
	f->changes = changes;
	f->follower = (struct changes_follower){
		.changed = file_on_changed, .gone = file_on_gone, .looked = file_on_looked, .arg = f
	};
	if (file_begin(f, loop, err) < 0) {
		err_wrap(err, "--state-file %s", path);
		file_release(f);
		return NULL;
	}
	changes_follow(changes, &f->follower);
	return f;
}

/* A write that is under way ends first: there is one thread. A thread that hangs keeps its memory. */
void state_file_free(struct state_file *f)
{
	if (!f)
		return;
	changes_leave(f->changes, &f->follower);
	status_json(&f->last.content, NULL);
	offload_run(f->offload, &f->last.job);
	bool ended = offload_wait(f->offload, END_PATIENCE);
	offload_free(f->offload);
	if (ended) {
		note_outcome(f, &f->last);
		file_release(f);
	} else {
		log_event(
			LOG_WARN, NULL, "state_file_failed",
			"--state-file %s: its file system does not answer, or no thread can be started; the file does "
			"not say that we end",
			f->path);
	}
}

/* ---- for people and monitoring ---- */

void state_file_tell(const struct state_file *f, struct buf *out)
{
	char since[32], why[128];

	if (!f || !f->failing)
		return;
	duration_print(elapsed_standby(f->failing_since, clock_now()) / NSEC_PER_SEC * 1000, since, sizeof since);
	buf_adds(out, "the state file ");
	buf_plain(out, f->path);
	buf_printf(out, " cannot be written for %s, and shows an older state: %s\n", since,
	           strerror_r(f->failing, why, sizeof why));
}

void state_file_metrics(const struct state_file *f, struct buf *out)
{
	if (!f)
		return;
	buf_printf(out,
	           "# HELP lunarch_state_file_writes_total Writes of the state file (--state-file) by result.\n"
	           "# TYPE lunarch_state_file_writes_total counter\n"
	           "lunarch_state_file_writes_total{result=\"ok\"} %" PRIu64 "\n"
	           "lunarch_state_file_writes_total{result=\"failed\"} %" PRIu64 "\n",
	           f->written, f->failed);
}
