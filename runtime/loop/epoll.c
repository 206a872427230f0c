/* Takes the place of the C library's epoll_ctl(2), which libev calls. Where the kernel refuses to watch a descriptor
 * (ENOMEM, ENOSPC), libev stops its watchers and goes on (ev_epoll.c, fd_kill): signals, threads or a connection would
 * never be heard again, and nobody would say so. So it is as with all memory that the process cannot have (base/mem.h):
 * it ends, and the guard ends the term. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

int epoll_ctl(int epoll, int op, int fd, struct epoll_event *event)
{
	int result = (int)syscall(SYS_epoll_ctl, epoll, op, fd, event);

	if (result < 0 && (errno == ENOMEM || errno == ENOSPC)) {
		fprintf(stderr, "lunarch: the kernel does not watch another descriptor: epoll_ctl: %s%s\n",
		        strerror(errno), errno == ENOSPC ? " (/proc/sys/fs/epoll/max_user_watches)" : "");
		abort();
	}
	return result;
}
