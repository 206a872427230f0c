#include "base/buf.h"
#include "base/mem.h"
#include "base/module.h"
#include "commands/commands.h"
#include "commands/ctl_electors.h"
#include "locks/lock.h"
#include "net/serve/ask.h"
#include "program/order_table.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define ELECTOR_S 10 /* an elector that does not answer so long offers nothing */

/* The command line up to the word that is completed. */
struct typed {
	int command;        /* -1: none of ours */
	const char *option; /* the last one, if its value is to be completed; NULL */
	const char *current;
	struct options state; /* nothing but --state-dir */
	int words;            /* that are no options, behind the command */
	int foreign;          /* where another command line begins, the program's name being word 0; 0: nowhere */
};

static void offer(const char *word, const char *about)
{
	struct buf b = { 0 };

	buf_plain(&b, word);
	if (about && *about) {
		buf_adds(&b, "\t");
		buf_plain(&b, about);
	}
	puts(b.data);
	buf_fini(&b);
}

/* ---- what runs on this machine ---- */

static json_t *elector_status_of(const char *path)
{
	struct buf reply = { 0 };
	struct err err;
	json_t *json = NULL;

	if (ask_unix(path, "GET", "/status", ELECTOR_S, &reply, &err) == 0)
		json = json_loadb(reply.data, reply.len, 0, NULL);
	buf_fini(&reply);
	return json;
}

static const char *text_of(const json_t *object, const char *key)
{
	const char *s = json_string_value(json_object_get(object, key));

	return s ? s : "";
}

static void offer_elections(const json_t *status, const char *key, const char *about)
{
	const json_t *elections = json_object_get(status, "elections"), *e;
	size_t i;

	json_array_foreach(elections, i, e) if (*text_of(e, key)) offer(text_of(e, key), about);
}

enum elector_part { ELECTOR_SOCKET, ELECTOR_SCRIPT, ELECTOR_LOCK, ELECTOR_ELECTION };

static void offer_electors(const struct typed *t, enum elector_part part)
{
	struct ctl_sockets l = { 0 };
	struct err err;

	if (ctl_sockets_list(&l, &t->state, &err) < 0)
		return;
	for (size_t i = 0; i < l.len; i++) {
		json_t *status = elector_status_of(l.path[i]);
		const char *script = text_of(status, "script");
		const char *what = *script ? script : text_of(status, "command");
		if (part == ELECTOR_SOCKET)
			offer(l.path[i], what);
		else if (part == ELECTOR_SCRIPT && *script == '/')
			offer(script, "runs here");
		else if (part == ELECTOR_LOCK)
			offer_elections(status, "lock", what);
		else if (part == ELECTOR_ELECTION)
			offer_elections(status, "name", what);
		json_decref(status);
	}
	ctl_sockets_fini(&l);
}

/* ---- options ---- */

static void offer_own_lock(void *, const char *scheme)
{
	char *url = mem_printf("%s://", scheme);

	offer(url, "a lock file of yours");
	free(url);
}

static void offer_locks(void)
{
	for (const struct lock_backend *b = lock_backends; b->scheme; b++)
		if (!b->module || module_installed(b->module))
			printf("%s:%s\n", b->scheme, b->module || b->driver ? "//" : "");
	help_own_locks(offer_own_lock, NULL);
	puts("<file>");
}

/* Offers values for an option whose value is a text. */
static void offer_text(const struct typed *t, enum option which)
{
	if (which == OPTION_LOCK && t->command == COMMAND_CTL)
		offer_electors(t, ELECTOR_LOCK);
	if (which == OPTION_LOCK)
		offer_locks();
	else if (which == OPTION_CONTROL)
		offer_electors(t, ELECTOR_SOCKET);
	else if (which == OPTION_ELECTION)
		offer_electors(t, ELECTOR_ELECTION);
	else if (which == OPTION_STATE_DIR)
		puts("<directory>");
	else if (which == OPTION_STATE_FILE || which == OPTION_ENV_FILE ||
	         (option_table[which].value_name && strcmp(option_table[which].value_name, "PATH") == 0))
		puts("<file>");
}

static void offer_values(const struct typed *t, enum option which)
{
	const struct option_info *info = &option_table[which];

	if (info->type == OPTION_TEXT)
		offer_text(t, which);
	for (const char *c = info->type == OPTION_CHOICE ? info->value_name : ""; *c; c += strspn(c, "|")) {
		size_t len = strcspn(c, "|");
		printf("%.*s\n", (int)len, c);
		c += len;
	}
	if (info->preset && info->type != OPTION_CHOICE)
		offer(info->preset, "preset");
}

