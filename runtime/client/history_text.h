/* The last terms of a lock, as its record tells them, as people read them, and as JSON for programs.
 * Not a judge: its times are those of the clocks of whoever wrote them (lease/past.h).
 * Used by history and status. */
#ifndef LUNARCH_HISTORY_TEXT_H
#define LUNARCH_HISTORY_TEXT_H

#include "base/buf.h"
#include "lease/record.h"

#include <stdbool.h>

/* Both append to out. r NULL: there is no record. now_us: the reader's wall clock. false: nothing is known of any term.
 */

/* Lines; none where nothing is known. brief: without the times at which they ended. */
bool history_text_table(struct buf *out, const struct record *r, int64_t now_us, bool brief);

/* One object with a newline; lock: URL without secrets. */
bool history_text_json(struct buf *out, const char *lock, const struct record *r, int64_t now_us);

/* Lines that draw who led when: a line for each leader, as wide as `columns`, from the first term that is known to now.
 * '=' leads, 's' its leader ended it, 'x' its leader vanished. Nothing where no term's time is known. */
void history_text_drawing(struct buf *out, const struct record *r, int64_t now_us, int columns, bool colour);

#endif
