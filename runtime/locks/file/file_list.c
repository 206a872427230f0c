#include "locks/file/file_list.h"

#include "base/proc.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct file_search {
	struct file_op *op;
	struct lock_listing *out;
	int dir;
	const char *prefix;
	size_t len;
};

/* As locks are here: files that are not empty (those beside records are), or directories. */
static bool file_may_be_record(const struct file_search *s, const char *name)
{
	struct stat st;

	if (fstatat(s->dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	return s->op->shared ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode) && st.st_size > 0;
}

static bool file_search_entry(void *arg, const char *name)
{
	const struct file_search *s = arg;

	if (file_op_too_late(s->op))
		return false;
	if (strncmp(name, s->prefix, s->len) != 0 || *name == '.' || strchr(name, '?') || !file_may_be_record(s, name))
		return true;
	return lock_listing_add(s->out, name + s->len, NULL);
}

void file_list(struct file_op *o, struct lock_listing *out)
{
	struct file_place p;

	if (file_op_open_place(o, &p) < 0)
		return;
	struct file_search s = { .op = o, .out = out, .prefix = p.name, .len = lock_listing_prefix(p.name) };
	s.dir = openat(p.dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s.dir < 0 || proc_each(s.dir, file_search_entry, &s) < 0)
		err_sys(&o->err, "cannot list the directory of %s", o->path);
	else if (file_op_too_late(o))
		err_set(&o->err, ERR_TIMEOUT, "there was no time left to list the directory of %s", o->path);
	if (o->err.code != ERR_NONE)
		file_op_fail(o);
	if (s.dir >= 0)
		close(s.dir);
	close(p.dir);
}
