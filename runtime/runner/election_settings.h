/* What a script's table says about one election, kept longer than the message that brought it.
 * Not joined with the command line's options: options_times and options_election_lock do that.
 * Used by the running script, the simulation and script_probe. */
#ifndef LUNARCH_ELECTION_SETTINGS_H
#define LUNARCH_ELECTION_SETTINGS_H

#include "process/wire.h"
#include "runner/options_election.h"

struct election_settings {
	char *name, *lock, *identity, *address; /* "" = the script says nothing */
	char *where;                            /* in the script, for messages: "app.lua:12" */
	char *hooks;                            /* which it has, for people: "on_leading, on_stopped" */
	struct script_times times;
	struct script_next next;
	uint32_t flags; /* WIRE_ELECTION_* */
};

/* Copies everything; *to needs no initialisation, and is the caller's to fini. */
void election_settings_copy(struct election_settings *to, const struct wire_election *from);
void election_settings_fini(struct election_settings *p); /* also of a zeroed one */

#endif
