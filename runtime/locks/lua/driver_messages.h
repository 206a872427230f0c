/* The messages between elector and driver: what each is called, and its fields in their order.
 * Not code: driver_wire.h makes a struct, a put, a get and a name of each line.
 * Used by driver_wire.h, driver_wire.c and the messages' unit test. */
#pragma once

/* M(number, TYPE, name). 1 to 63: driver to elector; 64 and above: elector to driver. The fields are
 * DRIVER_FIELDS_name. */
#define DRIVER_MESSAGES(M)       \
	M(1, OPENED, opened)     \
	M(2, ANSWER, answer)     \
	M(3, CHANGED, changed)   \
	M(4, WATCHING, watching) \
	M(5, PONG, pong)         \
	M(6, LOST, lost)         \
	M(64, OPEN, open)        \
	M(65, ASK, ask)          \
	M(66, CANCEL, cancel)    \
	M(67, WATCH, watch)      \
	M(68, PING, ping)        \
	M(69, LOSE, lose)

/* F(type, name): u8, u32, u64, i64, str (NULL is sent as ""), or list: bytes up to the end of the message. */

/* To DRIVER_OPEN: the lock file is loaded and its store open; or, ok = 0, it is not. code ERR_USAGE: the URL or the
 * lock file is wrong, and no repetition helps. */
#define DRIVER_FIELDS_opened(F)          \
	F(u8, ok)                        \
	F(u32, code) /* enum err_code */ \
	F(str, text) /* of the error */  \
	F(u8, can)   /* enum driver_can */

/* Ends the operation with this id, each exactly once, also a cancelled one. */
#define DRIVER_FIELDS_answer(F)                                                         \
	F(u64, id)                                                                      \
	F(u8, outcome)  /* enum lock_outcome */                                         \
	F(u32, code)    /* enum err_code; 0: no error */                                \
	F(str, text)    /* of the error */                                              \
	F(str, version) /* 1 to 63 bytes where there is one, else "" */                 \
	F(str, doubt)   /* what the store may have lost records by; "": none */         \
	F(str, here)    /* this machine's address on its connection; "": it has none */ \
	F(list, bytes)  /* read: the record's text. list and about: JSON */

/* A record has changed, perhaps. */
#define DRIVER_FIELDS_changed(F) F(str, key)

/* To DRIVER_WATCH, and each time that this changes. yes: no change is missed from now on. Otherwise there are no
 * notices now, and why says it. */
#define DRIVER_FIELDS_watching(F) \
	F(str, key)               \
	F(u8, yes)                \
	F(str, why)

/* To DRIVER_PING, with its number. */
#define DRIVER_FIELDS_pong(F) F(u64, number)

/* The first message. place: JSON (docs/design.md, "Locks in Lua"). */
#define DRIVER_FIELDS_open(F) F(str, place)

/* An operation. What its kind does not need is "" or 0. It has an id that no other one of this driver has, and a
 * deadline: struct instant. */
#define DRIVER_FIELDS_ask(F)                                                        \
	F(u64, id)                                                                  \
	F(u8, kind) /* enum driver_kind */                                          \
	F(i64, by_raw)                                                              \
	F(i64, by_boot)                                                             \
	F(str, key)        /* of a list: what the keys begin with */                \
	F(str, expected)   /* write and remove: the version; "": only if absent */  \
	F(u8, flags)       /* write: of enum driver_write_flag */                   \
	F(str, waited_out) /* write: the doubt that was waited out, or "" */        \
	F(i64, floor)      /* write: the largest token that the elector knows of */ \
	F(str, text)       /* write: the record */

/* Nobody waits for this operation any more: end its task. It is answered all the same. */
#define DRIVER_FIELDS_cancel(F) F(u64, id)

/* Says whether notices of this key are wanted. */
#define DRIVER_FIELDS_watch(F) \
	F(str, key)            \
	F(u8, on)

/* Is the driver alive? */
#define DRIVER_FIELDS_ping(F) F(u64, number)

/* The next two are for the examination of a lock file (doctor --full). An elector neither sends nor expects them.
 * Before the operation with this id: of the requests that the driver sends to its store until that is answered, the
 * answer to the nth, from 1, is lost, as if the connection had broken. again: it is sent once more instead, as
 * libcurl does when a connection that it kept has broken. */
#define DRIVER_FIELDS_lose(F) \
	F(u64, id)            \
	F(u32, nth)           \
	F(u8, again)

/* To DRIVER_LOSE: that request is about to be sent. */
#define DRIVER_FIELDS_lost(F) F(u64, id)
