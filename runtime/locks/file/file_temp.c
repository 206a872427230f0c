#include "locks/file/file_temp.h"

#include "base/proc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void file_temp_tag_init(struct file_temp_tag *t)
{
	char boot[37];
	struct proc_stat s = { 0 };

	*t = (struct file_temp_tag){ .pid_namespace = proc_pid_namespace(), .pid = (uint64_t)getpid() };
	proc_boot_id(boot);
	snprintf(t->boot, sizeof t->boot, "%.8s%.4s%.4s", boot, *boot ? boot + 9 : "", *boot ? boot + 14 : "");
	if (proc_stat(t->pid, &s) == 0)
		t->start = s.start;
}

void file_temp_tag_print(const struct file_temp_tag *t, char *out, size_t size)
{
	snprintf(out, size, "%s-%" PRIu64 "-%" PRIu64 "-%" PRIu64, t->boot, t->pid_namespace, t->pid, t->start);
}

void file_temp_prefix(const struct file_temp_tag *t, const char *name, unsigned lock, char *out, size_t size)
{
	char tag[FILE_TEMP_TAG];

	file_temp_tag_print(t, tag, sizeof tag);
	snprintf(out, size, ".%s.%s-%u-", name, tag, lock);
}

/* The tag in a name of exactly the form that file_temp_prefix and a number and ".tmp" make. */
static bool read_tag(const char *name, struct file_temp_tag *t)
{
	char again[400];
	unsigned lock, serial;
	const char *dot = NULL, *end = strrchr(name, '.');

	if (*name != '.' || !end || strcmp(end, ".tmp") != 0)
		return false;
	for (const char *p = name; p < end; p++)
		if (*p == '.')
			dot = p;
	*t = (struct file_temp_tag){ 0 };
	if (!dot || dot == name ||
	    sscanf(dot, ".%16[0-9a-f]-%" SCNu64 "-%" SCNu64 "-%" SCNu64 "-%u-%u.tmp", t->boot, &t->pid_namespace,
	           &t->pid, &t->start, &lock, &serial) != 6)
		return false;
	snprintf(again, sizeof again, ".%s-%" PRIu64 "-%" PRIu64 "-%" PRIu64 "-%u-%u.tmp", t->boot, t->pid_namespace,
	         t->pid, t->start, lock, serial);
	return strlen(t->boot) == 16 && strcmp(dot, again) == 0;
}

/* Whoever has the number now may be the owner: seen from another time namespace, a process began at another time. */
static bool owner_is_dead(const struct file_temp_tag *self, const struct file_temp_tag *of, bool local)
{
	if (strcmp(self->boot, of->boot) != 0)
		return local && *self->boot;
	if (!self->pid_namespace || self->pid_namespace != of->pid_namespace || !of->pid || of->pid > INT32_MAX)
		return false;
	return proc_gone(of->pid);
}

struct cleaning {
	const struct file_temp_tag *self;
	int dir;
	bool local;
	bool (*give_up)(void *arg);
	void *arg;
};

static bool clean_one(void *arg, const char *name)
{
	struct cleaning *c = arg;
	struct file_temp_tag t;

	if (read_tag(name, &t) && owner_is_dead(c->self, &t, c->local))
		unlinkat(c->dir, name, 0);
	return !c->give_up(c->arg);
}

void file_temp_clean(const struct file_temp_tag *t, int dir, bool local, bool (*give_up)(void *arg), void *arg)
{
	struct cleaning c = { .self = t, .dir = dir, .local = local, .give_up = give_up, .arg = arg };

	proc_each(dir, clean_one, &c);
}
