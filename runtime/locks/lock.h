/* Room locks: what every lock backend offers (`lock.h`), how a URL finds one, and what backends share.
 *
 * A lock backend: moves one record in and out of a store under compare-and-swap, and tells when something changed.
 * Not an elector: it never looks at holders, times or terms, never retries, never waits longer than its deadline.
 * Used by the elector and by the commands that read a record. */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "lease/record.h"

#include <stdbool.h>

struct ev_loop;
struct lock;
struct lock_identity;
struct lock_listing;
struct lock_server;
struct lock_tap;
struct offload;
struct reaper;

enum lock_outcome {
	LOCK_OK,
	LOCK_ABSENT,   /* read: there is no record */
	LOCK_FOREIGN,  /* read: there is something, but no record of ours; err says what. Never overwritten */
	LOCK_CONFLICT, /* write: the store holds another version than expected; nothing was changed */
	LOCK_UNKNOWN,  /* write: it may have been applied, or may be later */
	LOCK_REFUSED,  /* rights; surely not applied */
	LOCK_INVALID,  /* the store rejects the content; surely not applied */
	LOCK_FAILED,   /* surely not applied; or a read without an answer */
};
const char *lock_outcome_name(enum lock_outcome o);

struct lock_result {
	enum lock_outcome outcome;
	struct instant sent_at;      /* the time, taken before the request left this process */
	const struct record *record; /* read, LOCK_OK: borrowed until the callback returns */
	/* Read OK, ABSENT; write OK: what is in the store now, and a write has to expect. An absent record has one
	 * other than "" where it would be put into something that is there. */
	struct version version;
	int64_t token;  /* write OK: the fencing token, if the store makes it; else 0 and the record's counts */
	struct err err; /* every outcome but OK, ABSENT and CONFLICT */
};
typedef void lock_done_fn(void *arg, const struct lock_result *result);

/* What a backend may use; borrowed, outlives every lock opened with it. */
struct lock_env {
	struct ev_loop *loop;
	struct offload *offload; /* runs blocking calls off the loop */
	struct reaper *reaper;   /* of this process' children; NULL: see lock_reaper */
	const char *state_dir;   /* of --state-dir, for lock_state_dir; NULL or "": the user's */
	struct lock_tap *tap;    /* stands between a lock in Lua and its driver (driver_link.h); NULL: nobody */

	/* Private to locks/: */
	struct lock_shared *shared; /* see lock_env_share */
	struct lock_server *servers;
	struct offload *lookups;
	struct reaper *own_reaper;
	bool opens_next; /* lock_open_next is opening */
};

/* What the locks of one backend share (connections, watches): one object for each key, which is compared by its
 * address, made on first use and dropped by lock_env_fini, the last one first. NULL: make failed, with its *err. */
void *lock_env_share(struct lock_env *env, const void *key, void *(*make)(struct lock_env *env, struct err *err),
                     void (*drop)(void *object), struct err *err);
void lock_env_fini(struct lock_env *env); /* after the last lock of the env is closed */

/* Where host names are looked up (resolve.h): threads of their own, since one that hangs in a dead name server must not
 * hold up what other locks do on theirs. Borrowed. */
struct offload *lock_lookups(struct lock_env *env);

/* Who waits for the child processes that a lock starts: the env's, or one that the env's locks share. Borrowed; it
 * outlives what is made by lock_env_share. */
struct reaper *lock_reaper(struct lock_env *env);

typedef void lock_changed_fn(void *arg);

/* What a server says of itself, for doctor. */
struct lock_about {
	char server[120];  /* "etcd 3.4.23" */
	char warning[600]; /* a known defect of that version, or a setting that loses records; "": none is known */
	bool unfit;        /* what the warning is about can make two leaders */
	char place[160];   /* which of all servers it is: the same text on each connection; "": it does not say */
	/* How long a healthy server of this kind may be silent: a cluster may be electing its leader. */
	int64_t pause_ms;
};

