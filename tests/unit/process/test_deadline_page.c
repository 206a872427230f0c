/* The shared page: what a term's deadlines allow, that an ended term never revives, and that readers in other threads
 * and processes never see more than the elector gave. */
#include "process/deadline_page.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct instant in(nsec d)
{
	return instant_add(clock_now(), d);
}

static const nsec HOUR = 3600 * NSEC_PER_SEC;

static struct page *new_page(uint32_t n, int *fd)
{
	struct err err = { 0 };
	struct page *p = page_new(n, fd, &err);

	if (!p)
		printf("Bail out! %s\n", err.text), exit(1);
	return p;
}

static void close_both(const int *fd)
{
	for (int i = 0; i < PAGE_FILES; i++)
		close(fd[i]);
}

static void test_making(void)
{
	struct err err = { 0 };
	struct stat st;
	int fd[PAGE_FILES], other;
	struct page *p = new_page(PAGE_SLOTS, fd), *q = page_map(fd, &err);

	ok(q && q != p && q->slots == PAGE_SLOTS, "a page can be mapped again from its descriptors");
	long long bytes = 0;
	for (int i = 0; i < PAGE_FILES; i++) {
		ok(fcntl(fd[i], F_GETFD) & FD_CLOEXEC, "descriptor %d is closed on exec", i);
		ok(ftruncate(fd[i], 0) < 0 && errno == EPERM, "nobody can shrink its file under its readers");
		fstat(fd[i], &st);
		bytes += st.st_blocks * 512;
	}
	ok(bytes <= PAGE_FILES * sysconf(_SC_PAGESIZE),
	   "slots that were never begun take no memory (%lld bytes of twice %lld)", bytes, (long long)st.st_size);
	p->slot[7].token = 4711;
	is_int(q->slot[7].token, 4711, "both mappings show the same slots");
	page_unmap(q);
	p->magic++;
	ok(!page_map(fd, &err) && err.code == ERR_INVALID, "a wrong magic is refused: %s", err.text);
	p->magic--;
	p->slots--;
	ok(!page_map(fd, &err) && err.code == ERR_INVALID, "a slot count that does not fit the size is refused");
	p->slots++;
	ok(!page_map((int[]){ fd[1], fd[0] }, &err), "the two files cannot be taken for each other: %s", err.text);
	page_unmap(p);
	close_both(fd);
	ok(!page_new(0, fd, &err) && !page_new(65536, fd, &err), "0 and 65,536 slots are refused: %s", err.text);
	other = memfd_create("no page", MFD_CLOEXEC);
	if (ftruncate(other, 4096) == 0)
		ok(!page_map((int[]){ other, other }, &err), "a descriptor that is not sealed is refused: %s",
		   err.text);
	close(other);
	other = open("/dev/null", O_RDWR | O_CLOEXEC);
	ok(!page_map((int[]){ other, other }, &err), "a descriptor of something else is refused");
	close(other);
}

/* Right in each byte, but its owner could shrink it under its readers. */
static void test_unsealed(void)
{
	struct err err;
	int fd[PAGE_FILES], copy[PAGE_FILES];
	struct page *p = new_page(3, fd);
	struct stat st;

	for (int i = 0; i < PAGE_FILES; i++) {
		copy[i] = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
		fstat(fd[i], &st);
		char *bytes = calloc(1, (size_t)st.st_size);
		if (pread(fd[i], bytes, (size_t)st.st_size, 0) != st.st_size ||
		    write(copy[i], bytes, (size_t)st.st_size) != st.st_size)
			printf("Bail out! a page of %lld bytes cannot be copied\n", (long long)st.st_size), exit(1);
		free(bytes);
	}
	ok(!page_map(copy, &err) && err.code == ERR_INVALID, "a copy of a page that is not sealed is refused: %s",
	   err.text);
	close_both(copy);
	page_unmap(p);
	close_both(fd);
}

/* ---- who may write what ---- */

/* As a worker that runs anything might: every byte of the page that it can write. How many that were; -1: it could not
 * map it. */
