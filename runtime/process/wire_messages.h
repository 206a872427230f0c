/* The messages between elector and worker: what each is called, and its fields in their order.
 * Not code: wire.h makes a struct, a put, a get and a name of each line; tests/lib/player.py reads this file as text.
 * Used by wire.h, wire.c, the messages' unit test and the tests' player. */
#pragma once

/* M(number, TYPE, name). 1 to 63: worker to elector; 64 and above: elector to worker. The fields are
 * WIRE_FIELDS_name. */
#define WIRE_MESSAGES(M)                  \
	M(1, ELECTION, election)          \
	M(2, LOADED, loaded)              \
	M(3, LOAD_FAILED, load_failed)    \
	M(4, STARTED, started)            \
	M(5, ANSWER, answer)              \
	M(6, STOPPED, stopped)            \
	M(7, END, end)                    \
	M(8, EXIT, exit)                  \
	M(9, SAVE, save)                  \
	M(10, DRAINED, drained)           \
	M(11, METRIC, metric)             \
	M(12, NEXT_STOPPED, next_stopped) \
	M(13, REPLY, reply)               \
	M(14, JOB, job)                   \
	M(15, LEADS, leads)               \
	M(16, FAILED, failed)             \
	M(64, GO, go)                     \
	M(65, LEAD, lead)                 \
	M(66, STOP, stop)                 \
	M(67, CLEANUP, cleanup)           \
	M(68, LEADER, leader)             \
	M(69, NO_LEADER, no_leader)       \
	M(70, ASK, ask)                   \
	M(71, QUIT, quit)                 \
	M(72, SAVED, saved)               \
	M(73, DRAIN, drain)               \
	M(74, NEXT, next)                 \
	M(75, NEXT_OVER, next_over)       \
	M(76, REQUEST, request)

/* Parts of a message that may be there many times. P(name). */
#define WIRE_PARTS(P) P(kept) P(said)

/* F(type, name): u8, u32, u64, i64, str (NULL is sent as ""), cut: a str of which 16 KB are sent at most, or list: parts
 * up to the end of the message. */

/* An election of the script, while it loads. "": the script says nothing about it. */
#define WIRE_FIELDS_election(F)                                                                                       \
	F(u32, index) /* 0, 1, ... in the order of the script */                                                      \
	F(str, name)                                                                                                  \
	F(str, lock)                                                                                                  \
	F(str, identity)                                                                                              \
	F(str, address)                                                                                               \
	F(u32, flags) /* of enum wire_election_flag */                                                                \
	F(u32, slot)  /* of an election with slots, which is sent once for each, in their order: 1, 2, ...; else 0 */ \
	F(str, hooks) /* their names, for people */                                                                   \
	F(str, where) /* "script.lua:12", for messages about this election */                                         \
	F(list, said) /* of struct wire_said */

/* A number that the script says by the key of an option (enum option); a time in milliseconds. */
#define WIRE_FIELDS_said(F) \
	F(u32, option)      \
	F(i64, number)

/* The script is loaded: so many elections were sent. */
#define WIRE_FIELDS_loaded(F) F(u32, count)

/* It cannot be loaded. text: file, line, what was expected. */
#define WIRE_FIELDS_load_failed(F)                                       \
	F(cut, text)                                                     \
	F(str, lock_file) /* what it is, if it is one; "": it is none */ \
	F(str, schemes)   /* of a lock file; a blank between two */

/* on_start has run. */
#define WIRE_FIELDS_started(F) \
	F(u8, ok)              \
	F(cut, text)

/* Answers WIRE_ASK. */
#define WIRE_FIELDS_answer(F)                 \
	F(u32, slot)                          \
	F(u64, ask)                           \
	F(u8, yes)                            \
	F(cut, why)                           \
	F(cut, address)  /* "" = unchanged */ \
	F(i64, priority) /* WIRE_PRIORITY_UNSET = unchanged */

/* Answers WIRE_LEAD, before any hook of the term runs. */
#define WIRE_FIELDS_leads(F) \
	F(u32, slot)         \
	F(u64, term)

/* on_stopped has run; the term's tasks and children are gone. */
#define WIRE_FIELDS_stopped(F) \
	F(u32, slot)           \
	F(u64, term)

/* The script wants the term to end. */
#define WIRE_FIELDS_end(F)                                \
	F(u32, slot)                                      \
	F(u64, term)                                      \
	F(u8, reason)      /* enum lease_reason */        \
	F(i64, sit_out_ms) /* -1: the default back-off */ \
	F(cut, text)

/* os.exit or lunarch.exit: stop everything. */
#define WIRE_FIELDS_exit(F) F(u32, code)

/* A checkpoint, to be put into the record. One at a time, answered by WIRE_SAVED; only a last one, of a term that is
 * over, may overtake it. */
#define WIRE_FIELDS_save(F)        \
	F(u32, slot)               \
	F(u64, term)               \
	F(u64, save) /* growing */ \
	F(str, checkpoint)

/* Answers WIRE_DRAIN: on_stopping has run. WIRE_STOP follows. */
#define WIRE_FIELDS_drained(F) \
	F(u32, slot)           \
	F(u64, term)

/* Answers each WIRE_NEXT once: it is over, and its tasks and children are gone; or the term of a WIRE_LEAD has taken
 * them. */
#define WIRE_FIELDS_next_stopped(F) \
	F(u32, slot)                \
	F(u32, number)              \
	F(u8, how) /* enum wire_next_end */

