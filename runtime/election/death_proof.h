/* Proof that a holder on this host, and everything it started, is dead (docs/design.md, "Proof of death").
 * Not a guess: what cannot be proved is unknown, and the lease is waited out.
 * Used by the elector (to take over at once) and by the supervisor (to make the evidence). */
#pragma once

#include "base/err.h"
#include "lease/record.h"

#include <stdbool.h>

#define PROOF_ENV "LUNARCH_TREE" /* the environment marker: its value is the incarnation */

/* What a record says of its holder's process, filled for this process. */
struct proof_self {
	char incarnation[37];
	char boot_id[37];
	uint64_t pid, pid_start, pid_namespace;
	char *dir;   /* where tree files are; NULL: nobody's death can be proved */
	char *tree;  /* path of ours; NULL if none could be made: then nobody can prove our death, and they wait */
	int tree_fd; /* flocked, inheritable on purpose (every process of the tree keeps it); -1 */
};

/* Makes the incarnation, and the tree file `.INCARNATION.tree` in dir (NULL: no file). Never fails for want of the
 * file. */
void proof_self_init(struct proof_self *s, const char *dir);

/* Removes the tree files of processes that were found dead more than an hour ago. There may be many, so this is for a
 * moment in which nobody waits for us. */
void proof_self_tidy(const struct proof_self *s);
void proof_self_fini(struct proof_self *s); /* unlinks the tree file, closes */

/* Withdraws the evidence. From now on nobody can prove this process dead, nor the copy of it, on a clone of this
 * machine, that leads under the same incarnation. */
void proof_self_withdraw(const struct proof_self *s);
void proof_self_fill(const struct proof_self *s, struct record *r); /* incarnation, bootId, pid..., tree */

/* Can evidence about this record's pid be had from here: equal boot id, equal PID namespace, start time given, and a
 * tree file in the directory in which ours are? Whoever can write the record could put a file anywhere else. */
bool proof_possible(const struct proof_self *s, const struct record *r);

/* Is the holder's elector one that this process runs under? Then waiting for its lease may be waiting for ourselves. */
bool proof_above(const struct proof_self *s, const struct record *r);

/* A pidfd of the holder's elector, O_CLOEXEC, readable when it dies; -1 if that process is gone already (or not that
 * process any more). Ask proof_possible first. */
int proof_pidfd(const struct record *r);

enum proof_verdict {
	PROOF_DEAD,    /* nothing of the tree lives; its tree file stays for an hour, so that others can see it too */
	PROOF_DYING,   /* something lives, and dies or was killed just now: ask again soon */
	PROOF_DOUBTED, /* what may be of the tree cannot be read or ended: ask again, since it may end */
	PROOF_UNKNOWN, /* can never be proved: wait the lease out */
};

/* For a record for which proof_possible is true. Blocking (a scan of /proc, 1 to 30 ms): run it off the loop. Kills
 * leftovers that carry the marker, but never a process while the elector itself lives, and none unless the tree file
 * is our user's, and says that the record's holder made it, in our time namespace. Without insist it leaves the
 * killing to the guard while something holds the tree file. why: what was found, for the log. No heap. */
enum proof_verdict proof_check(const struct record *r, bool insist, char *why, size_t why_size);
