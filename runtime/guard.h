/* The guard: the small process between elector and worker that makes sure the tree dies in time.
 * No heap, no threads, no Lua, no lock code, nothing that can fail once it runs; a session of its own (but for a command
 * on a terminal), the tree's subreaper.
 * Used by main.c for the role `-x guard ...`, whose arguments only crew.c makes. */
#ifndef LUNARCH_GUARD_H
#define LUNARCH_GUARD_H

int guard_main(int argc, char **argv);

#endif