/* A metric of the script's own. term 0: it was set outside any term. labels: as Prometheus writes them between braces,
 * or "". value: a finite number as text; of a counter what is to be added. */
#define WIRE_FIELDS_metric(F) \
	F(u32, slot)          \
	F(u64, term)          \
	F(u8, counter)        \
	F(str, name)          \
	F(str, labels)        \
	F(str, value)

/* A hook or a task of it has raised. text: which, and the error with its line. The log has it by then. */
#define WIRE_FIELDS_failed(F) \
	F(u32, slot)          \
	F(cut, text)

/* Answers WIRE_REQUEST once, before WIRE_STOPPED of its term if it has one. text: what was done, or why not. */
#define WIRE_FIELDS_reply(F)                                              \
	F(u32, slot)                                                      \
	F(u64, request)                                                   \
	F(u8, ok)                                                         \
	F(u32, code) /* an exit status, where the request waits for it */ \
	F(cut, text)

/* The most bytes of a job's name, and of its other texts. They are for people, and have no control characters. */
#define WIRE_JOB_NAME_MAX 100
#define WIRE_JOB_TEXT_MAX 300

/* A job that the script of this term runs at certain times, as it is now: for people. Times in seconds since 1970; -1:
 * not known. status: a word for how its last run ended, "" = none is known; why: the same for people. */
#define WIRE_FIELDS_job(F)                                                               \
	F(u32, slot)                                                                     \
	F(u64, term)                                                                     \
	F(str, name)                                                                     \
	F(str, schedule) /* as it is written; "": the script has no such job any more */ \
	F(str, zone)                                                                     \
	F(i64, next_s)                                                                   \
	F(i64, last_s) /* when its last run began */                                     \
	F(i64, took_ms)                                                                  \
	F(str, status)                                                                   \
	F(str, why)                                                                      \
	F(u32, running)

/* The elections that this worker keeps. Comes before any other message but WIRE_QUIT. */
#define WIRE_FIELDS_go(F)                          \
	F(u8, what)        /* enum wire_go_what */ \
	F(list, elections) /* of struct wire_kept */

#define WIRE_FIELDS_kept(F) \
	F(u32, index)       \
	F(str, lock)        \
	F(str, identity)

#define WIRE_FIELDS_lead(F)                \
	F(u32, slot)                       \
	F(u64, term)                       \
	F(i64, token)                      \
	F(str, address)                    \
	F(str, checkpoint) /* "" = none */ \
	F(u32, next)       /* the number of the on_next whose tasks and children the term takes; 0 = none */

/* This candidate comes next: run on_next. number: 1, 2, ... in each slot. grace_ms: for on_next_over, if on_next fails.
 * WIRE_NEXT_OVER follows, or WIRE_LEAD with this number. */
#define WIRE_FIELDS_next(F) \
	F(u32, slot)        \
	F(u32, number)      \
	F(i64, grace_ms)

/* This candidate no longer comes next, and does not lead: end what on_next began, and run on_next_over. May come
 * again, with less time. */
#define WIRE_FIELDS_next_over(F) \
	F(u32, slot)             \
	F(u32, number)           \
	F(i64, grace_ms)

/* The term is about to end: run on_stopping. The term still leads. WIRE_STOP follows, also if nothing answers. */
#define WIRE_FIELDS_drain(F) \
	F(u32, slot)         \
	F(u64, term)         \
	F(u8, reason) /* enum lease_reason */

#define WIRE_FIELDS_stop(F)                   \
	F(u32, slot)                          \
	F(u64, term)                          \
	F(u8, reason) /* enum lease_reason */ \
	F(i64, grace_ms)

/* Run on_stopped for a term whose worker died. */
#define WIRE_FIELDS_cleanup(F)                \
	F(u32, slot)                          \
	F(u64, term)                          \
	F(i64, token)                         \
	F(u8, reason) /* enum lease_reason */ \
	F(i64, grace_ms)                      \
	F(str, checkpoint)

/* Somebody leads. */
#define WIRE_FIELDS_leader(F) \
	F(u32, slot)          \
	F(str, identity)      \
	F(str, address)       \
	F(i64, token)         \
	F(u8, is_self)        \
	F(str, previous) /* "" = none */

#define WIRE_FIELDS_no_leader(F) \
	F(u32, slot)             \
	F(str, previous)

/* May this process lead? And its address, if that is a function. WIRE_ANSWER answers. */
#define WIRE_FIELDS_ask(F) \
	F(u32, slot)       \
	F(u64, ask)

/* Somebody asks the leader's script to run a job now; or, with term 0, the script of `lunarch cron` to take its
 * crontabs as they are now, whoever leads. WIRE_REPLY answers. */
#define WIRE_FIELDS_request(F)                                      \
	F(u32, slot)                                                \
	F(u64, term)                                                \
	F(u64, request) /* which: no other has this number */       \
	F(u32, uid)     /* who asks; UINT32_MAX: it is not known */ \
	F(u8, wait)     /* answer when the job has ended */         \
	F(str, job)

/* Leave, with exit status 0. */
#define WIRE_FIELDS_quit(F)

/* That save is in the record, or is not. */
#define WIRE_FIELDS_saved(F)                   \
	F(u32, slot)                           \
	F(u64, term)                           \
	F(u64, save)                           \
	F(u8, how) /* enum wire_save_result */ \
	F(str, why)
