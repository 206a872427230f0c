#include "net/serve/listener.h"

#include "base/mem.h"
#include "base/proc.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNIX_QUEUE 64 /* who comes when it is full waits in connect(2) */

/* ---- TCP ---- */

/* "HOST:PORT" in place; the host without brackets. */
static int split_address(char *address, char **host, char **port)
{
	char *colon = strrchr(address, ':');

	if (!colon || !colon[1] || strspn(colon + 1, "0123456789") != strlen(colon + 1) ||
	    strtoul(colon + 1, NULL, 10) > 65535)
		return -1;
	*colon = '\0';
	*port = colon + 1;
	*host = address;
	if (*address == '[' && colon[-1] == ']') {
		colon[-1] = '\0';
		*host = address + 1;
	} else if (strchr(address, ':')) {
		return -1; /* an IPv6 address without brackets: its end and the port cannot be told apart */
	}
	return 0;
}

static int tcp_listen(const struct addrinfo *ai)
{
	int on = 1, off = 0;
	int fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, ai->ai_protocol);

	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
	if (ai->ai_family == AF_INET6)
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
	if (bind(fd, ai->ai_addr, ai->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0)
		return fd;
	close(fd);
	return -1;
}

static int order_of(const struct addrinfo *ai)
{
	return ai->ai_family == AF_INET6 ? 0 : 1;
}

/* Every address of the machine is one socket of IPv6 that takes IPv4 too, where there is IPv6. */
static int tcp_open(const char *host, const char *port, struct err *err)
{
	struct addrinfo hints = { .ai_flags = AI_PASSIVE, .ai_socktype = SOCK_STREAM }, *found = NULL;
	int fd = -1;
	int failed = getaddrinfo(*host ? host : NULL, port, &hints, &found);

	if (failed)
		return err_set(err, ERR_USAGE, "%s", gai_strerror(failed));
	for (int order = *host ? -1 : 0; order < 2 && fd < 0; order++)
		for (const struct addrinfo *ai = found; ai && fd < 0; ai = ai->ai_next)
			if (order < 0 || order_of(ai) == order)
				fd = tcp_listen(ai);
	if (fd < 0)
		err_sys(err, "cannot listen");
	freeaddrinfo(found);
	return fd;
}

int listener_tcp(const char *address, struct err *err)
{
	char *text = mem_dup(address), *host, *port;
	int fd = -1;

	if (split_address(text, &host, &port) < 0)
		err_set(err, ERR_USAGE, "expected HOST:PORT, [IPV6]:PORT, :PORT or unix:PATH");
	else
		fd = tcp_open(host, port, err);
	free(text);
	return fd;
}

static bool is_loopback(const struct sockaddr_storage *name)
{
	if (name->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *)name)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	if (name->ss_family != AF_INET6)
		return false;
	const struct in6_addr *six = &((const struct sockaddr_in6 *)name)->sin6_addr;
	return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == IN_LOOPBACKNET);
}

