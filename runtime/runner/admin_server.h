/* A small HTTP/1.1 server for GET, HEAD and OPTIONS, on the caller's loop, by libmicrohttpd.
 * Not for the internet: no TLS, no authentication, short bodies, few connections. The handler makes what it answers.
 * Used by admin.c, which finds it in the module `admin`. */
#ifndef LUNARCH_ADMIN_SERVER_H
#define LUNARCH_ADMIN_SERVER_H

#include "base/buf.h"
#include "base/err.h"

struct admin_server;
struct ev_loop;

/* Fills body and *type (static text) for a path without its query, and returns the status. From the loop. */
typedef int admin_handler(void *arg, const char *path, struct buf *body, const char **type);

struct admin_server_ops {
	/* Takes fd, a listening socket (also on failure). */
	struct admin_server *(*serve)(struct ev_loop *loop, int fd, admin_handler *handler, void *arg, struct err *err);
	void (*close)(struct admin_server *s);
};

#endif
