/* Room service: the address of a Kubernetes Service, kept at the leader's while it leads (`--service`).
 *
 * Keeps one candidate's part of that: it publishes when a term begins, looks now and then whether it is still so,
 * withdraws when the term ends, and tries again what fails. Not a part of the election: no term waits for it but for
 * a bounded withdrawal, which term/service_order.h puts before the stop. Used by that, by the room program to show
 * it, and by `lunarch check`. */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "service/service_store.h"

#include <stdbool.h>
#include <stdint.h>

struct buf;
struct lock_env;
struct service;

struct service_config { /* borrowed for service_open only, but for env and ops, which outlive it */
	struct lock_env *env;
	const char *target;            /* as --service says it */
	const char *lock;              /* its URL, with what it needs */
	const char *name;              /* the election's, for the log; "" */
	const char *address;           /* of this candidate; "": what POD_IP says */
	bool address_later;            /* a script's function says it: what is here now does not count */
	const struct service_ops *ops; /* NULL: those of the module `kube`, which is loaded; tests give others */
};

/* Reads files (a kubeconfig): before the loop runs. NULL with *err: the text, the address or the kubeconfig is wrong.
 * What the API server would say comes later. */
struct service *service_open(const struct service_config *c, struct err *err);
void service_free(struct service *s); /* NULL: does nothing. Nothing is called any more */

/* Looks whether it could be published, and logs what is in the way; as often as that takes. */
void service_look(struct service *s);

struct service_term { /* texts are copied */
	uint64_t term;
	int64_t token;
	const char *address; /* "": what POD_IP says */
	const char *lock, *identity;
};

/* From the next turn of the loop on the Service is to lead to this address alone, until service_withdraw. Nothing waits
 * for it. */
void service_publish(struct service *s, const struct service_term *t);

/* Takes the address away. That is tried for a while, also after done was called. true: done is called once, later:
 * when it is done, cannot be, or after `within`, whichever comes first. false: there is nothing to wait for, or done
 * is NULL. */
bool service_withdraw(struct service *s, nsec within, void (*done)(void *arg), void *arg);

struct service_status {      /* texts are borrowed until the next event */
	const char *name;    /* "NAMESPACE/NAME" */
	const char *host;    /* what it was last published with; "" */
	const char *trouble; /* what is in the way; "": nothing */
	bool published;      /* as far as is known */
	uint64_t failures;
};
void service_status(const struct service *s, struct service_status *out);

/* Appends a line for people, without a newline. */
void service_tell(const struct service *s, struct buf *out);

/* Looks once, and waits for the answer, for at most so long: for `lunarch check` and `doctor` alone, which have a loop
 * of their own and wait for SERVICE_CHECK_WITHIN. 0, or -1 with *err. */
#define SERVICE_CHECK_WITHIN (5 * NSEC_PER_SEC)
int service_check(struct service *s, nsec within, struct err *err);
