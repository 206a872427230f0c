#include "base/log.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* The log is a global that looks at stderr once, so each case is a process of its own with its own stderr. */
static int in_child(int stderr_fd, void (*body)(void))
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		dup2(stderr_fd, STDERR_FILENO);
		alarm(60);
		body();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	return status;
}

static char got[1 << 20];

/* What is there to be read, without waiting for more. */
static const char *drain(int fd)
{
	size_t len = 0;
	struct pollfd p = { .fd = fd, .events = POLLIN };

	while (poll(&p, 1, 0) == 1 && p.revents & POLLIN) {
		ssize_t n = read(fd, got + len, sizeof got - 1 - len);
		if (n <= 0)
			break;
		len += (size_t)n;
	}
	got[len] = '\0';
	return got;
}

static const struct log_about about = { .lock = "file:/a\nb", .term = 3, .token = 17 };

/* ---- what a line looks like ---- */

static void text_lines(void)
{
	log_init(LOG_TEXT, LOG_INFO);
	log_event(LOG_DEBUG, NULL, "unseen", "below the level");
	log_event(LOG_INFO, &about, "became_leader", "why\nnot\033[2J\ttab");
	log_event(LOG_ERROR, NULL, "bare", "%d", 7);
}

static void json_lines(void)
{
	log_init(LOG_JSON, LOG_DEBUG);
	log_event(LOG_WARN, &about, "became_leader", "quote\" new\nline \xff\xc3\xa4");
	log_event(LOG_DEBUG, NULL, "bare", " ");
}

static void check_text(void)
{
	int p[2];

	if (pipe(p) < 0)
		return;
	in_child(p[1], text_lines);
	drain(p[0]);
	ok(!strstr(got, "unseen"), "a line below the level is not written");
	ok(!!strstr(got, " INFO  lock=file:/a\\nb term=3 token=17 became_leader: why\\nnot\\x1b[2J\ttab\n"),
	   "a text line has level, lock, term, token, event and why, and no control characters");
	ok(!!strstr(got, " ERROR bare: 7\n"), "a line about the program has none of them");
	ok(got[4] == '-' && got[10] == ' ' && got[19] == '.' && got[23] == ' ',
	   "and a date, where no terminal shows it");
	close(p[0]);
	close(p[1]);
}

static void check_json(void)
{
	int p[2];

	if (pipe(p) < 0)
		return;
	in_child(p[1], json_lines);
	drain(p[0]);
	json_t *first = json_loads(got, JSON_DISABLE_EOF_CHECK, NULL),
	       *second = json_loads(strchr(got, '\n') + 1, 0, NULL);
	const char *lock = NULL, *level = NULL, *event = NULL, *message = NULL, *when = NULL;
	int term = 0, token = 0;
	int good = json_unpack(first, "{s:s,s:s,s:s,s:s,s:i,s:i,s:s}", "time", &when, "level", &level, "event", &event,
	                       "lock", &lock, "term", &term, "token", &token, "message", &message) == 0;
	ok(good, "a JSON line has time, level, event, lock, term, token and message");
	ok(good && term == 3 && token == 17 && strcmp(lock, about.lock) == 0 && strcmp(level, "warn") == 0 &&
	           strcmp(event, "became_leader") == 0,
	   "with what was said");
	is_str(message, "quote\" new\nline \xef\xbf\xbd\xc3\xa4",
	       "quotes, line breaks and bytes that are no UTF-8 stay valid JSON");
	ok(good && strlen(when) == strlen("2026-11-21T01:02:03.456789Z") && when[strlen(when) - 1] == 'Z',
	   "the time is RFC 3339");
	ok(second && !json_object_get(second, "lock") && !json_object_get(second, "term"), "zero fields are left out");
	json_decref(first);
	json_decref(second);
	close(p[0]);
	close(p[1]);
}

/* ---- long lines ---- */

static void long_lines(void)
{
	char text[20000];
	struct log_about long_about = { .lock = text };

	memset(text, 1, sizeof text); /* each byte takes six in JSON */
	text[sizeof text - 1] = '\0';
	log_init(LOG_JSON, LOG_INFO);
	log_event(LOG_INFO, &long_about, "long", "%s", text);
}

static void check_long(void)
{
	int p[2];

	if (pipe(p) < 0)
		return;
	in_child(p[1], long_lines);
	drain(p[0]);
	json_t *json = json_loads(got, 0, NULL);
	ok(strlen(got) <= PIPE_BUF && json,
	   "the longest line on a pipe is cut to what is written as one piece, and is JSON still");
	json_decref(json);
	FILE *f = tmpfile();
	in_child(fileno(f), long_lines);
	fseek(f, 0, SEEK_SET);
	got[fread(got, 1, sizeof got - 1, f)] = '\0';
	json = json_loads(got, 0, NULL);
	ok(strlen(got) > 8 * 1024 && json, "in a file it is cut at 8 KB of message");
	json_decref(json);
	fclose(f);
	close(p[0]);
	close(p[1]);
}

/* ---- readers that do not read ---- */

static void flood(void)
{
	log_init(LOG_JSON, LOG_INFO);
	for (int i = 0; i < 20000; i++)
		log_event(LOG_INFO, NULL, "flood", "line %d of a program whose log nobody reads", i);
	_exit(log_dropped() > 1000 && log_dropped() < 20000 ? 42 : 1);
}

