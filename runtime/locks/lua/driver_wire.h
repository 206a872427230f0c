/* Typed, bounds-checked messages between elector and driver, one per SOCK_SEQPACKET datagram (driver_messages.h).
 * Not a stream and not for strangers: a malformed message ends the conversation.
 * Used by the elector's end of the socket (driver_link.h) and by the driver's (script/driver/driver.h). */
#pragma once

#include "base/wire.h"
#include "lease/record.h"
#include "locks/lua/driver_messages.h"

#include <stddef.h>

/* Bytes of one message. More than a socket takes at first: the elector raises the limits of both ends. */
#define DRIVER_MAX (RECORD_MAX_BYTES + 32 * 1024)

enum driver_type {
#define DRIVER_NUMBER(number, TYPE, name) DRIVER_##TYPE = (number),
	DRIVER_MESSAGES(DRIVER_NUMBER)
#undef DRIVER_NUMBER
};

enum driver_kind { DRIVER_READ, DRIVER_WRITE, DRIVER_REMOVE, DRIVER_LIST, DRIVER_ABOUT, DRIVER_KINDS };

/* What the lock file has functions for. */
enum driver_can {
	DRIVER_CAN_WATCH = 1 << 0,
	DRIVER_CAN_LIST = 1 << 1,
	DRIVER_CAN_ABOUT = 1 << 2,
	DRIVER_CAN_REMOVE = 1 << 3,
};

enum driver_write_flag {
	DRIVER_WRITE_DURABLE = 1 << 0, /* must survive a power cut before it is answered */
	DRIVER_WRITE_BEGINS = 1 << 1,  /* the record begins a term */
	DRIVER_WRITE_ADVICE = 1 << 2,  /* it is a next record: no doubt is made, or waited for */
	DRIVER_WRITE_OWN = 1 << 3,     /* the expected record is of this elector's own term */
};

#define DRIVER_VERSION_MAX 63 /* bytes of a version, at most, and 1 at least */
#define DRIVER_KEY_MAX 1000   /* bytes of a key, at most, and 1 at least */

/* For each message, as base/wire.h says: struct driver_NAME, driver_NAME_put,
 * driver_NAME_get. */
#define DRIVER_MESSAGE(number, TYPE, name) WIRE_DECLARE(driver_##name, DRIVER_FIELDS_##name)
DRIVER_MESSAGES(DRIVER_MESSAGE)
#undef DRIVER_MESSAGE

/* What begins a message. 0 if it is none, or longer than DRIVER_MAX. */
enum driver_type driver_message_open(struct wire *w, const void *data, size_t len);
