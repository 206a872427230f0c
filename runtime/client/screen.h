/* A terminal on which something is drawn again and again in place. It is drawn on the terminal's other screen, so what
 * stood there before is back at the end, also when a signal ends the process. It reads no keys and changes no settings
 * of the terminal. A process has one at most, since it handles signals. Used by status --watch. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct screen {
	bool colour; /* NO_COLOR is not set (no-color.org) */
	int columns, lines;
};

/* Whether standard output is a terminal that can be drawn on. */
bool screen_possible(void);

void screen_enter(void);               /* until screen_leave, or until a signal ends the process */
void screen_measure(struct screen *s); /* before each drawing: the window may have another size by now */

void screen_write(const char *text, size_t len);
void screen_leave(void); /* does nothing if it was not entered */
