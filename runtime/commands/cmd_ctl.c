#include "commands/commands.h"

#include "base/buf.h"
#include "base/duration.h"
#include "commands/ctl_electors.h"
#include "program/order_table.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SHOWN 12 /* elections of one elector that --list shows */

/* A refusal is the elector's "no", or "not now"; everything else means that it could not be asked. */
static int ctl_fail(const struct err *err)
{
	enum exit_status status = err->code == ERR_CANCELLED ? EXIT_FAILED_SCRIPT
	                          : err->code == ERR_TIMEOUT ? EXIT_NOT_ACQUIRED
	                                                     : command_status_of(err);

	return command_fail(COMMAND_CTL, status, "%s", err->text);
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

/* The texts of a list of reasons or notes; that another leads is said elsewhere. */
static void add_texts(struct buf *out, const json_t *list, const char *indent)
{
	const json_t *each;
	size_t i;

	json_array_foreach(list, i, each)
	{
		if (strcmp(text_of(each, "reason"), "leader") == 0)
			continue;
		buf_printf(out, "%s  ", indent);
		buf_plain(out, text_of(each, "text"));
		buf_adds(out, "\n");
	}
}

/* Not in a list of electors, which has a line for each election. */
static void add_store(struct buf *out, const json_t *e)
{
	const json_t *store = json_object_get(e, "store");
	char ago[32];

	duration_print(number_of(store, "lastContactMs"), ago, sizeof ago);
	if (json_is_true(json_object_get(store, "answered")))
		buf_printf(out, "  the store answered %s ago", ago);
	else
		buf_printf(out, "  the store has not answered in %s", ago);
	buf_printf(out, "; failed so far: %" PRId64 " reads, %" PRId64 " writes, %" PRId64 " watches\n",
	           number_of(store, "readsFailed"), number_of(store, "writesFailed"),
	           number_of(store, "watchesFailed"));
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
		if (json_is_true(json_object_get(e, "paused")))
			buf_adds(&b, ", paused: it campaigns no more after this term");
	} else if (*text_of(e, "leader")) {
		buf_adds(&b, ", leader ");
		buf_plain(&b, text_of(e, "leader"));
	}
	buf_adds(&b, ", lock ");
	buf_plain(&b, text_of(e, "lock"));
	buf_adds(&b, "\n");
	add_texts(&b, json_object_get(e, "reasons"), indent);
	if (!*indent) {
		add_texts(&b, json_object_get(json_object_get(e, "next"), "notes"), "");
		add_store(&b, e);
	}
	fputs(b.data, stdout);
	buf_fini(&b);
}

/* Shows so many of them at most. */
static void show_elections(const json_t *answer, const char *indent, size_t most)
{
	const json_t *elections = json_object_get(answer, "elections");
	size_t count = json_array_size(elections);

	for (size_t i = 0; i < count && i < most; i++)
		show_election(json_array_get(elections, i), indent);
	if (count > most)
		printf("%sand %zu more: `lunarch ctl status` shows them\n", indent, count - most);
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
	show_elections(answer, "", SIZE_MAX);
	command_lines(stdout, text_of(answer, "text"));
	command_lines(stdout, text_of(answer, "message"));
}

/* foreign: the elector is another user's, whose name is shown. */
static void show_elector(const json_t *answer, const char *path, bool foreign)
{
	const char *script = text_of(answer, "script"), *command = text_of(answer, "command");
	const json_t *crontabs = json_object_get(answer, "cron"), *file;
	struct buf b = { 0 };
	char user[64] = "";
	struct stat st;
	size_t i;

	if (foreign && stat(path, &st) == 0)
		ctl_user_name(st.st_uid, user, sizeof user);
	buf_printf(&b, "pid %" PRId64 "  %s%s%s\n  %s", number_of(answer, "pid"), path, *user ? "  user " : "", user,
	           crontabs   ? "cron"
	           : *command ? "exec "
	                      : "run ");
	buf_plain(&b, *command ? command : script);
	json_array_foreach(crontabs, i, file)
	{
		buf_adds(&b, " ");
		buf_plain(&b, json_string_value(file) ? json_string_value(file) : "");
	}
	puts(b.data);
	buf_fini(&b);
}

