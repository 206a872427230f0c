#include "config/options.h"

#include "base/buf.h"
#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMMAND_NAME(NAME, name, words) #name,
const char *const command_names[COMMANDS + 1] = { COMMAND_TABLE(COMMAND_NAME) };
#undef COMMAND_NAME

/* ---- the table ---- */

#define COMMAND_BIT(NAME, name, words) NAME = 1 << COMMAND_##NAME,
enum { COMMAND_TABLE(COMMAND_BIT) LEADS = RUN | EXEC | CRON | CHECK /* check shows what run would do */ };
#undef COMMAND_BIT
#define ALL ((1 << COMMANDS) - 1)
#define RESOURCES "leases|configmaps|endpoints|configmapsleases|endpointsleases"

#define ROW(NAME, TYPE, name, alias, letter, value, preset, commands, key, help, env) \
	[OPTION_##NAME] = { OPTION_##TYPE, name, alias, letter, value, preset, commands, key, help, env },
#define O(...) ROW(__VA_ARGS__, NULL)
#define V(NAME, ...) ROW(NAME, __VA_ARGS__, "LUNARCH_" #NAME)
#define KEPT V
const struct option_info option_table[OPTIONS] = {
#include "config/options_table.h"
};
#undef O
#undef V
#undef KEPT

#define O(...)
#define V(NAME, ...) "LUNARCH_" #NAME,
#define KEPT O
const char *const option_variables[] = {
#include "config/options_table.h"
	"LUNARCH_LOCK_PASSWORD",
	NULL,
};
#undef O
#undef V
#undef KEPT
#undef ROW

static bool belongs(enum option which, enum command command)
{
	return option_table[which].commands & 1u << command;
}

/* ---- the word that was probably meant ---- */

#define NEAR_MAX 40

static int least3(int a, int b, int c)
{
	int m = a < b ? a : b;

	return m < c ? m : c;
}

/* Edits that turn a into b, a swap of neighbours being one (optimal string alignment). */
static int distance(const char *a, const char *b)
{
	int la = (int)strlen(a), lb = (int)strlen(b);
	int d[NEAR_MAX + 1][NEAR_MAX + 1];

	if (la > NEAR_MAX || lb > NEAR_MAX)
		return INT_MAX;
	for (int i = 0; i <= la; i++) {
		for (int j = 0; j <= lb; j++) {
			if (i == 0 || j == 0) {
				d[i][j] = i + j;
				continue;
			}
			d[i][j] = least3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
			    d[i - 2][j - 2] + 1 < d[i][j])
				d[i][j] = d[i - 2][j - 2] + 1;
		}
	}
	return d[la][lb];
}

const char *options_nearest(const char *word, const char *const *words)
{
	int best = (int)strlen(word) / 3 + 1;
	const char *found = NULL;

	for (; *words; words++) {
		bool prefix = strlen(word) >= 3 && strncmp(word, *words, strlen(word)) == 0;
		int d = prefix ? 1 : distance(word, *words);
		if (d <= best && d < (int)strlen(word)) {
			best = d - 1;
			found = *words;
		}
	}
	return found;
}

/* ---- values ---- */

const char *options_source(enum option which, enum option_from from, char *out, size_t size)
{
	if (from == OPTION_FROM_ENV)
		return option_table[which].env;
	if (from == OPTION_FROM_SCRIPT)
		return "the script";
	snprintf(out, size, "--%s", option_table[which].name);
	return out;
}

const char *option_key(enum option which, char *out, size_t size)
{
	snprintf(out, size, "%s", option_table[which].name);
	for (char *p = out; *p; p++)
		if (*p == '-')
			*p = '_';
	return out;
}

static int parse_flag(const char *text, int64_t *number, struct err *err)
{
	static const char *const words[] = { "no", "yes", "false", "true", "0", "1", "off", "on" };

	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		if (strcasecmp(text, words[i]) == 0) {
			*number = i % 2;
			return 0;
		}
	}
	return err_set(err, ERR_USAGE, "'%s' is neither yes nor no", text);
}

static int parse_choice(const char *text, const char *choices, int64_t *number, struct err *err)
{
	int64_t i = 0;

	for (const char *c = choices; *c; i++) {
		size_t len = strcspn(c, "|");
		if (strlen(text) == len && strncmp(text, c, len) == 0) {
			*number = i;
			return 0;
		}
		c += len + (c[len] == '|');
	}
	return err_set(err, ERR_USAGE, "'%s' is none of %s", text, choices);
}