static long scribble(const int *fd, size_t size)
{
	struct page *p = page_map(fd, NULL);
	long pagesize = sysconf(_SC_PAGESIZE), written = 0;
	int zero = open("/dev/zero", O_RDONLY | O_CLOEXEC), ones;

	for (int i = 0; i < PAGE_FILES; i++) { /* by the descriptors, and by new ones to the same files */
		char path[40];
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd[i]);
		int again = open(path, O_RDWR | O_CLOEXEC);
		ones = i == PAGE_DEADLINES &&
		       (pwrite(fd[i], "\xff\xff\xff\xff\xff\xff\xff\xff", 8, 4) > 0 ||
		        pwrite(again, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, 4) > 0 ||
		        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) != MAP_FAILED);
		written += ones ? 8 : 0;
		close(again);
	}
	mprotect(p, size, PROT_READ | PROT_WRITE); /* must not help */
	/* The kernel writes what it can of a range, and says EFAULT where it cannot: a fault without a signal. */
	char *at = (char *)p;
	for (size_t off = 0; off < size; off += (size_t)pagesize)
		written += read(zero, at + off, 8) == 8 ? 8 : 0;
	close(zero);
	return p ? written : -1;
}

/* The worker can end its own terms, and nothing else: neither a deadline nor what elector and guard go by. */
static void test_hostile(void)
{
	struct instant end = in(HOUR), kill = in(2 * HOUR), first;
	int fd[PAGE_FILES], status;
	struct page *p = new_page(PAGE_SLOTS, fd), *guards = page_map(fd, NULL);
	size_t size = sizeof *p + PAGE_SLOTS * sizeof *p->slot;

	page_begin(p, 3, 9, 77, end, kill);
	pid_t pid = fork();
	if (pid == 0)
		_exit(scribble(fd, size) != 0);
	waitpid(pid, &status, 0);
	ok(WIFEXITED(status) && WEXITSTATUS(status) == 0,
	   "a worker cannot write a byte of the deadlines, whichever way it tries");
	ok(p->slots == PAGE_SLOTS && p->used == 4, "the page's head is what it was");
	ok(page_first_kill(guards, &first) && first.boot == kill.boot && first.raw == kill.raw,
	   "and the kill deadline, as the guard sees it");
	ok(page_leading(&p->slot[3], 9) && page_extend(&p->slot[3], 9, end, kill), "the term goes on");

	/* The other file it may write, to the last byte. */
	char *marks = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd[PAGE_MARKS], 0);
	memset(marks, 0xff, size);
	ok(page_first_kill(guards, &first) && first.boot == kill.boot,
	   "whatever it writes into the marks, the kill deadline stands");
	page_end_all(guards);
	ok(!page_leading(&p->slot[3], 9) && !page_extend(&p->slot[3], 9, end, kill), "the guard can end the term");
	memset(marks, 0, size);
	ok(page_first_kill(guards, &first) && first.boot == kill.boot,
	   "and a worker that takes that back moves no kill deadline");
	page_idle(&p->slot[3]);
	page_begin(p, 3, 10, 78, end, kill);
	ok(page_leading(&p->slot[3], 10) && !page_leading(&p->slot[3], 9),
	   "the next term is not hurt by the last one's marks");
	munmap(marks, size);
	page_unmap(guards);
	page_unmap(p);
	close_both(fd);
}

static void test_term(struct page *p)
{
	struct page_slot *s = &p->slot[3];
	struct instant end = in(HOUR), kill = in(2 * HOUR), first;

	ok(!page_leading(s, 0) && !page_leading(s, 1) && page_remaining(s, 1) == 0, "an idle slot does not lead");
	ok(!page_first_kill(p, &first), "with idle slots there is nothing to kill");
	page_begin(p, 3, 9, 77, end, kill);
	ok(page_leading(s, 9) && !page_stopping(s, 9), "a term leads from its begin");
	ok(!page_leading(s, 8) && !page_leading(s, 10) && page_stopping(s, 8), "no other term of that slot does");
	is_int(p->used, 4, "used covers the slots begun");
	ok(page_remaining(s, 9) > HOUR - 60 * NSEC_PER_SEC && page_remaining(s, 9) <= HOUR,
	   "remaining counts to the end");
	ok(page_first_kill(p, &first) && first.boot == kill.boot && first.raw == kill.raw,
	   "the first kill is its kill deadline");

	struct instant sooner = in(HOUR / 2);
	page_begin(p, 1, 5, 78, in(HOUR / 4), sooner);
	ok(page_first_kill(p, &first) && first.boot == sooner.boot, "the first kill is the earliest of all slots");
	page_idle(&p->slot[1]);
	ok(page_first_kill(p, &first) && first.boot == kill.boot, "an idle slot's deadline does not count");
	ok(!page_leading(&p->slot[1], 5) && !page_extend(&p->slot[1], 5, end, kill), "nor can its term be extended");

	ok(page_extend(s, 9, in(3 * HOUR), in(4 * HOUR)) && page_remaining(s, 9) > 2 * HOUR, "a term can be extended");
	ok(page_extend(s, 9, in(HOUR), in(HOUR)) && page_remaining(s, 9) <= HOUR, "and shortened");
	ok(page_first_kill(p, &first) && first.boot < kill.boot, "with its kill deadline");
	ok(!page_extend(s, 10, in(3 * HOUR), in(4 * HOUR)) && page_remaining(s, 9) <= HOUR,
	   "not by the name of another term");

	page_stop(s, true, sooner);
	ok(page_leading(s, 9) && page_stopping(s, 9), "told to stop with the lease held: it leads, and winds up");
	ok(page_first_kill(p, &first) && first.boot == sooner.boot, "a stop brings the kill deadline nearer");
	page_stop(s, true, in(5 * HOUR));
	ok(page_first_kill(p, &first) && first.boot == sooner.boot, "and never moves it away");
	ok(page_extend(s, 9, in(HOUR), in(HOUR)) && page_stopping(s, 9),
	   "a held lease is renewed while the script winds up");
	page_stop(s, false, in(HOUR));
	ok(!page_leading(s, 9) && page_stopping(s, 9), "told to stop with the lease lost: it does not lead");
	ok(!page_extend(s, 9, in(HOUR), in(HOUR)), "and cannot be extended");
	ok(page_first_kill(p, &first), "but the kill deadline stands until the slot is idle");
	page_idle(s);
	ok(!page_first_kill(p, &first), "idle: nothing to kill");
}

