/* Preloaded into a candidate (LD_PRELOAD), it shifts the wall clock, and nothing else, by what a file says, while it
 * runs; or lets the clock that counts suspend run ahead of the others, as a suspend does; or every file system look
 * like one of the network. Not a simulation: the program is the real one, and no clock of this machine is touched.
 * SHIM_CLOCK, SHIM_SUSPEND: a file of eight bytes, nanoseconds to add to CLOCK_REALTIME, to CLOCK_BOOTTIME, read at
 * each call. Built and used by the tests beside it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset, *suspended;
static int (*real_gettime)(clockid_t, struct timespec *);

static const volatile int64_t *map(const char *variable)
{
	const char *path = getenv(variable);
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return NULL;
	void *p = mmap(NULL, sizeof *offset, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

__attribute__((constructor)) static void begin(void)
{
	real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	offset = map("SHIM_CLOCK");
	suspended = map("SHIM_SUSPEND");
}

static void add(struct timespec *t, int64_t more)
{
	int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + more;

	t->tv_sec = ns / 1000000000;
	t->tv_nsec = ns % 1000000000;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
	int result = real_gettime
	                     ? real_gettime(id, t)
	                     : (int)syscall(SYS_clock_gettime, id, t); /* an allocator may be earlier than we are */

	if (result == 0 && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
		add(t, *offset);
	if (result == 0 && suspended && id == CLOCK_BOOTTIME)
		add(t, *suspended);
	return result;
}

int gettimeofday(struct timeval *restrict t, void *restrict zone)
{
	struct timespec now;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &now);
	t->tv_sec = now.tv_sec;
	t->tv_usec = now.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *out)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (out)
		*out = now.tv_sec;
	return now.tv_sec;
}
