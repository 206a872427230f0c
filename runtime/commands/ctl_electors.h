/* The electors that run on this machine, of this user, or, for root, of every user: which there are, which one is
 * meant, and how it is asked. Not what their answers mean. Used by ctl, by `cron run`, and by the completion. */
#pragma once

#include "config/options.h"

#include <stdbool.h>
#include <sys/types.h>

struct json_t;

struct ctl_request {
	const char *command;
	const char *election; /* NULL or "": none is named */
	const char *to;       /* NULL: none */
	const char *job;      /* NULL: none */
	bool wait;            /* the answer comes when the job has ended */
	int64_t ms;           /* -1: none */
};

/* Sends it. The parsed answer, which the caller owns; NULL with *err where there is none, or where it is a refusal:
 * ERR_CANCELLED; ERR_TIMEOUT if another try may succeed. Blocks. */
struct json_t *ctl_ask(const char *path, const struct ctl_request *r, struct err *err);

/* The sockets at which somebody listens, in all places where this user's electors have them; for root, unless a state
 * directory is given, those of other users follow, from `own` on. */
struct ctl_sockets {
	char *path[256];
	size_t len, own;
};
int ctl_sockets_list(struct ctl_sockets *l, const struct options *o, struct err *err);
void ctl_sockets_fini(struct ctl_sockets *l);

/* "no elector of this user is running", and whose is, if that is known. The caller frees it. */
char *ctl_nobody(const char *what);
/* The user's name, or the number if there is no name. */
void ctl_user_name(uid_t user, char *out, size_t size);

/* The elector that is to be asked. */
struct ctl_elector {
	char *path;     /* of its socket */
	char *election; /* of which; "" = all */
};
/* --control, the script, --lock, or the only one there is; for `cron` the only one that is `lunarch cron`. script: NULL
 * = none is named. -1 with *err: ERR_USAGE if there are several. Fills in *e, ctl_elector_fini it in any case.
 * Blocks. */
int ctl_elector_find(struct ctl_elector *e, const struct options *o, const char *script, struct err *err);
void ctl_elector_fini(struct ctl_elector *e);
