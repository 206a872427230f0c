/* Preloaded into a candidate (LD_PRELOAD), it shifts the wall clock, and nothing else, by what a file says, while it
 * runs; or lets the clock that counts suspend run ahead of the others, as a suspend does; or every file system look
 * like one of the network. Not a simulation: the program is the real one, and no clock of this machine is touched.
 * SHIM_CLOCK, SHIM_SUSPEND: a file of eight bytes, nanoseconds to add to CLOCK_REALTIME, to CLOCK_BOOTTIME, read at
 * each call. SHIM_RATE: a file (struct rates) that says how much faster all clocks run. Built and used by the tests
 * beside it. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

/* Of the two the one that counts is said by the last bit of `turn`. From since_ns of CLOCK_MONOTONIC_RAW, when the
 * clocks were ahead_ns ahead. */
struct rates {
	int64_t turn;
	struct {
		int64_t since_ns, ahead_ns, faster_ppb;
	} of[2];
};

enum { CLOCKS = 16 };

static const volatile int64_t *offset, *suspended;
static const volatile struct rates *rates;
static int64_t shown_ns[CLOCKS]; /* the latest: a change of the rate is not to set a clock back */
static int (*real_gettime)(clockid_t, struct timespec *);

static const volatile void *map(const char *variable, size_t size)
{
	const char *path = getenv(variable);
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

	if (fd < 0)
		return NULL;
	void *p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	return p == MAP_FAILED ? NULL : p;
}

__attribute__((constructor)) static void begin(void)
{
	real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
	offset = map("SHIM_CLOCK", sizeof *offset);
	suspended = map("SHIM_SUSPEND", sizeof *suspended);
	rates = map("SHIM_RATE", sizeof *rates);
}

static void add(struct timespec *t, int64_t more)
{
	int64_t ns = (int64_t)t->tv_sec * 1000000000 + t->tv_nsec + more;

	t->tv_sec = ns / 1000000000;
	t->tv_nsec = ns % 1000000000;
}

static int64_t nanoseconds(const struct timespec *t)
{
	return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

static int64_t ahead_ns(void)
{
	struct timespec raw;
	int64_t turn, ns;

	real_gettime(CLOCK_MONOTONIC_RAW, &raw);
	do {
		turn = rates->turn;
		const volatile int64_t *of = &rates->of[turn & 1].since_ns;
		ns = of[1] + (int64_t)((__int128)(nanoseconds(&raw) - of[0]) * of[2] / 1000000000);
	} while (turn != rates->turn);
	return ns;
}

static void run_on(clockid_t id, struct timespec *t)
{
	int64_t shown = __atomic_load_n(&shown_ns[id], __ATOMIC_RELAXED);

	add(t, ahead_ns());
	if (id == CLOCK_REALTIME)
		return;
	while (nanoseconds(t) > shown && !__atomic_compare_exchange_n(&shown_ns[id], &shown, nanoseconds(t), 0,
	                                                              __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	if (nanoseconds(t) < shown)
		add(t, shown - nanoseconds(t));
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
	if (result == 0 && rates && real_gettime &&
	    (id == CLOCK_REALTIME || id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW || id == CLOCK_BOOTTIME))
		run_on(id, t);
	return result;
}

/* A timer for a moment is for one of the clock that is shown, but it is the kernel's. */
enum { FDS = 1024 };
static signed char clock_of[FDS]; /* of a timer, plus one */

int timerfd_create(int id, int flags)
{
	int fd = (int)syscall(SYS_timerfd_create, id, flags);

	if (fd >= 0 && fd < FDS)
		clock_of[fd] = (signed char)(id + 1);
	return fd;
}

int timerfd_settime(int fd, int flags, const struct itimerspec *at, struct itimerspec *old)
{
	struct itimerspec real = *at;
	struct timespec shown, kernel;
	int id = fd >= 0 && fd < FDS ? clock_of[fd] - 1 : -1;

	if ((id == CLOCK_BOOTTIME || id == CLOCK_MONOTONIC) && flags & TFD_TIMER_ABSTIME &&
	    nanoseconds(&at->it_value) > 0) {
		clock_gettime(id, &shown);
		real_gettime(id, &kernel);
		int64_t left = nanoseconds(&at->it_value) - nanoseconds(&shown);
		if (rates)
			left = (int64_t)((__int128)left * 1000000000 /
			                 (1000000000 + rates->of[rates->turn & 1].faster_ppb));
		real.it_value = kernel;
		add(&real.it_value, left > 0 ? left : 0);
	}
	return (int)syscall(SYS_timerfd_settime, fd, flags, &real, old);
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
