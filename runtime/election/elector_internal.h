/* The memory of an elector (elector.h), and the functions that its files call in each other.
 * Not for other rooms or files, which use elector.h's functions.
 * Used by elector.c (events, terms, who comes next), elector_record.c (reads and writes), elector_report.c (what
 * others are told and may ask), elector_handover.c (a hand-over that somebody has asked for), elector_poke.c (who is
 * told to look at the lock) and elector_say.c (the log, and trouble with the store). */
#pragma once

#include "election/author.h"
#include "election/death_watch.h"
#include "election/decisions.h"
#include "election/elector.h"
#include "election/next_link.h"
#include "election/poke_socket.h"
#include "election/readiness.h"
#include "election/saves.h"
#include "loop/timeline.h"

struct elector {
	const struct elector_callbacks *cb;
	void *arg;
	const struct elector_before *before; /* NULL: nobody */
	void *before_arg;
	struct lock_env *env;
	struct timeline *timeline;
	struct timer timer; /* for lease_wait */
	struct instant due; /* this process is to run then at the latest; NSEC_NEVER: there is no such time */
	char *name;         /* of the election; "" = it has none */
	struct author author;
	struct saves saves;
	struct lock *lock;
	struct lease *lease;
	uint64_t op;                /* the number of the operation under way, or of the last one */
	enum lease_write writing;   /* what that operation is for, if it is a write */
	struct lease_event *events; /* to be carried out, on the stack of the first elector_step; NULL: none is */
	int event_count;
	bool closing; /* elector_free was called */
	bool quiet;   /* the last term has ended as it was meant to: nobody has to hear of that */
	bool ends;    /* stop was called, and it was not yet reported that this candidate no longer leads */
	enum lease_reason end_reason; /* the reason with which stop was called */
	const char *end_why;          /* end_reason in words: static text */

	struct record seen;         /* the last known content of the store */
	struct version version;     /* the version of `seen` */
	struct record *written;     /* what the write under way makes of it; NULL: none is under way */
	int64_t token, acquired_us; /* of the term that runs, or ran last */
	int64_t top_token;          /* the largest one that was seen of others, or led with */
	char *leader;               /* reported last; NULL: nobody */
	bool leads_itself;          /* leader: this candidate */

	struct death_watches *death_watches;
	struct death_watch death_watch;
	uint64_t watched_id; /* the sight of the record for whose holder death_watch waits */
	uint64_t dead_id;    /* the sight of the record whose holder it has proved dead */
	uint64_t moved_id;   /* the sight of the last record of another store that the log has reported */
	const char *ended;   /* why the last term of ours ended, for the record: static text */
	uint64_t ended_term; /* the number of that term */

	/* the writes of other candidates with this identity that were seen, and when the last one was */
	uint64_t namesake_writes;
	struct instant namesake_at;

	const struct elector_fence *fence; /* NULL: none */
	void *fence_arg;
	const char *barred; /* why it must not acquire the lock: static text; NULL: it may */
	bool fencing;       /* the term is the fence's: its user has not heard of it */
	bool term_open;     /* from the call of lead until the script has stopped and the lease is no longer held */
	struct instant end, kill; /* its deadlines, as they were published */
	uint64_t renewals_ok, renewals_failed, slow_paths, transitions;
	char *trouble; /* the last one that was logged, and is not over; NULL: there is none */
	struct instant trouble_at, trouble_since;
	bool unwritable; /* a write had it, so a good read does not end it */
	bool low_token;  /* the trouble is a token that is too low: only a higher one ends it */
	struct store_contact contact;
	struct instant began;   /* the term that runs, or ran last */
	bool campaigns;         /* as elector_bar has said */
	const char *paused_why; /* of the last elector_bar that had one; NULL: there was none */

