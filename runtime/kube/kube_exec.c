#include "kube/kube_exec.h"

#include "base/buf.h"
#include "base/json_bound.h"
#include "base/mem.h"
#include "base/spawn.h"
#include "kube/kube_config.h"
#include "kube/kube_meta.h"
#include "lease/record.h"
#include "locks/lock.h"
#include "loop/reaper.h"
#include "loop/timer_after.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define OUTPUT_MAX (1024 * 1024)
#define VALUES_MAX 1000 /* an ExecCredential has ten */
#define COMPLAINT_MAX 4096
#define GULPS 256 /* reads in one turn of the loop, at most */

extern char **environ;

struct kube_exec_run {
	struct ev_loop *loop;
	const struct kube_exec *exec;
	double limit_s;
	kube_exec_done_fn *done;
	void *arg;
	pid_t pid;
	struct reaper_child *child; /* NULL: it has ended, or it did not start */
	int status;                 /* of waitpid; -1: it is not known, so what it printed decides */
	ev_io out, complaint;
	ev_timer timer; /* its time limit; or, if it did not start, the next turn of the loop */
	struct buf text, said;
	struct err err;
};

/* ---- what it printed ---- */

static void take_expiry(const json_t *status, struct kube_exec_result *r)
{
	const json_t *value = json_object_get(status, "expirationTimestamp");
	int64_t us;

	r->expires_s = INT64_MAX;
	if (!value || json_is_null(value))
		return;
	if (!json_is_string(value) || record_time_parse(json_string_value(value), &us) < 0)
		err_set(&r->err, ERR_INVALID, "it printed an expirationTimestamp that is no time");
	else
		r->expires_s = us / 1000000;
}

/* NULL: there is none. */
static const char *given_text(const json_t *status, const char *key)
{
	const char *text = kube_text(status, key);

	return *text ? text : NULL;
}

void kube_exec_parse(const struct kube_exec *x, const char *text, struct kube_exec_result *r, json_t **keep)
{
	struct err why = { 0 };
	json_t *root = *keep = json_bound_load(text, strlen(text), JSON_REJECT_DUPLICATES, VALUES_MAX, &why);
	const json_t *status = json_object_get(root, "status");
	const char *version = kube_text(root, "apiVersion");

	*r = (struct kube_exec_result){ .expires_s = INT64_MAX };
	if (!root) {
		err_set(&r->err, ERR_INVALID, "it printed no ExecCredential: %s", why.text);
		return;
	}
	if (strcmp(kube_text(root, "kind"), "ExecCredential") != 0) {
		err_set(&r->err, ERR_INVALID, "it printed no ExecCredential");
		return;
	}
	if (strcmp(version, x->api_version) != 0) {
		err_set(&r->err, ERR_INVALID, "it printed the version %.80s, expected %s",
		        *version ? version : "(none)", x->api_version);
		return;
	}
	r->token = given_text(status, "token");
	r->cert_pem = given_text(status, "clientCertificateData");
	r->key_pem = given_text(status, "clientKeyData");
	if (!r->cert_pem != !r->key_pem || (!r->token && !r->cert_pem)) {
		err_set(&r->err, ERR_INVALID, "it printed neither a token nor a certificate with its key");
		return;
	}
	take_expiry(status, r);
}

/* ---- the run ---- */

static void run_free(struct kube_exec_run *r)
{
	ev_io *const watchers[] = { &r->out, &r->complaint };

	for (size_t i = 0; i < 2; i++) {
		ev_io_stop(r->loop, watchers[i]);
		if (watchers[i]->fd >= 0)
			close(watchers[i]->fd);
	}
	ev_timer_stop(r->loop, &r->timer);
	reaper_forget(r->child);
	if (r->text.data)
		explicit_bzero(r->text.data, r->text.len);
	buf_fini(&r->text);
	buf_fini(&r->said);
	free(r);
}

/* The last line of its stderr, which is written for people. */
static const char *run_complaint(struct kube_exec_run *r)
{
	if (!r->said.len)
		return "nothing";
	while (r->said.len && strchr("\r\n ", r->said.data[r->said.len - 1]))
		r->said.data[--r->said.len] = '\0';
	char *line = strrchr(r->said.data, '\n');
	return line ? line + 1 : r->said.data;
}

static void run_finish(struct kube_exec_run *r)
{
	struct kube_exec_result result = { .err = r->err };
	json_t *keep = NULL;

	if (result.err.code == ERR_NONE && r->status > 0)
		err_set(&result.err, ERR_DENIED, "it failed (wait status 0x%x) and said: %.200s", (unsigned)r->status,
		        run_complaint(r));
	else if (result.err.code == ERR_NONE)
		kube_exec_parse(r->exec, r->text.data ? r->text.data : "", &result, &keep);
	if (result.err.code != ERR_NONE)
		err_wrap(&result.err, "the credential plugin %.300s", r->exec->command);
	r->done(r->arg, &result);
	json_decref(keep);
	run_free(r);
}

/* Reads all there is, since a full pipe would hold the program up. Of its output the beginning is kept, of its stderr
 * the end. */
static void run_drain(struct kube_exec_run *r, ev_io *w)
{
	char part[4096];
	ssize_t n = 0;

	for (int i = 0; i < GULPS && w->fd >= 0 && (n = read(w->fd, part, sizeof part)) > 0; i++) {
		if (w == &r->complaint)
			buf_add(&r->said, part, (size_t)n);
		else if (r->text.len < OUTPUT_MAX)
			buf_add(&r->text, part, (size_t)n);
		if (r->said.len > COMPLAINT_MAX)
			buf_drop(&r->said, r->said.len - COMPLAINT_MAX);
	}
	explicit_bzero(part, sizeof part);
	if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
		ev_io_stop(r->loop, w);
}