static int whole_lines(const char *text)
{
	while (*text) {
		size_t len = strcspn(text, "\n");
		json_t *json = json_loadb(text, len, 0, NULL);
		int good = json && text[len];
		json_decref(json);
		if (!good)
			return 0;
		text += len + 1;
	}
	return 1;
}

static void never_reads(int fds[2], const char *what, int atomic)
{
	int before = fcntl(fds[1], F_GETFL);
	int status = in_child(fds[1], flood);

	ok(WIFEXITED(status) && WEXITSTATUS(status) == 42, "%s that nobody reads drops lines and stops nobody", what);
	if (atomic) /* a terminal takes what fits of a line */
		ok(whole_lines(drain(fds[0])), "and those that got through are whole");
	ok(fcntl(fds[1], F_GETFL) == before, "others that use %s still wait for it as before", what);
	close(fds[0]);
	close(fds[1]);
}

/* After a flood the reader takes everything, then one more line is written. */
static int reader_fd;
static void flood_and_drain(void)
{
	static char sink[1 << 20];

	log_init(LOG_JSON, LOG_INFO);
	for (int i = 0; i < 20000; i++)
		log_event(LOG_INFO, NULL, "flood", "line %d", i);
	uint64_t dropped = log_dropped();
	if (read(reader_fd, sink, sizeof sink) <= 0)
		_exit(1);
	drain(reader_fd);
	log_event(LOG_INFO, NULL, "after", "%llu", (unsigned long long)dropped);
	log_event(LOG_INFO, NULL, "later", "nothing more was dropped");
}

static void check_count(void)
{
	int p[2];

	if (pipe(p) < 0)
		return;
	reader_fd = p[0];
	in_child(p[1], flood_and_drain);
	const char *line = strstr(drain(p[0]), "{");
	json_t *json = json_loads(line ? line : "", JSON_DISABLE_EOF_CHECK, NULL);
	const char *message = json_string_value(json_object_get(json, "message"));
	ok(message && json_integer_value(json_object_get(json, "dropped")) == atoll(message),
	   "the next line that gets through says how many were dropped");
	ok(strstr(got, "\"later\"") && !strstr(strstr(got, "\"later\""), "dropped\":"),
	   "and the one after it does not");
	json_decref(json);
	close(p[0]);
	close(p[1]);
}

static void no_reader(void)
{
	log_init(LOG_TEXT, LOG_INFO);
	log_event(LOG_INFO, NULL, "gone", "the reader has closed");
	_exit(log_dropped() == 1 ? 42 : 1);
}

static void exec_after_init(void)
{
	log_init(LOG_TEXT, LOG_INFO);
	execl("/bin/sh", "sh", "-c", "kill -PIPE $$; exit 3", (char *)NULL);
}

static void check_gone(void)
{
	int p[2];

	if (pipe(p) < 0)
		return;
	close(p[0]);
	int status = in_child(p[1], no_reader);
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 42, "a reader that went away does not end the program");
	status = in_child(p[1], exec_after_init);
	ok(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE,
	   "what is executed later is born with SIGPIPE as it should be");
	close(p[1]);
}

/* ---- terminals ---- */

static void one_line(void)
{
	log_init(LOG_TEXT, LOG_INFO);
	log_event(LOG_WARN, NULL, "coloured", "text");
}

/* In libc's place: as often as busy says, another process is just writing to the terminal. */
static int busy;
ssize_t write(int fd, const void *data, size_t len)
{
	if (busy > 0 && fd != STDOUT_FILENO) {
		busy--;
		errno = EAGAIN;
		return -1;
	}
	return syscall(SYS_write, fd, data, len);
}

static void lines_to_busy_terminal(void)
{
	log_init(LOG_TEXT, LOG_INFO);
	for (int i = 1; i <= 10; i++) {
		busy = 1;
		log_event(LOG_INFO, NULL, "line", "%d of 10", i);
	}
}

static void check_terminal(void)
{
	int master, slave;

	if (openpty(&master, &slave, NULL, NULL, NULL) < 0) {
		ok(0, "no pseudo-terminal: %s", strerror(errno));
		return;
	}
	setenv("TERM", "xterm", 1);
	unsetenv("NO_COLOR");
	in_child(slave, one_line);
	drain(master);
	ok(strstr(got, "\033[33mWARN \033[0m") && got[2] == ':',
	   "a terminal gets colour, and the time without the date");
	setenv("NO_COLOR", "1", 1);
	in_child(slave, one_line);
	ok(!strchr(drain(master), '\033'), "but no colour with NO_COLOR");
	unsetenv("NO_COLOR");
	in_child(slave, lines_to_busy_terminal);
	drain(master);
	ok(strstr(got, " 1 of 10") && strstr(got, " 10 of 10") && !strstr(got, "dropped"),
	   "no line is dropped because another process is writing to the terminal");
	int fds[2] = { master, slave };
	never_reads(fds, "a terminal", 0);
}

int main(void)
{
	int fds[2];

	check_text();
	check_json();
	check_long();
	if (pipe(fds) == 0)
		never_reads(fds, "a pipe", 1);
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0)
		never_reads(fds, "a socket", 1);
	check_count();
	check_gone();
	check_terminal();
	ok(log_level_parse("debug") == LOG_DEBUG && log_level_parse("error") == LOG_ERROR &&
	           log_level_parse("loud") == -1,
	   "levels by name");
	return tap_done();
}
