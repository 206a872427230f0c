#include "client/screen.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ECMA-48 and xterm's control sequences: the other screen, without a cursor. */
#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[0m\033[?25h\033[?1049l"
#define HOME "\033[H"
#define LINE_END "\033[K"   /* clears what is left of the line */
#define SCREEN_END "\033[J" /* and of the screen */

static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

static void screen_write(const char *text, size_t len)
{
	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, text, len);
		if (n < 0)
			return; /* nobody is there to see it */
		text += n;
		len -= (size_t)n;
	}
}

bool screen_possible(void)
{
	const char *term = getenv("TERM");

	return isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0;
}

/* The process ends by the signal, as it would have without the screen. */
static void screen_on_end(int number)
{
	screen_write(LEAVE, strlen(LEAVE));
	signal(number, SIG_DFL);
	raise(number);
}

static void screen_on_suspend(int number)
{
	(void)number;
	screen_write(LEAVE, strlen(LEAVE));
	raise(SIGSTOP);
	screen_write(ENTER, strlen(ENTER));
}

void screen_enter(struct screen *s)
{
	const char *plain = getenv("NO_COLOR");
	struct sigaction end = { .sa_handler = screen_on_end },
			 suspend = { .sa_handler = screen_on_suspend, .sa_flags = SA_RESTART };

	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		struct sigaction was;
		if (sigaction(ends[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
			sigaction(ends[i], &end, NULL);
	}
	sigaction(SIGTSTP, &suspend, NULL);
	s->entered = true;
	s->colour = !plain || !*plain;
	screen_write(ENTER, strlen(ENTER));
}

void screen_measure(struct screen *s)
{
	struct winsize w = { 0 };

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &w);
	s->columns = w.ws_col ? w.ws_col : 80;
	s->lines = w.ws_row ? w.ws_row : 24;
}

/* Bytes of the sequence or the character that begins here. *columns: how many columns it takes, as far as characters
 * are one column wide. */
static size_t piece(const char *at, const char *end, int *columns)
{
	size_t n = 1;

	*columns = *at != '\033';
	if (*at == '\033') {
		while (at + n < end && at[n] != 'm')
			n++;
		return at + n < end ? n + 1 : n;
	}
	while (at + n < end && (at[n] & 0xc0) == 0x80)
		n++;
	return n;
}

static void add_cut(struct buf *out, const char *at, const char *end, int most)
{
	while (at < end) {
		int columns;
		size_t n = piece(at, end, &columns);
		if (columns <= most)
			buf_add(out, at, n);
		most -= columns;
		at += n;
	}
	buf_adds(out, LINE_END);
}

void screen_show(const struct screen *s, const struct buf *text)
{
	const char *at = text->data, *end = text->data + text->len;
	struct buf out = { 0 };

	buf_adds(&out, HOME);
	for (int line = 0; at < end && line < s->lines; line++) {
		const char *stop = memchr(at, '\n', (size_t)(end - at));
		stop = stop ? stop : end;
		buf_adds(&out, line ? "\r\n" : "");
		add_cut(&out, at, stop, s->columns);
		at = stop + 1;
	}
	buf_adds(&out, SCREEN_END);
	screen_write(out.data, out.len); /* at once, so that nobody sees half of it */
	buf_fini(&out);
}

void screen_leave(struct screen *s)
{
	if (!s->entered)
		return;
	s->entered = false;
	screen_write(LEAVE, strlen(LEAVE));
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		struct sigaction was;
		if (sigaction(ends[i], NULL, &was) == 0 && was.sa_handler == screen_on_end)
			signal(ends[i], SIG_DFL);
	}
	signal(SIGTSTP, SIG_DFL);
}
