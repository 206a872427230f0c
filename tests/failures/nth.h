/* What the programs that let the n-th allocation or system call fail share with the test that starts them: a file of
 * 64-bit words, mapped by all. Not how a call is made to fail: alloc.c and inject.c do that. Used by them;
 * tests/lib/nth.py has the same numbers. */
#pragma once

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum nth_role { OTHER, ELECTOR, GUARD, WORKER, LAUNCHED, DRIVER, SPAWNED, ROLES };

#define WHATS 512 /* system calls by number; or OWN and LIBRARY */
#define SITES 16384
enum nth_crash { CRASH_NONE, CRASH_THERE, CRASH_OURS };

struct nth {
	uint64_t role, what, n, error; /* what is to fail: in that role the n-th (0: none), with that errno */
	uint64_t own_begin, own_end;   /* alloc: where in the program the code is that is not a library's */
	uint64_t fired, at, pid;       /* how often it has failed; at: who called (alloc), or the first argument */
	uint64_t rest;                 /* 1: those after the n-th fail, too */
	uint64_t crash;                /* alloc: a library crashed (CRASH_THERE), or our code (CRASH_OURS) */
	uint64_t unused[53];
	uint64_t counts[ROLES][WHATS];
	uint64_t sites[ROLES][2][SITES]; /* alloc: who made each of them */
};

static inline struct nth *nth_map(const char *path)
{
	int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

	if (fd < 0)
		return NULL;
	void *p = mmap(NULL, sizeof(struct nth), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

/* After an execve: by its arguments. */
static inline enum nth_role nth_role_of(const char *pid)
{
	char path[64], line[64] = "";

	snprintf(path, sizeof path, "/proc/%s/cmdline", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return OTHER;
	ssize_t n = read(fd, line, sizeof line - 1);
	close(fd);
	if (n <= 0)
		return OTHER;
	const char *first = line + strlen(line) + 1, *name = strrchr(line, '/') ? strrchr(line, '/') + 1 : line;
	if (strcmp(name, "lunarch") != 0 || first >= line + n)
		return OTHER;
	if (strcmp(first, "-x") != 0)
		return strcmp(first, "run") == 0 || strcmp(first, "exec") == 0 ? ELECTOR : OTHER;
	const char *role = first + strlen(first) + 1;
	return strcmp(role, "guard") == 0 ? GUARD : strcmp(role, "driver") == 0 ? DRIVER : OTHER;
}

/* Counts one, and says whether it is the one that is to fail. Threads may come together. */
static inline int nth_is_now(struct nth *t, enum nth_role role, uint64_t what)
{
	uint64_t n = __atomic_add_fetch(&t->counts[role][what], 1, __ATOMIC_RELAXED);

	return t->n && t->role == role && t->what == what && (n == t->n || (t->rest && n > t->n));
}

static inline void nth_fired(struct nth *t, uint64_t at, uint64_t pid)
{
	if (__atomic_add_fetch(&t->fired, 1, __ATOMIC_RELAXED) > 1)
		return;
	t->at = at;
	t->pid = pid;
}
