/* Where a lock of a driver is: what its URL says, as the driver and as people have it.
 * Not the options' meaning: the lock file judges them. Used by the driver lock. */
#pragma once

#include "base/err.h"

struct driver_place {
	char *json; /* of DRIVER_OPEN; the same for all locks that a driver can serve. It has the password */
	char *name; /* of the lock file, in messages: its path, or "s3", which is built in */
	char *key;  /* 1 to DRIVER_KEY_MAX bytes of UTF-8 */
	char *url;  /* canonical, without secrets, with the key */
};

/* url: the whole. -1 with *err; p is empty then. */
int driver_place_parse(struct driver_place *p, const char *url, struct err *err);
void driver_place_fini(struct driver_place *p); /* the password's bytes are wiped */
