#include "process/deadline_page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Why no lock is needed. Only the elector moves deadlines; the others only end terms, by a mark of their own. A
 * deadline is two words, and a reader may see one of them old and one new:
 *
 *  - later deadlines: any mixture is no later than the new deadline by either clock, since instant_passed needs one
 * clock alone. Whoever acts on it acts early, which costs a term at worst and never two leaders. The elector, for its
 * part, looks at the mark after it has moved the deadline: a mark that was there before makes the extension fail, and
 * one that comes later makes the next one fail.
 *  - earlier deadlines: the old one holds until page_extend returns, and only then is the write sent that makes it
 * matter.
 *  - another term on the slot: it begins with end_boot = 0 and stores its own end_boot last, so who reads end_boot
 * first and the term after it never takes one term's deadline for another's.
 *
 * All accesses are sequentially consistent: they are few, and the argument above should not need a second page. */

#define MAGIC 0x3147504cu /* "LPG1" */
#define SLOTS_MOST 65535
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
/* A mark lies so far behind its slot. */
#define DISTANCE ((size_t)8 << 20)

_Static_assert(sizeof(struct page_slot) == 64, "a slot is a cache line");
_Static_assert(sizeof(struct page) == 64, "slots begin on a cache line");
_Static_assert(sizeof(struct page_mark) == sizeof(struct page_slot), "a mark lies where its slot does");
_Static_assert(sizeof(struct page_worker) == sizeof(struct page), "the marks begin where the slots do");
_Static_assert(sizeof(struct page) + SLOTS_MOST * sizeof(struct page_slot) <= DISTANCE,
               "the marks lie behind the slots");

static size_t page_size(uint32_t slots)
{
	return sizeof(struct page) + (size_t)slots * sizeof(struct page_slot);
}

static struct page_mark *mark_of(struct page_slot *s)
{
	return (struct page_mark *)((char *)s + DISTANCE);
}

static struct page_worker *worker_of(struct page *p)
{
	return (struct page_worker *)((char *)p + DISTANCE);
}

static bool page_map_at(char *at, size_t size, int rights, int fd)
{
	const char *got = mmap(at, size, rights, MAP_SHARED | MAP_FIXED, fd, 0);

	// cppcheck-suppress memleak  ; page_unmap_files() ends it
	return got == at;
}

/* Both files, at their distance. What lies between them is given back: it would count as memory that we may not
 * lock. */
static struct page *page_map_files(const int *fd, size_t size, int rights, struct err *err)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE), gap = DISTANCE - (size + page - 1) / page * page;
	char *at = mmap(NULL, DISTANCE + size, PROT_NONE, MAP_SHARED, fd[PAGE_DEADLINES], 0);

	if (at == MAP_FAILED) {
		err_sys(err, "cannot map the shared page (%zu bytes)", DISTANCE + size);
		return NULL;
	}
	if (page_map_at(at, size, rights, fd[PAGE_DEADLINES]) &&
	    page_map_at(at + DISTANCE, size, PROT_READ | PROT_WRITE, fd[PAGE_MARKS])) {
		munmap(at + DISTANCE - gap, gap);
		return (struct page *)at;
	}
	err_sys(err, "cannot map the shared page (%zu bytes)", size);
	munmap(at, DISTANCE + size);
	return NULL;
}

static void page_unmap_files(struct page *p, size_t size)
{
	munmap((char *)p + DISTANCE, size);
	munmap(p, size);
}

