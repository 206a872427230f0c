/* Which libraries this program was built with and runs with.
 * Not the program's own version and the lock backends, which the command names.
 * Used by `lunarch --version`. It is in this room because it asks Lua for its version. */
#pragma once

struct buf;

/* Appends "Lua 5.4.4, libev 4.33, jansson 2.14". */
void versions_add(struct buf *out);
