/* What an election uses: what its script's table says, joined with the options, the environment and the presets. Not
 * the options themselves (options.h), and not the script: what it says comes as a message. No I/O but looking at the
 * script's path. Used by run, exec, check and the simulation. */
#pragma once

#include "config/options.h"
#include "election/elector.h"
#include "lease/lease.h"
#include "process/wire.h"

/* A number that the script says by the key of an option; a time in milliseconds. */
struct said {
	enum option option;
	int64_t number;
};

/* Kept longer than the message that brought it. */
struct election_settings {
	char *name, *lock, *identity, *address; /* "" = the script says nothing */
	char *where;                            /* in the script, for messages: "app.lua:12" */
	char *hooks;                            /* which it has, for people: "on_leading, on_stopped" */
	struct said *said;
	uint32_t said_count;
	uint32_t flags; /* WIRE_ELECTION_* */
	uint32_t slot;  /* 0: the election has no slots. Its name ends with "-SLOT" */
};

/* Copies everything; *to needs no initialisation, and is the caller's to fini. false: the message makes no sense. */
bool election_settings_copy(struct election_settings *to, const struct wire_election *from);
void election_settings_fini(struct election_settings *s); /* also of a zeroed one */

/* In all of these s may be NULL: there is no script. What counts is, in this order: the option, its variable, the
 * script, the preset. */

int64_t election_number(const struct options *o, const struct election_settings *s, enum option which);
nsec election_time(const struct options *o, const struct election_settings *s, enum option which);

/* The times of the lease, whose sum is checked. Where one is said, the others that are not follow from it. ERR_USAGE
 * names the numbers, and where those that were given come from; or one of the script's that the option might not have. */
int election_times(const struct options *o, const struct election_settings *s, struct lease_times *t, struct err *err);

/* Who comes next. ERR_USAGE: such a number of the script's; a preempt-after where nobody asked to preempt, and where it
 * comes from. */
int election_next(const struct options *o, const struct election_settings *s, struct next_options *next,
                  struct err *err);

/* The lock's name for a script without --lock: file name and a hash of the real path, or of the text (-e). The caller
 * frees; NULL with ERR_MISSING. */
char *election_default_lock(const char *script, bool is_text, struct err *err);

/* Which lock an election uses: --lock with {name} filled in, else the script's, else fallback (election_default_lock),
 * which gets "-NAME" behind it when there are several. Of an election with slots: that lock, with "-SLOT" behind its
 * name. The caller frees; NULL with ERR_USAGE. */
char *election_lock(const struct options *o, const struct election_settings *s, const char *fallback, bool several,
                    struct err *err);

/* Whether a script with so many elections, of which this is the last, has several: the slots of one are one. */
bool election_several(const struct election_settings *last, uint32_t count);

/* Slots: an election in which several lead at once, each in a lock of its own; a process leads in one at most. */

#define ELECTION_SLOTS_MAX 64

/* The lock of a slot, of the URL that names them all. slot from 1 on. The caller frees. */
char *election_slot_lock(const char *lock, uint32_t slot);
/* Whether both are slots of one election. */
bool election_same_slots(const struct election_settings *a, const struct election_settings *b);
/* How many --slots asks for; 0: it was not given. -1 with *err. */
int election_slots(const struct options *o, struct err *err);

/* The Service of --service with {name} filled in; "": none. The caller frees; NULL with ERR_USAGE: several elections
 * cannot share one. */
char *election_service(const struct options *o, const char *name, bool several, struct err *err);

/* Puts before an error of an election's lock who named that lock: --lock or its variable; else where, which is a place
 * in the script, or NULL. Returns -1. */
int election_blame_lock(const struct options *o, const char *where, struct err *err);
