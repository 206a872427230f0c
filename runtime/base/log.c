#include "base/log.h"

#include "base/buf.h"
#include "base/clock.h"

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
	bool torn;       /* only a part of the last line was written: the next one begins with a newline */
	size_t line_max; /* PIPE_BUF for pipes: longer lines would mix with those of other writers */
	uint64_t dropped, said;
	struct buf line;
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

bool log_enabled(enum log_level level)
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

/* ---- finding out what stderr is ---- */

static void nothing(int signal)
{
	(void)signal;
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

static void put_line(const char *data, size_t len)
{
	ssize_t n;

	do
		n = write_now(data, len);
	while (n < 0 && errno == EINTR);
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
	const char *event, *text;
	int64_t wall_us;
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

static void text_line(struct buf *b, const struct log_line *l)
{
	static const char *const words[] = { "DEBUG", "INFO ", "WARN ", "ERROR" };
	static const char *const colours[] = { "\033[2m", "\033[32m", "\033[33m", "\033[31m" };
	const char *on = sink.colour ? colours[l->level] : "", *off = sink.colour ? "\033[0m" : "";

	add_time(b, l->wall_us, sink.terminal ? "%H:%M:%S" : "%F %T", false);
	buf_printf(b, ".%03d %s%s%s ", (int)(l->wall_us / 1000 % 1000), on, words[l->level], off);
	if (l->about && l->about->lock) {
		buf_adds(b, "lock=");
		buf_plain(b, l->about->lock);
		buf_adds(b, " ");
	}
	if (l->about && l->about->term)
		buf_printf(b, "term=%" PRIu64 " ", l->about->term);
	if (l->about && l->about->token)
		buf_printf(b, "token=%" PRId64 " ", l->about->token);
	buf_printf(b, "%s%s%s: ", on, l->event, off);
	buf_plain(b, l->text);
	if (sink.dropped > sink.said)
		buf_printf(b, " (%" PRIu64 " lines were dropped before this one)", sink.dropped - sink.said);
	buf_adds(b, "\n");
}

static void json_line(struct buf *b, const struct log_line *l)
{
	buf_adds(b, "{\"time\":\"");
	add_time(b, l->wall_us, "%FT%T", true);
	buf_printf(b, ".%06dZ\",\"level\":\"%s\",\"event\":", (int)(l->wall_us % 1000000), level_names[l->level]);
	buf_json(b, l->event);
	if (l->about && l->about->lock) {
		buf_adds(b, ",\"lock\":");
		buf_json(b, l->about->lock);
	}
	if (l->about && l->about->term)
		buf_printf(b, ",\"term\":%" PRIu64, l->about->term);
	if (l->about && l->about->token)
		buf_printf(b, ",\"token\":%" PRId64, l->about->token);
	buf_adds(b, ",\"message\":");
	buf_json(b, l->text);
	if (sink.dropped > sink.said)
		buf_printf(b, ",\"dropped\":%" PRIu64, sink.dropped - sink.said);
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

void log_event(enum log_level level, const struct log_about *about, const char *event, const char *fmt, ...)
{
	char text[TEXT_MAX], lock[LOCK_MAX];
	struct log_about short_about = about ? *about : (struct log_about){ 0 };
	struct log_line l = { level, &short_about, event, text, clock_wall_us() };
	va_list ap;

	if (!log_enabled(level))
		return;
	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (sink.divert) {
		sink.divert(sink.divert_arg, level, &short_about, event, text);
		return;
	}
	if (short_about.lock) {
		snprintf(lock, sizeof lock, "%s", short_about.lock);
		short_about.lock = lock;
	}
	make_line(&sink.line, &l);
	for (size_t keep = strlen(text) / 2; sink.line.len > sink.line_max && *text; keep /= 2) {
		text[keep] = '\0'; /* the message is cut, not the line, which must stay valid JSON */
		make_line(&sink.line, &l);
	}
	put_line(sink.line.data, sink.line.len);
}
