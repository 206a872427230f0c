/* A guard alone, as in test_guard.c: deadlines that move, sweeps beside other trees and other users' processes, a
 * terminal, privileges that cannot be given up, orders that cannot be read for a moment. */
#include "base/clock.h"
#include "guard_scene.h"
#include "tap.h"

#include <limits.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* ---- calls that fail in the guard's process alone, when `before` says so ---- */

static int recv_fails, recv_error; /* so many times, with that */
static int send_fails, send_error; /* the same, ... */
static uint32_t send_type;         /* ... of notes of this type, 0: of any */
static bool no_new_privs_fails;

ssize_t recv(int fd, void *buf, size_t len, int flags)
{
	if (recv_fails > 0) {
		recv_fails--;
		errno = recv_error;
		return -1;
	}
	return recvfrom(fd, buf, len, flags, NULL, NULL);
}

ssize_t send(int fd, const void *buf, size_t len, int flags)
{
	const struct guard_note *n = buf;

	if (send_fails > 0 && (!send_type || n->type == send_type)) {
		send_fails--;
		errno = send_error;
		return -1;
	}
	return sendto(fd, buf, len, flags, NULL, 0);
}

int prctl(int option, ...)
{
	unsigned long a[4];
	va_list ap;

	va_start(ap, option);
	for (int i = 0; i < 4; i++)
		a[i] = va_arg(ap, unsigned long);
	va_end(ap);
	if (no_new_privs_fails && option == PR_SET_NO_NEW_PRIVS) {
		errno = EPERM;
		return -1;
	}
	return (int)syscall(SYS_prctl, option, a[0], a[1], a[2], a[3]);
}

/* What is killed shows no environment from then on, and dies after so many looks; 0: nothing is done to it. */
static int dies_after;
static pid_t dying;
static int looks;

int kill(pid_t pid, int signal)
{
	if (dies_after && signal == SIGKILL && !dying) {
		dying = pid;
		return 0;
	}
	return (int)syscall(SYS_kill, pid, signal);
}

static int open_unless_dying(const char *path, int flags, mode_t mode)
{
	char environment[40];

	snprintf(environment, sizeof environment, "/proc/%d/environ", (int)dying);
	if (dying > 0 && strcmp(path, environment) == 0) {
		if (looks++ < dies_after) {
			errno = ESRCH;
			return -1;
		}
		syscall(SYS_kill, dying, SIGKILL);
		dying = -1;
	}
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *path, int flags, ...)
{
	va_list ap;

	va_start(ap, flags);
	mode_t mode = flags & O_CREAT ? va_arg(ap, mode_t) : 0;
	va_end(ap);
	return open_unless_dying(path, flags, mode);
}

/* What open(2) is called where it is fortified. */
int __open_2(const char *path, int flags);
int __open_2(const char *path, int flags)
{
	return open_unless_dying(path, flags, 0);
}

/* ---- */

static struct instant after(double seconds)
{
	return instant_add(clock_now(), (nsec)(seconds * NSEC_PER_SEC));
}

/* The guard has read what was sent before this, since it answers. */
static struct guard_note sweep(struct scene *s, uint32_t slot, uint64_t term)
{
	scene_order(s, (struct guard_order){ .type = GUARD_SWEEP, .slot = slot, .term = term });
	return scene_note(s);
}

static bool is_swept(struct guard_note n)
{
	return n.type == GUARD_SWEPT || n.type == GUARD_UNCLEAR;
}

static void ends_by(struct scene *s, int signal, const char *what)
{
	struct guard_note n = scene_note(s);

	ok(n.type == GUARD_ENDED && WIFSIGNALED(n.value) && WTERMSIG(n.value) == signal, "%s", what);
	is_int(scene_end(s), 0, "and its guard ends");
}

/* ---- deadlines ---- */

static void test_deadlines(void)
{
	struct scene s = { .kind = "command", .command = sleeper };

	scene_start(&s);
	pid_t pid = scene_note(&s).value;
	struct instant first = after(3);
	page_begin(page, 0, 1, 1, first, first);
	scene_order(&s, (struct guard_order){ .type = GUARD_POKE });
	ok(is_swept(sweep(&s, 1, 1)), "a guard knows the deadline of a term");
	ok(page_extend(&page->slot[0], 1, after(1000), after(1000)), "which is moved on");
	usleep((useconds_t)(instant_until(first, clock_now()) / 1000) + 200000);
	ok(is_swept(sweep(&s, 1, 1)) && kill(pid, 0) == 0, "when the first one is over, the term goes on");
	page_idle(&page->slot[0]);
	scene_order(&s, (struct guard_order){ .type = GUARD_POKE });
	ok(is_swept(sweep(&s, 1, 1)) && kill(pid, 0) == 0, "and what is in no term has no deadline");
	page_begin(page, 0, 2, 2, after(0), after(0));
	scene_order(&s, (struct guard_order){ .type = GUARD_POKE });
	ends_by(&s, SIGKILL, "what is over kills");
}

