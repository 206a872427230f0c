/* What the files of this room share: the process, its socket and its Lua state.
 * Not the process: driver.c has the socket and the loop. Used by this room and its unit test. */
#pragma once

#include "locks/lock.h"
#include "locks/lua/driver_wire.h"
#include "loop/timeline.h"
#include "script/driver/driver_log.h"
#include "script/script.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

enum driver_state {
	DRIVER_IS_NEW,     /* nobody has said which lock file */
	DRIVER_IS_OPENING, /* the file's open runs */
	DRIVER_IS_OPEN,
};

struct driver {
	struct timeline *timeline; /* borrowed */
	struct script *script;     /* borrowed */
	int functions;             /* registry reference: what lua/driver/driver.lua returns */
	enum driver_state state;
	LIST_HEAD(driver_call_list, driver_call) calls;
	LIST_HEAD(driver_notices_list, driver_notices) watches;
	uint64_t watches_begun;
	struct driver_log log;
	struct {
		uint64_t id;
		uint32_t left; /* requests, with the one whose answer is lost; 0: none is */
		bool again;
	} lose;       /* DRIVER_LOSE */
	char *secret; /* the lock's password, which no text may have; NULL: none */
	bool leaving; /* it could not be opened: the process ends */
	void (*send)(void *arg, const struct buf *message);
	void *arg;
};

/* Makes the functions of lua/driver/driver.lua. */
void driver_init(struct driver *d);
void driver_fini(struct driver *d); /* after the Lua state is closed */

/* A message of the elector. false: it makes no sense, or must not come now. */
bool driver_message(struct driver *d, const void *bytes, size_t len);

void driver_send(struct driver *d, struct buf *message); /* sends it and empties it */

/* Sends the message of that name (driver_messages.h) with these fields. */
#define driver_tell(d, name, ...)                                                   \
	do {                                                                        \
		struct buf told = { 0 };                                            \
		driver_##name##_put(&told, &(struct driver_##name){ __VA_ARGS__ }); \
		driver_send(d, &told);                                              \
	} while (0)

/* Pushes a function of driver.lua. [-0, +1, m] */
void driver_push(struct driver *d, const char *function);

/* A mistake of the lock file: text is what makes it another one than the last, whole is what is logged. */
void driver_complain(struct driver *d, const char *text, const char *whole);

/* A text for the elector: without the secret, and not too long. The caller frees it. */
char *driver_text(const struct driver *d, const char *text);

/* The code that the library's errors call by this name. */
enum err_code driver_code(const char *name);

/* A text among a task's results, from 1; "" if it is none. Borrowed until the task's callback returns. */
const char *driver_result(const struct outcome *o, int index, size_t *len);
