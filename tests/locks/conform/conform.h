/* The conformance program's two halves: a script of operations on locks, and the race.
 * Not an elector: the test decides what is written, and when.
 * Used by tests/locks/conform/main.c; tests/lib/lock_driver.py speaks to it. */
#pragma once

/* Reads commands, one JSON object a line, from stdin until it ends; prints results and notices, one JSON object a line:
 *   {"id":1,"do":"open","lock":"a","url":"..."}    ->
 * {"id":1,"ok":true,"url":"...","token_in_record":true,"can_watch":true}
 *   {"id":2,"do":"read","lock":"a","within_ms":N}  -> {"id":2,"outcome":"ok","version":"..","record":{..},"calls":1,..}
 *     with "close":true (also a write): the lock is closed from inside the callback that ends the operation
 *   {"id":3,"do":"write","lock":"a","record":{..},"expected":"..","durable":true,"within_ms":N}
 *   {"id":4,"do":"cancel","lock":"a"}              -> the operation's own line, then {"id":4,"calls":1}
 *   {"id":5,"do":"watch","lock":"a"}               -> {"id":5,"watching":true}, later {"notice":"a"}
 *   {"id":6,"do":"close","lock":"a"}               -> {"id":6}
 *   {"id":7,"do":"open","lock":"p","url":"...","prefix":true} -> as 1; what is opened can be listed
 *   {"id":8,"do":"open","lock":"n","url":"...","next_of":"a"} -> as 1; the next record of a, whose URL that is
 *   {"id":9,"do":"list","lock":"p","within_ms":N}  -> {"id":9,"outcome":"ok","names":[".."],"more":false,..}
 *   {"id":10,"do":"remove","lock":"a","expected":"..","within_ms":N} -> {"id":10,"outcome":"ok",..}
 *   {"id":11,"do":"beside","lock":"a","url":"..","more":".."} -> {"id":11,"url":".."}; of a prefix: its own URL is
 * taken A result says when it was sent and how long it took, and if done was called from inside the start
 * ("inside"). */
int conform_script(void);

/* So many racers, each a lock with a connection of its own, in so many processes: in each round all of them write at
 * once, expecting the same version. Prints one JSON object with what happened. */
int conform_race(const char *url, int rounds, int racers, int processes);
