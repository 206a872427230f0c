/* A request to a term's script, as a task of the term, and its one reply to the elector.
 * Not what is asked for: that is the Lua function's. Used by term.c. */
#pragma once

#include "script/election.h"

/* Calls the function that has this reference in the registry, as term_bind_requests says. The reply is sent when its
 * task has ended, however that was: before the scope is idle. m is borrowed during the call. */
void request_begin(struct scope *scope, struct election *e, int function, const struct wire_request *m);

void request_refuse(const struct election *e, uint64_t request, const char *why);
