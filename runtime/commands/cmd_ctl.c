#include "commands/commands.h"

#include "base/mem.h"
#include "runner/control.h"
#include "runner/control_dir.h"

#include <dirent.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_S 10
#define RELOAD_S 300 /* an answer to reload comes when the script is loaded, or could not be */

const char *const ctl_orders[] = { "status", "is-leading", "why", "resign", "pause", "resume", "reload", NULL };

/* A refusal is the elector's "no"; everything else means that it could not be asked. */
static int ctl_fail(const struct err *err)
{
	enum exit_status status = err->code == ERR_CANCELLED ? EXIT_FAILED_SCRIPT : command_status_of(err);

	return command_fail(COMMAND_CTL, status, "%s", err->text);
}

/* ---- asking ---- */

/* The parsed answer, which the caller owns; NULL with *err when there is none or it is a refusal. */
static json_t *ctl_ask(const char *path, const char *command, const char *election, int64_t ms, struct err *err)
{
	struct buf request = { 0 }, reply = { 0 };
	json_t *json = NULL;

	buf_adds(&request, "{\"command\":");
	buf_json(&request, command);
	if (*election) {
		buf_adds(&request, ",\"election\":");
		buf_json(&request, election);
	}
	if (ms >= 0)
		buf_printf(&request, ",\"seconds\":%" PRId64 ".%03d", ms / 1000, (int)(ms % 1000));
	buf_adds(&request, "}");
	int timeout_s = strcmp(command, "reload") == 0 ? RELOAD_S : ANSWER_S;
	if (control_ask(path, request.data, timeout_s, &reply, err) == 0) {
		json = json_loadb(reply.data, reply.len, 0, NULL);
		if (!json)
			err_set(err, ERR_INVALID, "%s: the answer is no JSON", path);
	}
	buf_fini(&request);
	buf_fini(&reply);
	if (json && !json_is_true(json_object_get(json, "ok"))) {
		const char *why = json_string_value(json_object_get(json, "error"));
		err_set(err, ERR_CANCELLED, "%s", why ? why : "refused");
		json_decref(json);
		return NULL;
	}
	return json;
}

/* ---- showing ---- */

static const char *text_of(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s ? s : "";
}

