#include "commands/ctl_electors.h"

#include "base/mem.h"
#include "client/lock_client.h"
#include "net/serve/ask.h"
#include "net/serve/listener.h"
#include "program/control.h"
#include "program/control_dir.h"

#include <ctype.h>
#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_S 10
/* An answer to handover comes when it is known who leads: when the script has stopped, which the elector waits for at
 * most ten minutes, and two leases later at the latest. */
#define HANDOVER_S 3600
#define LONGEST_S 1000000 /* of a --timeout: what is waited for is an int of milliseconds */
#define RELOAD_S 300      /* an answer to reload comes when the script is loaded, or could not be */

/* ---- asking ---- */

/* Path and query. */
static void print_request(struct buf *target, const struct ctl_request *r)
{
	const struct {
		const char *name, *value;
	} fields[] = {
		{ "election", r->election }, { "to", r->to }, { "job", r->job }, { "wait", r->wait ? "1" : "" }
	};
	char mark = '?';

	buf_printf(target, "/%s", r->command);
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		if (!fields[i].value || !*fields[i].value)
			continue;
		buf_printf(target, "%c%s=", mark, fields[i].name);
		ask_encode(target, fields[i].value);
		mark = '&';
	}
	if (r->ms >= 0)
		buf_printf(target, "%cseconds=%" PRId64 ".%03d", mark, r->ms / 1000, (int)(r->ms % 1000));
}

static int answer_time_s(const struct ctl_request *r)
{
	if (strcmp(r->command, "handover") == 0)
		return HANDOVER_S + (int)(r->ms <= 0 ? 0 : r->ms / 1000 < LONGEST_S ? r->ms / 1000 : LONGEST_S);
	if (r->wait)
		return LONGEST_S;
	return strcmp(r->command, "reload") == 0 ? RELOAD_S : ANSWER_S;
}

json_t *ctl_ask(const char *path, const struct ctl_request *r, struct err *err)
{
	struct buf request = { 0 }, reply = { 0 };
	json_t *json = NULL;

	print_request(&request, r);
	if (ask_unix(path, control_method(r->command), request.data, answer_time_s(r), &reply, err) < 0) {
		if (err->code == ERR_TIMEOUT)
			err->code = ERR_UNREACHABLE;
	} else {
		json = json_loadb(reply.data, reply.len, 0, NULL);
		if (!json)
			err_set(err, ERR_INVALID, "%s: the answer is no JSON", path);
	}
	buf_fini(&request);
	buf_fini(&reply);
	if (json && !json_is_true(json_object_get(json, "ok"))) {
		const char *why = json_string_value(json_object_get(json, "error"));
		bool again = json_is_true(json_object_get(json, "again"));
		err_set(err, again ? ERR_TIMEOUT : ERR_CANCELLED, "%s", why ? why : "refused");
		json_decref(json);
		return NULL;
	}
	return json;
}

/* ---- the sockets ---- */

static bool is_socket_name(const char *name)
{
	size_t len = strlen(name);

	return len > 5 && strcmp(name + len - 5, ".sock") == 0;
}

static bool is_listed(const struct ctl_sockets *l, const char *path)
{
	for (size_t i = 0; i < l->len; i++)
		if (strcmp(l->path[i], path) == 0)
			return true;
	return false;
}

/* What a killed elector left there is removed: by the name's pattern and the refused connection it is nobody's. In
 * another user's directory nothing is removed, since that user may put anything in its place, and only that user's own
 * sockets are asked. */
static void list_sockets_in(struct ctl_sockets *l, const char *dir, uid_t owner)
{
	DIR *d = opendir(dir);
	struct dirent *entry;

	/* cppcheck-suppress readdirCalled -- glibc's readdir is safe for threads with streams of their own (readdir(3)) */
	while (d && (entry = readdir(d)) && l->len < sizeof l->path / sizeof *l->path) {
		if (!is_socket_name(entry->d_name))
			continue;
		char *path = mem_printf("%s/%s", dir, entry->d_name);
		struct stat st;
		bool listed = owner == geteuid() ? listener_remove_stale(path) < 0
		                                 : lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) && st.st_uid == owner;
		if (!listed || is_listed(l, path))
			free(path);
		else
			l->path[l->len++] = path;
	}
	if (d)
		closedir(d);
}