static void run_on_output(struct ev_loop *, ev_io *w, int)
{
	run_drain(w->data, w);
}

/* Its exit counts, and not the end of its pipes: a process that it has left behind may hold them open. */
static void run_on_exited(void *arg, int status)
{
	struct kube_exec_run *r = arg;

	r->child = NULL;
	r->status = status;
	run_drain(r, &r->out);
	run_drain(r, &r->complaint);
	run_finish(r);
}

static void run_on_timer(struct ev_loop *, ev_timer *w, int)
{
	struct kube_exec_run *r = w->data;

	if (r->err.code == ERR_NONE) {
		err_set(&r->err, ERR_TIMEOUT, "it did not answer for %g s and was killed", r->limit_s);
		kill(-r->pid, SIGKILL);
	}
	run_finish(r);
}

/* ---- starting it ---- */

static char *exec_info(const struct kube_exec *x)
{
	json_t *info = json_pack("{s:s, s:s, s:{s:b}}", "apiVersion", x->api_version, "kind", "ExecCredential", "spec",
	                         "interactive", 0);

	if (x->cluster)
		json_object_set(json_object_get(info, "spec"), "cluster", x->cluster);
	char *text = json_dumps(info, JSON_COMPACT);
	char *entry = mem_printf("KUBERNETES_EXEC_INFO=%s", text);
	free(text);
	json_decref(info);
	return entry;
}

static bool entry_passes(const char *entry, const struct kube_exec *x)
{
	size_t name = strcspn(entry, "=") + 1;

	if (strncmp(entry, "LUNARCH_", 8) == 0 || strncmp(entry, "KUBERNETES_EXEC_INFO=", 21) == 0)
		return false;
	for (char **own = x->env; own && *own; own++)
		if (strncmp(*own, entry, name) == 0)
			return false;
	return true;
}

/* Our environment but for what is meant for us alone, then the plugin's own. The caller frees the list and its last
 * entry. */
static char **make_environment(const struct kube_exec *x)
{
	size_t most = 2, n = 0;

	for (char **e = environ; *e; e++)
		most++;
	for (char **e = x->env; e && *e; e++)
		most++;
	char **list = mem_zero(most * sizeof *list);
	for (char **e = environ; *e; e++)
		if (entry_passes(*e, x))
			list[n++] = *e;
	for (char **e = x->env; e && *e; e++)
		list[n++] = *e;
	list[n] = exec_info(x);
	return list;
}

static void free_environment(char **list)
{
	size_t n = 0;

	while (list[n])
		n++;
	free(list[n - 1]);
	free(list);
}

static int run_spawn(struct kube_exec_run *r, int out, int complaint)
{
	struct spawn s;
	sigset_t none, all;
	char **env = make_environment(r->exec);

	sigemptyset(&none);
	sigfillset(&all);
	spawn_init(&s, &none, &all, true);
	spawn_no_input(&s);
	spawn_pass(&s, out, STDOUT_FILENO);
	spawn_pass(&s, complaint, STDERR_FILENO);
	int failed = spawn_run(&s, &r->pid, r->exec->command, r->exec->argv, env);
	free_environment(env);
	errno = failed;
	return failed ? -1 : 0;
}

static int run_start(struct kube_exec_run *r, struct reaper *reaper)
{
	int out[2] = { -1, -1 }, complaint[2] = { -1, -1 }, done = -1;

	if (pipe2(out, O_CLOEXEC) == 0 && pipe2(complaint, O_CLOEXEC) == 0)
		done = run_spawn(r, out[1], complaint[1]);
	int why = errno;
	for (int i = 0; i < 2; i++)
		if ((i ? complaint : out)[1] >= 0)
			close((i ? complaint : out)[1]);
	r->out.fd = out[0];
	r->complaint.fd = complaint[0];
	if (done < 0) {
		errno = why;
		return err_sys(&r->err, "it does not start%s%.200s", r->exec->hint ? ": " : "",
		               r->exec->hint ? r->exec->hint : "");
	}
	fcntl(out[0], F_SETFL, O_NONBLOCK);
	fcntl(complaint[0], F_SETFL, O_NONBLOCK);
	r->child = reaper_add(reaper, r->pid, run_on_exited, r, &r->err);
	if (!r->child)
		kill(-r->pid, SIGKILL);
	return r->child ? 0 : -1;
}

struct kube_exec_run *kube_exec_start(struct lock_env *env, const struct kube_exec *x, double limit_s,
                                      kube_exec_done_fn *done, void *arg)
{
	struct kube_exec_run *r = mem_zero(sizeof *r);
	struct ev_loop *loop = env->loop;

	*r = (struct kube_exec_run){ .loop = loop, .exec = x, .limit_s = limit_s, .done = done, .arg = arg };
	ev_init(&r->out, run_on_output);
	ev_init(&r->complaint, run_on_output);
	ev_init(&r->timer, run_on_timer);
	r->out.data = r->complaint.data = r->timer.data = r;
	r->out.fd = r->complaint.fd = -1;
	int started = run_start(r, lock_reaper(env));
	timer_after(loop, &r->timer, started < 0 ? 0 : (nsec)(limit_s * NSEC_PER_SEC));
	if (started < 0)
		return r;
	ev_io_set(&r->out, r->out.fd, EV_READ);
	ev_io_set(&r->complaint, r->complaint.fd, EV_READ);
	ev_io_start(loop, &r->out);
	ev_io_start(loop, &r->complaint);
	return r;
}

void kube_exec_cancel(struct kube_exec_run *r)
{
	if (!r)
		return;
	if (r->child)
		kill(-r->pid, SIGKILL);
	run_free(r);
}
