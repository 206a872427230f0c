/* The election record: one JSON object, a superset of Kubernetes' LeaderElectionRecord, that a person can read.
 * Not a store and not a judge: it parses, prints, copies and compares; the lease machine decides what a record means.
 * Used by the locks, the elector and the commands that show a record. */
#ifndef LUNARCH_RECORD_H
#define LUNARCH_RECORD_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t; /* jansson's, so that readers of this header need not have it */

#define RECORD_MAX_BYTES (256 * 1024)     /* a larger file is not one of ours */
#define RECORD_CHECKPOINT_MAX (16 * 1024) /* bytes that may be saved; what is in a store may be longer */
#define RECORD_KEPT_MAX                                                                                               \
	(96 * 1024) /* of unknown fields together, and of the checkpoint, as they are printed: whoever takes the lock \
	             * writes them again, and its own fields beside them */
#define RECORD_PREVIOUS_MAX 4096 /* a longer name of the previous holder, which is for people, is left out */
#define RECORD_TIME_UNKNOWN INT64_MIN
#define RECORD_TIME_MAX INT64_C(253402300799999999) /* the end of the year 9999, the last that is printed */
#define RECORD_TRANSITIONS_MAX INT32_MAX /* Kubernetes' API and client-go have 32 bits; nobody counts further */

enum record_state {
	RECORD_UNSAID, /* no state: a record of a client that has none, client-go's for one */
	RECORD_LEADING,
	RECORD_RELEASED,
};

/* Strings are owned and never NULL after record_init, but for the checkpoint; "" means absent. Durations are 0 where
 * the record has none. */
struct record {
	char *holder; /* "" = nobody */
	char *address;
	char *previous_holder;
	char *tree;       /* path of the flocked file of the holder's process tree (docs/design.md, proof of death) */
	int64_t lease_ms; /* leaseDurationMs, else leaseDurationSeconds; what a standby waits */
	int64_t renew_ms, retry_ms;
	int64_t acquired_us, renewed_us; /* wall clock, for people; RECORD_TIME_UNKNOWN */
	int64_t transitions;             /* changes of holder, as client-go counts */
	uint64_t term;                   /* every acquisition */
	int64_t token;                   /* 0 = unknown (a store's revision, before the second write) */
	enum record_state state;
	char write[33];       /* 32 hex digits, random: the name of the write that made this record */
	char incarnation[37]; /* UUID of the holder's process */
	uint64_t writes; /* that process' writes in this election, with this one; 0 = not said (a record of Lunarch up
	                    to 2026-11-21) */
	char boot_id[37];
	uint64_t pid, pid_start,
		pid_namespace;  /* of the elector; start in clock ticks since boot (proc(5), field 22) */
	uint64_t net_namespace; /* reserved; kept */
	char *checkpoint;       /* what the script saved: compact JSON, one value; NULL = nothing */
	struct json_t *extra;   /* fields we do not know, kept; NULL when there are none */
};

/* The version of a record in its store: opaque, compared by the store alone. "" = absent. */
struct version {
	char text[64];
};

void record_init(struct record *r);
void record_fini(struct record *r);                             /* frees everything; init before the next use */
void record_clear(struct record *r);                            /* as after record_init */
void record_copy(struct record *to, const struct record *from); /* to must be initialised; its content is freed */

void record_take(struct record *to, struct record *from); /* moves it; from is as after record_init */

/* Parses len bytes. -1 with ERR_INVALID (not JSON; a key with the wrong type: named, with what was found; more than
 * RECORD_KEPT_MAX that would have to be kept, since numbers may be printed longer than they were written: 1e9) or
 * ERR_FOREIGN (JSON, but without holderIdentity and leaseDurationSeconds). r must be initialised; unchanged on error.
 */
int record_parse(struct record *r, const char *text, size_t len, struct err *err);

/* leaseDurationSeconds as it is published: rounded up, and one more where renewals are less than a second apart. */
int64_t record_seconds(const struct record *r);

/* Pretty JSON with a final newline, keys in a fixed order, unknown fields last. malloc'd; the caller frees. */
char *record_print(const struct record *r);

/* Whether text may become a record's checkpoint: JSON that every reader of the record will accept, and not too long. */
int record_checkpoint_check(const char *text, struct err *err);

/* A number that is equal for two readings exactly if they show the same write: holder, incarnation, write, state, term,
 * durations and times count; labels, versions and key order do not. */
uint64_t record_sight_id(const struct record *r);

/* The write's name as a number, 0 if the record has none. */
uint64_t record_write_id(const struct record *r);

/* RFC 3339 with six digits and Z, as Kubernetes' MicroTime wants it. out: at least 32 bytes. */
void record_time_print(int64_t us, char *out, size_t size);
int record_time_parse(const char *text, int64_t *us); /* lenient: any fraction, Z or offset; -1 if it is no time */

#endif