/* One const table per backend. At most one operation at a time on a lock; the elector sees to that. */
struct lock_ops {
	const char *scheme;   /* "file": what lock_backends calls it */
	bool token_in_record; /* the token is a counter that the elector puts into the record */

	/* Parses what follows the scheme and allocates; no I/O beyond looking at the path. NULL with *err. */
	struct lock *(*open)(struct lock_env *env, const char *url, struct err *err);

	/* Starts a read. done is called exactly once, never from inside this call, at the latest at `by`. */
	void (*read)(struct lock *l, struct instant by, lock_done_fn *done, void *arg);

	/* Starts a compare-and-swap. expected: the version last read, "" = only if absent. durable: must survive a
	 * power cut before it is reported (a new term, a release); a renewal need not, but may not endanger what is
	 * there. Record and version are borrowed until done is called, which is as for read. */
	void (*write)(struct lock *l, const struct record *r, const struct version *expected, bool durable,
	              struct instant by, lock_done_fn *done, void *arg);

	/* Ends an operation under way: done is called before this returns (LOCK_UNKNOWN; LOCK_FAILED for a read, and
	 * for a write that was not sent). No-op if none. */
	void (*cancel)(struct lock *l);

	/* Starts notices. `changed` is called from the loop after each change of the record, and perhaps without one.
	 * true: no change is missed from now on. false: changes cannot be noticed now, so the caller polls. NULL
	 * member: the store has no notices. */
	bool (*watch)(struct lock *l, lock_changed_fn *changed, void *arg);

	/* Tells the store's other users that `identity` became the leader, or stopped leading. Best effort: there is
	 * no answer, and no operation waits for it. NULL member: the store has no place for it. */
	void (*announce)(struct lock *l, const char *identity, bool leads);

	void (*close)(struct lock *l); /* cancels first */

	/* Lists what is in the same place and has a key that begins as that of l, which lock_open_prefix opened: in a
	 * directory or below a node of ZooKeeper what is in that one, elsewhere every such key. An operation like read;
	 * out is borrowed until done, and filled if the outcome is LOCK_OK. A name promises nothing: a read tells
	 * whether it is a record, something else (LOCK_FOREIGN), or gone; what surely is no record is left out. What is
	 * made or removed meanwhile may be missing or there. No election depends on it. NULL member: the store
	 * cannot. */
	void (*list)(struct lock *l, struct lock_listing *out, struct instant by, lock_done_fn *done, void *arg);

	/* The rest is for lunarch doctor, and may be missing. */

	/* Asks the server what it is. An operation like read; about is borrowed until done, and filled if the outcome
	 * is LOCK_OK. */
	void (*about)(struct lock *l, struct lock_about *about, struct instant by, lock_done_fn *done, void *arg);

	/* Removes the record if it has this version, and what is kept beside it, also where there is none and that was
	 * expected: doctor's own scratch record, never one that an election uses. expected is borrowed until done:
	 * LOCK_OK, ABSENT (it was gone), CONFLICT, and those of a write. */
	void (*remove)(struct lock *l, const struct version *expected, struct instant by, lock_done_fn *done,
	               void *arg);

	/* The name that the store gives itself (lock_identity.h). NULL member: it has none. */
	struct lock_identity *(*identity)(struct lock *l);

	bool key_last; /* the key ends the URL, even if there is a '?' before */

	/* Where the next record of a lock is (lock_open_next). next: what follows the lock's key. next_url: where that
	 * is not all, its URL, for the lock that was opened by `url`; the caller frees it. Both NULL: there is none. */
	const char *next;
	char *(*next_url)(const struct lock *l, const char *url);
	/* Opens it, for a lock that no URL opens; then next and next_url are not asked. */
	struct lock *(*open_next)(const struct lock *l, struct err *err);
};

/* The URL of another lock in the same place, whose key has `more` behind it: letters, digits, dashes, or a name of a
 * listing. The caller frees. */
