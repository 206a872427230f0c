#include "locks/file/file_link.h"

#include "base/hash.h"
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Why this is a compare-and-swap, on a file system whose answers may be late, lost, or given twice, and whose caches
 * may be old:
 * - Whoever replaces version N makes version N + 1. link(2) gives that name to one file, and fails if it is taken.
 * - A writer that takes an old N for the newest, since it was cut off or reads an old cache, finds N + 1 taken.
 * - A writer whose answer was lost reads N + 1: each content has a random name of its write in it.
 * - Old versions are removed, which makes their names free again. A version is removed only after all older ones, and
 *   only when FILE_LINK_KEPT newer ones are there. So after the link the writer looks: if N is still there, and fewer
 *   than FILE_LINK_KEPT are newer than N + 1, then N + 1 had never been removed before. */

#define TRIES 20                       /* to read the newest version before it is removed */
#define PAUSE_MOST (200 * NSEC_PER_MS) /* for a writer to remove its temporary name */
#define PAUSE (5 * NSEC_PER_MS)
#define OLD 16 /* versions that are removed at a time */
#define LAST UINT64_C(9999999999999999)

/* What is in the lock's directory. */
struct listing {
	uint64_t newest;   /* 0: none */
	uint64_t old[OLD]; /* the oldest, in order */
	int olds;
	char stranger[40]; /* the beginning of a name that is no version's; "" */
};

struct link_place {
	struct file_place outer;         /* where the lock's directory is */
	struct file_place inner;         /* the lock's directory; dir -1: there is none */
	char name[FILE_LINK_DIGITS + 1]; /* inner.name */
};

/* ---- the directory ---- */

static void point_at_version(struct link_place *p, uint64_t number)
{
	snprintf(p->name, sizeof p->name, "%0*" PRIu64, FILE_LINK_DIGITS, number % (LAST + 1));
	p->inner.name = p->name;
}

static void close_inner(struct link_place *p)
{
	if (p->inner.dir >= 0)
		close(p->inner.dir);
	p->inner.dir = -1;
}

static void leave_place(struct link_place *p)
{
	close_inner(p);
	close(p->outer.dir);
}

/* By its name and not through a descriptor that is open: opening is when a client of NFS asks the server what is new
 * (nfs(5), close-to-open). 0: it is open, or not there (dir -1). */
