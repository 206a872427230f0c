/* Preloaded into a candidate (LD_PRELOAD), it lets the n-th allocation of one of its processes fail, of our own code or
 * of the libraries', and counts them all. Not a heap: what does not fail is the C library's (or the sanitizer's) own.
 * NTH_FILE names the file of nth.h. Built and used by tests/lib/nth.py. */
#include "nth.h"

#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <ucontext.h>

enum { OWN, LIBRARY };

/* The sanitizer's, if it is there: it knows what it gave. */
#define HEAP(name, ...)                          \
	extern void *__libc_##name(__VA_ARGS__); \
	extern void *__interceptor_##name(__VA_ARGS__) __attribute__((weak));
HEAP(malloc, size_t)
HEAP(calloc, size_t, size_t)
HEAP(realloc, void *, size_t)
HEAP(memalign, size_t, size_t)
#define REAL(name) (__interceptor_##name ? __interceptor_##name : __libc_##name)

static struct nth *shared;
static enum nth_role role;
static pid_t me;
static uintptr_t program;
static struct {
	uintptr_t from, to;
} modules[16]; /* ours */
static int module_count;

static int note_object(struct dl_phdr_info *o, size_t size, void *first)
{
	(void)size;
	if (*(int *)first) {
		*(int *)first = 0;
		program = o->dlpi_addr;
		return 0;
	}
	if (!strstr(o->dlpi_name, "/modules/") || module_count == (int)(sizeof modules / sizeof *modules))
		return 0;
	for (int i = 0; i < module_count; i++)
		if (modules[i].from == o->dlpi_addr)
			return 0;
	uintptr_t end = o->dlpi_addr;
	for (int i = 0; i < o->dlpi_phnum; i++)
		if (o->dlpi_phdr[i].p_type == PT_LOAD)
			end = o->dlpi_addr + o->dlpi_phdr[i].p_vaddr + o->dlpi_phdr[i].p_memsz;
	modules[module_count].from = o->dlpi_addr;
	modules[module_count].to = end;
	module_count++;
	return 0;
}

static int is_own(uintptr_t caller);

/* Whose mistake it is: that of the innermost code that is not the C library's, which does what it is called with. Our own
 * code, and what is linked into the program (libev), end by abort(3) when they have no memory, and say so. */
static void on_crash(int signal, siginfo_t *info, void *context)
{
	const uintptr_t at = (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	void *frames[64];
	Dl_info object;
	int count = backtrace(frames, 64), i = 0;

	(void)info;
	while (i < count && (uintptr_t)frames[i] != at)
		i++;
	while (i < count && !is_own((uintptr_t)frames[i]) &&
	       (!dladdr(frames[i], &object) || strstr(object.dli_fname, "/libc.so")))
		i++;
	int theirs = i < count && !is_own((uintptr_t)frames[i]);
	if (signal == SIGABRT && (!theirs || (uintptr_t)object.dli_fbase == program))
		return;
	backtrace_symbols_fd(frames, count, STDERR_FILENO);
	shared->crash = theirs ? CRASH_THERE : CRASH_OURS;
	/* The signal comes again, and ends the process (SA_RESETHAND, abort(3)). */
}

__attribute__((constructor)) static void begin(void)
{
	const struct sigaction crash = { .sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_RESETHAND };
	void *frame;
	int first = 1;

	dl_iterate_phdr(note_object, &first);
	me = getpid();
	role = nth_role_of("self");
	if (role != OTHER)
		shared = nth_map(getenv("NTH_FILE"));
	if (!shared)
		return;
	backtrace(&frame, 1); /* it loads a library the first time */
	sigaction(SIGSEGV, &crash, NULL);
	sigaction(SIGFPE, &crash, NULL);
	sigaction(SIGABRT, &crash, NULL);
}

/* Opened later than this object. */
void *dlopen(const char *name, int flags)
{
	static void *(*real)(const char *, int);
	int first = 0;

	if (!real)
		real = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
	void *handle = real(name, flags);
	if (handle && shared)
		dl_iterate_phdr(note_object, &first);
	return handle;
}

/* The elector's is its first guard, the guard's is the worker. */
pid_t fork(void)
{
	static pid_t (*real)(void);

	if (!real)
		real = (pid_t(*)(void))dlsym(RTLD_NEXT, "fork");
	pid_t pid = real();
	if (pid == 0) {
		me = getpid();
		role = role == ELECTOR ? GUARD : role == GUARD ? WORKER : SPAWNED;
	}
	return pid;
}

static int is_own(uintptr_t caller)
{
	if (caller - program >= shared->own_begin && caller - program < shared->own_end)
		return 1;
	for (int i = 0; i < module_count; i++)
		if (caller >= modules[i].from && caller < modules[i].to)
			return 1;
	return 0;
}

/* Whether the allocation that this code asks for is to fail. */
static int fails(void *address)
{
	uintptr_t caller = (uintptr_t)address;

	if (!shared)
		return 0;
	pid_t now = getpid();
	if (now != me) { /* what shares its parent's memory, until it executes something */
		me = now;
		role = SPAWNED;
	}
	int kind = is_own(caller) ? OWN : LIBRARY;
	int fail = nth_is_now(shared, role, (uint64_t)kind);
	uint64_t n = shared->counts[role][kind];
	if (!shared->n && n <= SITES)
		shared->sites[role][kind][n - 1] = caller - program;
	if (!fail)
		return 0;
	nth_fired(shared, caller - program, (uint64_t)now);
	errno = ENOMEM;
	return 1;
}

#define FAILS fails(__builtin_return_address(0))

void *malloc(size_t size)
{
	return FAILS ? NULL : REAL(malloc)(size);
}

void *calloc(size_t count, size_t size)
{
	return FAILS ? NULL : REAL(calloc)(count, size);
}

void *realloc(void *p, size_t size)
{
	return size && FAILS ? NULL : REAL(realloc)(p, size);
}

void *memalign(size_t alignment, size_t size)
{
	return FAILS ? NULL : REAL(memalign)(alignment, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
	return FAILS ? NULL : REAL(memalign)(alignment, size);
}

int posix_memalign(void **p, size_t alignment, size_t size)
{
	if (FAILS)
		return ENOMEM;
	*p = REAL(memalign)(alignment, size);
	return *p ? 0 : ENOMEM;
}

/* These call malloc inside the C library, where one does not see for whom. */
char *strdup(const char *s)
{
	size_t size = strlen(s) + 1;
	char *copy = FAILS ? NULL : REAL(malloc)(size);

	return copy ? memcpy(copy, s, size) : NULL;
}

static int print(char **text, const char *fmt, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	int n = vsnprintf(NULL, 0, fmt, again);
	va_end(again);
	*text = n < 0 ? NULL : REAL(malloc)((size_t)n + 1);
	return *text ? vsnprintf(*text, (size_t)n + 1, fmt, ap) : -1;
}

int vasprintf(char **text, const char *fmt, va_list ap)
{
	return FAILS ? -1 : print(text, fmt, ap);
}

int __vasprintf_chk(char **text, int flag, const char *fmt, va_list ap)
{
	(void)flag;
	return FAILS ? -1 : print(text, fmt, ap);
}