/* Whether the kernel's line of a socket is of an elector: ".../ctl/NUMBER...", ".../lunarch/..." or
 * ".../lunarch-UID/...". Cuts it to the directory. */
static bool is_electors_dir(char *path)
{
	char *file = *path == '/' ? strrchr(path, '/') : NULL;

	if (!file || !isdigit((unsigned char)file[1]))
		return false;
	*file = '\0';
	const char *dir = strrchr(path, '/');
	return dir && (strcmp(dir, "/ctl") == 0 || strcmp(dir, "/lunarch") == 0 || strncmp(dir, "/lunarch-", 9) == 0);
}

/* Calls seen for each directory where electors of other users listen: the kernel lists all sockets of this network
 * namespace by their paths (proc(5), /proc/net/unix), wherever they are. */
static void each_foreign_dir(void (*seen)(void *arg, const char *dir, uid_t owner), void *arg)
{
	FILE *f = fopen("/proc/net/unix", "re");
	char line[PATH_MAX + 128];
	struct stat st;

	while (f && fgets(line, sizeof line, f)) {
		char *path = strchr(line, '/');
		line[strcspn(line, "\n")] = '\0';
		if (path && is_electors_dir(path) && lstat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
		    st.st_uid != geteuid() && !(st.st_mode & (S_IWGRP | S_IWOTH)))
			seen(arg, path, st.st_uid);
	}
	if (f)
		fclose(f);
}

static void list_foreign(void *arg, const char *dir, uid_t owner)
{
	list_sockets_in(arg, dir, owner);
}

static void note_owner(void *arg, const char *, uid_t owner)
{
	*(uid_t *)arg = owner;
}

void ctl_user_name(uid_t user, char *out, size_t size)
{
	const struct passwd *pw = getpwuid(user);

	if (pw)
		snprintf(out, size, "%s", pw->pw_name);
	else
		snprintf(out, size, "%u", (unsigned)user);
}

char *ctl_nobody(const char *what)
{
	uid_t other = geteuid();
	char name[64];

	if (geteuid() != 0)
		each_foreign_dir(note_owner, &other);
	if (other == geteuid())
		return mem_printf("no %s of %s is running", what, geteuid() == 0 ? "any user" : "this user");
	ctl_user_name(other, name, sizeof name);
	return mem_printf("no %s of this user is running, but one of user %s is: ask as that user or as root", what,
	                  name);
}

int ctl_sockets_list(struct ctl_sockets *l, const struct options *o, struct err *err)
{
	const char *state_dir = options_text(o, OPTION_STATE_DIR, NULL);
	char dir[PATH_MAX];
	struct err other = { 0 };

	for (int place = 0; place < CONTROL_DIRS; place++) {
		bool first = place == 0;
		if (control_dir(state_dir, place, false, dir, sizeof dir, first ? err : &other) == 0)
			list_sockets_in(l, dir, geteuid());
		else if (first && *state_dir)
			return -1;
	}
	l->own = l->len;
	if (geteuid() == 0 && !*state_dir)
		each_foreign_dir(list_foreign, l);
	return 0;
}

void ctl_sockets_fini(struct ctl_sockets *l)
{
	for (size_t i = 0; i < l->len; i++)
		free(l->path[i]);
}

/* ---- the one that is meant ---- */

/* What an elector is chosen by; NULL: not by that. */
struct ctl_choice {
	char *script; /* its whole path */
	char *lock;   /* as electors name it */
	bool cron;    /* by nothing but that it is `lunarch cron` */
};

/* As the backend writes it. -1: it is no lock's URL. */
static int choice_lock(struct ctl_choice *choice, const struct options *o, struct err *err)
{
	struct lock_client c = { 0 };

	c.env.state_dir = options_text(o, OPTION_STATE_DIR, NULL);
	int done = lock_client_open(&c, NULL, o->value[OPTION_LOCK].text, err);
	if (done == 0)
		choice->lock = mem_dup(lock_client_url(&c));
	lock_client_close(&c);
	return done;
}

static int choice_make(struct ctl_choice *choice, const struct options *o, const char *script, struct err *err)
{
	/* LUNARCH_LOCK is for commands that campaign, as every word of `cron` does where nothing else is said */
	bool by_lock = o->value[OPTION_LOCK].from == OPTION_GIVEN ||
	               (o->command == COMMAND_CRON && options_set(o, OPTION_LOCK));

	choice->cron = o->command == COMMAND_CRON && !by_lock;
	if (script && by_lock)
		return err_set(err, ERR_USAGE, "a script or --lock, not both");
	if (script) {
		choice->script = realpath(script, NULL);
		if (!choice->script)
			return err_set(err, ERR_MISSING, "there is no script %s", script);
	}
	return by_lock ? choice_lock(choice, o, err) : 0;
}

