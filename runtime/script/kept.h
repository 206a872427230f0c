/* What of the script's files is read once for a version of it: the way of lua/boot/kept.lua to the sources.
 * Not where they are (process/sources.h), and not the script itself, which script.c reads.
 * Used by script.c. */
#ifndef LUNARCH_KEPT_H
#define LUNARCH_KEPT_H

#include <lua.h>

struct sources;

/* Adds to the table at the top of the stack: kept_find(name) -> text or nil; keep(name, text) -> the text that counts,
 * which may be another worker's. Both: or nil and what is wrong. Without sources nothing is found, and every text
 * counts.
 * [-0, +0, m] */
void kept_bind(lua_State *L, struct sources *sources);

#endif