static int64_t number_of(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

/* What besides another leader keeps it from leading. */
static void add_reasons(struct buf *out, const json_t *e, const char *indent)
{
	const json_t *reasons = json_object_get(e, "reasons");

	for (size_t i = 0; i < json_array_size(reasons); i++) {
		const json_t *reason = json_array_get(reasons, i);
		if (strcmp(text_of(reason, "reason"), "leader") == 0)
			continue;
		buf_printf(out, "%s  ", indent);
		buf_plain(out, text_of(reason, "text"));
		buf_adds(out, "\n");
	}
}

static void show_election(const json_t *e, const char *indent)
{
	struct buf b = { 0 };
	char left[32];

	buf_adds(&b, indent);
	if (*text_of(e, "name")) {
		buf_plain(&b, text_of(e, "name"));
		buf_adds(&b, ": ");
	}
	buf_printf(&b, "%s", text_of(e, "phase"));
	if (number_of(e, "term"))
		buf_printf(&b, ", term %" PRId64 ", token %" PRId64, number_of(e, "term"), number_of(e, "token"));
	if (json_is_true(json_object_get(e, "leading"))) {
		duration_print(number_of(e, "remainingMs"), left, sizeof left);
		buf_printf(&b, ", %s left", left);
	} else if (*text_of(e, "leader")) {
		buf_adds(&b, ", leader ");
		buf_plain(&b, text_of(e, "leader"));
	}
	buf_adds(&b, ", lock ");
	buf_plain(&b, text_of(e, "lock"));
	buf_adds(&b, "\n");
	add_reasons(&b, e, indent);
	fputs(b.data, stdout);
	buf_fini(&b);
}

static void show_elections(const json_t *answer, const char *indent)
{
	const json_t *elections = json_object_get(answer, "elections");

	for (size_t i = 0; i < json_array_size(elections); i++)
		show_election(json_array_get(elections, i), indent);
}

static void show_answer(const json_t *answer, bool as_json)
{
	const json_t *leading = json_object_get(answer, "leading");

	if (as_json) {
		json_dumpf(answer, stdout, JSON_COMPACT);
		puts("");
		return;
	}
	if (leading)
		puts(json_is_true(leading) ? "yes" : "no");
	show_elections(answer, "");
	command_lines(stdout, text_of(answer, "text"));
	command_lines(stdout, text_of(answer, "message"));
}

/* ---- which elector ---- */

struct socket_list {
	char *path[256];
	size_t len;
};

static void list_free(struct socket_list *l)
{
	for (size_t i = 0; i < l->len; i++)
		free(l->path[i]);
}

static bool is_socket_name(const char *name)
{
	size_t len = strlen(name);

	return len > 5 && strcmp(name + len - 5, ".sock") == 0;
}

/* What a killed elector left there is removed: by the name's pattern and the refused connection it is nobody's. */
static void list_sockets_in(struct socket_list *l, const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *entry;

	/* cppcheck-suppress readdirCalled -- glibc's readdir is safe for threads with streams of their own (readdir(3)) */
	while (d && (entry = readdir(d)) && l->len < sizeof l->path / sizeof *l->path) {
		if (!is_socket_name(entry->d_name))
			continue;
		char *path = mem_printf("%s/%s", dir, entry->d_name);
		if (control_remove_stale(path) == 0)
			free(path);
		else
			l->path[l->len++] = path;
	}
	if (d)
		closedir(d);
}

/* The sockets at which somebody listens, in all places where this user's electors have them. */
static int list_sockets(const struct options *o, struct socket_list *l, struct err *err)
{
	const char *state_dir = options_text(o, OPTION_STATE_DIR, NULL);
	char dir[PATH_MAX];
	struct err other = { 0 };

	for (int place = 0; place < CONTROL_DIRS; place++) {
		bool first = place == 0;
		if (control_dir(state_dir, place, false, dir, sizeof dir, first ? err : &other) == 0)
			list_sockets_in(l, dir);
		else if (first && *state_dir)
			return -1;
	}
	return 0;
}

static int ctl_list(const struct options *o)
{
	bool as_json = o->value[OPTION_JSON].number;
	struct socket_list l = { 0 };
	struct err err;
	int shown = 0;

	if (list_sockets(o, &l, &err) < 0)
		return ctl_fail(&err);
	for (size_t i = 0; i < l.len; i++) {
		json_t *answer = ctl_ask(l.path[i], "status", "", -1, &err);
		if (!answer) {
			ctl_fail(&err);
			continue;
		}
		shown++;
		if (as_json) {
			json_object_set_new(answer, "control", json_string(l.path[i]));
			show_answer(answer, true);
		} else {
			printf("pid %" PRId64 "  %s\n", number_of(answer, "pid"), l.path[i]);
			show_elections(answer, "  ");
		}
		json_decref(answer);
	}
	list_free(&l);
	return shown ? EXIT_DONE : command_fail(COMMAND_CTL, EXIT_FAILED_SCRIPT, "no elector of this user is running");
}

/* The socket to ask; the caller frees. NULL: said why, *status is the exit status. */
static char *find_socket(const struct options *o, int *status)
{
	struct socket_list l = { 0 };
	char *found = NULL;
	struct err err;

	if (options_set(o, OPTION_CTL_SOCKET))
		return mem_dup(o->value[OPTION_CTL_SOCKET].text);
	if (list_sockets(o, &l, &err) < 0) {
		*status = ctl_fail(&err);
		return NULL;
	}
	if (l.len == 1)
		found = mem_dup(l.path[0]);
	else if (l.len == 0)
		*status = command_fail(COMMAND_CTL, EXIT_UNREACHABLE, "no elector of this user is running");
	else
		*status = command_fail(
			COMMAND_CTL, EXIT_USAGE,
			"%zu electors are running: choose one with --control PATH (`lunarch ctl --list` shows them)",
			l.len);
	list_free(&l);
	return found;
}

/* ---- the command ---- */

static int check_order(const struct options *o, int64_t *ms, struct err *err)
{
	const char *order = o->words ? o->word[0] : NULL;

	*ms = -1;
	if (!order)
		return err_set(err, ERR_USAGE, "which command? `lunarch ctl --help` lists them");
	for (size_t i = 0; ctl_orders[i]; i++) {
		if (strcmp(order, ctl_orders[i]) != 0)
			continue;
		if (o->words == 1)
			return 0;
		if (strcmp(order, "resign") != 0)
			return err_set(err, ERR_USAGE, "unexpected argument '%s'", o->word[1]);
		return duration_parse(o->word[1], ms, err);
	}
	const char *near = options_nearest(order, ctl_orders);
	if (near)
		return err_set(err, ERR_USAGE, "unknown command '%s': did you mean %s?", order, near);
	return err_set(err, ERR_USAGE, "unknown command '%s': `lunarch ctl --help` lists them", order);
}

static int give_order(const struct options *o, int64_t ms)
{
	struct err err;
	int status = EXIT_DONE;
	char *path = find_socket(o, &status);

	if (!path)
		return status;
	json_t *answer = ctl_ask(path, o->word[0], options_text(o, OPTION_CTL_ELECTION, NULL), ms, &err);
	free(path);
	if (!answer)
		return ctl_fail(&err);
	show_answer(answer, o->value[OPTION_JSON].number);
	if (json_is_false(json_object_get(answer, "leading")))
		status = EXIT_FAILED_SCRIPT;
	json_decref(answer);
	return status;
}

int cmd_ctl(int argc, char **argv)
{
	struct options o;
	struct err err;
	int64_t ms;
	int status = command_begin(&o, COMMAND_CTL, argc, argv);

	if (status >= 0)
		return status;
	if (o.value[OPTION_LIST].number && o.words == 0)
		return ctl_list(&o);
	if (check_order(&o, &ms, &err) < 0)
		return ctl_fail(&err);
	return give_order(&o, ms);
}