static int parse_status(const char *text, int64_t *number, struct err *err)
{
	char *end;

	errno = 0;
	long n = strtol(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end || errno || n > 255)
		return err_set(err, ERR_USAGE, "'%s' is no exit status: a number from 0 to 255", text);
	*number = n;
	return 0;
}

static int parse_number(const char *text, int64_t *number, struct err *err)
{
	const char *digits = text + (*text == '-');
	char *end;

	errno = 0;
	*number = strtoll(text, &end, 10);
	if (!isdigit((unsigned char)*digits) || *end || errno || *number > OPTION_NUMBER_MAX ||
	    *number < -OPTION_NUMBER_MAX)
		return err_set(err, ERR_USAGE, "'%s' is no whole number from %d to %d", text, -OPTION_NUMBER_MAX,
		               OPTION_NUMBER_MAX);
	return 0;
}

static int parse_period(const char *text, int64_t *number, struct err *err)
{
	if (duration_parse(text, number, err) < 0)
		return -1;
	return *number > 0 ? 0 : err_set(err, ERR_USAGE, "'%s' is not longer than 0", text);
}

static int parse_patience(const char *text, int64_t *number, struct err *err)
{
	if (duration_parse(text, number, err) < 0)
		return -1;
	bool good = *number >= 1000 && *number <= 3600 * 1000;
	return good ? 0 : err_set(err, ERR_USAGE, "'%s' is not from 1s to 1h", text);
}

static int parse_waiting(const char *text, int64_t *number, struct err *err)
{
	char with_unit[40];
	bool digits = strpbrk(text, "0123456789"), others = text[strspn(text, "0123456789.")];
	bool bare = digits && !others && strchr(text, '.') == strrchr(text, '.');

	snprintf(with_unit, sizeof with_unit, "%s%s", text, bare ? "s" : "");
	return duration_parse(bare && strlen(text) + 1 < sizeof with_unit ? with_unit : text, number, err);
}

static int parse_value(enum option which, const char *text, int64_t *number, struct err *err)
{
	switch (option_table[which].type) {
	case OPTION_TEXT:
		return 0;
	case OPTION_FLAG:
		return parse_flag(text, number, err);
	case OPTION_DURATION:
		return duration_parse(text, number, err);
	case OPTION_WAITING:
		return parse_waiting(text, number, err);
	case OPTION_PERIOD:
		return parse_period(text, number, err);
	case OPTION_PATIENCE:
		return parse_patience(text, number, err);
	case OPTION_CHOICE:
		return parse_choice(text, option_table[which].value_name, number, err);
	case OPTION_STATUS:
		return parse_status(text, number, err);
	case OPTION_NUMBER:
		return parse_number(text, number, err);
	}
	return -1;
}

static int set_value(struct options *o, enum option which, enum option_from from, const char *text, struct err *err)
{
	struct option_value *v = &o->value[which];
	char name[64];

	if (parse_value(which, text, &v->number, err) < 0)
		return err_wrap(err, "%s", options_source(which, from, name, sizeof name));
	v->from = from;
	v->text = text;
	const char **list = which == OPTION_LOCK       ? o->locks
	                    : which == OPTION_ENV      ? o->env
	                    : which == OPTION_ENV_FILE ? o->env_files
	                                               : NULL;
	int *count = which == OPTION_LOCK ? &o->lock_count : which == OPTION_ENV ? &o->env_count : &o->env_file_count;
	if (!list || from != OPTION_GIVEN)
		return 0;
	if (*count == OPTION_WORDS)
		return err_set(err, ERR_USAGE, "--%s: more than %d", option_table[which].name, OPTION_WORDS);
	list[(*count)++] = text;
	return 0;
}

/* ---- parsing ---- */

static int unknown_option(enum command command, const char *arg, struct err *err)
{
	const char *names[2 * OPTIONS + 1];
	char word[64];
	size_t n = 0;

	snprintf(word, sizeof word, "%.*s", (int)strcspn(arg, "="), arg);
	for (enum option i = 0; i < OPTIONS; i++)
		if (belongs(i, command)) {
			names[n++] = option_table[i].name;
			if (option_table[i].alias)
				names[n++] = option_table[i].alias;
		}
	names[n] = NULL;
	const char *near = options_nearest(word + strspn(word, "-"), names);
	if (near)
		return err_set(err, ERR_USAGE, "unknown option %s: did you mean --%s?", word, near);
	return err_set(err, ERR_USAGE, "unknown option %s: `lunarch %s --help` lists them", word,
	               command_names[command]);
}