/* ---- sweeps ---- */

static void own_tree(void)
{
	setenv(PROOF_ENV, "mine", 1);
}

static void test_trees(void)
{
	char mark[40], text[300], *command[] = { "sh", "-c", text, NULL };
	struct scene s = { .kind = "command", .command = command, .before = own_tree };
	uint64_t term = (uint64_t)getpid(); /* nobody else's */

	snprintf(mark, sizeof mark, "%s=%d.%d", TERM_MARK_ENV, PAGE_SLOTS - 1, (int)term);
	snprintf(text, sizeof text, "%s=another %s sleep 1000 & %s sleep 1000 & exec sleep 1000", PROOF_ENV, mark,
	         mark);
	scene_start(&s);
	scene_note(&s);
	for (int i = 0; i < 6000 && count_marked(mark) < 2; i++)
		usleep(10000);
	struct guard_note n = sweep(&s, PAGE_SLOTS - 1, term);
	ok(is_swept(n) && n.value == 1 && n.slot == PAGE_SLOTS - 1,
	   "a sweep of the last slot kills what its term has left: %d", n.value);
	is_int(count_marked(mark), 1, "and not what carries that mark in another tree");
	scene_order(&s, (struct guard_order){ .type = GUARD_KILL });
	ends_by(&s, SIGKILL, "at the end all of them are killed");
	is_int(count_marked(mark), 0, "also the other tree's, which is below it");
}

static void dying_late(void)
{
	dies_after = 60;
}

static void dying_never(void)
{
	dies_after = INT_MAX;
}

/* A machine is busy, and a process that was killed is not dead for long: it cannot be attributed to a term any more,
 * but is known. */
static void test_slow_death(bool ever)
{
	char mark[40], text[300], *command[] = { "sh", "-c", text, NULL };
	struct scene s = { .kind = "command", .command = command, .before = ever ? dying_late : dying_never };

	snprintf(mark, sizeof mark, "%s=1.%d", TERM_MARK_ENV, (int)getpid());
	snprintf(text, sizeof text, "%s sleep 1000 & %s=- exec sleep 1000", mark, TERM_MARK_ENV);
	scene_start(&s);
	scene_note(&s);
	for (int i = 0; i < 6000 && count_marked(mark) < 1; i++)
		usleep(10000);
	struct guard_note n = sweep(&s, 1, (uint64_t)getpid());
	if (ever) {
		ok(n.type == GUARD_SWEPT && n.value == 1, "what was killed and dies late leaves no doubt: %d, %d",
		   (int)n.type, n.value);
		is_int(count_marked(mark), 0, "and is waited for");
	} else {
		ok(n.type == GUARD_UNCLEAR && n.value == 1, "what does not die leaves a doubt in the end: %d, %d",
		   (int)n.type, n.value);
	}
	scene_order(&s, (struct guard_order){ .type = GUARD_KILL });
	scene_note(&s);
	scene_end(&s);
}

static void without_ptrace(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) < 0)
		exit(99);
	for (int i = 0; i < 2; i++)
		data[i].effective = data[i].permitted = 0;
	data[0].effective = data[0].permitted = 1u << CAP_KILL | 1u << CAP_SETUID | 1u << CAP_SETGID;
	if (syscall(SYS_capset, &header, data) < 0)
		exit(99);
}

/* Until then it may be read. */
static bool becomes_nobody(pid_t pid)
{
	char path[40];
	struct stat st = { 0 };

	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	for (int tries = 0; tries < 60000 && (stat(path, &st) < 0 || st.st_uid != 65534); tries++)
		usleep(1000);
	return st.st_uid == 65534;
}