void listener_name(int fd, char *out, size_t size, bool *loopback)
{
	struct sockaddr_storage name = { 0 };
	socklen_t len = sizeof name;
	char host[NI_MAXHOST] = "?", port[NI_MAXSERV] = "?";

	getsockname(fd, (struct sockaddr *)&name, &len);
	getnameinfo((struct sockaddr *)&name, len, host, sizeof host, port, sizeof port,
	            NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(out, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
	*loopback = is_loopback(&name);
}

/* ---- Unix sockets ---- */

int listener_address(const char *path, struct sockaddr_un *sa, struct err *err)
{
	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (strlen(path) >= sizeof sa->sun_path)
		return err_set(err, ERR_USAGE, "%s: too long for a socket's path, of which the kernel takes %zu bytes",
		               path, sizeof sa->sun_path - 1);
	memcpy(sa->sun_path, path, strlen(path) + 1);
	return 0;
}

/* unix(7): connect obeys SO_SNDTIMEO. */
int listener_connect(const struct sockaddr_un *sa, int timeout_ms)
{
	struct timeval timeout = { .tv_sec = timeout_ms / 1000, .tv_usec = timeout_ms % 1000 * 1000 };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | (timeout_ms ? 0 : SOCK_NONBLOCK), 0);

	if (fd >= 0 &&
	    (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof timeout) < 0 ||
	     connect(fd, (const struct sockaddr *)sa, sizeof *sa) < 0 || fcntl(fd, F_SETFL, O_NONBLOCK) < 0)) {
		int error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	return fd;
}

int listener_remove_stale(const char *path)
{
	struct sockaddr_un sa;
	struct stat st;

	if (listener_address(path, &sa, NULL) < 0)
		return -1;
	int fd = listener_connect(&sa, 0);
	if (fd >= 0) {
		close(fd);
		return -1;
	}
	if (errno != ECONNREFUSED || lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
		return -1;
	return unlink(path);
}

/* Listens at path, which is a new file. -1 with *err. */
static int unix_listen(const char *path, mode_t mode, struct err *err)
{
	struct sockaddr_un sa;

	if (listener_address(path, &sa, err) < 0)
		return -1;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return err_sys(err, "socket");
	/* It is called before bind, which gives the file this mode: at no time can more users connect. */
	int failed = fchmod(fd, mode) < 0 || bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0;
	if (failed && errno == EADDRINUSE && listener_remove_stale(path) == 0)
		failed = bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0;
	/* The mode is set once more: bind has taken the umask off. */
	if (!failed && chmod(path, mode) == 0 && listen(fd, UNIX_QUEUE) == 0)
		return fd;
	err_sys(err, "%s: cannot listen", path);
	if (!failed)
		unlink(path);
	close(fd);
	return -1;
}

/* Gives the socket at `first` its final name, unless somebody listens at that name. */
static int unix_publish(const char *first, const char *path, struct err *err)
{
	if (link(first, path) == 0)
		return 0;
	if (errno != EEXIST)
		return err_sys(err, "%s: cannot listen", path);
	if (listener_remove_stale(path) == 0 && link(first, path) == 0)
		return 0;
	return err_set(err, ERR_USAGE, "%s is in use already: choose another", path);
}

/* A socket that is bound and does not listen yet refuses connections, as one does whose process is dead. So it gets
 * the name at which others look for it only once it listens. The first name is this process's alone: otherwise
 * another process would take the socket for a dead one's, and put its own in its place. */
int listener_unix(const char *path, mode_t mode, struct err *err)
{
	struct sockaddr_un sa;
	const char *slash = strrchr(path, '/');
	char self[PROC_SELF_NAME];

	if (listener_address(path, &sa, err) < 0)
		return -1;
	proc_self_name(self);
	char *first = mem_printf("%.*s%s.new", slash ? (int)(slash + 1 - path) : 0, path, self);
	size_t len = strlen(first);
	int fd = -1;
	if (len >= sizeof sa.sun_path)
		err_set(err, ERR_USAGE,
		        "%s: choose a directory with a shorter name: before it listens this socket is called %s, which is %zu "
		        "bytes too long for a socket",
		        path, first, len - sizeof sa.sun_path + 1);
	else
		fd = unix_listen(first, mode, err);
	if (fd >= 0) {
		int failed = unix_publish(first, path, err);
		unlink(first);
		if (failed) {
			close(fd);
			fd = -1;
		}
	}
	free(first);
	return fd;
}

void listener_file_init(struct listener_file *f, const char *path)
{
	struct stat st;

	*f = (struct listener_file){ .path = mem_dup(path) };
	if (lstat(path, &st) == 0) {
		f->device = st.st_dev;
		f->inode = st.st_ino;
	}
}

void listener_file_fini(struct listener_file *f)
{
	struct stat st;

	/* Where it cannot be told whose file it is, it is taken for ours. */
	bool other =
		f->inode && f->path && lstat(f->path, &st) == 0 && (st.st_dev != f->device || st.st_ino != f->inode);
	if (f->path && !other)
		unlink(f->path);
	free(f->path);
	*f = (struct listener_file){ 0 };
}
