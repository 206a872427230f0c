/* Coming next as the script sees it: on_next and what it starts, on_next_over; their `s` object. When this candidate
 * leads, the term takes what on_next started, and stops it with itself.
 * It does not decide who comes next: the elector does, by messages and by the page.
 * Used by script.c, which passes the messages, and by term.c. */
#pragma once

#include "script/election.h"

struct next;

bool next_begin(struct election *e, struct wire *w); /* WIRE_NEXT */
bool next_over(struct election *e, struct wire *w);  /* WIRE_NEXT_OVER */

/* The term takes the on_next of this number: tells the elector, and wakes who waits for the lead. Its scope is the
 * caller's from now on, which fills it in and calls next_free when it is idle. NULL: it is over, or there was none. */
struct next *next_take(struct election *e, uint32_t number);
struct scope *next_scope(struct next *n);

/* The term's object is at the top of L's stack: s:wait() returns it. Pushes s.data. [-0, +1, m] */
void next_meet_term(struct next *n, lua_State *L);

void next_free(struct next *n);           /* NULL: does nothing */
void next_forget_all(struct election *e); /* the Lua state is closed: without running anything */

/* Defines the class of `s` objects and pushes the table of its methods. [-0, +1, m] */
void next_bind(lua_State *L);
