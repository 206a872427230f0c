/* Sockets to listen at: TCP addresses, and Unix sockets in the file system, where what a killed process left is
 * replaced and what lives is not. Not a server (server.h). Used by program/admin.c, program/control.c and ask.c. */
#pragma once

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#define LISTENER_UNIX "unix:" /* before a path */

/* address: HOST:PORT, [IPV6]:PORT or :PORT (every address of the machine); port 0 = a free one. Resolves the host,
 * which may block. A listening socket, or -1 with *err. */
int listener_tcp(const char *address, struct err *err);

/* Where it listens, as the host and port of a URL: "127.0.0.1:80", "[::1]:80". *loopback: only programs of this machine
 * reach it. */
void listener_name(int fd, char *out, size_t size, bool *loopback);

/* A listening socket at path with this mode, whatever the umask; -1 with *err. A socket there that nobody listens at is
 * replaced; one that answers, or what is no socket, is an error. The file is there only once it accepts connections;
 * before that it is PID.new in the same directory (proc_self_name.new). */
int listener_unix(const char *path, mode_t mode, struct err *err);

/* The file that listener_unix has made at path, and its removal, unless another file has that name by now. It is
 * removed before the socket is closed: while it listens, nobody takes it for a dead one's. Blocks for the time of a
 * file system call. */
struct listener_file {
	char *path;
	uint64_t device, inode;
};
void listener_file_init(struct listener_file *f, const char *path); /* copies path */
void listener_file_fini(struct listener_file *f);

/* Removes the socket at path if nobody listens there. -1: somebody does, or it is no socket. */
int listener_remove_stale(const char *path);

int listener_address(const char *path, struct sockaddr_un *sa, struct err *err); /* -1 with *err: it is too long */

/* A connected socket that does not block, or -1 with errno. While the listener's queue is full it waits, for at most
 * timeout_ms (0: not at all), then fails with EAGAIN. */
int listener_connect(const struct sockaddr_un *sa, int timeout_ms);
