/* What release and fence have in common, which change a record by hand when its holder is dead for sure: the reason is
 * kept, the token must be named, and a holder that renews is not dead.
 * Not what they write. Used by these two. */
#pragma once

#include "client/lock_client.h"
#include "commands/commands.h"

/* In all of these: -1: go on; else it was said what is wrong, and this is the exit status. */

int by_hand_reason(enum command command, const char *reason);              /* --reason */
int by_hand_token(enum command command, const char *text, int64_t *token); /* --token */
/* Opens the lock that the user named. lock_client_close all the same. */
int by_hand_open(enum command command, const struct options *o, struct lock_client *c);
/* Reads the record; without one there is nothing to do. */
int by_hand_read(enum command command, struct lock_client *c);
/* Watches the record that was read, for as long as a healthy leader needs for two renewals, at most for its lease. */
int by_hand_watch(enum command command, struct lock_client *c);

/* "2026-11-23T10:00:00.000000Z by alice at host: REASON", for the caller to free. */
char *by_hand_note(const char *reason);

/* Writes c->record in place of the one that was read. done: what to say if that went well. The exit status. */
int by_hand_write(enum command command, struct lock_client *c, const char *done);
