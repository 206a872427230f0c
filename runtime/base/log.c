#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/json_out.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEXT_MAX (8 * 1024)
#define LOCK_MAX 512 /* so that a line fits into PIPE_BUF even if every character is escaped */

enum sink_kind {
	SINK_FILE,   /* never waits: plain write */
	SINK_SOCKET, /* send(2) with MSG_DONTWAIT */
	SINK_OWN,    /* a pipe or a terminal, opened again: a non-blocking file description of our own */
	SINK_POLLED, /* a pipe or a terminal that could not be opened again: poll(2) before each write */
};

static struct {
	enum log_format format;
	enum log_level least;
	enum sink_kind kind;
	int fd;
	bool terminal, colour;
	bool journal;    /* stderr is the journal, which has its own times, and reads priorities (sd-daemon(3)) */
	bool torn;       /* only a part of the last line was written: the next one begins with a newline */
	size_t line_max; /* PIPE_BUF for pipes: longer lines would mix with those of other writers */
	uint64_t dropped, said;
	struct buf line;
	char *identity, *election; /* log_program */
	bool follows;              /* log_follow */
	char shown_lock[LOCK_MAX]; /* on a terminal: what the last lines have shown */
	uint64_t shown_term;
	int64_t shown_token;
	log_divert_fn *divert;
	void *divert_arg;
} sink = { .least = LOG_INFO, .fd = STDERR_FILENO, .line_max = SIZE_MAX };

static const char *const level_names[] = { "debug", "info", "warn", "error" };

int log_level_parse(const char *s)
{
	for (int i = 0; i < (int)(sizeof level_names / sizeof *level_names); i++)
		if (strcmp(s, level_names[i]) == 0)
			return i;
	return -1;
}

struct log_settings log_settings(void)
{
	return (struct log_settings){ .format = sink.format == LOG_JSON ? "json" : "text",
		                      .level = level_names[sink.least],
		                      .identity = sink.identity ? sink.identity : "" };
}

static bool log_enabled(enum log_level level)
{
	return level >= sink.least;
}

uint64_t log_dropped(void)
{
	return sink.dropped;
}

void log_divert(log_divert_fn *to, void *arg)
{
	sink.divert = to;
	sink.divert_arg = arg;
}

static const char *shortened(const char *name, char out[LOCK_MAX])
{
	if (!name)
		return NULL;
	snprintf(out, LOCK_MAX, "%s", name);
	return out;
}

void log_program(const char *identity, const char *election)
{
	char copy[LOCK_MAX];

	mem_replace(&sink.identity, shortened(identity, copy));
	mem_replace(&sink.election, shortened(election, copy));
}

void log_follow(void)
{
	sink.follows = true;
}

/* ---- finding out what stderr is ---- */

static void nothing(int)
{
}

/* A reader of the log that goes away must not end the program. The handler is empty instead of SIG_IGN, since the
 * script's programs would inherit SIG_IGN. */
static void survive_sigpipe(void)
{
	struct sigaction old, handler = { .sa_handler = nothing, .sa_flags = SA_RESTART };

	if (sigaction(SIGPIPE, NULL, &old) == 0 && old.sa_handler == SIG_DFL)
		sigaction(SIGPIPE, &handler, NULL);
}

/* O_NONBLOCK belongs to the file description, which this process shares with the one that started it. Opening stderr
 * again makes a description that nobody shares. */
static enum sink_kind open_own(void)
{
	int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_APPEND | O_CLOEXEC | O_NOCTTY);

	if (fd < 0)
		return SINK_POLLED;
	sink.fd = fd;
	return SINK_OWN;
}

static bool want_colour(void)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");

	return sink.terminal && !(no && *no) && term && strcmp(term, "dumb") != 0;
}

/* JOURNAL_STREAM names the journal's stream by device and inode. A process inherits it even if its own stderr is
 * another one. */
static bool is_journal(const struct stat *st)
{
	const char *stream = getenv("JOURNAL_STREAM");
	uintmax_t device, inode;
	char more;

	return stream && sscanf(stream, "%ju:%ju%c", &device, &inode, &more) == 2 && device == st->st_dev &&
	       inode == st->st_ino;
}

