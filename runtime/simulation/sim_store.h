/* A store in memory behind a simulated network: the locks of `lunarch test`. Real lock_ops, so that the real elector
 * runs on it. Not a store to use: it forgets everything, and its time is not the machine's. Used by the simulated nodes
 * (sim_node.c). */
#pragma once

#include "locks/lock.h"
#include "loop/timeline.h"

struct sim_store;

/* One node's way to the store. */
struct sim_link {
	bool cut; /* nothing gets through, in either direction; nobody is told */
};

/* world: a virtual timeline that goes on when a node does not; borrowed. seed: of what the network does. */
struct sim_store *sim_store_new(struct timeline *world, uint64_t seed);
void sim_store_free(struct sim_store *s); /* after its locks are closed */

void sim_store_latency(struct sim_store *s, double seconds); /* each way, give or take a half */
void sim_store_loss(struct sim_store *s, double part);       /* of the messages, 0 to 1 */
void sim_store_refuse(struct sim_store *s, bool down);       /* it answers nothing but errors */
/* to be called when a link is no longer cut: tells who watches through it to look again */
void sim_store_healed(struct sim_store *s);

/* url: the record's key, and what people see; the next record beside it has ".next" behind that. The answers come by
 * the node's timeline: none while the node stands still. */
struct lock *sim_store_open(struct sim_store *s, const char *url, const struct sim_link *link, struct timeline *node);

/* What is there now; NULL = nothing. Borrowed until time goes on. */
const struct record *sim_store_record(const struct sim_store *s, const char *url);

/* As an operator would do it. false: there is no record. */
void sim_store_delete(struct sim_store *s, const char *url, bool next); /* next: the next record beside it */
bool sim_store_edit_checkpoint(struct sim_store *s, const char *url, const char *json);

/* The next record beside the one of that URL. deny: nobody has the right to read or write it. */
void sim_store_deny_next(struct sim_store *s, const char *url, bool deny);