/* A deadline that has passed by either clock alone has passed. */
static void test_expiry(struct page *p)
{
	struct page_slot *s = &p->slot[0];
	struct instant soon = in(HOUR), past = in(0); /* now is past already: the deadline itself does not lead */

	page_begin(p, 0, 1, 1, (struct instant){ .boot = past.boot, .raw = soon.raw }, soon);
	ok(!page_leading(s, 1), "a term ends when CLOCK_BOOTTIME has reached its end");
	ok(!page_extend(s, 1, soon, soon) && !page_leading(s, 1), "having said so once, it stays so");
	page_idle(s);
	page_begin(p, 0, 2, 1, (struct instant){ .boot = soon.boot, .raw = past.raw }, soon);
	ok(page_remaining(s, 2) == 0, "or when CLOCK_MONOTONIC_RAW has");
	ok(!page_extend(s, 2, soon, soon) && !page_leading(s, 2), "which is sticky too");
	page_idle(s);
	page_begin(p, 0, 3, 1, past, soon);
	ok(page_stopping(s, 3) && !page_extend(s, 3, soon, soon), "page_stopping is sticky about it as well");
	page_idle(s);
	page_begin(p, 0, 4, 1, past, soon);
	ok(page_extend(s, 4, soon, soon) && page_leading(s, 4), "an end that nobody acted on may still be moved");
	page_begin(p, 2, 6, 1, soon, soon);
	page_end_all(p);
	ok(!page_leading(s, 4) && !page_leading(&p->slot[2], 6) && !page_extend(s, 4, soon, soon),
	   "page_end_all ends every term for good");
	page_idle(s);
	page_idle(&p->slot[2]);
}

/* ---- races: one elector that extends by little steps, readers that must never be told more than it gave ---- */

#define TERMS 400

struct race {
	struct page *page;
	_Atomic uint64_t refused; /* the last term a reader was told no about */
	_Atomic uint64_t current;
	_Atomic int64_t given; /* the latest end ever given */
	_Atomic int done;
	_Atomic int over, answers;
};

static void *reader(void *arg)
{
	struct race *r = arg;
	struct page_slot *s = &r->page->slot[0];

	while (!r->done) {
		uint64_t term = r->current;
		int64_t before = clock_now().boot;
		bool leads = page_leading(s, term);
		r->answers++;
		if (leads && before >= r->given)
			r->over++;
		if (!leads && s->term == term && term)
			r->refused = term;
	}
	return NULL;
}

/* One term of the race: extended until something ends it. Returns how often an extension succeeded after a no. */
static int race_term(struct race *r, uint64_t term, int *extended)
{
	struct page_slot *s = &r->page->slot[0];
	int revived = 0;

	struct instant end = in(20000);
	r->given = end.boot;
	page_begin(r->page, 0, term, 1, end, in(HOUR));
	r->current = term;
	for (int i = 0; i < 100000; i++) {
		bool refused = r->refused == term;
		end = in(5000 + (i * 7919) % 30000);
		if (end.boot > r->given)
			r->given = end.boot;
		if (!page_extend(s, term, end, in(HOUR)))
			break;
		++*extended;
		revived += refused;
	}
	r->current = 0;
	page_idle(s);
	return revived;
}

