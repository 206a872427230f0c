/* The functions by which lua/boot/kept.lua finds and keeps the texts of a script's files, so that all workers of one
 * version of it run the same. Not where they are kept (process/sources.h), and not the script's own text, which
 * script.c reads. Used by script.c. */
#pragma once

#include <lua.h>

struct sources;

/* Adds to the table at the top of the stack: kept_find(name) -> text or nil; keep(name, text) -> the text that counts,
 * which may be another worker's. Both: or nil and what is wrong. Without sources nothing is found, and every text
 * counts.
 * [-0, +0, m] */
void kept_bind(lua_State *L, struct sources *sources);
