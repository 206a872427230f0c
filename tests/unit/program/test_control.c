/* The control socket's file: at no moment does a living elector's look like what a dead one left. */
#include "tap.h"

#include "base/mem.h"
#include "program/control.h"
#include "net/serve/listener.h"

#include <dirent.h>
#include <ev.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static char dir[] = "/tmp/lunarch-control-XXXXXX";
static char path[sizeof dir + 20];
static int sockets; /* bound, found in the directory at the moment of listen() */

static bool is_socket(const char *name)
{
	struct stat st;

	return lstat(name, &st) == 0 && S_ISSOCK(st.st_mode);
}

static int count_files(bool only_sockets)
{
	DIR *d = opendir(dir);
	struct dirent *entry;
	int n = 0;

	while (d && (entry = readdir(d))) {
		char name[sizeof dir + sizeof entry->d_name];
		snprintf(name, sizeof name, "%s/%s", dir, entry->d_name);
		n += *entry->d_name != '.' && (!only_sockets || is_socket(name));
	}
	if (d)
		closedir(d);
	return n;
}

/* In libc's place: between bind() and listen() `ctl` looks at the socket. */
int listen(int fd, int backlog)
{
	sockets = count_files(true);
	listener_remove_stale(path);
	return (int)syscall(SYS_listen, fd, backlog);
}

static void answer(void *arg, const struct control_request *r, struct buf *reply)
{
	(void)arg, (void)r;
	buf_adds(reply, "{\"ok\":true}");
}

static bool somebody_listens(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	bool listens = connect(fd, (struct sockaddr *)&sa, sizeof sa) == 0;
	close(fd);
	return listens;
}

static void leave_behind(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	snprintf(sa.sun_path, sizeof sa.sun_path, "%s", path);
	ok(bind(fd, (struct sockaddr *)&sa, sizeof sa) == 0 && syscall(SYS_listen, fd, 1) == 0 && close(fd) == 0,
	   "a process that is killed leaves its socket");
}

static void test_ctl_between_bind_and_listen(struct ev_loop *loop)
{
	struct err err = { 0 };
	struct control *c = control_new(loop, path, answer, NULL, NULL, &err);

	ok(c != NULL, "an elector makes its socket: %s", err.text);
	is_int(sockets, 1, "while it is bound and does not listen, `ctl` looks for what the dead left");
	ok(is_socket(path) && somebody_listens(), "and the elector is reached at its socket afterwards");
	is_int(count_files(false), 1, "there is no other file");
	is_int(listener_remove_stale(path), -1, "a socket at which somebody listens is not removed");
	ok(control_new(loop, path, answer, NULL, NULL, &err) == NULL && strstr(err.text, "in use already") != NULL,
	   "nor taken by a second elector: %s", err.text);
	ok(somebody_listens() && count_files(false) == 1,
	   "which leaves the first one's as it was, and nothing of its own");
	control_free(c);
	is_int(count_files(false), 0, "an elector that ends removes its socket");
}

static void test_left_behind(struct ev_loop *loop)
{
	struct err err = { 0 };

	leave_behind();
	is_int(listener_remove_stale(path), 0, "and `ctl` removes it");
	is_int(count_files(false), 0, "it is gone");
	leave_behind();
	struct control *c = control_new(loop, path, answer, NULL, NULL, &err);
	ok(c != NULL && somebody_listens(), "or the next elector takes its place");
	control_free(c);
}

static void test_others(struct ev_loop *loop)
{
	struct err err = { 0 };
	FILE *f = fopen(path, "w");

	fclose(f);
	is_int(listener_remove_stale(path), -1, "a file that is no socket is not removed");
	ok(control_new(loop, path, answer, NULL, NULL, &err) == NULL && count_files(false) == 1, "nor replaced: %s",
	   err.text);
	unlink(path);
	struct stat ns;
	bool first_ns = stat("/proc/self/ns/pid", &ns) < 0 || ns.st_ino == 0xeffffffcU; /* PROC_PID_INIT_INO */
	char *first = first_ns ? mem_printf("%s/%d.new", dir, (int)getpid())
	                       : mem_printf("%s/%d-%lu.new", dir, (int)getpid(), (unsigned long)ns.st_ino);
	char *name = mem_dup(path);
	snprintf(path, sizeof path, "%s", first);
	leave_behind();
	snprintf(path, sizeof path, "%s", name);
	err = (struct err){ 0 };
	struct control *c = control_new(loop, path, answer, NULL, NULL, &err);
	ok(c != NULL && somebody_listens() && count_files(false) == 1,
	   "a process of the same number that was killed before it listened does not matter: %s", err.text);
	control_free(c);
	free(first);
	free(name);
}

int main(void)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV);

	if (!mkdtemp(dir))
		return 1;
	snprintf(path, sizeof path, "%s/own.sock", dir);
	test_ctl_between_bind_and_listen(loop);
	test_left_behind(loop);
	test_others(loop);
	rmdir(dir);
	ev_loop_destroy(loop);
	return tap_done();
}