	/* Who comes next. */
	struct next_link *next;
	struct next_options next_options;
	struct readiness readiness;
	bool handing;          /* the term is being handed over to the candidate that comes next */
	enum next_why why;     /* why it is handed over */
	char *given;           /* for whom the write under way releases the lock; NULL: for nobody */
	uint64_t handovers[3]; /* by enum next_why */
	struct {               /* what elector_hand_over was asked for, from the order until it is known who leads */
		enum { HANDOVER_NONE, HANDOVER_ASKED, HANDOVER_ENDING, HANDOVER_STOPPED } stage;
		bool held; /* STOPPED: the lease was held until then, so a release is on its way */
		uint64_t ticket;
		struct timer timer;
		struct instant stopped_at;
	} handover;
	/* Pokes (lease/poke.h). pokes NULL: there are none. */
	struct poke_sockets *pokes;
	struct poke_ear ear;
	struct advice *poke_to; /* its next: whom the write under way concerns; NULL: nobody who hears one */
	char poked_for[33];     /* the request to hand over of which a poke has told */
	char *poke_trouble;     /* why it does not listen; NULL: it does, or need not */
	uint64_t pokes_sent, pokes_heard;
	bool finishing, left;     /* LEASE_DO_FINISHED has come, and is passed on once the next record is settled */
	struct instant finish_by; /* when LEASE_DO_FINISHED is passed on at the latest */
};

/* elector.c: one event, now, or after the one at hand, if this is called from a callback. */
void elector_step(struct elector *e, struct lease_event ev);

/* elector_record.c. These start an operation, which is one of the lease machine's actions; its end is an event. */
lease_effect elector_read, elector_write;
void elector_drop_written(struct elector *e);
/* Watches the record if the store offers that, else the lease machine polls. */
void elector_watch(struct elector *e);
/* Whether the holder that `seen` shows is proved dead, with all that it started. */
bool elector_holder_dead(const struct elector *e);
/* The largest token seen: no term begins with one that is not larger. */
void elector_see_token(struct elector *e, int64_t token);
/* Tells the user the running term's deadlines, if they have changed. */
void elector_publish(struct elector *e);
/* The death watch's callback; arg: the elector. */
void elector_on_dead(void *arg);

/* elector_report.c: tells the user, and the log, who leads by what was read or written last. */
void elector_report_leader(struct elector *e, bool self);
void elector_report_no_leader(struct elector *e);

/* elector_handover.c: the answer to what elector_hand_over was asked for. _stopped, _leader and _fini may be called at
 * any time. */
void handover_init(struct elector *e);
void handover_ends(struct elector *e);                     /* the term ends for the request */
void handover_refused(struct elector *e, const char *why); /* the term goes on */
void handover_stopped(struct elector *e, bool held);       /* all of the term has; held: the lock is released now */
void handover_leader(struct elector *e, const struct elector_leader *l);
void handover_fini(struct elector *e); /* a request that is under way gets its answer */

/* elector_poke.c. They do nothing where there are no pokes. */
void poke_init(struct elector *e, struct poke_sockets *pokes);
void poke_listen(void *arg, struct advice_candidate *who); /* arg: the elector; as in next_link_callbacks */
void poke_stop(struct elector *e);                         /* it does not stand by, so it need not listen */
/* A write of the record begins, for this purpose. advice: of the term, or NULL. Once the store has taken that write,
 * poke_tell sends one poke to the candidate that it concerns. */
void poke_plan(struct elector *e, enum lease_write what, const struct advice *advice);
void poke_tell(struct elector *e);
void poke_fini(struct elector *e);

/* elector_say.c. */
void elector_say(struct elector *e, enum log_level level, const char *event, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
/* The same trouble is logged once, and again after a minute: a store that is down must not fill the disk. */
void elector_say_trouble(struct elector *e, const char *event, const char *text);
void elector_trouble_over(struct elector *e);
/* After a write failed, a read ends the trouble only if it shows another version: somebody could write then. A
 * refusal that concerns this elector alone ends only with a write of its own. */
void elector_was_read(struct elector *e, const struct version *seen);
/* An operation had no answer, or had one. Once a store has been silent for longer than a leader could keep its
 * lease, the log says that it is lost. */
void elector_read_failed(struct elector *e);
void elector_contact_good(struct elector *e);
/* The store did not take a write. If it takes no writes at all, the log says so once. */
void elector_write_failed(struct elector *e, const struct lock_result *r);
void elector_wrote(struct elector *e); /* the store took a write of the next record */
