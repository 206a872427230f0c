#include "kube/kube_auth.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/proc.h"
#include "kube/kube_exec.h"
#include "locks/lock.h"
#include "loop/offload.h"

#include <ev.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define TOKEN_BYTES 16384
#define LOOK_AGAIN \
	(50 * NSEC_PER_SEC) /* a minute at most between looks at files, as client-go at a token's; and a margin */
#define EARLY_S 10          /* a credential is replaced so long before it expires */
#define PAUSE_S 5           /* between two runs of a plugin whose credentials are old when they come, at least */

/* Tells whether a file has changed. All zero: it is not there. */
struct file_stamp {
	ino_t inode;
	off_t size;
	struct timespec changed;
};

#define CERT_FILES 2 /* the certificate and its key, which libcurl reads for each connection */

/* Reads the token's file and looks at the certificate's, on a thread. If the thread hangs it outlives the auth. */
struct auth_reading {
	struct offload_job job;
	struct kube_auth *auth; /* NULL: nobody waits any more */
	char path[4096];        /* of the token; "": none */
	char cert_path[CERT_FILES][4096];
	struct file_stamp stamp[CERT_FILES];
	char text[TOKEN_BYTES];
	int failed; /* errno */
};

struct kube_auth {
	struct lock_env *env;
	const struct kube_config *config;
	struct kube_credential *now;
	bool doubted;
	uint64_t count, files;
	struct file_stamp stamp[CERT_FILES];
	struct kube_auth_waiter *waiters;
	struct auth_reading *reading;
	struct instant read_at;
	struct kube_exec_run *run;
};

/* ---- credentials ---- */

void kube_credential_drop(struct kube_credential *c)
{
	if (!c || --c->refs > 0)
		return;
	kube_wipe(c->token);
	kube_wipe(c->key_pem);
	free(c->cert_pem);
	free(c);
}

/* The current credential is now this one. */
static void auth_renew(struct kube_auth *a, const char *token, const char *cert_pem, const char *key_pem,
                       int64_t expires_s)
{
	const struct kube_config *f = a->config;
	struct kube_credential *c = mem_zero(sizeof *c);

	*c = (struct kube_credential){
		.refs = 1,
		.number = ++a->count,
		.files = a->files,
		.token = mem_dup(token),
		.cert_pem = mem_dup(cert_pem),
		.key_pem = mem_dup(key_pem),
		.expires_s = expires_s,
	};
	c->tls = (struct http_tls){
		.ca_file = f->ca_file,
		.ca_pem = f->ca_pem,
		.cert_file = f->cert_file,
		.cert_pem = f->cert_pem,
		.key_file = f->key_file,
		.key_pem = f->key_pem,
		.insecure = f->insecure,
	};
	if (c->cert_pem) {
		c->tls.cert_pem = c->cert_pem;
		c->tls.key_pem = c->key_pem;
	}
	kube_credential_drop(a->now);
	a->now = c;
	a->doubted = false;
}

/* A plugin is not asked where something else is given already. */
static bool auth_uses_plugin(const struct kube_auth *a)
{
	const struct kube_config *f = a->config;

	return f->exec.command && !f->token && !f->token_file && !f->user && !f->cert_file && !f->cert_pem;
}

static bool auth_uses_files(const struct kube_auth *a)
{
	return a->config->token_file || a->config->cert_file || a->config->key_file;
}

static void auth_tell(struct kube_auth *a, const struct err *err)
{
	struct kube_auth_waiter *list = a->waiters;

	a->waiters = NULL;
	while (list) {
		struct kube_auth_waiter *w = list;
		list = w->next;
		w->done(w, err);
	}
}

/* ---- files ---- */

static void look_at_file(const char *path, struct file_stamp *s)
{
	struct stat st;

	if (*path && stat(path, &st) == 0)
		*s = (struct file_stamp){ .inode = st.st_ino, .size = st.st_size, .changed = st.st_mtim };
}

static void reading_work(struct offload_job *job)
{
	struct auth_reading *r = (struct auth_reading *)job;

	for (int i = 0; i < CERT_FILES; i++)
		look_at_file(r->cert_path[i], &r->stamp[i]);
	if (*r->path && proc_slurp(r->path, r->text, sizeof r->text) < 0)
		r->failed = errno;
}

static bool same_stamp(const struct file_stamp *a, const struct file_stamp *b)
{
	return a->inode == b->inode && a->size == b->size && a->changed.tv_sec == b->changed.tv_sec &&
	       a->changed.tv_nsec == b->changed.tv_nsec;
}

/* A file that is missing is being replaced: there is nothing new yet. */
static bool auth_took_stamps(struct kube_auth *a, const struct auth_reading *r)
{
	bool changed = false;

	for (int i = 0; i < CERT_FILES; i++) {
		if (!r->stamp[i].inode || same_stamp(&r->stamp[i], &a->stamp[i]))
			continue;
		a->stamp[i] = r->stamp[i];
		changed = a->now != NULL;
	}
	return changed;
}