static void test_races(struct page *p)
{
	struct race r = { .page = p };
	pthread_t t[3];
	int revived = 0, extended = 0;

	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, reader, &r);
	for (uint64_t term = 1; term <= TERMS; term++)
		revived += race_term(&r, term + 100, &extended);
	r.done = 1;
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	printf("# %d terms, %d extensions, %d answers\n", TERMS, extended, r.answers);
	is_int(revived, 0, "no extension succeeds once a reader has been told no");
	is_int(r.over, 0, "no reader is told yes after the latest end ever given");
}

/* The same with the ending done by another process, as the guard's is. */
static void test_processes(struct page *p, const int *fd)
{
	int revived = 0;

	for (uint64_t term = 1001; term < 1051; term++) {
		page_begin(p, 0, term, 1, in(HOUR), in(HOUR));
		pid_t pid = fork();
		if (pid == 0) {
			struct page *mine = page_map(fd, NULL);
			page_end_all(mine);
			_exit(!mine);
		}
		while (page_extend(&p->slot[0], term, in(HOUR), in(HOUR)))
			;
		waitpid(pid, NULL, 0);
		revived += page_leading(&p->slot[0], term);
		page_idle(&p->slot[0]);
	}
	is_int(revived, 0, "a term that another process ended while it was being extended stays ended");
}

static void test_next(void)
{
	int fd[PAGE_FILES];
	struct err err;
	struct page *p = new_page(2, fd), *reader = page_map(fd, &err);

	ok(!page_next_over(&reader->slot[1], 1), "no on_next is over at first");
	page_end_next(&p->slot[1], 2);
	ok(page_next_over(&reader->slot[1], 1) && page_next_over(&reader->slot[1], 2),
	   "one that ends ends those before it");
	ok(!page_next_over(&reader->slot[1], 3) && !page_next_over(&reader->slot[0], 1),
	   "not a later one, nor another slot's");
	page_begin(p, 1, 7, 1, (struct instant){ 1, 1 }, (struct instant){ 2, 2 });
	page_idle(&p->slot[1]);
	ok(page_next_over(&reader->slot[1], 2) && !page_next_over(&reader->slot[1], 3),
	   "a term changes nothing of that");
	page_unmap(reader);
	page_unmap(p);
	close_both(fd);
}

/* What the worker says of itself is for people. */
static void test_work(void)
{
	int fd[PAGE_FILES];
	struct page *p = new_page(2, fd);
	struct err err;
	struct page *worker = page_map(fd, &err);
	uint32_t slot = 0;

	ok(page_work_now(p, &slot) == PAGE_WAITS, "a worker that has said nothing waits");
	page_work(worker, PAGE_ON_NEW_LEADER, 1);
	ok(page_work_now(p, &slot) == PAGE_ON_NEW_LEADER && slot == 1, "it says what it runs, and for which slot,");
	struct instant later = instant_add(clock_now(), NSEC_PER_SEC);
	ok(page_work_for(p, later) >= NSEC_PER_SEC && page_work_for(p, (struct instant){ 0 }) == 0,
	   "since when, which is never in the future");
	page_work(worker, PAGE_LOADS, PAGE_NO_SLOT);
	ok(page_work_now(p, &slot) == PAGE_LOADS && slot == PAGE_NO_SLOT, "or for none");
	for (uint32_t i = PAGE_WORKS; i < PAGE_WORKS + 2u; i++) {
		page_work(worker, (enum page_work)i, 0);
		ok(page_work_now(p, &slot) == PAGE_WAITS, "what nobody knows is nothing");
	}
	page_work(worker, (enum page_work)UINT32_MAX, UINT32_MAX);
	ok(page_work_now(p, &slot) == PAGE_WAITS && slot == UINT32_MAX, "whatever it writes there");
	page_begin(p, 0, 1, 1, in(HOUR), in(HOUR));
	page_work(worker, PAGE_ON_LEADING, 0);
	ok(page_leading(&p->slot[0], 1), "and it ends no term");
	page_unmap(worker);
	page_unmap(p);
	close_both(fd);
}

int main(void)
{
	int fd[PAGE_FILES];
	struct page *p = new_page(8, fd);

	test_making();
	test_unsealed();
	test_hostile();
	test_term(p);
	test_expiry(p);
	test_next();
	test_work();
	test_races(p);
	test_processes(p, fd);
	page_unmap(p);
	close_both(fd);
	return tap_done();
}
