/* A terminal on which something is drawn again and again in place: on its other screen, so that what stood there is
 * back at the end, however that comes. It reads no keys and changes no settings of the terminal. One at a time, since
 * signals are handled by it. Used by status --watch. */
#ifndef LUNARCH_SCREEN_H
#define LUNARCH_SCREEN_H

#include "base/buf.h"

#include <stdbool.h>

struct screen {
	bool entered;
	bool colour;        /* NO_COLOR is not set (no-color.org) */
	int columns, lines; /* as they were when it was last measured */
};

/* Whether standard output is a terminal that can be drawn on. */
bool screen_possible(void);

void screen_enter(struct screen *s);   /* until screen_leave, or until a signal ends the process */
void screen_measure(struct screen *s); /* before each drawing: the window may have another size by now */

/* Shows these lines, each cut to the columns, in place of the last ones. The text may have sequences for colours
 * (ESC [ ... m) and no others. */
void screen_show(const struct screen *s, const struct buf *text);
void screen_leave(struct screen *s); /* it need not be entered */

#endif
