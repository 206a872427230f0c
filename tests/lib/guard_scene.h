/* A guard in a process of its own, whose supervisor is the test: it sends orders and reads notes.
 * Not how the elector starts a guard, nor what it makes of the notes: supervisor.c.
 * Used by tests/unit/process/test_guard.c and test_guard_orders.c. */
#pragma once

#include "election/death_proof.h"
#include "process/deadline_page.h"
#include "process/guard.h"
#include "process/guard_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 60.
#endif

/* LeakSanitizer wants descriptors and a process, of which some guards here have none left. A guard has no heap. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_leaks=0";
}

static struct page *page;
static int page_fd[PAGE_FILES];

struct scene {
	const char *kind;     /* worker, command, held */
	char **command;       /* not for a worker */
	guard_worker *worker; /* of a worker */
	void (*before)(void); /* in the guard's process, before it begins */
	uint32_t slots;       /* of its page, if not PAGE_SLOTS */
	bool says;            /* what it writes to standard error is in `said` */
	int control, elector; /* our ends */
	int theirs;           /* a copy of the guard's end of control */
	int error;            /* the end of standard error that is ours */
	pid_t pid;
	char said[2000];
};

/* Descriptors one after another from 3 on: so that a limit leaves none between. */
static int compact(const int *from, int n)
{
	int high[8];

	for (int i = 0; i < n; i++)
		high[i] = fcntl(from[i], F_DUPFD, 100);
	for (int i = 0; i < n; i++)
		dup2(high[i], 3 + i);
	close_range((unsigned)(3 + n), ~0U, 0);
	return 3 + n;
}

__attribute__((noreturn)) static void be_guard(struct scene *s, int control, int elector, int error)
{
	char text[5][12], *argv[20] = { text[0], "-1", text[1], text[2], "-1", "-1", text[3], (char *)s->kind };
	int n = 8, fds[4] = { control, page_fd[PAGE_DEADLINES], page_fd[PAGE_MARKS], elector };
	sigset_t all;

	if (s->says)
		dup2(error, STDERR_FILENO);
	compact(fds, 4);
	for (int i = 0; i < 4; i++)
		snprintf(text[i], sizeof text[i], "%d", 3 + i);
	for (char **c = s->command; c && *c; c++)
		argv[n++] = *c;
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, NULL);
	if (s->before)
		s->before();
	exit(guard_main(n, argv, s->worker));
}

static void scene_start(struct scene *s)
{
	int control[2], elector[2], error[2];
	struct err err;

	page = page_new(s->slots ? s->slots : PAGE_SLOTS, page_fd, &err);
	if (!page || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, control) < 0 ||
	    pipe2(elector, O_CLOEXEC) < 0 || pipe2(error, O_CLOEXEC) < 0)
		printf("Bail out! %s\n", strerror(errno)), exit(1);
	fflush(stdout);
	s->pid = fork();
	if (s->pid == 0)
		be_guard(s, control[1], elector[0], error[1]);
	s->control = control[0];
	s->theirs = control[1];
	s->elector = elector[1];
	s->error = error[0];
	close(elector[0]);
	close(error[1]);
}

/* The next note, or one of type 0: the guard has closed, or sends none. */
static struct guard_note scene_note(struct scene *s)
{
	struct guard_note n = { 0 };
	struct pollfd p = { .fd = s->control, .events = POLLIN };

	if (s->theirs >= 0)
		close(s->theirs);
	s->theirs = -1;
	if (poll(&p, 1, (int)(PATIENCE_S * 1000)) != 1)
		return n;
	ssize_t len = recv(s->control, &n, sizeof n, 0);
	/* A guard that ends with an unread order: the kernel tells that first, once, and then what it had sent. */
	if (len < 0 && errno == ECONNRESET)
		len = recv(s->control, &n, sizeof n, 0);
	if (len != (ssize_t)sizeof n)
		n.type = 0;
	return n;
}

__attribute__((unused)) static void scene_order(struct scene *s, struct guard_order o)
{
	if (send(s->control, &o, sizeof o, MSG_NOSIGNAL) < 0)
		printf("# order %u: %s\n", o.type, strerror(errno));
}

/* Its exit status; -1: a signal ended it. */
static int scene_end(struct scene *s)
{
	int status;

	waitpid(s->pid, &status, 0);
	ssize_t n = s->says ? read(s->error, s->said, sizeof s->said - 1) : 0;
	s->said[n > 0 ? n : 0] = '\0';
	s->said[strcspn(s->said, "\n")] = '\0';
	close(s->control);
	if (s->theirs >= 0)
		close(s->theirs);
	close(s->elector);
	close(s->error);
	page_unmap(page);
	for (int i = 0; i < PAGE_FILES; i++)
		close(page_fd[i]);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

__attribute__((unused)) static char *sleeper[] = { "sleep", "1000", NULL };

#define JUNK 4711

/* Fills what waits for us, as if the elector did not read. */
__attribute__((unused)) static int fill(const struct scene *s)
{
	struct guard_note junk = { .value = JUNK };
	int n = 0;

	while (send(s->theirs, &junk, sizeof junk, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		n++;
	return n;
}

/* How many processes have this in their environment. */
__attribute__((unused)) static int count_marked(const char *mark)
{
	char command[200];
	int n = -1;

	snprintf(command, sizeof command, "grep -lzsx '%s' /proc/[0-9]*/environ | wc -l", mark);
	FILE *f = popen(command, "re");
	if (f && fscanf(f, "%d", &n) != 1)
		n = -1;
	if (f)
		pclose(f);
	return n;
}