static int ctl_list(const struct options *o)
{
	bool as_json = o->value[OPTION_JSON].number;
	struct ctl_sockets l = { 0 };
	struct err err;
	int shown = 0;

	if (ctl_sockets_list(&l, o, &err) < 0)
		return ctl_fail(&err);
	for (size_t i = 0; i < l.len; i++) {
		json_t *answer = ctl_ask(l.path[i], &(struct ctl_request){ .command = "status", .ms = -1 }, &err);
		if (!answer && err.code != ERR_MISSING) /* one that has ended meanwhile is none */
			ctl_fail(&err);
		if (!answer)
			continue;
		shown++;
		if (as_json) {
			json_object_set_new(answer, "control", json_string(l.path[i]));
			show_answer(answer, true);
		} else {
			show_elector(answer, l.path[i], i >= l.own);
			show_elections(answer, "  ", SHOWN);
		}
		json_decref(answer);
	}
	ctl_sockets_fini(&l);
	if (shown)
		return EXIT_DONE;
	char *nobody = ctl_nobody("elector");
	int status = command_fail(COMMAND_CTL, EXIT_FAILED_SCRIPT, "%s", nobody);
	free(nobody);
	return status;
}

/* ---- the command ---- */

struct ctl_order {
	const char *command;
	int64_t ms;         /* resign: for which it does not campaign; handover: --timeout; -1: not said */
	const char *script; /* whose elector is asked; NULL: not said */
};

static int order_check(const char *command, struct err *err)
{
	if (!command) {
		err_set(err, ERR_USAGE, "which command? `lunarch ctl --help` lists them");
		return -1;
	}
	const char *names[ORDERS + 1] = { 0 }, **name = names;
	for (const struct order *x = order_table; x->name; x++)
		if (x->usage)
			*name++ = x->name;
	const struct order *known = order_find(command);
	if (known && known->usage)
		return 0;
	const char *near = options_nearest(command, names);
	if (near)
		return err_set(err, ERR_USAGE, "unknown command '%s': did you mean %s?", command, near);
	return err_set(err, ERR_USAGE, "unknown command '%s': `lunarch ctl --help` lists them", command);
}

static bool is_script(const char *word)
{
	size_t len = strlen(word);

	return strchr(word, '/') || (len > 4 && strcmp(word + len - 4, ".lua") == 0);
}

/* Takes the options of handover, which no other order has. */
static int order_take_options(struct ctl_order *order, const struct options *o, struct err *err)
{
	if (strcmp(order->command, "handover") == 0) {
		order->ms = o->value[OPTION_HANDOVER_TIMEOUT].number;
		return 0;
	}
	if (options_set(o, OPTION_TO) || options_set(o, OPTION_HANDOVER_TIMEOUT))
		return err_set(err, ERR_USAGE, "--%s is for `lunarch ctl handover` alone",
		               options_set(o, OPTION_TO) ? "to" : "timeout");
	return 0;
}

/* COMMAND, then a duration (resign) and a script, in any order. */
static int order_parse(struct ctl_order *order, const struct options *o, struct err *err)
{
	*order = (struct ctl_order){ .command = o->words ? o->word[0] : NULL, .ms = -1 };
	if (order_check(order->command, err) < 0 || order_take_options(order, o, err) < 0)
		return -1;
	for (int i = 1; i < o->words; i++) {
		const char *word = o->word[i];
		if (is_script(word) && !order->script)
			order->script = word;
		else if (strcmp(order->command, "resign") != 0 || order->ms >= 0)
			return err_set(err, ERR_USAGE, "unexpected argument '%s'", word);
		else if (duration_parse(word, &order->ms, err) < 0)
			return -1;
	}
	return 0;
}

static int order_give(const struct ctl_order *order, const struct options *o)
{
	struct ctl_elector e;
	struct err err;
	int status = EXIT_DONE;

	int found = ctl_elector_find(&e, o, order->script, &err);
	struct ctl_request request = {
		.command = order->command, .election = e.election, .to = o->value[OPTION_TO].text, .ms = order->ms
	};
	json_t *answer = found == 0 ? ctl_ask(e.path, &request, &err) : NULL;
	ctl_elector_fini(&e);
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
	struct ctl_order order;
	struct options o;
	struct err err;
	int status = command_begin(&o, COMMAND_CTL, argc, argv);

	if (status >= 0)
		return status;
	if (o.value[OPTION_LIST].number && o.words == 0)
		return ctl_list(&o);
	if (order_parse(&order, &o, &err) < 0)
		return ctl_fail(&err);
	return order_give(&order, &o);
}