static char *trimmed(char *text)
{
	while (*text && strchr(" \t\r\n", *text))
		text++;
	text[strcspn(text, " \t\r\n")] = '\0';
	return text;
}

/* While a token's file is missing or empty it is being rotated: the last token counts (as in client-go). */
static const char *token_of(const struct kube_auth *a, struct auth_reading *r)
{
	char *token = *r->path && !r->failed ? trimmed(r->text) : NULL;

	if (token && *token)
		return token;
	return a->now ? a->now->token : a->config->token;
}

static void auth_took(struct kube_auth *a, struct auth_reading *r)
{
	const char *token = token_of(a, r);
	bool changed = auth_took_stamps(a, r);

	a->files += changed;
	if (!token && *r->path)
		return; /* there is none yet */
	if (!a->now || changed || (token && strcmp(a->now->token, token) != 0))
		auth_renew(a, token, NULL, NULL, INT64_MAX);
	a->doubted = false;
}

static void auth_on_files_read(struct offload_job *job)
{
	struct auth_reading *r = (struct auth_reading *)job;
	struct kube_auth *a = r->auth;
	struct err err;

	if (a) {
		a->reading = NULL;
		a->read_at = clock_now();
		auth_took(a, r);
		errno = r->failed;
		if (!a->now && r->failed)
			err_sys(&err, "cannot read the token in %s", r->path);
		else if (!a->now)
			err_set(&err, ERR_INVALID, "the token's file %s is empty", r->path);
		auth_tell(a, a->now ? NULL : &err);
	}
	explicit_bzero(r->text, sizeof r->text);
	free(r);
}

static void reading_copy_path(char *out, const char *path)
{
	snprintf(out, sizeof((struct auth_reading *)0)->path, "%s", path ? path : "");
}

static void auth_start_reading(struct kube_auth *a)
{
	if (a->reading)
		return;
	struct auth_reading *r = a->reading = mem_zero(sizeof *r);
	r->auth = a;
	r->job = (struct offload_job){ .work = reading_work, .done = auth_on_files_read };
	reading_copy_path(r->path, a->config->token_file);
	reading_copy_path(r->cert_path[0], a->config->cert_file);
	reading_copy_path(r->cert_path[1], a->config->key_file);
	offload_run(a->env->offload, &r->job);
}

/* ---- a plugin ---- */

static void auth_on_plugin_done(void *arg, const struct kube_exec_result *r)
{
	struct kube_auth *a = arg;

	/* What has just been fetched is used for some seconds, whatever its expiry or our clock says: else the plugin
	 * would run without a pause. */
	int64_t least = clock_wall_us() / 1000000 + EARLY_S + PAUSE_S;

	a->run = NULL;
	if (r->err.code == ERR_NONE) {
		auth_renew(a, r->token, r->cert_pem, r->key_pem, r->expires_s > least ? r->expires_s : least);
		auth_tell(a, NULL);
	} else {
		auth_tell(a, &r->err);
	}
}

/* ---- the outside ---- */

struct kube_auth *kube_auth_new(struct lock_env *env, const struct kube_config *c)
{
	struct kube_auth *a = mem_zero(sizeof *a);

	a->env = env;
	a->config = c;
	if (!auth_uses_files(a) && !auth_uses_plugin(a))
		auth_renew(a, c->token, NULL, NULL, INT64_MAX);
	return a;
}

void kube_auth_free(struct kube_auth *a)
{
	if (!a)
		return;
	if (a->reading)
		a->reading->auth = NULL;
	kube_exec_cancel(a->run);
	kube_credential_drop(a->now);
	free(a);
}

static bool auth_is_stale(const struct kube_auth *a)
{
	return a->doubted || a->now->expires_s - EARLY_S <= clock_wall_us() / 1000000;
}

struct kube_credential *kube_auth_take(struct kube_auth *a)
{
	if (auth_uses_files(a) && a->now && elapsed_holder(a->read_at, clock_now()) > LOOK_AGAIN)
		auth_start_reading(a);
	if (!a->now || auth_is_stale(a))
		return NULL;
	a->now->refs++;
	return a->now;
}

void kube_auth_wait(struct kube_auth *a, struct kube_auth_waiter *w)
{
	w->next = a->waiters;
	a->waiters = w;
	if (auth_uses_files(a)) {
		auth_start_reading(a);
	} else if (!a->run) {
		a->run = kube_exec_start(a->env, &a->config->exec, KUBE_EXEC_SECONDS, auth_on_plugin_done, a);
	}
}

void kube_auth_unwait(struct kube_auth *a, struct kube_auth_waiter *w)
{
	for (struct kube_auth_waiter **at = &a->waiters; *at; at = &(*at)->next)
		if (*at == w) {
			*at = w->next;
			return;
		}
}

bool kube_auth_doubt(struct kube_auth *a, uint64_t number)
{
	if (!auth_uses_files(a) && !auth_uses_plugin(a))
		return false;
	if (a->now && a->now->number == number)
		a->doubted = true;
	return true;
}