static bool is_name(const char *name, const char *word, size_t len)
{
	return name && strlen(name) == len && strncmp(name, word, len) == 0;
}

/* "--name" or "--name=value" -> which, and what follows "=" (NULL if nothing does). */
static int find_option(enum command command, const char *arg, enum option *which, const char **value)
{
	size_t len = strcspn(arg, "=");

	*value = arg[len] ? arg + len + 1 : NULL;
	for (enum option i = 0; i < OPTIONS; i++) {
		const struct option_info *info = &option_table[i];
		bool named = is_name(info->name, arg + 2, len - 2) || is_name(info->alias, arg + 2, len - 2);
		if (belongs(i, command) && named) {
			*which = i;
			return 0;
		}
	}
	return -1;
}

static int find_letter(enum command command, char letter, enum option *which)
{
	for (enum option i = 0; i < OPTIONS; i++) {
		if (belongs(i, command) && option_table[i].letter == letter) {
			*which = i;
			return 0;
		}
	}
	return -1;
}

/* `--lock --once` is a forgotten value far more often than a lock of that name. Lua text may begin with a comment. */
static bool looks_forgotten(enum option which, const char *value)
{
	return !value || (which != OPTION_SCRIPT && strncmp(value, "--", 2) == 0);
}

/* value: what stands in the same argument, argv[*at]; NULL: the next one is it, and is stepped over. */
static int take_value(struct options *o, enum option which, const char *value, char **argv, int *at, struct err *err)
{
	const struct option_info *info = &option_table[which];

	if (!value) {
		value = argv[*at + 1];
		if (looks_forgotten(which, value))
			return err_set(err, ERR_USAGE, "%s needs a value: --%s %s", argv[*at], info->name,
			               info->value_name);
		(*at)++;
	}
	return set_value(o, which, OPTION_GIVEN, value, err);
}

/* As getopt(3) has them: "-n", "-w 10", "-w10", "-nw10", and besides "-w=10". */
static int take_letters(struct options *o, char **argv, int *at, struct err *err)
{
	const char *arg = argv[*at], *value;
	char name[64];
	enum option which;

	snprintf(name, sizeof name, "-%s", arg);
	if (find_option(o->command, name, &which, &value) == 0) /* "-wait" lacks a dash */
		return unknown_option(o->command, arg, err);
	for (const char *letter = arg + 1; *letter; letter++) {
		if (find_letter(o->command, *letter, &which) < 0)
			return unknown_option(o->command, arg, err);
		if (letter[1] == '=')
			return take_value(o, which, letter + 2, argv, at, err);
		if (option_table[which].type != OPTION_FLAG)
			return take_value(o, which, letter[1] ? letter + 1 : NULL, argv, at, err);
		if (set_value(o, which, OPTION_GIVEN, "yes", err) < 0)
			return -1;
	}
	return 0;
}

/* argv[*at] is an option; steps over what it takes. */
static int take_option(struct options *o, char **argv, int *at, struct err *err)
{
	const char *arg = argv[*at], *value;
	enum option which;

	if (arg[1] != '-')
		return take_letters(o, argv, at, err);
	if (find_option(o->command, arg, &which, &value) < 0)
		return unknown_option(o->command, arg, err);
	if (option_table[which].type == OPTION_FLAG && !value)
		value = "yes";
	return take_value(o, which, value, argv, at, err);
}

/* A URL where a script is expected. It may hold a password, so only its beginning is shown. */
static int lock_as_word(const struct options *o, const char *word, struct err *err)
{
	int scheme = (int)strcspn(word, ":");

	return err_set(
		err, ERR_USAGE,
		"%.*s://... is the URL of a lock, where a script is expected: name the lock by its option, as in "
		"`lunarch %s %s%s--lock %.*s://...`",
		scheme, word, command_names[o->command], o->command == COMMAND_CTL && o->words ? o->word[0] : "",
		o->command == COMMAND_CTL && o->words ? " " : "", scheme, word);
}

static int take_word(struct options *o, const char *word, struct err *err)
{
	bool takes_url = o->command == COMMAND_LIST || !belongs(OPTION_LOCK, o->command);
	int most = o->command == COMMAND_TEST || o->command == COMMAND_CRON ? OPTION_WORDS
	           : o->command == COMMAND_CTL                              ? 3
	                                                                    : 2;

	if (o->words == most)
		return err_set(err, ERR_USAGE, "unexpected argument '%s'%s", word,
		               o->command == COMMAND_RUN ? ": the script's own arguments follow --" : "");
	if (!takes_url && strstr(word, "://"))
		return lock_as_word(o, word, err);
	o->word[o->words++] = word;
	return 0;
}

