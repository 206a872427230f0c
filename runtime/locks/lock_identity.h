/* Which store answers, by the name that it gives itself (etcd: the cluster's id). What is behind an address may become
 * another store while a process runs: a member that was started anew, a name that moved, a backup that was restored.
 * Not a proof: who has just begun takes the first name that it hears. Used by the locks, through their server
 * (lock_server.h), by the elector, and by the commands that write. */
#pragma once

#include "locks/lock.h"

#define LOCK_IDENTITY_SIZE sizeof((struct record *)0)->store

struct lock_identity {                  /* one a server; zero before the first use */
	char known[LOCK_IDENTITY_SIZE]; /* the store that this process uses; "": none has said its name yet */
	char other[LOCK_IDENTITY_SIZE]; /* another one, which answered last in its place; "": none did */
};

/* A store has answered by this name: hex digits and dashes; "": it has none, and nothing follows. The first one is the
 * one to use. false with *err: it is another one. What it says counts for nothing, and nothing is written to it. kind:
 * what it is called in messages ("etcd at 10.0.0.1:2379"); what: what has the name ("cluster"). */
bool lock_identity_is(struct lock_identity *i, const char *name, const char *kind, const char *what, struct err *err);

/* These take locks that have no name, too (lock_ops.identity). Borrowed; "": none is known. */
const char *lock_identity_of(struct lock *l);
/* The record says from now on in which store it is. */
void lock_identity_sign(struct lock *l, struct record *r);
/* The record was written in another store than the one that shows it. */
bool lock_identity_moved(struct lock *l, const struct record *r);
/* If another store was the last to answer, that is the one to use from now on: true. */
bool lock_identity_accept(struct lock *l);