void log_init(enum log_format format, enum log_level least)
{
	struct stat st;

	sink.format = format;
	sink.least = least;
	sink.terminal = isatty(STDERR_FILENO);
	sink.colour = want_colour();
	survive_sigpipe();
	if (fstat(STDERR_FILENO, &st) < 0)
		return;
	sink.journal = is_journal(&st);
	if (S_ISSOCK(st.st_mode))
		sink.kind = SINK_SOCKET;
	else if (S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))
		sink.kind = open_own();
	if (S_ISFIFO(st.st_mode) || sink.kind == SINK_POLLED)
		sink.line_max = PIPE_BUF;
}

/* ---- writing without waiting ---- */

static ssize_t write_polled(const char *data, size_t len)
{
	struct pollfd p = { .fd = sink.fd, .events = POLLOUT };

	if (poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT)) {
		errno = EAGAIN;
		return -1;
	}
	return write(sink.fd, data, len);
}

static ssize_t write_now(const char *data, size_t len)
{
	switch (sink.kind) {
	case SINK_SOCKET:
		return send(sink.fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
	case SINK_POLLED:
		return write_polled(data, len);
	case SINK_FILE:
	case SINK_OWN:
		return write(sink.fd, data, len);
	}
	return -1;
}

static ssize_t write_uninterrupted(const char *data, size_t len)
{
	ssize_t n;

	do
		n = write_now(data, len);
	while (n < 0 && errno == EINTR);
	return n;
}

/* A terminal to which another process writes at this moment says EAGAIN, although it has room. That is waited for, for
 * at most 50 ms. A terminal that takes nothing is not waited for at the next line. */
static ssize_t write_to_busy_terminal(const char *data, size_t len)
{
	struct pollfd p = { .fd = sink.fd, .events = POLLOUT };
	ssize_t n = write_uninterrupted(data, len);

	for (int tries = 0; n < 0 && errno == EAGAIN && sink.dropped == sink.said && tries < 5; tries++) {
		poll(&p, 1, 10);
		n = write_uninterrupted(data, len);
	}
	return n;
}

static void put_line(const char *data, size_t len)
{
	ssize_t n = sink.terminal ? write_to_busy_terminal(data, len) : write_uninterrupted(data, len);

	if (n == (ssize_t)len) {
		sink.torn = false;
		sink.said = sink.dropped;
		return;
	}
	sink.dropped++;
	sink.torn |= n > 0;
}

/* ---- making a line ---- */

struct log_line {
	enum log_level level;
	const struct log_about *about;
	const char *event, *text, *fields;
	int64_t wall_us;
	bool nameless; /* the line leaves out identity and election, since it has no room for them */
};

static void add_time(struct buf *b, int64_t wall_us, const char *format, bool utc)
{
	time_t sec = wall_us / 1000000;
	struct tm tm;
	char text[64];

	if (utc)
		gmtime_r(&sec, &tm);
	else
		localtime_r(&sec, &tm);
	strftime(text, sizeof text, format, &tm);
	buf_adds(b, text);
}

/* The part of it that a line names: on a terminal only what has changed since the last line. */
static struct log_about about_to_show(const struct log_about *about)
{
	struct log_about a = *about;
	bool same_lock = a.lock && strcmp(a.lock, sink.shown_lock) == 0;

	if (!sink.terminal)
		return a;
	if (same_lock || (sink.follows && !*sink.shown_lock))
		a.lock = NULL;
	if (sink.follows || (same_lock && a.term == sink.shown_term && a.token == sink.shown_token))
		a.term = 0, a.token = 0;
	return a;
}

static void note_shown(const struct log_about *about)
{
	if (about->lock)
		snprintf(sink.shown_lock, sizeof sink.shown_lock, "%s", about->lock);
	if (about->term) {
		sink.shown_term = about->term;
		sink.shown_token = about->token;
	}
}

/* A text of several lines, such as a traceback, keeps its lines on a terminal. */
static void add_text(struct buf *b, const char *text)
{
	char line[TEXT_MAX];

	while (sink.terminal && strchr(text, '\n')) {
		size_t len = strcspn(text, "\n");
		snprintf(line, sizeof line, "%.*s", (int)len, text);
		buf_plain(b, line);
		buf_adds(b, "\n    ");
		text += len + 1;
	}
	buf_plain(b, text);
}

static void text_line(struct buf *b, const struct log_line *l)
{
	struct log_about about = about_to_show(l->about);
	static const char *const words[] = { "DEBUG", "INFO ", "WARN ", "ERROR" };
	static const int priorities[] = { 7, 6, 4, 3 }; /* of syslog(3) */
	static const char *const colours[] = { "\033[2m", "\033[32m", "\033[33m", "\033[31m" };
	const char *on = sink.colour ? colours[l->level] : "", *off = sink.colour ? "\033[0m" : "";

	if (sink.journal) {
		buf_printf(b, "<%d>", priorities[l->level]);
	} else {
		add_time(b, l->wall_us, sink.terminal ? "%H:%M:%S" : "%F %T", false);
		buf_printf(b, ".%03d ", (int)(l->wall_us / 1000 % 1000));
	}
	buf_printf(b, "%s%s%s ", on, words[l->level], off);
	if (about.lock) {
		buf_adds(b, "lock=");
		buf_plain(b, about.lock);
		buf_adds(b, " ");
	}
	if (about.term)
		buf_printf(b, "term=%" PRIu64 " ", about.term);
	if (about.token)
		buf_printf(b, "token=%" PRId64 " ", about.token);
	buf_printf(b, "%s%s%s: ", on, l->event, off);
	add_text(b, l->text);
	if (sink.dropped > sink.said)
		buf_printf(b, " (%" PRIu64 " lines were dropped before this one)", sink.dropped - sink.said);
	buf_adds(b, "\n");
}

static void add_name(struct buf *b, const char *key, const char *name)
{
	if (name)
		json_out_text(b, key, name);
}

static void json_line(struct buf *b, const struct log_line *l)
{
	const struct log_about *about = l->about;
	const char *election = about->election && *about->election ? about->election : sink.election;

	json_out_open(b, NULL, "{");
	json_out_raw(b, "time", "\"");
	add_time(b, l->wall_us, "%FT%T", true);
	buf_printf(b, ".%06dZ\"", (int)(l->wall_us % 1000000));
	json_out_text(b, "level", level_names[l->level]);
	json_out_text(b, "event", l->event);
	if (!l->nameless) {
		add_name(b, "identity", about->identity && *about->identity ? about->identity : sink.identity);
		add_name(b, "election", election ? election : about->lock);
	}
	add_name(b, "lock", about->lock);
	if (about->term)
		json_out_int(b, "term", (int64_t)about->term);
	if (about->token)
		json_out_int(b, "token", about->token);
	json_out_text(b, "message", l->text);
	if (l->fields)
		json_out_raw(b, "fields", l->fields);
	if (sink.dropped > sink.said)
		json_out_int(b, "dropped", (int64_t)(sink.dropped - sink.said));
	buf_adds(b, "}\n");
}

static void make_line(struct buf *b, const struct log_line *l)
{
	b->len = 0;
	if (sink.torn)
		buf_adds(b, "\n");
	if (sink.format == LOG_JSON)
		json_line(b, l);
	else
		text_line(b, l);
}

/* text: of TEXT_MAX bytes, and cut here if the line is too long. */
static void log_write(enum log_level level, const struct log_about *about, const char *event, const char *fields,
                      char *text)
{
	char lock[LOCK_MAX], election[LOCK_MAX], identity[LOCK_MAX];
	struct log_about a = about ? *about : (struct log_about){ 0 };
	struct log_line l = { level, &a, event, text, fields, clock_wall_us(), false };

	if (sink.divert) {
		sink.divert(sink.divert_arg, level, &a, event, text);
		return;
	}
	a.lock = shortened(a.lock, lock);
	a.election = shortened(a.election, election);
	a.identity = shortened(a.identity, identity);
	make_line(&sink.line, &l);
	if (sink.line.len > sink.line_max && l.fields) {
		l.fields = NULL; /* the text has them, too */
		make_line(&sink.line, &l);
	}
	for (size_t keep = strlen(text) / 2; sink.line.len > sink.line_max && *text; keep /= 2) {
		text[keep] = '\0'; /* the message is cut, not the line, which must stay valid JSON */
		make_line(&sink.line, &l);
	}
	if (sink.line.len > sink.line_max) {
		l.nameless = true;
		make_line(&sink.line, &l);
	}
	note_shown(&a);
	put_line(sink.line.data, sink.line.len);
}

void log_event(enum log_level level, const struct log_about *about, const char *event, const char *fmt, ...)
{
	char text[TEXT_MAX];
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	log_write(level, about, event, NULL, text);
}

void log_fields(enum log_level level, const struct log_about *about, const char *event, const char *fields,
                const char *text)
{
	char copy[TEXT_MAX];

	if (!log_enabled(level))
		return;
	snprintf(copy, sizeof copy, "%s", text);
	log_write(level, about, event, fields, copy);
}
