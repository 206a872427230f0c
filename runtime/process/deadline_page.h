/* The shared page: per election, what the term's deadlines are, as atomics in memory that three processes map.
 * Not a message channel: it holds state that must be right even when nobody reads messages.
 * Written by the elector; read by the guard (when to kill) and the worker (is_leading); either may end a term, none
 * revive one.
 *
 * It is two files. In the one with the deadlines nobody but who made it can write: the worker runs code of others, and
 * elector and guard rely on what is there. In the other one, guard and worker say which terms have ended, and the
 * worker what it runs now, for people: whatever a worker writes there can end terms of its own, and nothing else. */
#pragma once

#include "base/clock.h"
#include "base/err.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum page_state { PAGE_IDLE, PAGE_LEADING, PAGE_STOPPING };

/* 64 bytes: a cache line of its own. */
struct page_slot {
	_Atomic uint64_t term;
	_Atomic int64_t token;
	_Atomic int64_t end_boot, end_raw;   /* is_leading until then, by either clock; end_boot decides: 0 = ended */
	_Atomic int64_t kill_boot, kill_raw; /* the guard kills what runs then; 0 = nothing runs */
	_Atomic uint32_t state;     /* enum page_state; STOPPING: the lease is held, but the script was told to stop */
	_Atomic uint32_t next_over; /* the on_next of this number, and all before it, are over */
	uint32_t unused[2];
};

/* It lies in the other file, at the place of its slot. */
struct page_mark {
	_Atomic uint64_t ended; /* this term, which may act no more */
	uint64_t unused[7];
};

/* What a worker may be busy with. */
enum page_work {
	PAGE_WAITS, /* nothing */
	PAGE_LOADS, /* the script's main chunk */
	PAGE_TASK,  /* a task that a hook or the main chunk started */
	PAGE_ON_START,
	PAGE_MAY_LEAD,
	PAGE_ON_NEW_LEADER,
	PAGE_ON_NO_LEADER,
	PAGE_ON_NEXT,
	PAGE_ON_NEXT_OVER,
	PAGE_ON_LEADING,
	PAGE_ON_STOPPING,
	PAGE_ON_STOPPED,
	PAGE_WORKS
};

/* It lies in the other file, where this one has its head. */
struct page_worker {
	_Atomic uint64_t work; /* enum page_work, and the slot of its election in the upper half */
	_Atomic int64_t since; /* when that began, by CLOCK_BOOTTIME */
	uint64_t unused[6];
};

struct page {
	uint32_t magic, slots;
	_Atomic uint32_t used; /* slots beyond it were never begun; the rest of the file stays unallocated */
	uint32_t unused[13];
	struct page_slot slot[];
};

/* What a supervisor gets. The memory is sparse, so that the number of elections need not be known before the script is
 * loaded. */
#define PAGE_SLOTS 16384

enum page_file { PAGE_DEADLINES, PAGE_MARKS, PAGE_FILES };

/* Two memfds of sealed size with n slots (1 to 65535), mapped; fd[PAGE_FILES] are O_CLOEXEC. A fork of this process has
 * no mapping of the deadlines. NULL with *err, and both -1. */
struct page *page_new(uint32_t n, int *fd, struct err *err);

/* For the others: the deadlines can only be read. Borrows the descriptors; checks seals, magic and sizes. */
struct page *page_map(const int *fd, struct err *err);
void page_unmap(struct page *p);

/* Elector: a term begins. The slot must be idle. kill is in force from here on: tell the guard before the worker. */
void page_begin(struct page *p, uint32_t slot, uint64_t term, int64_t token, struct instant end, struct instant kill);

/* Elector: new deadlines of the same term, later or earlier; in force when it returns, so a write that publishes a
 * shorter duration is sent after it. false: the term has ended meanwhile, and its kill deadline stays as it was. */
bool page_extend(struct page_slot *s, uint64_t term, struct instant end, struct instant kill);

/* Elector: is_leading turns false now if !held; the kill deadline becomes the earlier of kill and what it was. */
void page_stop(struct page_slot *s, bool held, struct instant kill);

/* Elector: nothing of the term runs any more. */
void page_idle(struct page_slot *s);

/* Elector: the on_next of this number is over, also for code that does not read messages. */
void page_end_next(struct page_slot *s, uint32_t number);

/* Worker: whether it is. Async-signal-safe. */
bool page_next_over(const struct page_slot *s, uint32_t number);

/* Guard, before it kills: no term of this page may act any more, and none can be extended. Async-signal-safe. */
void page_end_all(struct page *p);

/* Worker: may the term act? Two clock reads, no system call. Sticky: once one of these has said no for a term, every
 * later page_extend of it fails. Async-signal-safe. */
bool page_leading(struct page_slot *s, uint64_t term);
nsec page_remaining(struct page_slot *s, uint64_t term); /* 0 when not leading */
bool page_stopping(struct page_slot *s, uint64_t term);  /* the script should wind up: ended, or told to stop */

/* Worker: what it runs from now on. slot: of its election; PAGE_NO_SLOT: of none. */
#define PAGE_NO_SLOT UINT32_MAX
void page_work(struct page *p, enum page_work work, uint32_t slot);
/* Elector: what the worker says of that, for people. Never PAGE_WORKS or beyond, but the slot may be any number. */
enum page_work page_work_now(struct page *p, uint32_t *slot);
/* Elector: for how long, as the worker says; 0 or more. */
nsec page_work_for(struct page *p, struct instant now);

/* Guard and the worker's SIGCONT handler: the earliest kill deadline of all slots; false if nothing runs.
 * Async-signal-safe. */
bool page_first_kill(struct page *p, struct instant *kill);