static int page_make_file(size_t size, struct err *err)
{
	int fd = memfd_create("lunarch-page", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return err_sys(err, "cannot create the shared page");
	if (ftruncate(fd, (off_t)size) == 0)
		return fd;
	err_sys(err, "cannot size the shared page to %zu bytes", size);
	close(fd);
	return -1;
}

/* Our own mapping, which is there already, stays writable (F_SEAL_FUTURE_WRITE, fcntl(2), Linux 5.1). A fork of this
 * process does not have it: a guard may be one, and its worker runs a script. */
static bool page_seal(struct page *p, const int *fd)
{
	return madvise(p, page_size(p->slots), MADV_DONTFORK) == 0 &&
	       madvise((char *)p + DISTANCE, page_size(p->slots), MADV_DONTFORK) == 0 &&
	       fcntl(fd[PAGE_DEADLINES], F_ADD_SEALS, F_SEAL_FUTURE_WRITE | SEALS) == 0 &&
	       fcntl(fd[PAGE_MARKS], F_ADD_SEALS, SEALS) == 0;
}

struct page *page_new(uint32_t n, int *fd, struct err *err)
{
	struct page *p = NULL;

	fd[PAGE_DEADLINES] = fd[PAGE_MARKS] = -1;
	if (n < 1 || n > SLOTS_MOST) {
		err_set(err, ERR_USAGE, "a shared page has 1 to %d slots, not %u", SLOTS_MOST, n);
		return NULL;
	}
	for (int i = 0; i < PAGE_FILES; i++)
		if ((fd[i] = page_make_file(page_size(n), err)) < 0)
			goto fail;
	p = page_map_files(fd, page_size(n), PROT_READ | PROT_WRITE, err);
	if (!p)
		goto fail;
	p->magic = MAGIC;
	p->slots = n;
	if (page_seal(p, fd))
		return p;
	err_sys(err, "cannot seal the shared page");
	page_unmap(p);
fail:
	for (int i = 0; i < PAGE_FILES; i++) {
		if (fd[i] >= 0)
			close(fd[i]);
		fd[i] = -1;
	}
	return NULL;
}

/* Sealed, or else somebody could shrink it under us, and reading it would be SIGBUS. */
static bool page_is_file(int fd, int seals, off_t *size)
{
	struct stat st;
	int have = fcntl(fd, F_GET_SEALS);

	if (have < 0 || (have & seals) != seals || fstat(fd, &st) < 0)
		return false;
	*size = st.st_size;
	return st.st_size >= (off_t)page_size(1) && st.st_size <= (off_t)page_size(SLOTS_MOST);
}

struct page *page_map(const int *fd, struct err *err)
{
	off_t size, marks;

	if (!page_is_file(fd[PAGE_DEADLINES], SEALS | F_SEAL_FUTURE_WRITE, &size) ||
	    !page_is_file(fd[PAGE_MARKS], SEALS, &marks) || size != marks) {
		err_set(err, ERR_INVALID, "descriptors %d and %d are not a shared page", fd[PAGE_DEADLINES],
		        fd[PAGE_MARKS]);
		return NULL;
	}
	struct page *p = page_map_files(fd, (size_t)size, PROT_READ, err);
	if (!p)
		return NULL;
	if (p->magic != MAGIC || p->slots > SLOTS_MOST || page_size(p->slots) != (size_t)size) {
		err_set(err, ERR_INVALID,
		        "descriptor %d is not a shared page: it is marked %08x and claims %u slots in %lld bytes",
		        fd[PAGE_DEADLINES], p->magic, p->slots, (long long)size);
		page_unmap_files(p, (size_t)size);
		return NULL;
	}
	return p;
}

void page_unmap(struct page *p)
{
	page_unmap_files(p, page_size(p->slots));
}

static void slot_set_kill(struct page_slot *s, struct instant kill)
{
	s->kill_raw = kill.raw;
	s->kill_boot = kill.boot;
}

void page_begin(struct page *p, uint32_t slot, uint64_t term, int64_t token, struct instant end, struct instant kill)
{
	struct page_slot *s = &p->slot[slot];

	if (p->used <= slot)
		p->used = slot + 1;
	slot_set_kill(s, kill);
	mark_of(s)->ended = 0;
	s->token = token;
	s->state = PAGE_LEADING;
	s->term = term;
	s->end_raw = end.raw;
	s->end_boot = end.boot;
}

bool page_extend(struct page_slot *s, uint64_t term, struct instant end, struct instant kill)
{
	if (s->term != term || !s->end_boot || mark_of(s)->ended == term)
		return false;
	s->end_raw = end.raw;
	s->end_boot = end.boot;
	if (mark_of(s)->ended == term) {
		s->end_boot = 0;
		return false;
	}
	slot_set_kill(s, kill);
	return true;
}

void page_stop(struct page_slot *s, bool held, struct instant kill)
{
	struct instant was = { .boot = s->kill_boot, .raw = s->kill_raw };

	s->state = PAGE_STOPPING;
	if (!held)
		s->end_boot = 0;
	if (was.boot)
		slot_set_kill(s, instant_min(was, kill));
}

void page_idle(struct page_slot *s)
{
	s->end_boot = 0;
	slot_set_kill(s, (struct instant){ 0, 0 });
	s->state = PAGE_IDLE;
}

void page_end_next(struct page_slot *s, uint32_t number)
{
	s->next_over = number;
}

bool page_next_over(const struct page_slot *s, uint32_t number)
{
	return s->next_over >= number;
}

void page_end_all(struct page *p)
{
	for (uint32_t i = 0; i < p->used && i < p->slots; i++)
		mark_of(&p->slot[i])->ended = p->slot[i].term;
}

/* Time left to the term; 0 once it has ended, and for ever after. The clock is read after the deadline: the other way
 * round, a pause between the two would judge by a time long gone. */
static nsec slot_left(struct page_slot *s, uint64_t term)
{
	for (;;) {
		struct instant end;
		end.boot = s->end_boot; /* first: see the top */
		end.raw = s->end_raw;
		if (s->term != term || !end.boot || mark_of(s)->ended == term)
			return 0;
		nsec until = instant_until(end, clock_now());
		if (until)
			return until;
		if (s->end_boot == end.boot) {
			mark_of(s)->ended = term;
			return 0;
		}
		/* It was moved meanwhile: look again. */
	}
}

bool page_leading(struct page_slot *s, uint64_t term)
{
	return slot_left(s, term) > 0;
}

nsec page_remaining(struct page_slot *s, uint64_t term)
{
	return slot_left(s, term);
}

bool page_stopping(struct page_slot *s, uint64_t term)
{
	return !slot_left(s, term) || s->state == PAGE_STOPPING;
}

void page_work(struct page *p, enum page_work work, uint32_t slot)
{
	if (work != PAGE_WAITS) /* what waits for long is no news, and each resumed task comes by here */
		worker_of(p)->since = clock_now().boot;
	worker_of(p)->work = (uint64_t)slot << 32 | work;
}

nsec page_work_for(struct page *p, struct instant now)
{
	int64_t since = worker_of(p)->since;

	return since > 0 && since < now.boot ? now.boot - since : 0;
}

enum page_work page_work_now(struct page *p, uint32_t *slot)
{
	uint64_t said = worker_of(p)->work;

	*slot = (uint32_t)(said >> 32);
	return (uint32_t)said < PAGE_WORKS ? (enum page_work)(uint32_t)said : PAGE_WAITS;
}

bool page_first_kill(struct page *p, struct instant *kill)
{
	struct instant first = { NSEC_NEVER, NSEC_NEVER };

	for (uint32_t i = 0; i < p->used && i < p->slots; i++) {
		/* It is read only so that page_end_all finds the marks mapped: by then there may be no memory left for that. */
		(void)atomic_load(&mark_of(&p->slot[i])->ended);
		struct instant k = { .boot = p->slot[i].kill_boot, .raw = p->slot[i].kill_raw };
		if (k.boot)
			first = instant_min(first, k);
	}
	*kill = first;
	return first.boot != NSEC_NEVER;
}
