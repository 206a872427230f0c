#include "process/sources.h"

#include "base/hash.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Why no lock is needed, which a stopped worker could hold for ever. Who appends takes space of its own, behind all
 * that others have taken, and writes there what nobody else reads yet. Then one compare-and-swap of `last` puts it at
 * the head of a list that goes from the newest text to the oldest. It fails if another worker was faster: then the list
 * is read again, since that one may have kept a text of the same name. A worker that is killed before the swap leaves a
 * hole that nothing points to, and which counts for nothing.
 *
 * `last` and `end` are mapped, all else is read and written as a file: then there is an error where there is no memory,
 * and no signal. */

#define MAGIC 0x3143534cu /* "LSC1" */
#define SEALS (F_SEAL_SHRINK | F_SEAL_SEAL)

struct sources_head {
	uint32_t magic, unused;
	_Atomic uint64_t last; /* where the newest entry is; 0: there is none */
	_Atomic uint64_t end;  /* all behind it is free */
};

struct sources_entry {   /* its name and its text follow it */
	uint64_t before; /* the entry that was the newest before this one; 0: this is the first */
	uint64_t hash;   /* of the name */
	uint32_t name_len, text_len;
};

struct sources {
	int fd;
	struct sources_head *head;
};

/* A name that is looked for, and what was found. */
struct sources_search {
	const char *name;
	size_t len;
	uint64_t hash;
	uint64_t last;  /* the newest entry of those that were looked at */
	uint64_t total; /* bytes of all of them */
	uint64_t at;    /* the newest one of that name; 0: there is none */
	struct sources_entry entry;
};

int sources_new(struct err *err)
{
	const struct sources_head head = { .magic = MAGIC, .end = sizeof head };
	int fd = memfd_create("lunarch-sources", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd >= 0 && pwrite(fd, &head, sizeof head, 0) == (ssize_t)sizeof head && fcntl(fd, F_ADD_SEALS, SEALS) == 0)
		return fd;
	err_sys(err, "cannot make the file in memory that keeps a script's sources");
	if (fd >= 0)
		close(fd);
	return -1;
}

/* Sealed, or else somebody could shrink it under us, and reading `last` would be SIGBUS. */
static bool is_sources(int fd)
{
	uint32_t magic;
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & SEALS) == SEALS && fstat(fd, &st) == 0 &&
	       st.st_size >= (off_t)sizeof(struct sources_head) &&
	       pread(fd, &magic, sizeof magic, 0) == (ssize_t)sizeof magic && magic == MAGIC;
}

struct sources *sources_open(int fd, struct err *err)
{
	struct sources_head *head = MAP_FAILED;

	if (!is_sources(fd) || fcntl(fd, F_SETFD, FD_CLOEXEC) < 0)
		err_set(err, ERR_INVALID, "descriptor %d does not keep a script's sources", fd);
	else if ((head = mmap(NULL, sizeof *head, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)) == MAP_FAILED)
		err_sys(err, "cannot map what keeps a script's sources");
	if (head == MAP_FAILED) {
		close(fd);
		return NULL;
	}
	struct sources *s = mem_zero(sizeof *s);
	*s = (struct sources){ .fd = fd, .head = head };
	return s;
}

void sources_close(struct sources *s)
{
	if (!s)
		return;
	munmap(s->head, sizeof *s->head);
	close(s->fd);
	free(s);
}

/* ---- reading ---- */

static int sources_damaged(struct err *err)
{
	return err_set(err, ERR_INVALID, "what is kept of this script's sources is damaged: reload it (SIGHUP)");
}

static int sources_read(const struct sources *s, void *to, size_t len, uint64_t at, struct err *err)
{
	ssize_t n;

	for (char *bytes = to; len; bytes += n, at += (uint64_t)n, len -= (size_t)n) {
		do
			n = pread(s->fd, bytes, len, (off_t)at);
		while (n < 0 && errno == EINTR);
		if (n <= 0)
			return n < 0 ? err_sys(err, "cannot read what is kept of this script's sources")
			             : sources_damaged(err);
	}
	return 0;
}

static size_t entry_size(const struct sources_entry *e)
{
	return sizeof *e + e->name_len + e->text_len;
}

/* 1: it has the name that is looked for; 0: it has not; -1 with *err. */
static int search_compare(const struct sources *s, const struct sources_search *f, const struct sources_entry *e,
                          uint64_t at, struct err *err)
{
	char name[SOURCES_NAME_MAX];

	if (e->hash != f->hash || e->name_len != f->len)
		return 0;
	if (sources_read(s, name, f->len, at + sizeof *e, err) < 0)
		return -1;
	return memcmp(name, f->name, f->len) == 0;
}

/* Looks at the whole list, also to learn its size. The bound on the size ends the search if a script has written
 * nonsense there. */
