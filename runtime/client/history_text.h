/* The last terms of a lock, as its record tells them, as people read them, and as JSON for programs.
 * Not a judge: its times are those of the clocks of whoever wrote them (lease/past.h).
 * Used by history and status. */
#ifndef LUNARCH_HISTORY_TEXT_H
#define LUNARCH_HISTORY_TEXT_H

#include "base/buf.h"
#include "lease/record.h"

#include <stdbool.h>

/* All append to out. r NULL: there is no record. now_us: the reader's wall clock. */

/* Lines. false: nothing is known of any term, and nothing was appended. */
bool history_text_table(struct buf *out, const struct record *r, int64_t now_us);

/* One object with a newline; lock: URL without secrets. */
void history_text_json(struct buf *out, const char *lock, const struct record *r, int64_t now_us);

#endif
