/* A term as the script sees it: on_leading and what it starts, on_stopping, then on_stopped; their `term` object.
 * It does not decide when a term begins and ends: the elector does, by messages and by the page.
 * Used by script.c, which passes the messages. */
#pragma once

#include "script/election.h"

bool term_lead(struct election *e, struct wire *w);    /* WIRE_LEAD */
bool term_drain(struct election *e, struct wire *w);   /* WIRE_DRAIN */
bool term_stop(struct election *e, struct wire *w);    /* WIRE_STOP */
bool term_cleanup(struct election *e, struct wire *w); /* WIRE_CLEANUP */

bool term_saved(struct election *e, struct wire *w);   /* WIRE_SAVED */
bool term_request(struct election *e, struct wire *w); /* WIRE_REQUEST */

/* Adds to the table at the top of the stack: checkpoint(term) and save(term, ...), as in checkpoint.h. [-0, +0, m] */
void term_bind_checkpoint(lua_State *L);

/* Adds to that table: on_request(term, f). From then on f(job, wait, uid) is called as a task of the term for each
 * request; it returns whether the job was begun, a text, and an exit status. Without it a request is refused. term nil:
 * for requests outside any term, as a task of the election. [-0, +0, m] */
struct script;
void term_bind_requests(lua_State *L, struct script *s);

/* Defines the class of `term` objects and pushes the table of its methods. [-0, +1, m] */
void term_bind(lua_State *L);