static int sources_search(const struct sources *s, struct sources_search *f, struct err *err)
{
	struct sources_entry e;

	f->last = s->head->last;
	f->total = f->at = 0;
	for (uint64_t at = f->last; at; at = e.before) {
		if (sources_read(s, &e, sizeof e, at, err) < 0)
			return -1;
		f->total += entry_size(&e);
		if (e.name_len > SOURCES_NAME_MAX || e.text_len > SOURCES_TEXT_MAX || f->total > SOURCES_MAX)
			return sources_damaged(err);
		int same = f->at ? 0 : search_compare(s, f, &e, at, err);
		if (same < 0)
			return -1;
		if (same) {
			f->at = at;
			f->entry = e;
		}
	}
	return 0;
}

static int search_begin(struct sources_search *f, const char *name, struct err *err)
{
	size_t len = strlen(name);

	*f = (struct sources_search){ .name = name, .len = len, .hash = hash_bytes(HASH_SEED, name, len) };
	return len <= SOURCES_NAME_MAX
	               ? 0
	               : err_set(err, ERR_INVALID, "a name of %zu bytes is too long: %.100s...", len, name);
}

static int search_take_text(const struct sources *s, const struct sources_search *f, struct buf *text, struct err *err)
{
	size_t len = f->entry.text_len;

	buf_fini(text);
	return sources_read(s, buf_more(text, len), len, f->at + sizeof f->entry + f->len, err);
}

int sources_find(const struct sources *s, const char *name, struct buf *text, struct err *err)
{
	struct sources_search f;

	if (search_begin(&f, name, err) < 0 || sources_search(s, &f, err) < 0)
		return -1;
	if (!f.at)
		return 0;
	return search_take_text(s, &f, text, err) < 0 ? -1 : 1;
}

/* ---- keeping ---- */

static int sources_write(const struct sources *s, const void *from, size_t len, uint64_t at, struct err *err)
{
	ssize_t n;

	for (const char *bytes = from; len; bytes += n, at += (uint64_t)n, len -= (size_t)n) {
		do
			n = pwrite(s->fd, bytes, len, (off_t)at);
		while (n < 0 && errno == EINTR);
		if (n <= 0)
			return err_sys(err, "cannot keep a script's sources");
	}
	return 0;
}

/* Takes space for it, and writes all of it but `before`. Where it is; 0 with *err. */
static uint64_t sources_append(struct sources *s, const struct sources_search *f, const struct sources_entry *e,
                               const struct buf *text, struct err *err)
{
	uint64_t at = atomic_fetch_add(&s->head->end, (entry_size(e) + 7) / 8 * 8);

	if (sources_write(s, f->name, f->len, at + sizeof *e, err) < 0 ||
	    sources_write(s, text->data, text->len, at + sizeof *e + f->len, err) < 0)
		return 0;
	return at;
}

/* It is not needed after all: gives its memory back. */
static void sources_drop(struct sources *s, uint64_t at, const struct sources_entry *e)
{
	if (at)
		fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)at, (off_t)entry_size(e));
}

/* 1: it is in the list; 0: another one has come before it; -1 with *err. */
static int sources_publish(struct sources *s, struct sources_entry *e, uint64_t at, uint64_t last, struct err *err)
{
	e->before = last;
	if (sources_write(s, e, sizeof *e, at, err) < 0)
		return -1;
	return atomic_compare_exchange_strong(&s->head->last, &last, at);
}

/* A newer one of its name stands before it in the list: its text is not needed any longer. */
static void sources_forget(struct sources *s, const struct sources_search *f)
{
	struct sources_entry e = f->entry;
	struct err err;

	if (!f->at)
		return;
	e.text_len = 0;
	if (sources_write(s, &e, sizeof e, f->at, &err) == 0)
		fallocate(s->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)(f->at + entry_size(&e)),
		          (off_t)f->entry.text_len);
}

static int sources_put(struct sources *s, const char *name, struct buf *text, bool replace, struct err *err)
{
	struct sources_search f;
	uint64_t at = 0;
	int done = 0;

	if (search_begin(&f, name, err) < 0)
		return -1;
	if (text->len > SOURCES_TEXT_MAX)
		return err_set(err, ERR_INVALID, "it is larger than %d MB", SOURCES_TEXT_MAX >> 20);
	struct sources_entry e = { .hash = f.hash, .name_len = (uint32_t)f.len, .text_len = (uint32_t)text->len };
	while (!done) {
		if (sources_search(s, &f, err) < 0)
			done = -1;
		else if (!replace && f.at && (f.entry.text_len || !text->len))
			break;
		else if (f.total + entry_size(&e) > SOURCES_MAX)
			done = err_set(err, ERR_FULL,
			               "all that this script has read of its files is larger than %d MB, which is "
			               "what is kept of them",
			               SOURCES_MAX >> 20);
		else if (!at && !(at = sources_append(s, &f, &e, text, err)))
			done = -1;
		else
			done = sources_publish(s, &e, at, f.last, err);
	}
	if (done > 0) {
		if (replace)
			sources_forget(s, &f);
		return 0;
	}
	sources_drop(s, at, &e);
	return done < 0 ? -1 : search_take_text(s, &f, text, err);
}

int sources_keep(struct sources *s, const char *name, struct buf *text, struct err *err)
{
	return sources_put(s, name, text, false, err);
}

int sources_replace(struct sources *s, const char *name, struct buf *text, struct err *err)
{
	return sources_put(s, name, text, true, err);
}
