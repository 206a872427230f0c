/* Gives rights up, for good: another user for the whole program, or no privileges for what it starts. Not a sandbox:
 * what runs may still do all that its user may. No rights are ever gained here. Used by program/program.c, before
 * anything is started, and by the guard, in what it has started. */
#pragma once

#include "base/err.h"

/* This process becomes the user "NAME[:GROUP]" (names, or numbers of such as there are): its ids, its supplementary
 * groups (initgroups(3)), no capability unless it is root; HOME, USER, LOGNAME and SHELL are that user's. Who is that
 * user already keeps all of it. The process stays dumpable (prctl(2), PR_SET_DUMPABLE), so that its user may read its
 * /proc and prove its death. There must be no other thread. 0; -1 with *err: ERR_USAGE: there is no such user, or we
 * may not. After that the process may be half of each, and must end. */
int privileges_become(const char *user, struct err *err);

/* This process, and whatever it executes, gains no privilege any more (no_new_privs), and has no capability, nor any in
 * its bounding set. 0; -1 with errno: it has some still, so nothing may be started. Between fork, or vfork, and
 * exec. */
int privileges_drop(void);
