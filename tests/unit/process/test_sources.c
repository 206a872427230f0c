/* The kept sources: what one worker has kept another finds, both go on with the same text, and a worker that is killed
 * or stopped anywhere in between, before each of its system calls, takes nothing from the others. */
#include "process/sources.h"
#include "base/mem.h"
#include "tap.h"

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define LAST_AT 8 /* where the file says what its newest entry is */
#define FIRST 24  /* where the first entry is, which begins with `before` */

static int fd; /* the elector's */

static void begin(void)
{
	struct err err;

	fd = sources_new(&err);
	if (fd < 0)
		printf("Bail out! %s\n", err.text), exit(1);
}

static struct sources *worker(void)
{
	struct err err;
	struct sources *s = sources_open(fcntl(fd, F_DUPFD, 0), &err);

	if (!s)
		printf("Bail out! %s\n", err.text), exit(1);
	return s;
}

static bool finds(struct sources *s, const char *name, const char *text)
{
	struct buf b = { 0 };
	struct err err;
	int found = sources_find(s, name, &b, &err);
	bool same = found == (text ? 1 : 0) &&
	            (!text || (b.len == strlen(text) && memcmp(b.data ? b.data : "", text, b.len) == 0));

	buf_fini(&b);
	return same;
}

/* What counts after it; free it. NULL: it failed. */
static char *keep(struct sources *s, const char *name, const char *text)
{
	struct buf b = { 0 };
	struct err err;
	char *result = NULL;

	buf_adds(&b, text);
	if (sources_keep(s, name, &b, &err) == 0)
		result = mem_dupn(b.data ? b.data : "", b.len);
	buf_fini(&b);
	return result;
}

static bool keeps(struct sources *s, const char *name, const char *text, const char *counts)
{
	char *result = keep(s, name, text);
	bool good = result && strcmp(result, counts) == 0;

	free(result);
	return good;
}

static long long memory(void)
{
	struct stat st;

	fstat(fd, &st);
	return (long long)st.st_blocks * 512;
}

static void test_keeping(void)
{
	begin();
	struct sources *a = worker(), *b = worker();
	ok(fcntl(fd, F_GETFD) & FD_CLOEXEC, "the elector's descriptor is closed on exec");
	int inherited = fcntl(fd, F_DUPFD, 0);
	struct sources *c = sources_open(inherited, NULL);
	ok(c && fcntl(inherited, F_GETFD) & FD_CLOEXEC, "and so is a worker's");
	sources_close(c);
	ok(ftruncate(fd, 0) < 0, "nobody can shrink the file under its readers");
	ok(finds(a, "script", NULL), "nothing is kept at first");
	ok(keeps(a, "script", "one", "one") && finds(a, "script", "one"), "what a worker keeps it finds");
	ok(finds(b, "script", "one"), "and so does another");
	ok(finds(b, "scrip", NULL) && finds(b, "script2", NULL) && finds(b, "", NULL), "under that name alone");
	ok(keeps(b, "script", "two", "one") && finds(a, "script", "one"),
	   "who comes second goes on with what the first has kept");
	ok(keeps(b, "module m", "", "") && finds(a, "module m", ""), "an empty text can be kept");
	ok(keeps(a, "module m", "m", "m") && finds(b, "module m", "m"), "and gives way to another");
	ok(keeps(b, "module m", "", "m") && keeps(b, "module m", "n", "m"), "which gives way to none");
	sources_close(a);
	sources_close(b);
	a = worker();
	ok(finds(a, "script", "one") && finds(a, "module m", "m"), "all of it outlives the workers");
	sources_close(a);
	sources_close(NULL);
	close(fd);
}

