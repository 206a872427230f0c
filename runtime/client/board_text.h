/* Several locks on a terminal: a line each, with a bar of who led when, on one scale of time. Each leader has a letter
 * and a colour, which stay its own as long as the drawing goes on.
 * Not the drawing of one lock (history_text.h). Used by status --watch. */
#ifndef LUNARCH_BOARD_TEXT_H
#define LUNARCH_BOARD_TEXT_H

#include "client/record_text.h"
#include "client/watch_board.h"
#include "client/screen.h"

#define BOARD_LETTERS 48

struct board_text {               /* valid when zeroed */
	char *who[BOARD_LETTERS]; /* by letter, in the order in which they were seen first */
	int count;
};
void board_text_fini(struct board_text *t);

/* Appends lines for a screen that was measured: as many locks as it has room for, then how many are not shown, and
 * whose each letter is. A letter leads, 'x' at its end: it vanished. now_us: wall clock. */
void board_text_draw(struct board_text *t, struct buf *out, const struct watch_board *b, const struct screen *s,
                     int64_t now_us);

/* Appends what is known of one of them, without a newline: record_text_headline, or
 * why it cannot be read. */
void board_text_headline(struct buf *out, const struct board_lock *l, int64_t now_us);

/* What is shown of it. */
struct record_text board_text_shown(const struct board_lock *l, int64_t now_us);

#endif
