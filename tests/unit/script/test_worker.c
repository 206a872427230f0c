/* A worker and the guard that forked it: no script runs before its guard is ready to kill it. The worker is a child of
 * this test, which does what the guard does. What a worker does later is in tests/script. */
#include "process/deadline_page.h"
#include "script/worker.h"
#include "tap.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Its stdout. */
static int said;

static char state_of(pid_t pid)
{
	char path[64], text[512] = "";

	snprintf(path, sizeof path, "/proc/%d/stat", pid);
	FILE *f = fopen(path, "re");
	if (!f)
		return 'X';
	size_t n = fread(text, 1, sizeof text - 1, f);
	fclose(f);
	text[n] = '\0';
	char *name_end = strrchr(text, ')');
	return name_end ? name_end[2] : 'X';
}

/* Until it waits for something: a script that may run has run by then. */
static void await_sleep(pid_t pid)
{
	for (int asleep = 0; asleep < 20; usleep(5000)) {
		char state = state_of(pid);
		if (state == 'Z' || state == 'X')
			return;
		asleep = state == 'S' ? asleep + 1 : 0;
	}
}

/* go: where the worker is told to go on. */
static pid_t start_worker(const char *script, int *go)
{
	int page_fd[PAGE_FILES], wire[2], pipe_go[2], out[2];
	char number[3][12];
	struct err err;

	struct page *page = page_new(PAGE_SLOTS, page_fd, &err);
	if (!page || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, wire) < 0 || pipe(pipe_go) < 0 || pipe(out) < 0)
		abort();
	page_unmap(page);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		snprintf(number[0], sizeof *number, "%d", wire[1]);
		snprintf(number[1], sizeof *number, "%d", page_fd[PAGE_DEADLINES]);
		snprintf(number[2], sizeof *number, "%d", page_fd[PAGE_MARKS]);
		char *argv[] = { number[0], number[1], number[2], "text", "info", "", "eval", (char *)script, NULL };
		dup2(out[1], STDOUT_FILENO);
		close(pipe_go[1]);
		close(wire[0]);
		_exit(worker_main(8, argv, pipe_go[0]));
	}
	close(out[1]);
	close(wire[1]);
	close(pipe_go[0]);
	for (int i = 0; i < PAGE_FILES; i++)
		close(page_fd[i]);
	said = out[0];
	*go = pipe_go[1];
	return pid;
}

/* The next that it says, which is waited for; "": it says nothing any more. */
static bool says(const char *text)
{
	char got[64] = "";
	ssize_t n = read(said, got, sizeof got - 1);

	return n >= 0 && strcmp(got, text) == 0;
}

static bool has_said(void)
{
	fd_set set;
	struct timeval now = { 0 };

	FD_ZERO(&set);
	FD_SET(said, &set);
	return select(said + 1, &set, NULL, NULL, &now) > 0;
}

#define SCRIPT "io.write('ran\\n') io.flush() return { on_leading = function() end }"

static void test_waits(void)
{
	int go;
	pid_t pid = start_worker(SCRIPT, &go);

	await_sleep(pid);
	ok(!has_said(), "a script does not run before the guard is ready to kill it");
	if (write(go, "", 1) != 1)
		abort();
	ok(says("ran\n"), "it runs when the guard is");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(go);
	close(said);
}

static void test_guard_dies(void)
{
	int go, status;
	pid_t pid = start_worker(SCRIPT, &go);

	await_sleep(pid);
	close(go);
	bool silent = says("");
	if (!silent)
		kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	ok(silent && WIFEXITED(status) && WEXITSTATUS(status) == 1,
	   "a worker whose guard has died before that ends, and its script does not run");
	close(said);
}

int main(void)
{
	alarm(600); /* what hangs has failed */
	test_waits();
	test_guard_dies();
	return tap_done();
}