static void test_sizes(void)
{
	char name[20], *large = mem_take(SOURCES_TEXT_MAX + 2);
	struct buf b = { 0 };
	struct err err = { 0 };
	int n = 0;

	begin();
	struct sources *s = worker();
	memset(large, 'x', SOURCES_TEXT_MAX + 1);
	large[SOURCES_TEXT_MAX + 1] = '\0';
	buf_adds(&b, large);
	ok(sources_keep(s, "a", &b, &err) < 0, "a text of more than 16 MB is refused: %s", err.text);
	large[SOURCES_TEXT_MAX] = '\0';
	for (int i = 0; i < 4; i++) {
		snprintf(name, sizeof name, "large %d", i);
		n += keeps(s, name, large, large);
	}
	is_int(n, 3, "what is kept has a bound: 64 MB with names");
	buf_fini(&b);
	buf_adds(&b, large);
	ok(sources_keep(s, "b", &b, &err) < 0 && err.code == ERR_FULL, "which an error names: %s", err.text);
	ok(finds(s, "large 0", large) && keeps(s, "c", "small", "small"),
	   "what was kept is still there, and what has room is kept");
	large[SOURCES_TEXT_MAX / 4] = '\0';
	for (n = 0; n < 20; n++) {
		buf_drop(&b, b.len);
		buf_adds(&b, n == 19 ? "last" : large);
		if (sources_replace(s, "replaced", &b, &err) < 0)
			break;
	}
	ok(n == 20 && finds(s, "replaced", "last"), "a text that replaces another takes its place, however often");
	large[SOURCES_TEXT_MAX / 4] = 'x';
	long long before = memory();
	ok(keeps(s, "large 1", "other", large) && memory() == before, "a text that is not kept takes no memory");
	memset(large, 'n', SOURCES_NAME_MAX + 1);
	large[SOURCES_NAME_MAX + 1] = '\0';
	ok(!keep(s, large, ""), "a name has a bound, too");
	large[SOURCES_NAME_MAX] = '\0';
	ok(keeps(s, large, "named", "named"), "below which it is kept");
	buf_fini(&b);
	free(large);
	sources_close(s);
	close(fd);
}

/* ---- one that is killed or stopped ---- */

#define LARGE 100000

static char *said; /* in memory that processes share: what counted for the child */

/* A worker that keeps it, up to its n-th stop (ptrace(2): before or after a system call). 0: it has ended before. */
static pid_t run_until(struct sources *s, const char *name, const char *text, int n)
{
	int status;

	*said = '\0';
	pid_t pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		raise(SIGSTOP);
		char *result = keep(s, name, text);
		strcpy(said, result ? result : "failed");
		_exit(0);
	}
	waitpid(pid, &status, 0);
	for (int i = 0; i < n; i++) {
		ptrace(PTRACE_SYSCALL, pid, NULL, NULL);
		if (waitpid(pid, &status, 0) != pid || !WIFSTOPPED(status))
			return 0;
	}
	return pid;
}

static void test_killed(void)
{
	int good = 0, lost = 0, n = 0;
	pid_t pid;

	do {
		begin();
		struct sources *s = worker();
		keeps(s, "before", "old", "old");
		pid = run_until(s, "m", "of the dead", ++n);
		if (pid) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
		}
		bool kept = finds(s, "m", "of the dead");
		lost += !kept;
		good += (kept || finds(s, "m", NULL)) && finds(s, "before", "old") &&
		        keeps(s, "m", "of the living", kept ? "of the dead" : "of the living") &&
		        keeps(s, "after", "new", "new") && finds(s, "before", "old") &&
		        finds(s, "m", kept ? "of the dead" : "of the living");
		sources_close(s);
		close(fd);
	} while (pid && n < 1000);
	ok(good == n && n < 1000,
	   "killed at any of %d moments, a worker has kept all of a text or none, and others go on (%d)", n, good);
	ok(lost > 0 && lost < n, "in %d of them none", lost);
}

static void test_stopped(void)
{
	char large[LARGE + 1];
	int good = 0, first = 0, n = 0;
	pid_t pid;

	memset(large, 'x', LARGE);
	large[LARGE] = '\0';
	do {
		begin();
		struct sources *s = worker();
		pid = run_until(s, "m", large, ++n);
		bool other = keeps(s, "another", "a", "a");
		char *mine = keep(s, "m", "of the running");
		if (pid) {
			ptrace(PTRACE_DETACH, pid, NULL, NULL);
			waitpid(pid, NULL, 0);
		}
		bool ours = mine && strcmp(mine, large) != 0;
		first += ours;
		good += other && mine && strcmp(mine, said) == 0 && finds(s, "m", mine) && finds(s, "another", "a") &&
		        (!ours || memory() < LARGE / 2);
		free(mine);
		sources_close(s);
		close(fd);
	} while (pid && n < 1000);
	ok(good == n && n < 1000,
	   "stopped at any of %d moments, a worker holds nobody up, and both go on with the same text (%d)", n, good);
	ok(first > 0 && first < n, "in %d of them with the other one's, and then its own takes no memory", first);
}