char *lock_url_beside(const struct lock *l, const char *url, const char *more);

/* Common first member of every backend's struct. */
struct lock {
	const struct lock_ops *ops;
	char *url; /* as people see it: canonical, without secrets */
	/* The largest token that this process has seen of this lock; the elector sets it before it writes. A backend
	 * that makes tokens by a clock makes a larger one. One whose store counts them leaves them alone: receivers
	 * compare them with the store's. */
	int64_t token_floor;
	bool advice; /* it is a next record; lock_open_next sets it */
	/* This machine's IP address on the last connection to the store; "": not known. A backend that has no notices says
	 * it (election/poke_socket.h). */
	char here[46];
};

/* Opens by URL: "scheme://...", "file:PATH", "/PATH", or a plain NAME in the state directory.
 * NULL: *err names the URL, and for an unknown scheme the ones there are. */
struct lock *lock_open(struct lock_env *env, const char *url, struct err *err);

/* Opens the next record beside a lock (docs/design.md, "Who comes next"): in the same store, over the same connection
 * where the locks of one place share it. What is written there is advice: no token is made for it, a failover makes no
 * doubt about it, it need not survive a power cut whatever `durable` says, and it has to wait where the lock's own
 * requests are in a hurry. Ask it to watch after each read that was answered: notices may have become possible, or have
 * ended. url: as lock_open got it. NULL with *err: ERR_MISSING, this kind of lock has none. */
struct lock *lock_open_next(struct lock_env *env, const struct lock *lock, const char *url, struct err *err);

/* Opens for `list` alone what is named by the beginning of a URL: it may end before its key, or in it. The key of the
 * lock is that beginning and LOCK_PREFIX_END, so that it is a key also where a bare "app/" or "web-" is none. *prefix:
 * the URL with the slash or '#' that was missing, for lock_url_beside with a name of the listing; the caller frees it,
 * also where the result is NULL. */
#define LOCK_PREFIX_END "lunarch0list"
struct lock *lock_open_prefix(struct lock_env *env, const char *url, char **prefix, struct err *err);

/* Is it a plain NAME, which no other machine sees? Not if it says "file:": whoever writes that knows. */
bool lock_is_plain_name(const char *url);

/* Loads what locks of this URL need, if that is a module: takes milliseconds, so it is best done while something else
 * is waited for. Says nothing of what is wrong: lock_open does. */
void lock_prepare(const char *url);

/* The directory of plain-name locks and tree files, made (mode 0700) if need be: `given`, links followed; if that is
 * NULL or "", the user's own, which is /var/lib/lunarch for root, else .local/state/lunarch in the passwd home,
 * whatever the environment says. out: PATH_MAX bytes. -1 with *err: ERR_MISSING, this user has no home to write into;
 * ERR_USAGE, what was given cannot be used. */
int lock_state_dir(const char *given, char *out, size_t size, struct err *err);

struct lock_backend {
	const char *scheme;
	const char *summary; /* one line for --help; NULL: another name of the one above */
	/* The loadable module whose `locks` have it (module.h). NULL: it is built in, and ops is it. */
	const char *module;
	const struct lock_ops *ops;
	const char *
		driver; /* the lock file in the program that serves it (script/driver/driver.h); NULL: it is no driver's */
};
/* Ends with a scheme of NULL. Whether a module is installed, module_installed says. */
extern const struct lock_backend lock_backends[];
extern const struct lock_ops lock_file; /* lock_file.c */
extern const struct lock_ops lock_none; /* lock_none.c */
/* lua/lock_driver.c, of locks whose key is the path, or what follows a '#'. What they open is the whole URL. */
extern const struct lock_ops lock_driver_path, lock_driver_fragment;

/* Where SCHEME.lua makes SCHEME:// a lock: LUNARCH_LOCKS_DIR of the environment, or /etc/lunarch/locks. */
const char *lock_files_dir(void);
