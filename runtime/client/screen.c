#include "client/screen.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* ECMA-48 and xterm's control sequences: the other screen, without a cursor. */
#define ENTER "\033[?1049h\033[?25l"
#define LEAVE "\033[0m\033[?25h\033[?1049l"

static const int ends[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT };

void screen_write(const char *text, size_t len)
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

static void screen_on_suspend(int)
{
	screen_write(LEAVE, strlen(LEAVE));
	raise(SIGSTOP);
	screen_write(ENTER, strlen(ENTER));
}

void screen_enter(void)
{
	struct sigaction end = { .sa_handler = screen_on_end },
			 suspend = { .sa_handler = screen_on_suspend, .sa_flags = SA_RESTART };

	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		struct sigaction was;
		if (sigaction(ends[i], NULL, &was) == 0 && was.sa_handler != SIG_IGN)
			sigaction(ends[i], &end, NULL);
	}
	sigaction(SIGTSTP, &suspend, NULL);
	screen_write(ENTER, strlen(ENTER));
}

void screen_measure(struct screen *s)
{
	const char *plain = getenv("NO_COLOR");
	struct winsize w = { 0 };

	ioctl(STDOUT_FILENO, TIOCGWINSZ, &w);
	s->columns = w.ws_col ? w.ws_col : 80;
	s->lines = w.ws_row ? w.ws_row : 24;
	s->colour = !plain || !*plain;
}

void screen_leave(void)
{
	bool entered = false;

	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
		struct sigaction was;
		if (sigaction(ends[i], NULL, &was) == 0 && was.sa_handler == screen_on_end) {
			signal(ends[i], SIG_DFL);
			entered = true;
		}
	}
	if (!entered)
		return;
	screen_write(LEAVE, strlen(LEAVE));
	signal(SIGTSTP, SIG_DFL);
}