static void test_unreadable(void)
{
	char *command[] = { "sh", "-c",
		            "setpriv --reuid 65534 --clear-groups sleep 1000 & echo $! >&2; exec sleep 1000", NULL },
	     number[20] = "";
	struct scene s = { .kind = "command", .command = command, .before = without_ptrace, .says = true };

	if (geteuid() != 0) {
		ok(1, "another user's process # SKIP not root");
		return;
	}
	scene_start(&s);
	scene_note(&s);
	(void)!read(s.error, number, sizeof number - 1);
	ok(becomes_nobody(atoi(number)), "a process of the tree has another user");
	struct guard_note n = sweep(&s, 1, 5);
	ok(n.type == GUARD_UNCLEAR && n.value == 0, "a sweep that cannot read what it carries says so, and leaves it");
	scene_order(&s, (struct guard_order){ .type = GUARD_KILL });
	ends_by(&s, SIGKILL, "at the end it is killed");
	ok(kill(atoi(number), 0) < 0 && errno == ESRCH, "it is");
}

static void test_sweep_at_the_end(void)
{
	struct scene s = { .kind = "command", .command = sleeper };
	int status;

	scene_start(&s);
	scene_note(&s);
	kill(s.pid, SIGSTOP);
	waitpid(s.pid, &status, WUNTRACED);
	scene_order(&s, (struct guard_order){ .type = GUARD_SWEEP, .slot = 1, .term = 5 });
	scene_order(&s, (struct guard_order){ .type = GUARD_KILL });
	kill(s.pid, SIGCONT);
	ends_by(&s, SIGKILL, "who is to end does not sweep before");
}

/* ---- a terminal ---- */

static char terminal[64];

/* It has a session and a terminal of its own, as a shell's job in the foreground does. */
static void in_foreground(void)
{
	setsid();
	if (open(terminal, O_RDWR | O_CLOEXEC) < 0)
		exit(99);
}

/* Another job of that session has the terminal. */
static void in_background(void)
{
	in_foreground();
	pid_t other = fork();
	if (other == 0)
		for (;;)
			pause();
	int fd = open("/dev/tty", O_RDWR | O_CLOEXEC);
	if (setpgid(other, other) < 0 || tcsetpgrp(fd, other) < 0)
		exit(99);
}

static void without_terminal(void)
{
	setsid();
}

static int open_terminal(void)
{
	int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);

	if (fd < 0 || grantpt(fd) < 0 || unlockpt(fd) < 0 || ptsname_r(fd, terminal, sizeof terminal) != 0)
		printf("Bail out! no terminal: %s\n", strerror(errno)), exit(1);
	return fd;
}

static void test_terminal(void)
{
	char *asks[] = { "sh", "-c", "kill -STOP $$; read x </dev/tty; exit $x", NULL };
	char *reads[] = { "sh", "-c", "read x </dev/tty; exit 3", NULL };
	struct scene s = { .kind = "foreground", .command = asks, .before = in_foreground };
	struct scene b = { .kind = "foreground", .command = reads, .before = in_background };
	char *ends[] = { "sh", "-c", "exit 4", NULL };
	struct scene c = { .kind = "foreground", .command = ends, .before = without_terminal };
	int fd = open_terminal();

	scene_start(&s);
	struct guard_note n = scene_note(&s);
	is_int(n.type, GUARD_STARTED, "a command is started in the foreground of a terminal");
	pid_t pid = n.value;
	is_int(scene_note(&s).type, GUARD_STOPPED, "when it is stopped,");
	is_int(tcgetpgrp(fd), s.pid, "the terminal is the group's again that had it before");
	scene_order(&s, (struct guard_order){ .type = GUARD_SIGNAL, .signal = SIGCONT });
	is_int(scene_note(&s).type, GUARD_CONTINUED, "when it goes on,");
	is_int(tcgetpgrp(fd), pid, "the terminal is its");
	(void)!write(fd, "7\n", 2);
	n = scene_note(&s);
	ok(n.type == GUARD_ENDED && WEXITSTATUS(n.value) == 7, "which it reads");
	is_int(scene_end(&s), 0, "and its guard ends");
	close(fd);
	fd = open_terminal();
	scene_start(&b);
	scene_note(&b);
	is_int(scene_note(&b).type, GUARD_STOPPED,
	       "a command of a job in the background gets no terminal: reading stops it");
	scene_order(&b, (struct guard_order){ .type = GUARD_KILL });
	ends_by(&b, SIGKILL, "it is killed");
	close(fd);
	scene_start(&c);
	scene_note(&c);
	n = scene_note(&c);
	ok(n.type == GUARD_ENDED && WEXITSTATUS(n.value) == 4, "where there is no terminal the command runs without");
	is_int(scene_end(&c), 0, "and its guard ends");
}

