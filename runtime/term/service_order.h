/* The order of --service: when the leader is published in the Service, and when it is withdrawn. It stands between
 * an elector and its user, and passes on what the elector says. A term that begins is published at the same time. A
 * term that ends by somebody's will, while the lease is held, is withdrawn before the user hears that it is to stop.
 * Not a decision about the term: the stop is held back for a bounded time, and not at all once the lease is lost.
 * Used by campaign.c and the room exec. */
#pragma once

#include "election/elector.h"
#include "service/service.h"

struct service_order;

/* elector_new, with the order between the elector and cb, whose arg is arg: both borrowed. s->target "": without one,
 * and *made is NULL. Looks whether the Service is there, once the loop runs. NULL with *err: nothing was made. */
struct elector *service_order_elector(struct service_order **made, const struct service_config *s,
                                      const struct elector_config *c, const struct elector_callbacks *cb, void *arg,
                                      struct err *err);

/* After the elector is freed. NULL: does nothing. */
void service_order_free(struct service_order *o);

/* To be called before a stop that the elector does not know of yet (a signal to the command of exec). grace: the
 * time for that stop, of which a part is spent here. true: done is called later, once. false: now is the time, or
 * done is NULL. o NULL: false. A stop of the elector that comes meanwhile is not held back. */
bool service_order_withdraw(struct service_order *o, nsec grace, void (*done)(void *arg), void *arg);

/* NULL: there is none. */
const struct service *service_order_service(const struct service_order *o);
