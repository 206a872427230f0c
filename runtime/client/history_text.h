/* The last terms of a lock, as its record tells them, as people read them, and as JSON for programs.
 * Not a judge: its times are those of the clocks of whoever wrote them (lease/past.h).
 * Used by history and status. */
#ifndef LUNARCH_HISTORY_TEXT_H
#define LUNARCH_HISTORY_TEXT_H

#include "base/buf.h"
#include "client/record_text.h"
#include "lease/past_rows.h"

#include <stdbool.h>

/* Both append to out. false: nothing is known of any term. */

/* Lines; none where nothing is known. brief: without the times at which they ended, and
 * with short names. */
bool history_text_table(struct buf *out, const struct record_text *s, bool brief);

/* One object with a newline; its state is that of the record now. */
bool history_text_json(struct buf *out, const struct record_text *s);

/* Lines that draw who led when: a line for each leader, as wide as `columns`, from the first term that is known to now.
 * '=' leads, 's' its leader ended it, 'x' its leader vanished. Nothing where no term's time is known. */
void history_text_drawing(struct buf *out, const struct record_text *s, int columns, bool colour);

/* Fills a bar of so many characters, which shows the time from from_us to to_us, with these terms: each with its
 * letter, and 'x' at its end if its leader vanished. clean: the same for an end that its leader made; 0: none. What is
 * in no term stays as it is. */
void history_text_bar(char *bar, int width, int64_t from_us, int64_t to_us, const struct past_row *row, int rows,
                      const char *letter, char clean);

#endif
