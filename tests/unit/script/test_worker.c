/* A worker and what it is given. By the guard that forked it: no script runs before its guard is ready to kill it. By
 * the elector: what an earlier worker has read, and that it leads. The worker is a child of this test, which does what
 * the guard does. What a worker does later is in tests/script. */
#include "base/buf.h"
#include "process/deadline_page.h"
#include "process/sources.h"
#include "process/wire.h"
#include "script/worker/worker.h"
#include "proc_look.h"
#include "tap.h"

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef PATIENCE_S
#define PATIENCE_S 60.
#endif

/* Its stdout, and the elector's ends of its socket and of its page. */
static int said, wire;
static struct page *page;

/* Until it waits for something: a script that may run has run by then. */
static void await_sleep(pid_t pid)
{
	for (int asleep = 0; asleep < 20; usleep(5000)) {
		char state = state_of(pid);
		if (state == 'Z' || !state)
			return;
		asleep = state == 'S' ? asleep + 1 : 0;
	}
}

/* kind: of the script, "eval" or "file". kept: its sources; -1: none. go: where the worker is told to go on. */
static pid_t start_worker(char *kind, char *script, int kept, int *go)
{
	int page_fd[PAGE_FILES], ends[2], pipe_go[2], out[2];
	char number[4][12];
	struct err err;

	page = page_new(PAGE_SLOTS, page_fd, &err);
	if (!page || socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) < 0 || pipe(pipe_go) < 0 || pipe(out) < 0)
		abort();
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		snprintf(number[0], sizeof *number, "%d", ends[1]);
		snprintf(number[1], sizeof *number, "%d", page_fd[PAGE_DEADLINES]);
		snprintf(number[2], sizeof *number, "%d", page_fd[PAGE_MARKS]);
		snprintf(number[3], sizeof *number, "%d", kept);
		char *argv[] = { number[0], number[1], number[2], number[3], "text", "info", "", kind, script, NULL };
		dup2(out[1], STDOUT_FILENO);
		close(pipe_go[1]);
		close(ends[0]);
		_exit(worker_main(9, argv, pipe_go[0]));
	}
	close(out[1]);
	close(ends[1]);
	wire = ends[0];
	close(pipe_go[0]);
	for (int i = 0; i < PAGE_FILES; i++)
		close(page_fd[i]);
	said = out[0];
	*go = pipe_go[1];
	return pid;
}

static void forget_worker(int go)
{
	close(go);
	close(said);
	close(wire);
	page_unmap(page);
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

static char script[] = "io.write('ran\\n') io.flush() return { on_leading = function() end }";

static void test_waits(void)
{
	int go;
	pid_t pid = start_worker("eval", script, -1, &go);

	await_sleep(pid);
	ok(!has_said(), "a script does not run before the guard is ready to kill it");
	if (write(go, "", 1) != 1)
		abort();
	ok(says("ran\n"), "it runs when the guard is");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	forget_worker(go);
}

static void test_guard_dies(void)
{
	int go, status;
	pid_t pid = start_worker("eval", script, -1, &go);

	await_sleep(pid);
	close(go);
	bool silent = says("");
	if (!silent)
		kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	ok(silent && WIFEXITED(status) && WEXITSTATUS(status) == 1,
	   "a worker whose guard has died before that ends, and its script does not run");
	forget_worker(-1);
}

/* And frees it. */
static void tell(struct buf *m)
{
	if (send(wire, m->data, m->len, 0) < 0)
		abort();
	buf_fini(m);
}

/* Passes over what comes before such a message. false: it does not come. */
static bool hears(enum wire_type type, char *bytes, size_t size, struct wire *w)
{
	struct pollfd p = { .fd = wire, .events = POLLIN };

	while (poll(&p, 1, (int)(PATIENCE_S * 1000)) == 1) {
		ssize_t n = recv(wire, bytes, size, 0);
		if (n <= 0)
			return false;
		if (wire_open(w, bytes, (size_t)n) == type)
			return true;
	}
	return false;
}

#define BUSY "return { on_leading = function() io.write('led\\n') io.flush() while true do end end }"

static void test_answers(void)
{
	static char bytes[WIRE_MAX];
	struct buf list = { 0 }, m = { 0 };
	struct wire_leads leads = { 0 };
	struct wire w;
	int go;
	pid_t pid = start_worker("eval", BUSY, -1, &go);

	if (write(go, "", 1) != 1 || !hears(WIRE_LOADED, bytes, sizeof bytes, &w))
		abort();
	wire_kept_put(&list, &(struct wire_kept){ .lock = "lock", .identity = "me" });
	const unsigned char *parts = (const unsigned char *)list.data;
	wire_go_put(&m,
	            &(struct wire_go){ .what = WIRE_GO_FIRST, .elections = { .at = parts, .end = parts + list.len } });
	tell(&m);
	buf_fini(&list);
	struct instant end = instant_add(clock_now(), 3600 * NSEC_PER_SEC);
	page_begin(page, 0, 7, 1, end, end);
	wire_lead_put(&m, &(struct wire_lead){ .term = 7, .token = 1, .address = "", .checkpoint = "" });
	tell(&m);
	bool answered = hears(WIRE_LEADS, bytes, sizeof bytes, &w) && wire_leads_get(&w, &leads);
	ok(answered && leads.slot == 0 && leads.term == 7, "told to lead, it answers that it does");
	ok(says("led\n"), "also if on_leading never lets it do anything else");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	forget_worker(go);
}

/* ---- what an earlier worker has read ---- */

static char dir[] = "/tmp/test-worker-XXXXXX";

static const char *in_dir(const char *name)
{
	static char path[64];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void put(const char *name, const char *text)
{
	FILE *f = fopen(in_dir(name), "we");

	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		abort();
}

/* What a worker says that runs the script in the directory. */
static bool worker_says(int kept, const char *text)
{
	char path[64];
	int go;

	snprintf(path, sizeof path, "%s", in_dir("s.lua"));
	pid_t pid = start_worker("file", path, kept, &go);
	if (write(go, "", 1) != 1)
		abort();
	bool good = says(text);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	forget_worker(go);
	return good;
}

#define LOADING(version)                          \
	"local there = pcall(require, 'later')\n" \
	"local again = pcall(require, 'later')\n" \
	"io.write('" version " ', require 'm', there and ' there' or '', again and ' again' or '') io.flush()\n"

static void test_kept(void)
{
	int one = sources_new(NULL), other = sources_new(NULL);

	if (!mkdtemp(dir))
		abort();
	put("s.lua", LOADING("one"));
	put("m.lua", "return 'm1'");
	ok(worker_says(one, "one m1"), "a worker runs the script");
	put("s.lua", LOADING("two"));
	put("m.lua", "return 'm2'");
	put("later.lua", "");
	ok(worker_says(one, "one m1 again"),
	   "the next one of that version runs what the first has read: of a module that was not there, too, until it "
	   "asks again");
	ok(worker_says(-1, "two m2 there again"), "one that has nothing kept runs the files of now");
	ok(worker_says(other, "two m2 there again"), "so does one of another version");
	unlink(in_dir("s.lua"));
	unlink(in_dir("m.lua"));
	unlink(in_dir("later.lua"));
	ok(worker_says(one, "one m1 there again") && worker_says(other, "two m2 there again"),
	   "without the files each version still is what it was");
	rmdir(dir);
	close(one);
	close(other);
}

int main(void)
{
	alarm(600); /* what hangs has failed */
	test_kept();
	test_waits();
	test_guard_dies();
	test_answers();
	return tap_done();
}