/* ---- its name ---- */

static int waits(int argc, char **argv, int go)
{
	(void)argc, (void)argv;
	guard_await_go(go);
	pause();
	return 1;
}

static void named(char **arguments, const char *want)
{
	struct scene s = { .kind = "worker", .worker = waits, .command = arguments };
	char path[40], title[200] = "";

	scene_start(&s);
	scene_note(&s);
	snprintf(path, sizeof path, "/proc/%d/cmdline", (int)s.pid);
	for (int i = 0; i < 60000 && strcmp(title, want) != 0; i++, usleep(1000)) {
		FILE *f = fopen(path, "re");
		if (!f || !fgets(title, sizeof title, f))
			title[0] = '\0';
		if (f)
			fclose(f);
	}
	is_str(title, want, "ps(1) shows what a guard guards");
	scene_order(&s, (struct guard_order){ .type = GUARD_KILL });
	ends_by(&s, SIGKILL, "its worker is killed");
}

static void test_names(void)
{
	char *file[] = { "text", "info", "me", "file", "/etc/n.lua", NULL };
	char *eval[] = { "text", "info", "me", "eval", "return {}", NULL };

	named(file, "lunarch: guard n");
	named(eval, "lunarch: guard -e");
}

/* ---- privileges ---- */

static void keeps_privileges(void)
{
	no_new_privs_fails = true;
}

static void keeps_privileges_and_tells_nobody(void)
{
	no_new_privs_fails = true;
	close(STDERR_FILENO);
}

static void test_privileges(void)
{
	char *command[] = { "sh", "-c", "exit 0", NULL };
	struct scene a = {
		.kind = "command" GUARD_NO_PRIVILEGES, .command = command, .before = keeps_privileges, .says = true
	};
	struct scene b = { .kind = "command" GUARD_NO_PRIVILEGES,
		           .command = command,
		           .before = keeps_privileges_and_tells_nobody };
	struct scene c = { .kind = "command", .command = command, .before = keeps_privileges };

	scene_start(&a);
	scene_note(&a);
	struct guard_note n = scene_note(&a);
	ok(n.type == GUARD_ENDED && n.value == 126 << 8, "a command that would keep its privileges is not started");
	scene_end(&a);
	ok(strstr(a.said, "cannot give the privileges up") != NULL, "which is said: %s", a.said);
	scene_start(&b);
	scene_note(&b);
	n = scene_note(&b);
	ok(n.type == GUARD_ENDED && n.value == 126 << 8, "nor where it cannot be said");
	scene_end(&b);
	scene_start(&c);
	scene_note(&c);
	n = scene_note(&c);
	ok(n.type == GUARD_ENDED && n.value == 0, "one that may keep them is");
	scene_end(&c);
}

/* ---- orders ---- */

static void recv_interrupted(void)
{
	recv_fails = 3;
	recv_error = EINTR;
}

static void recv_without_memory(void)
{
	recv_fails = 3;
	recv_error = ENOMEM;
}

static void recv_without_buffers(void)
{
	recv_fails = 3;
	recv_error = ENOBUFS;
}

static void recv_refused(void)
{
	recv_fails = 1;
	recv_error = ECONNREFUSED;
}

/* ---- notes for which there is no memory ---- */

static void lose(uint32_t type, int error)
{
	send_type = type;
	send_fails = 3;
	send_error = error;
}

static void lose_started(void)
{
	lose(GUARD_STARTED, ENOMEM);
}

static void lose_stopped(void)
{
	lose(GUARD_STOPPED, ENOBUFS);
}

static void lose_continued(void)
{
	lose(GUARD_CONTINUED, ENOMEM);
}

static void lose_ended(void)
{
	lose(GUARD_ENDED, EINTR);
}

static void test_notes_again(void)
{
	char *stops[] = { "sh", "-c", "kill -STOP $$; exit 6", NULL };
	void (*const lost[])(void) = { lose_started, lose_stopped, lose_continued, lose_ended };

	for (size_t i = 0; i < sizeof lost / sizeof *lost; i++) {
		struct scene s = { .kind = "command", .command = stops, .before = lost[i] };
		scene_start(&s);
		is_int(scene_note(&s).type, GUARD_STARTED,
		       "a note for which there was no memory is sent again: started");
		is_int(scene_note(&s).type, GUARD_STOPPED, "stopped");
		scene_order(&s, (struct guard_order){ .type = GUARD_SIGNAL, .signal = SIGCONT });
		struct guard_note n = scene_note(&s);
		if (n.type == GUARD_CONTINUED) /* it is no news where it had ended before that could be sent */
			n = scene_note(&s);
		ok(n.type == GUARD_ENDED && WEXITSTATUS(n.value) == 6, "ended");
		is_int(scene_end(&s), 0, "and its guard ends");
	}
}