static int open_inner(struct file_op *o, struct link_place *p)
{
	close_inner(p);
	p->inner.dir = openat(p->outer.dir, p->outer.name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (p->inner.dir < 0 && errno == ENOENT)
		return 0;
	if (p->inner.dir < 0 && (errno == ENOTDIR || errno == ELOOP)) {
		o->outcome = LOCK_FOREIGN;
		return err_set(
			&o->err, ERR_FOREIGN,
			"%s is no directory, as a lock with ?shared=link is. It is not overwritten: if it is the record of a lock that "
			"was named without ?shared=link, stop all of its candidates and remove it; else choose another path",
			o->path);
	}
	if (p->inner.dir >= 0 && fstat(p->inner.dir, &p->inner.dir_stat) == 0)
		return 0;
	err_sys(&o->err, "cannot use the directory %s, which is the lock", o->path);
	close_inner(p);
	file_op_fail(o);
	return -1;
}

/* Makes the directory, with the rights of the one that it is in, as a record has them. */
static int make_inner(struct file_op *o, struct link_place *p)
{
	mode_t record = file_op_mode(&p->outer.dir_stat), mode = record | (record & 0444) >> 2;

	if (mkdirat(p->outer.dir, p->outer.name, mode) < 0) {
		if (errno == EEXIST)
			return open_inner(o, p);
		err_sys(&o->err, "cannot make the directory %s, which is to be the lock", o->path);
		file_op_fail(o);
		return -1;
	}
	if (open_inner(o, p) < 0)
		return -1;
	const struct stat *st = &p->inner.dir_stat;
	uid_t owner = file_op_owner(&p->outer.dir_stat);
	/* What we may not give stays ours. */
	if (p->inner.dir >= 0 && fchown(p->inner.dir, owner, p->outer.dir_stat.st_gid) < 0)
		mode &= ~(mode_t)020;
	if (p->inner.dir >= 0 && mode != (st->st_mode & 0777) &&
	    fchmod(p->inner.dir, mode | (st->st_mode & S_ISGID)) == 0)
		fstat(p->inner.dir, &p->inner.dir_stat);
	return 0;
}

/* ---- what is in it ---- */

static uint64_t number_of(const char *name)
{
	char *end;

	if (strspn(name, "0123456789") != FILE_LINK_DIGITS || name[FILE_LINK_DIGITS])
		return 0;
	uint64_t n = strtoull(name, &end, 10);
	return n < LAST ? n : 0;
}

static void keep_oldest(struct listing *l, uint64_t n)
{
	if (l->olds == OLD && l->old[OLD - 1] < n)
		return;
	int at = l->olds < OLD ? l->olds++ : OLD - 1;
	for (; at > 0 && l->old[at - 1] > n; at--)
		l->old[at] = l->old[at - 1];
	l->old[at] = n;
}

static bool list_name(void *arg, const char *name)
{
	struct listing *l = arg;
	uint64_t n = number_of(name);

	/* Temporary files, and what a client of NFS makes of those that are removed while they are open. */
	if (*name == '.')
		return true;
	if (!n) {
		snprintf(l->stranger, sizeof l->stranger, "%s", name);
		return true;
	}
	keep_oldest(l, n);
	l->newest = n > l->newest ? n : l->newest;
	return true;
}

/* Opens the directory anew and lists it. */
static int list_versions(struct file_op *o, struct link_place *p, struct listing *l)
{
	*l = (struct listing){ 0 };
	if (open_inner(o, p) < 0)
		return -1;
	if (p->inner.dir < 0 || proc_each(p->inner.dir, list_name, l) == 0 || errno == ENOENT)
		return 0;
	err_sys(&o->err, "cannot list the directory %s, which is the lock", o->path);
	file_op_fail(o);
	return -1;
}

/* NUMBER-HASH-LENGTH. The number alone would do, if nobody ever edited a record or put an old one back by hand. */
static void print_version(struct version *v, uint64_t number, uint64_t hash, size_t len)
{
	snprintf(v->text, sizeof v->text, "%" PRIu64 "-%016" PRIx64 "-%zx", number, hash, len);
}

/* Waits until the writer of the version that p points at has removed its temporary name of that file. Who opens the
 * file before that would hold the writer up (see version_may_go). Does not wait long: if the writer is dead its
 * temporary name stays. */
static void let_writer_finish(struct file_op *o, const struct link_place *p)
{
	nsec eighth = instant_until(o->by, clock_now()) / 8, most = eighth < PAUSE_MOST ? eighth : PAUSE_MOST;
	struct timespec pause = { .tv_nsec = PAUSE };
	struct statx st;

	for (nsec waited = 0; waited + PAUSE <= most; waited += PAUSE) {
		if (statx(p->inner.dir, p->name, AT_SYMLINK_NOFOLLOW | AT_STATX_FORCE_SYNC, STATX_NLINK, &st) < 0 ||
		    st.stx_nlink < 2)
			return;
		nanosleep(&pause, NULL);
	}
}

/* The version that p points at; "" with LOCK_ABSENT, or another outcome. */
static void find_version(struct file_op *o, struct link_place *p, uint64_t number, struct version *v)
{
	struct stat st;
	size_t len;

	*v = (struct version){ "" };
	point_at_version(p, number);
	o->outcome = LOCK_ABSENT;
	int fd = p->inner.dir < 0 ? -1 : file_op_open_record(o, &p->inner, &st);
	if (fd < 0)
		return;
	o->outcome = LOCK_OK;
	uint64_t hash = file_op_hash_file(o, fd, (size_t)st.st_size, &len);
	if (o->outcome == LOCK_OK)
		print_version(v, number, hash, len);
	close(fd);
}

/* ---- reading ---- */

static void read_version(struct file_op *o, struct link_place *p, uint64_t number)
{
	struct stat st;

	point_at_version(p, number);
	let_writer_finish(o, p);
	int fd = file_op_open_record(o, &p->inner, &st);
	if (fd < 0)
		return;
	file_op_read_content(o, fd, &st);
	if (o->outcome == LOCK_OK)
		print_version(&o->version, number, o->hash, o->len);
	close(fd);
}

static void refuse_stranger(struct file_op *o, const struct listing *l)
{
	char what[120], plain[40];
	size_t n = 0;

	for (; n < sizeof plain - 1 && l->stranger[n]; n++)
		plain[n] = l->stranger[n] > ' ' && l->stranger[n] < 0x7f ? l->stranger[n] : '?';
	plain[n] = '\0';
	snprintf(what, sizeof what, "is a directory with something else in it (%s)", plain);
	file_op_foreign(o, what);
}

static void read_newest(struct file_op *o, struct link_place *p)
{
	struct listing l;

	for (int tries = 0; tries < TRIES && !file_op_too_late(o); tries++) {
		if (list_versions(o, p, &l) < 0)
			return;
		if (*l.stranger) {
			refuse_stranger(o, &l);
			return;
		}
		o->outcome = LOCK_ABSENT;
		if (l.newest)
			read_version(o, p, l.newest);
		if (!l.newest || o->outcome != LOCK_ABSENT)
			return;
	}
	err_set(&o->err, ERR_TIMEOUT, "the record %s could not be read: each version was gone before it was opened",
	        o->path);
	file_op_fail(o);
}

void file_link_read(struct file_op *o)
{
	struct link_place p = { .inner.dir = -1 };

	if (file_op_open_place(o, &p.outer) < 0)
		return;
	read_newest(o, &p);
	leave_place(&p);
}

/* ---- writing ---- */

/* Leaves LOCK_OK if the newest version is the expected one, or there is none as expected. */
static void compare_newest(struct file_op *o, struct link_place *p, struct listing *l)
{
	struct version found = { "" };

	if (list_versions(o, p, l) < 0) {
		o->outcome = o->outcome == LOCK_FOREIGN ? LOCK_CONFLICT
		                                        : o->outcome; /* the read that follows says what it is */
		return;
	}
	o->outcome = LOCK_OK;
	if (l->newest)
		find_version(o, p, l->newest, &found);
	if (o->outcome == LOCK_FAILED || o->outcome == LOCK_REFUSED)
		return;
	bool good = o->outcome == LOCK_OK && !*l->stranger && strcmp(found.text, o->expected.text) == 0;
	o->outcome = good ? LOCK_OK : LOCK_CONFLICT;
}

/* By the server's clock, which dates all versions. 0: it cannot be told. */
static time_t version_made_at(struct link_place *p, uint64_t number)
{
	struct stat st;

	point_at_version(p, number);
	return fstatat(p->inner.dir, p->name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_mtime : 0;
}

/* A server that gave a client a delegation of a file (RFC 8881, 10.2) holds up whoever removes that file until the
 * client gives it back, and the removing client's whole directory waits. From a client that was cut off it comes back
 * only when the server's lease expires, and no leader could write so long. A client gives back by itself what it has
 * not used for two thirds of that lease or so (Linux: twice that), and a version is read only while it is among the
 * newest: so old ones are nobody's any more. */
static bool version_may_go(struct link_place *p, const struct listing *l, uint64_t number, time_t newest)
{
	if (l->newest - number < FILE_LINK_KEPT)
		return false;
	return l->newest - number >= FILE_LINK_MOST || newest - version_made_at(p, number) >= FILE_LINK_YOUNG_S;
}

/* The oldest first, up to one that cannot be removed or may not go yet. That some stay does no harm. */
static void remove_old(struct file_op *o, struct link_place *p, const struct listing *l)
{
	time_t newest = l->newest ? version_made_at(p, l->newest) : 0;

	for (int i = 0; i < l->olds && !file_op_too_late(o) && version_may_go(p, l, l->old[i], newest); i++) {
		point_at_version(p, l->old[i]);
		if (unlinkat(p->inner.dir, p->name, 0) < 0 && errno != ENOENT)
			return;
	}
}

static bool errno_means_not_done(int code)
{
	static const int codes[] = {
		EPERM, EACCES, EROFS, ENOSPC, EDQUOT, EMLINK, EOPNOTSUPP, ENOSYS, ENOENT, ENOTDIR
	};

	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		if (codes[i] == code)
			return true;
	return false;
}

/* link(2) failed with this errno, and there is nothing to see of it: nothing was done. */
static void link_not_done(struct file_op *o, int code)
{
	errno = code;
	err_sys(&o->err, "cannot replace the record %s: link(2), which the file system must have, fails", o->path);
	file_op_fail(o);
}

static void link_unsure(struct file_op *o, int code)
{
	o->outcome = LOCK_UNKNOWN;
	errno = code;
	if (code)
		err_sys(&o->err, "link(2) did not say whether it replaced the record %s", o->path);
	else
		err_set(&o->err, ERR_SYSTEM,
		        "the record %s was replaced, but what replaced it was not found to be the newest", o->path);
}

/* Looks whether the link was made, whatever link(2) said. code: 0, or the errno of link(2). */
static void settle_link(struct file_op *o, struct link_place *p, uint64_t number, int code)
{
	struct version there = { "" }, before = { "" };
	size_t len = strlen(o->text);
	struct listing l;

	print_version(&o->version, number, hash_bytes(HASH_SEED, o->text, len), len);
	if (list_versions(o, p, &l) < 0) {
		link_unsure(o, code);
		return;
	}
	if (number > 1)
		find_version(o, p, number - 1, &before);
	find_version(o, p, number, &there);
	bool ours = strcmp(there.text, o->version.text) == 0,
	     kept = number == 1 || strcmp(before.text, o->expected.text) == 0;
	if (ours && kept && l.newest >= number && l.newest - number < FILE_LINK_KEPT)
		o->outcome = LOCK_OK;
	else if (*there.text && !ours)
		o->outcome = LOCK_CONFLICT;
	else if (o->outcome == LOCK_ABSENT && errno_means_not_done(code))
		link_not_done(o, code);
	else
		link_unsure(o, code);
}

static void link_temp(struct file_op *o, struct link_place *p, uint64_t number)
{
	if (file_op_in_time(o) < 0) {
		file_op_drop_temp(o, &p->inner);
		return;
	}
	point_at_version(p, number);
	int code = linkat(p->inner.dir, o->temp, p->inner.dir, p->name, 0) == 0 ? 0 : errno;
	file_op_drop_temp(o, &p->inner);
	settle_link(o, p, number, code);
}

static void add_version(struct file_op *o, struct link_place *p, const struct listing *l)
{
	bool made = p->inner.dir < 0;
	uint64_t number = l->newest + 1;

	if (file_op_keep_out(o, &p->outer) < 0)
		return;
	if (made && (make_inner(o, p) < 0 || p->inner.dir < 0)) {
		o->outcome = p->inner.dir < 0 && o->outcome == LOCK_OK ? LOCK_CONFLICT : o->outcome; /* gone again */
		return;
	}
	if (o->clean)
		file_op_clean(o, &p->inner);
	remove_old(o, p, l);
	point_at_version(p, l->newest); /* whose rights the new one gets */
	if (file_op_make_temp(o, &p->inner) < 0)
		return;
	link_temp(o, p, number);
	if (o->outcome != LOCK_OK || !o->durable || o->in_memory)
		return;
	file_op_sync_dir(o, &p->inner);
	if (made || number == 1)
		file_op_sync_dir(o, &p->outer);
}

/* All versions, the oldest first, so that nobody meets an older one as the newest. */
static void remove_all(struct file_op *o, struct link_place *p, struct listing *l)
{
	while (l->newest && !file_op_too_late(o)) {
		for (int i = 0; i < l->olds; i++) {
			point_at_version(p, l->old[i]);
			if (unlinkat(p->inner.dir, p->name, 0) < 0 && errno != ENOENT) {
				err_sys(&o->err, "cannot remove %s", o->path);
				file_op_fail(o);
				return;
			}
		}
		if (list_versions(o, p, l) < 0)
			return;
	}
	if (o->spelt)
		unlinkat(p->outer.dir, o->spelt, AT_REMOVEDIR);
	/* If others' temporary files are in it, it stays, empty of versions. */
	unlinkat(p->outer.dir, p->outer.name, AT_REMOVEDIR);
}

void file_link_write(struct file_op *o)
{
	struct link_place p = { .inner.dir = -1 };
	struct listing l;

	if (file_op_open_place(o, &p.outer) < 0)
		return;
	compare_newest(o, &p, &l);
	if (o->outcome == LOCK_OK && o->text)
		add_version(o, &p, &l);
	else if (o->outcome == LOCK_OK)
		remove_all(o, &p, &l);
	leave_place(&p);
}
