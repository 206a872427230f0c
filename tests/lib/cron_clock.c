/* The clock of a cron daemon whose days take seconds (LD_PRELOAD), for tests/lib/crons.py. The daemon is the real one:
 * it reads its crontabs, decides when a job is due and prepares it. What is replaced is the time, sleeping, the log,
 * and at the very end the job's shell: instead of running it, this writes down what would have been run. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PAUSE 10 /* seconds, of both daemons between two jobs that the clock has jumped over: it costs no time here */

static time_t now, end;
static char out[4096];   /* the file's path: cronie's jobs close all files that they inherit */
static const char *plan; /* "FROM-TO FROM-TO": seconds since 1970; the clock jumps over what is between them */

static void next_span(void)
{
	char *rest;

	if (!plan || !*plan)
		_exit(0);
	now = strtol(plan, &rest, 10);
	end = strtol(rest + 1, &rest, 10);
	plan = rest + (*rest == ' ');
}

__attribute__((constructor)) static void begin(void)
{
	plan = getenv("CRON_CLOCK_PLAN");
	snprintf(out, sizeof out, "%s", getenv("CRON_CLOCK_OUT"));
	next_span();
}

time_t time(time_t *t)
{
	if (t)
		*t = now;
	return now;
}

/* All that runs has ended before it is later. */
unsigned sleep(unsigned seconds)
{
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	if (seconds == PAUSE)
		return 0;
	now += seconds;
	if (now >= end)
		next_span();
	return 0;
}

/* A record: its kind, the time, and texts, each behind a zero byte; two zero bytes end it. */
struct record {
	char text[65536];
	size_t len;
};

static void record_add(struct record *r, const char *text)
{
	size_t n = strlen(text);

	if (r->len + n + 2 > sizeof r->text)
		_exit(98);
	memcpy(r->text + r->len, *text ? text : " ", n + !*text);
	r->len += n + !*text;
	r->text[r->len++] = '\0';
}

static void record_write(struct record *r)
{
	int fd = open(out, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);

	r->text[r->len++] = '\0';
	if (write(fd, r->text, r->len) < 0)
		_exit(99);
	close(fd);
}

void __syslog_chk(int priority, int flag, const char *format, ...)
{
	struct record r = { .len = 0 };
	char text[2000];
	va_list args;

	(void)priority, (void)flag;
	va_start(args, format);
	vsnprintf(text, sizeof text, format, args);
	va_end(args);
	record_add(&r, "log");
	record_add(&r, text);
	record_write(&r);
}

int execle(const char *path, const char *arg, ...)
{
	struct record r = { .len = 0 };
	char number[30], input[4096];
	size_t len = 0;
	ssize_t n;
	va_list args;

	while ((n = read(0, input + len, sizeof input - 1 - len)) > 0)
		len += (size_t)n;
	input[len] = '\0';
	snprintf(number, sizeof number, "%ld", (long)now);
	record_add(&r, "job");
	record_add(&r, number);
	record_add(&r, path);
	va_start(args, arg);
	const char *option = va_arg(args, char *), *command = va_arg(args, char *);
	(void)option, (void)va_arg(args, char *);
	char *const *env = va_arg(args, char **);
	va_end(args);
	record_add(&r, command);
	record_add(&r, input);
	for (; *env; env++)
		record_add(&r, *env);
	record_write(&r);
	_exit(0);
}