/* The end of a command could be any; why its guard killed it is said. */
static void failed_because(struct scene *s, enum guard_failure what, int error, const char *why)
{
	struct guard_note n = scene_note(s);

	ok(n.type == GUARD_FAILED && n.slot == (uint32_t)what && n.value == error, "%s", why);
	ends_by(s, SIGKILL, "what it had started is killed");
}

static void recv_refused_later(void)
{
	recv_fails = 2;
	recv_error = EACCES;
}

static void test_failures(void)
{
	struct scene deaf = { .kind = "command", .command = sleeper, .before = recv_refused_later };
	struct scene puzzled = { .kind = "command", .command = sleeper };
	const char nonsense[] = "nonsense";

	scene_start(&deaf);
	scene_note(&deaf);
	scene_order(&deaf, (struct guard_order){ .type = GUARD_POKE });
	failed_because(&deaf, GUARD_CANNOT_READ, EACCES, "a guard that cannot read its orders says so");
	scene_start(&puzzled);
	scene_note(&puzzled);
	send(puzzled.control, nonsense, sizeof nonsense, 0);
	failed_because(&puzzled, GUARD_NO_ORDER, 0, "so does one that does not understand them");
}

static void test_reading(void)
{
	struct scene later[] = {
		{ .kind = "command", .command = sleeper, .before = recv_interrupted },
		{ .kind = "command", .command = sleeper, .before = recv_without_memory },
		{ .kind = "command", .command = sleeper, .before = recv_without_buffers },
	};
	struct scene never = { .kind = "command", .command = sleeper, .before = recv_refused };
	struct scene longer = { .kind = "command", .command = sleeper };
	struct guard_begin long_order = { .order = { .type = GUARD_POKE } };

	for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
		scene_start(&later[i]);
		scene_note(&later[i]);
		scene_order(&later[i], (struct guard_order){ .type = GUARD_INTERRUPT });
		ends_by(&later[i], SIGRTMIN, "an order that cannot be read for a moment is obeyed then");
	}
	scene_start(&never);
	pid_t pid = scene_note(&never).value;
	scene_order(&never, (struct guard_order){ .type = GUARD_POKE });
	/* Not by its note: an order that was left unread takes that away when the guard closes its end. */
	is_int(scene_end(&never), 0, "where orders cannot be read at all, the guard ends");
	ok(kill(pid, 0) < 0 && errno == ESRCH, "and has killed all");
	scene_start(&longer);
	scene_note(&longer);
	send(longer.control, &long_order, sizeof long_order.order + 4, 0);
	failed_because(&longer, GUARD_NO_ORDER, 0, "who sends more than an order is no supervisor, which is said");
}

/* The end itself finds no room: that the guard has gone is told by its end of the socket. */
static void test_untold_end(void)
{
	struct scene s = { .kind = "command", .command = sleeper };
	struct pollfd p;
	struct guard_note n = { 0 };

	scene_start(&s);
	p = (struct pollfd){ .fd = s.control, .events = POLLIN };
	if (poll(&p, 1, (int)(PATIENCE_S * 1000)) == 1)
		recv(s.control, &n, sizeof n, 0);
	ok(n.type == GUARD_STARTED && fill(&s) > 0, "an elector reads nothing any more");
	scene_order(&s, (struct guard_order){ .type = GUARD_KILL });
	is_int(scene_end(&s), 0, "a guard that cannot tell the end does not wait for room");
	ok(kill(n.value, 0) < 0 && errno == ESRCH, "and has killed all");
}

int main(void)
{
	signal(SIGPIPE, SIG_IGN);
	test_deadlines();
	test_trees();
	test_slow_death(true);
	test_slow_death(false);
	test_unreadable();
	test_sweep_at_the_end();
	test_terminal();
	test_names();
	test_privileges();
	test_notes_again();
	test_failures();
	test_reading();
	test_untold_end();
	return tap_done();
}