static bool is_spelling(const struct option_info *info, const char *option)
{
	size_t len = strcspn(option, "=");

	if (strncmp(option, "--", 2) != 0)
		return info->letter && option[1] == info->letter && !option[2];
	return (strlen(info->name) == len - 2 && strncmp(option + 2, info->name, len - 2) == 0) ||
	       (info->alias && strlen(info->alias) == len - 2 && strncmp(option + 2, info->alias, len - 2) == 0);
}

/* OPTIONS: the command has no such option. */
static enum option find_option(int command, const char *spelled)
{
	enum option i = 0;

	while (i < OPTIONS &&
	       (command < 0 || !(option_table[i].commands & 1u << command) || !is_spelling(&option_table[i], spelled)))
		i++;
	return i;
}

static void offer_options(int command)
{
	for (enum option i = 0; i < OPTIONS; i++) {
		if (!(option_table[i].commands & 1u << command))
			continue;
		printf("--%s\t%s\n", option_table[i].name, option_table[i].help);
	}
}

/* ---- words ---- */

static void offer_commands(void)
{
	for (enum command c = 0; c < COMMANDS; c++) {
		char *summary = help_summary(c);
		offer(command_names[c], summary);
		free(summary);
	}
}

static void offer_help(const struct typed *t, const char *topic)
{
	if (t->words && strcmp(topic, "api") == 0)
		help_api_names();
	if (t->words)
		return;
	offer_commands();
	offer("api", "what scripts can call");
}

#define COMMAND_WORDS(NAME, name, words) words,

/* What may stand behind the command, and is no option. */
static void offer_words(const struct typed *t)
{
	static const char *const behind[COMMANDS] = { COMMAND_TABLE(COMMAND_WORDS) };

	for (const struct order *o = order_table; t->command == COMMAND_CTL && !t->words && o->name; o++)
		if (o->usage)
			puts(o->name);
	if (t->command == COMMAND_CRON && !t->words) {
		offer("check", "what is wrong with crontabs");
		offer("list", "when their jobs run next");
		offer("history", "what ran");
		offer("run", "a job now, on the leader");
	}
	if (t->command == COMMAND_CTL)
		offer_electors(t, ELECTOR_SCRIPT);
	if (behind[t->command])
		puts(behind[t->command]);
	else
		offer_options(t->command);
}

/* ---- the line ---- */

static void typed_state_dir(struct typed *t, const char *dir)
{
	t->state.value[OPTION_STATE_DIR] = (struct option_value){ .from = OPTION_GIVEN, .text = dir };
}

/* The words between the command and the current one. */
static void typed_parse(struct typed *t, int argc, char **argv)
{
	for (int i = 1; i < argc - 1 && !t->foreign; i++) {
		const char *word = argv[i], *equals = strchr(word, '=');
		enum option which = find_option(t->command, word);
		bool dashes = strcmp(word, "--") == 0;

		t->option = NULL;
		if (dashes || (*word != '-' && t->command == COMMAND_EXEC)) {
			t->foreign = i + 1 + dashes;
		} else if (*word != '-') {
			t->words++;
		} else if (which < OPTIONS && option_table[which].type != OPTION_FLAG) {
			if (which == OPTION_STATE_DIR && (equals || i + 1 < argc - 1))
				typed_state_dir(t, equals ? equals + 1 : argv[i + 1]);
			if (!equals && ++i == argc - 1)
				t->option = word;
		}
	}
	if (!t->option && strncmp(t->current, "--", 2) == 0 && strchr(t->current, '='))
		t->option = t->current;
}

int complete_line(int argc, char **argv)
{
	struct typed t = { .command = -1, .current = argc ? argv[argc - 1] : "" };

	if (argc < 2) {
		offer_commands();
		offer("help", "of a command, or of what scripts can call");
		puts("--help\n--version");
		return EXIT_DONE;
	}
	for (int c = 0; c < COMMANDS; c++)
		if (strcmp(argv[0], command_names[c]) == 0)
			t.command = c;
	typed_parse(&t, argc, argv);
	enum option which = t.option ? find_option(t.command, t.option) : OPTIONS;
	if (t.foreign && t.command == COMMAND_EXEC)
		printf("<command %d>\n", t.foreign);
	else if (t.foreign)
		puts("<file>");
	else if (strcmp(argv[0], "help") == 0)
		offer_help(&t, argv[1]);
	else if (t.command < 0)
		return EXIT_FAILED_SCRIPT;
	else if (which < OPTIONS)
		offer_values(&t, which);
	else if (*t.current == '-')
		offer_options(t.command);
	else
		offer_words(&t);
	return EXIT_DONE;
}
