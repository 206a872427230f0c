/* Room locks/etcd: a record in a key of etcd.
 *
 * etcd's v3 JSON gateway: a request goes to the endpoints in turn until one answers, and says what became of it.
 * Not etcd's lease, lock or election services, which elect dead candidates (etcd's issue 19597): only transactions and
 * watches. Knows nothing of records. Used by the etcd lock; one client is shared by all locks of an env on the same
 * cluster with the same user. */
#ifndef LUNARCH_ETCD_CLIENT_H
#define LUNARCH_ETCD_CLIENT_H

#include "http/http.h"
#include "locks/lock.h"
#include "locks/lock_url.h"

#include <ev.h>

#define ETCD_ANSWER_BYTES                                                                                 \
	(8 * 1024 * 1024)        /* a value has 1.5 MB unless etcd is told otherwise, and comes as base64 \
	                          */
#define ETCD_ANSWER_VALUES 10000 /* an answer about one key has thirty */

struct etcd_client;
struct etcd_hub; /* etcd_watch.h */
struct json_t;

/* What came of a request. */
struct etcd_answer {
	enum lock_outcome
		outcome; /* LOCK_OK: json; UNKNOWN: it may have been acted upon; FAILED, REFUSED, INVALID: surely not */
	struct json_t *json;     /* borrowed until the callback returns; NULL unless LOCK_OK */
	int64_t revision, above; /* OK: the store's, and the largest that was known when it was sent */
	bool repeated;           /* OK: but an earlier try may have been acted upon too */
	int code;                /* gRPC's, of an error that etcd itself sent; 0: none */
	struct instant sent_at;  /* of the first try that was sent; if none was, of its end */
	struct err err;
};
struct etcd_call;
typedef void etcd_done_fn(void *arg, const struct etcd_answer *a);

/* Waits for the token of a user. */
struct etcd_waiter {
	struct etcd_waiter *next;
	void (*ready)(void *arg, const struct err *err); /* err: there is no token, and why; NULL: go on */
	void *arg;
	unsigned round;
	bool waiting;
};

/* Requests that wait for a free connection go in this order. URGENT: renewals and releases. */
enum etcd_kind { ETCD_URGENT, ETCD_WRITE, ETCD_LOOK, ETCD_KINDS };

/* A request under way; embedded in its owner's struct, zero before the first use. All fields are private. */
struct etcd_call {
	struct etcd_client *client;
	const char *path;
	char *body;
	struct instant by;
	etcd_done_fn *done;
	void *arg;
	struct http_call *http;
	struct etcd_waiter token;
	int endpoint, tries, prefix, prefix_tries, logins;
	unsigned generation; /* of the token it was sent with */
	int64_t above;
	bool active, bare, cancelling, queued;
	enum etcd_kind kind;            /* to be set before the start */
	struct etcd_call *next, **slot; /* of those that wait for room; slot NULL: it does not */
	bool sent, maybe;               /* sent at all; may have been acted upon */
	struct instant sent_at;
};

struct etcd_queue {
	struct etcd_call *first, **end;
};

struct etcd_client {
	struct etcd_client *next;
	struct lock_env *env;
	struct lock_url url;        /* hosts, user, password, options; the path is nobody's */
	char *base[LOCK_URL_HOSTS]; /* "https://host:port" */
	bool tls;
	struct http_tls how;
	struct http *pool; /* transactions; the hub has an HTTP client of its own for watches */
	struct http *side; /* looks for which `pool` has no room, so that many candidates do not hold up renewals. NULL
	                      until then */
	struct etcd_queue
		queue[ETCD_KINDS]; /* libcurl has a queue, too, but its cost grows with the square of its length */
	int64_t revision;          /* the largest that was in an answer */
	unsigned asked;            /* questions of locks */
	int at;                    /* the endpoint that answered last */
	int prefix;                /* which of etcd_prefix */
	bool prefix_known;
	char *token;         /* NULL: to be asked for, if there is a user; "": the server wants none */
	unsigned generation; /* counts tokens */
	struct etcd_call login;
	unsigned waiting_round;
	struct etcd_waiter *waiters, **waiters_end;
	struct etcd_hub *hub;
};

extern const char *const etcd_prefix[2]; /* "v3", and "v3beta" of 3.3 */
extern const char *const etcd_options[]; /* what a URL may say, for lock_url_parse */

/* The env's client for this URL, made on first use; lock_env_fini ends it. Takes over what is in *url and empties it,
 * in every case. NULL: *err. */
struct etcd_client *etcd_client_get(struct lock_env *env, struct lock_url *url, bool tls, struct err *err);

/* path: a literal. body: taken. done is called exactly once unless cancelled first, never from inside this call, at
 * the latest at `by`; the call may be started again from it, and its owner may be freed. */
void etcd_call_start(struct etcd_client *c, struct etcd_call *call, const char *path, char *body, struct instant by,
                     etcd_done_fn *done, void *arg);

/* Ends it without done. Nothing if it is not under way. After that call->maybe and call->sent_at say what became of it.
 */
void etcd_call_cancel(struct etcd_call *call);

/* An answer came to another question: from now on no present connection is used, and no revision is known. */
void etcd_client_mistrust(struct etcd_client *c);

/* etcd_login.c */
bool etcd_has_token(const struct etcd_client *c);                       /* or needs none */
void etcd_wait_for_token(struct etcd_client *c, struct etcd_waiter *w); /* asks for it; w->ready comes from the loop */
void etcd_stop_waiting(struct etcd_client *c, struct etcd_waiter *w);
void etcd_drop_token(struct etcd_client *c, unsigned generation); /* it was refused. Nothing if there is a newer one */
char *etcd_token_header(const struct etcd_client *c);             /* "Authorization: ..."; NULL: none. malloc'd */

/* etcd_answer.c: what an HTTP answer means. */
enum etcd_verdict {
	ETCD_ANSWERED,   /* json */
	ETCD_ELSEWHERE,  /* this endpoint cannot; another may */
	ETCD_LOGIN,      /* the token is missing or no longer good; nothing was done */
	ETCD_OTHER_PATH, /* there is no such path, with this prefix */
	ETCD_FINAL,      /* any endpoint would say the same */
};
struct etcd_meaning {
	enum etcd_verdict verdict;
	bool maybe;                /* the request may have been acted upon */
	bool queued;               /* it never got a connection, since other requests were before it */
	enum lock_outcome outcome; /* if this is how it ends */
	int code;
	struct json_t *json; /* owned by the caller */
	struct err err;
};
/* user: for messages; "": none. */
void etcd_understand(const struct http_result *r, const char *endpoint, const char *user, struct etcd_meaning *m);
/* The error object of an answer or of a line of a stream: gRPC's code, and its text into *err. 0: there is none. */
int etcd_error_of(const struct json_t *json, const char *endpoint, struct err *err);
/* A number that etcd sends as a string, or does not send since it is zero. -1: it is neither. */
int64_t etcd_number(const struct json_t *object, const char *name);

#endif