static int take_arguments(struct options *o, int argc, char **argv, struct err *err)
{
	o->rest = argv + argc;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--") == 0) {
			o->rest = argv + i + 1;
			return 0;
		}
		bool option = argv[i][0] == '-' && argv[i][1];
		if (!option && o->command == COMMAND_EXEC) {
			o->rest = argv + i;
			return 0;
		}
		if ((option ? take_option(o, argv, &i, err) : take_word(o, argv[i], err)) < 0)
			return -1;
		if (o->value[OPTION_HELP].number || o->value[OPTION_VERSION].number)
			return 0;
	}
	return 0;
}

static int take_environment(struct options *o, struct err *err)
{
	for (enum option i = 0; i < OPTIONS; i++) {
		const char *text = option_table[i].env ? getenv(option_table[i].env) : NULL;
		if (!text || !*text || o->value[i].from == OPTION_GIVEN || !belongs(i, o->command))
			continue;
		if (set_value(o, i, OPTION_FROM_ENV, text, err) < 0)
			return -1;
	}
	return 0;
}

/* Allows the characters of Kubernetes' names, and {name}: anything else could be an option of the lock's URL. */
static int check_resource(const struct options *o, enum option which, struct err *err)
{
	const char *name = options_text(o, which, NULL);

	if (strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-.{}") == strlen(name))
		return 0;
	return err_set(err, ERR_USAGE, "--%s=%.80s: expected a name of a-z, 0-9, '-' and '.'", option_table[which].name,
	               name);
}

/* A Kubernetes resource named by options becomes the lock's URL. */
static int take_resource(struct options *o, struct err *err)
{
	static const enum option parts[] = { OPTION_RESOURCE_NAME, OPTION_RESOURCE_NAMESPACE, OPTION_RESOURCE_LOCK };
	const char *name = options_text(o, OPTION_RESOURCE_NAME, NULL);
	const char *given = NULL;

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (options_set(o, parts[i]))
			given = option_table[parts[i]].name;
	if (!given)
		return 0;
	if (options_set(o, OPTION_LOCK))
		return err_set(err, ERR_USAGE, "--%s and --lock both say where the record lives: give one of them",
		               given);
	if (!*name)
		return err_set(err, ERR_USAGE, "--%s needs --%s besides", given,
		               option_table[OPTION_RESOURCE_NAME].name);
	if (check_resource(o, OPTION_RESOURCE_NAME, err) < 0 || check_resource(o, OPTION_RESOURCE_NAMESPACE, err) < 0)
		return -1;
	int n = snprintf(o->resource, sizeof o->resource, "kube://%s/%s?resource=%s",
	                 options_text(o, OPTION_RESOURCE_NAMESPACE, NULL), name,
	                 options_text(o, OPTION_RESOURCE_LOCK, NULL));
	if ((size_t)n >= sizeof o->resource)
		return err_set(err, ERR_USAGE, "--%s is too long", option_table[OPTION_RESOURCE_NAME].name);
	return set_value(o, OPTION_LOCK, OPTION_GIVEN, o->resource, err);
}

int options_parse(struct options *o, enum command command, int argc, char **argv, struct err *err)
{
	*o = (struct options){ .command = command };
	for (enum option i = 0; i < OPTIONS; i++)
		if (option_table[i].preset && set_value(o, i, OPTION_PRESET, option_table[i].preset, err) < 0)
			return -1;
	if (take_arguments(o, argc, argv, err) < 0)
		return -1;
	if (o->value[OPTION_HELP].number || o->value[OPTION_VERSION].number)
		return 0;
	return take_environment(o, err) < 0 ? -1 : take_resource(o, err);
}

/* ---- joining with the script ---- */

const char *options_script(const struct options *o, bool *is_text)
{
	const struct option_value *code = &o->value[OPTION_SCRIPT];

	*is_text = code->from == OPTION_GIVEN || (code->from == OPTION_FROM_ENV && !o->words && *code->text != '/');
	if (*is_text)
		return code->text;
	return o->words ? o->word[0] : code->text;
}

bool options_set(const struct options *o, enum option which)
{
	return o->value[which].from != OPTION_PRESET;
}

const char *options_text(const struct options *o, enum option which, const char *script)
{
	if (!options_set(o, which) && script && *script)
		return script;
	return o->value[which].text ? o->value[which].text : "";
}

bool options_flag(const struct options *o, enum option which)
{
	return options_set(o, which) && o->value[which].number;
}
