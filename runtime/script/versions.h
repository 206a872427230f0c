/* Which libraries this program was built with and runs with.
 * Not the program's own version, and not the lock backends: those are the command's to name.
 * Used by `lunarch --version`. It is in this room because only this one asks Lua. */
#ifndef LUNARCH_VERSIONS_H
#define LUNARCH_VERSIONS_H

struct buf;

/* Appends "Lua 5.4.4, libev 4.33, jansson 2.14". */
void versions_add(struct buf *out);

#endif