/* The name of the elector's election with that lock; NULL: it has none. */
static const char *election_with_lock(const json_t *answer, const char *lock)
{
	const json_t *elections = json_object_get(answer, "elections"), *e;
	size_t i;

	json_array_foreach(elections, i, e)
	{
		const char *its = json_string_value(json_object_get(e, "lock"));
		if (its && strcmp(its, lock) == 0)
			return json_string_value(json_object_get(e, "name"));
	}
	return NULL;
}

/* Whether the elector at that socket is chosen; *election is then what is to be asked for. */
static bool choice_fits(const struct ctl_choice *choice, const char *path, char **election)
{
	struct err err;
	json_t *answer;
	bool fits;

	*election = NULL;
	if (!choice->script && !choice->lock && !choice->cron)
		return true;
	answer = ctl_ask(path, &(struct ctl_request){ .command = "status", .ms = -1 }, &err);
	if (choice->cron) {
		fits = json_object_get(answer, "cron") != NULL;
	} else if (choice->script) {
		const char *script = json_string_value(json_object_get(answer, "script"));
		fits = script && strcmp(script, choice->script) == 0;
	} else {
		const char *name = answer ? election_with_lock(answer, choice->lock) : NULL;
		fits = name != NULL;
		*election = mem_dup(name);
	}
	json_decref(answer);
	return fits;
}

/* Takes the only one that fits. */
static int choice_take(const struct ctl_choice *choice, const struct ctl_sockets *l, struct ctl_elector *e,
                       struct err *err)
{
	const char *what = choice->script ? choice->script : choice->lock;
	size_t count = 0;
	bool foreign = false; /* none of ours fits: those of other users count, too */

	for (size_t i = 0; i < l->len && (i < l->own || count == 0 || foreign); i++) {
		char *election;
		foreign |= i >= l->own && count == 0;
		if (choice_fits(choice, l->path[i], &election) && count++ == 0) {
			e->path = mem_dup(l->path[i]);
			e->election = election;
		} else {
			free(election);
		}
	}
	if (count == 1)
		return 0;
	if (count > 1)
		return err_set(
			err, ERR_USAGE,
			"%zu electors are running%s%s: choose one with %s%s--control PATH (`lunarch ctl --list` shows them)",
			count, what ? " with " : "", what ? what : "", what || choice->cron ? "" : "SCRIPT.lua, ",
			what ? "" : "--lock URL or ");
	char *nobody = ctl_nobody(choice->cron ? "`lunarch cron`" : "elector");
	err_set(err, ERR_UNREACHABLE, "%s%s%s%s%s", nobody, choice->cron ? " on this machine" : "",
	        what ? "; asked for: " : "", what ? what : "", what ? ": `lunarch ctl --list`" : "");
	free(nobody);
	return -1;
}

int ctl_elector_find(struct ctl_elector *e, const struct options *o, const char *script, struct err *err)
{
	const char *election = options_text(o, OPTION_ELECTION, NULL);
	struct ctl_choice choice = { 0 };
	struct ctl_sockets l = { 0 };

	*e = (struct ctl_elector){ 0 };
	int done = choice_make(&choice, o, script, err);
	bool cron = o->command == COMMAND_CRON;
	enum option socket = cron ? OPTION_CONTROL_SOCKET : OPTION_CONTROL;
	bool by_socket = options_set(o, socket) && !choice.script && (cron || !choice.lock);
	if (done == 0 && by_socket)
		e->path = mem_dup(o->value[socket].text);
	else if (done == 0 && ctl_sockets_list(&l, o, err) == 0)
		done = choice_take(&choice, &l, e, err);
	else
		done = -1;
	if (done == 0 && (*election || !e->election)) {
		free(e->election);
		e->election = mem_dup(election);
	}
	ctl_sockets_fini(&l);
	free(choice.script);
	free(choice.lock);
	return done;
}

void ctl_elector_fini(struct ctl_elector *e)
{
	free(e->path);
	free(e->election);
}
