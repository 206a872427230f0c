#include "page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Why no lock is needed. Only the elector moves deadlines; the others only end terms, by putting 0 into end_boot, and
 * that is the one word that decides. A deadline is two words, and a reader may see one of them old and one new:
 *
 *  - later deadlines: any mixture is no later than the new deadline by either clock, since instant_passed needs one clock
 *    alone. Whoever acts on it acts early, which costs a term at worst and never two leaders. The elector, for its part,
 *    compares end_boot with what it read before, so a reader that ended the term on the old word wins.
 *  - earlier deadlines: the old one holds until page_extend returns, and only then is the write sent that makes it matter.
 *  - another term on the slot: it begins with end_boot = 0 and stores its own end_boot last, so who reads end_boot first
 *    and the term after it never takes one term's deadline for another's.
 *
 * All accesses are sequentially consistent: they are few, and the argument above should not need a second page. */

#define MAGIC 0x3147504cu /* "LPG1" */
#define SLOTS_MOST 65535
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

_Static_assert(sizeof(struct page_slot) == 64, "a slot is a cache line");
_Static_assert(sizeof(struct page) == 64, "slots begin on a cache line");

static size_t page_size(uint32_t slots)
{
	return sizeof(struct page) + (size_t)slots * sizeof(struct page_slot);
}

static struct page *map(int fd, size_t size, struct err *err)
{
	struct page *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (p == MAP_FAILED) {
		err_sys(err, "cannot map the shared page (%zu bytes)", size);
		return NULL;
	}
	return p;
}

struct page *page_new(uint32_t n, int *fd, struct err *err)
{
	struct page *p = NULL;

	if (n < 1 || n > SLOTS_MOST) {
		err_set(err, ERR_USAGE, "a shared page has 1 to %d slots, not %u", SLOTS_MOST, n);
		return NULL;
	}
	*fd = memfd_create("lunarch-page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (*fd < 0) {
		err_sys(err, "cannot create the shared page");
		return NULL;
	}
	if (ftruncate(*fd, (off_t)page_size(n)) < 0 || fcntl(*fd, F_ADD_SEALS, SEALS) < 0)
		err_sys(err, "cannot size the shared page to %zu bytes", page_size(n));
	else
		p = map(*fd, page_size(n), err);
	if (!p) {
		close(*fd);
		*fd = -1;
		return NULL;
	}
	p->magic = MAGIC;
	p->slots = n;
	return p;
}

struct page *page_map(int fd, struct err *err)
{
	struct stat st;
	int seals = fcntl(fd, F_GET_SEALS);

	/* Sealed, or else somebody could shrink it under us, and reading it would be SIGBUS. */
	if (seals < 0 || (seals & SEALS) != SEALS || fstat(fd, &st) < 0 || st.st_size < (off_t)page_size(1) ||
	    st.st_size > (off_t)page_size(SLOTS_MOST)) {
		err_set(err, ERR_INVALID, "descriptor %d is not a shared page", fd);
		return NULL;
	}
	struct page *p = map(fd, (size_t)st.st_size, err);
	if (!p)
		return NULL;
	if (p->magic != MAGIC || p->slots > SLOTS_MOST || page_size(p->slots) != (size_t)st.st_size) {
		err_set(err, ERR_INVALID, "descriptor %d is not a shared page: it is marked %08x and claims %u slots in %lld bytes",
		        fd, p->magic, p->slots, (long long)st.st_size);
		munmap(p, (size_t)st.st_size);
		return NULL;
	}
	return p;
}

void page_unmap(struct page *p)
{
	munmap(p, page_size(p->slots));
}

static void set_kill(struct page_slot *s, struct instant kill)
{
	s->kill_raw = kill.raw;
	s->kill_boot = kill.boot;
}

void page_begin(struct page *p, uint32_t slot, uint64_t term, int64_t token, struct instant end, struct instant kill)
{
	struct page_slot *s = &p->slot[slot];

	if (p->used <= slot)
		p->used = slot + 1;
	set_kill(s, kill);
	s->token = token;
	s->state = PAGE_LEADING;
	s->term = term;
	s->end_raw = end.raw;
	s->end_boot = end.boot;
}

bool page_extend(struct page_slot *s, uint64_t term, struct instant end, struct instant kill)
{
	int64_t seen = s->end_boot;

	if (s->term != term || !seen)
		return false;
	s->end_raw = end.raw;
	if (!atomic_compare_exchange_strong(&s->end_boot, &seen, end.boot))
		return false;
	set_kill(s, kill);
	return true;
}

void page_stop(struct page_slot *s, bool held, struct instant kill)
{
	struct instant was = { .boot = s->kill_boot, .raw = s->kill_raw };

	s->state = PAGE_STOPPING;
	if (!held)
		s->end_boot = 0;
	if (was.boot)
		set_kill(s, instant_min(was, kill));
}

void page_idle(struct page_slot *s)
{
	s->end_boot = 0;
	set_kill(s, (struct instant){ 0, 0 });
	s->state = PAGE_IDLE;
}

void page_end_all(struct page *p)
{
	for (uint32_t i = 0; i < p->used && i < p->slots; i++)
		p->slot[i].end_boot = 0;
}

/* Time left to the term; 0 once it has ended, and for ever after. The clock is read after the deadline: the other way
 * round, a pause between the two would judge by a time long gone. */
static nsec left(struct page_slot *s, uint64_t term)
{
	for (;;) {
		struct instant end;
		end.boot = s->end_boot; /* first: see the top */
		end.raw = s->end_raw;
		if (s->term != term || !end.boot)
			return 0;
		nsec until = instant_until(end, clock_now());
		if (until)
			return until;
		if (atomic_compare_exchange_strong(&s->end_boot, &end.boot, 0))
			return 0;
		/* It was extended meanwhile, or ended: look again. */
	}
}

bool page_leading(struct page_slot *s, uint64_t term)
{
	return left(s, term) > 0;
}

nsec page_remaining(struct page_slot *s, uint64_t term)
{
	return left(s, term);
}

bool page_stopping(struct page_slot *s, uint64_t term)
{
	return !left(s, term) || s->state == PAGE_STOPPING;
}

bool page_first_kill(const struct page *p, struct instant *kill)
{
	struct instant first = { NSEC_NEVER, NSEC_NEVER };

	for (uint32_t i = 0; i < p->used && i < p->slots; i++) {
		struct instant k = { .boot = p->slot[i].kill_boot, .raw = p->slot[i].kill_raw };
		if (k.boot)
			first = instant_min(first, k);
	}
	*kill = first;
	return first.boot != NSEC_NEVER;
}