#define RACERS 4
#define ROUNDS 200

static void test_race(void)
{
	char *words = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int same = 0;

	begin();
	struct sources *parent = worker();
	for (int round = 0; round < ROUNDS; round++) {
		char name[20];
		int go[2];
		snprintf(name, sizeof name, "m%d", round);
		memset(words, 0, RACERS * 16);
		if (pipe(go) < 0)
			abort();
		for (int i = 0; i < RACERS; i++)
			if (fork() == 0) {
				char own[16], byte;
				struct sources *s = worker();
				snprintf(own, sizeof own, "racer %d", i);
				close(go[1]);
				(void)!read(go[0], &byte, 1);
				char *result = keep(s, name, own);
				strcpy(words + i * 16, result ? result : "failed");
				_exit(!keeps(s, own, name, round ? "m0" : name));
			}
		close(go[0]);
		close(go[1]); /* all of them go */
		int agree = 0, status;
		while (wait(&status) > 0)
			agree -= status != 0;
		for (int i = 0; i < RACERS; i++)
			agree += strncmp(words + i * 16, "racer", 5) == 0 && strcmp(words + i * 16, words) == 0;
		same += agree == RACERS && finds(parent, name, words);
	}
	is_int(same, ROUNDS, "of workers that keep a text at the same time, all go on with the same one");
	for (int i = 0; i < RACERS; i++) {
		char own[16];
		snprintf(own, sizeof own, "racer %d", i);
		ok(finds(parent, own, "m0"), "and what %s kept beside it is there", own);
	}
	sources_close(parent);
	munmap(words, 4096);
	close(fd);
}

/* ---- what is no such file, or is damaged ---- */

static bool opens(int other)
{
	struct err err = { 0 };
	struct sources *s = sources_open(other, &err);
	bool closed = fcntl(other, F_GETFD) < 0;

	if (!s)
		printf("# %s\n", err.text);
	sources_close(s);
	return s || !closed;
}

static void test_refusals(void)
{
	char copy[FIRST];
	int unsealed = memfd_create("unsealed", MFD_CLOEXEC),
	    sealed = memfd_create("sealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	begin();
	if (pread(fd, copy, sizeof copy, 0) != FIRST || pwrite(unsealed, copy, sizeof copy, 0) != FIRST ||
	    ftruncate(sealed, 4096) < 0)
		abort();
	fcntl(sealed, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
	ok(!opens(open("/dev/null", O_RDWR)), "a descriptor of something else is refused, and closed");
	ok(!opens(unsealed), "so is a file that somebody could shrink");
	ok(!opens(sealed), "and one that keeps no sources");
	close(fd);
}

static void write_word(uint64_t word, off_t at)
{
	if (pwrite(fd, &word, sizeof word, at) != sizeof word)
		abort();
}

static void test_damage(void)
{
	struct buf b = { 0 };
	struct err err = { 0 };

	begin();
	struct sources *s = worker();
	keeps(s, "m", "text", "text");
	write_word(FIRST, FIRST);
	ok(sources_find(s, "n", &b, &err) < 0, "an entry that comes before itself is an error, and no endless loop: %s",
	   err.text);
	write_word(0, FIRST);
	ok(finds(s, "m", "text"), "(it was that)");
	write_word(UINT64_C(1) << 40, LAST_AT);
	ok(sources_find(s, "m", &b, &err) < 0 && !keep(s, "m", "text"), "an entry behind the end is an error");
	write_word(FIRST, LAST_AT);
	write_word(UINT64_MAX, FIRST + 16);
	ok(sources_find(s, "m", &b, &err) < 0 && !keep(s, "m", "text"), "and so are lengths that cannot be");
	buf_fini(&b);
	sources_close(s);
	close(fd);
}

int main(void)
{
	alarm(600); /* what hangs has failed */
	said = mmap(NULL, LARGE + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	test_keeping();
	test_sizes();
	test_killed();
	test_stopped();
	test_race();
	test_refusals();
	test_damage();
	return tap_done();
}
