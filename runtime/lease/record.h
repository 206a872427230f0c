/* The election record: one JSON object, a superset of Kubernetes' LeaderElectionRecord, that a person can read.
 * It parses, prints, copies and compares records. It stores nothing; the lease machine decides what a record means.
 * Used by the locks, the elector and the commands that show a record. */
#pragma once

#include "base/err.h"
#include "lease/record_time.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct advice; /* lease/advice.h */
struct json_t; /* jansson's; named here so that this header does not include it */

#define RECORD_MAX_BYTES (256 * 1024)     /* a longer text is not a record */
#define RECORD_CHECKPOINT_MAX (16 * 1024) /* bytes that a script may save; a checkpoint in a store may be longer */
/* Bytes of all unknown fields together, and bytes of the checkpoint, as they are printed. Whoever acquires the lock
 * writes them again, and there must be room for its own fields. */
#define RECORD_KEPT_MAX (96 * 1024)
#define RECORD_PREVIOUS_MAX 4096         /* a longer name of the previous holder is left out: only people read it */
#define RECORD_TRANSITIONS_MAX INT32_MAX /* where counting stops: Kubernetes' API and client-go have 32 bits */

enum record_state {
	RECORD_UNSAID, /* the record does not say: client-go's records have no state */
	RECORD_LEADING,
	RECORD_RELEASED,
};

/* The record owns its strings. After record_init only checkpoint, unfenced and past may be NULL; "" means absent. A duration that
 * the record does not have is 0. */
struct record {
	char *holder; /* "" = nobody */
	char *address;
	char *previous_holder;
	char *forced;     /* who released it for its holder, when and why (`lunarch release`); for people. "": nobody */
	char *paid;       /* who said last that one in `unfenced` does nothing any more, when and why; for people */
	char *tree;       /* path of the flocked file of the holder's process tree (docs/design.md, proof of death) */
	int64_t lease_ms; /* leaseDurationMs, else leaseDurationSeconds: how long a standby waits */
	int64_t renew_ms, retry_ms;
	int64_t acquired_us, renewed_us; /* wall clock, for people; RECORD_TIME_UNKNOWN */
	int64_t transitions;             /* changes of holder, as client-go counts */
	uint64_t term;                   /* grows with every acquisition */
	int64_t token;                   /* 0 = unknown (a store's revision, before the second write) */
	enum record_state state;
	char write[33];       /* 32 hex digits, random: the name of the write that made this record */
	char incarnation[37]; /* UUID of the holder's process */
	/* How many writes that process has made in this election, with this one. 0: the record does not say (Lunarch up
	 * to 2026-11-21). */
	uint64_t writes;
	char boot_id[37];
	uint64_t pid, pid_start,
		pid_namespace;  /* of the elector; start in clock ticks since boot (proc(5), field 22) */
	uint64_t net_namespace; /* not used; kept as it was read */
	char store
		[41]; /* the store in which it was written, by the name that the store gives itself; "": it has none */
	char *checkpoint;      /* what the script saved: compact JSON, one value; NULL = nothing */
	struct advice *advice; /* what the record says of who comes next; NULL = nothing */
	/* The number of the term if that has not begun, since its holder still fences earlier ones (debt.h). Any other
	 * number, or 0: it does not fence. */
	uint64_t fencing;
	char *unfenced;       /* who may still act, as debt.h prints it; NULL = nobody */
	char *past;           /* the last terms, for people, as past.h prints them; NULL = none */
	struct json_t *extra; /* unknown fields, which are kept; NULL when there are none */
};

/* The version of a record in its store. Only the lock's backend knows what the text means. "" = absent. */
struct version {
	char text[64];
};

void record_init(struct record *r);
void record_fini(struct record *r);  /* frees everything; call record_init before the next use */
void record_clear(struct record *r); /* as after record_init */
void record_copy(struct record *to, const struct record *from); /* to: initialised; its content is freed */

void record_take(struct record *to, struct record *from); /* moves it; from is as after record_init */

/* Parses len bytes into r, which is initialised, and unchanged on error. Advice that is malformed or another term's is
 * left out, and so are past terms that are none. -1 with one of
 * ERR_INVALID: not JSON; or a key has the wrong type (the text names the key and what was found); or what must be kept
 * is longer than RECORD_KEPT_MAX as it is printed (1e9 is printed longer than it was written); ERR_FOREIGN: JSON, but
 * without holderIdentity and leaseDurationSeconds. */
int record_parse(struct record *r, const char *text, size_t len, struct err *err);

/* leaseDurationSeconds as it is published: rounded up, and one more where renewals are less than a second apart. */
int64_t record_seconds(const struct record *r);

/* JSON with a key on each line and a final newline, keys in a fixed order, unknown fields last. The caller frees it. */
char *record_print(const struct record *r);

/* Adds the term that the record shows, from acquired_us to renewed_us, to the past ones. who, not "", token and reason
 * are as for past_term_set (past.h). Where the unknown fields leave no room for them, the record has no past terms. */
void record_note_past(struct record *r, const char *who, int64_t token, const char *reason);

/* Whether text may become a record's checkpoint: one JSON value that record_parse will accept. -1 with ERR_FULL if it
 * is longer than RECORD_CHECKPOINT_MAX, else with ERR_INVALID. */
int record_checkpoint_check(const char *text, struct err *err);

/* A number that is equal for two records if they show the same write. It depends on the holder, incarnation, write's
 * name, state, term, token, durations, times and transitions; not on other fields, versions or the order of keys. A
 * store that makes tokens makes another token for a create that is applied twice, so the second record gives another
 * number. Where the token is a part of what is written, nothing tells the two records apart. */
uint64_t record_sight_id(const struct record *r);

/* Its term has not begun: its holder fences earlier ones. So nobody leads. */
bool record_fences(const struct record *r);

/* The write's name as a number, 0 if the record has none. */
uint64_t record_write_id(const struct record *r);
