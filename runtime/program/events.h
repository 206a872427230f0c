/* Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html) about the elections of this
 * process: a message for each election when a client comes, and one for each change after that.
 * Not what finds the changes: changes.h. What changed and changed back between two looks is not told.
 * Used by admin.c and control.c for /events; program.c has it.
 *
 * Message: id: N, which grows with each change; data: one JSON object: what standing_json says, with "at":TIME before
 *          that; {"at":TIME,"name":NAME,"gone":true} of an election that a reload has removed. */
#pragma once

#include "program/standing.h"

struct changes;
struct http_answer;
struct events;
struct server;

/* changes: borrowed, outlives it. */
struct events *events_new(const struct standing_source *source, struct changes *changes);
void events_free(struct events *e); /* when all servers have left */

/* Two servers at most. Each is borrowed, until it leaves. */
void events_serve(struct events *e, struct server *s);
void events_leave(struct events *e, const struct server *s);

/* Fills in the answer to who asks for the events. */
void events_join(struct events *e, struct http_answer *a);
