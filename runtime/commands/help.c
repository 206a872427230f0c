#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "commands/commands.h"
#include "locks/lock.h"
#include "program/order_table.h"
#include "script/prelude.h"
#include "script/versions.h"
#include "version.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum help_part { HELP_USAGE, HELP_SUMMARY, HELP_TEXT, HELP_EXAMPLES };

/* A part of runtime/commands/help.txt, which is linked in. The caller frees. */
static char *help_part(enum command command, enum help_part part)
{
	char *heading = mem_printf("\n# %s\n", command_names[command]);
	const char *at = strstr(prelude_find("help")->text, heading) + strlen(heading);

	free(heading);
	for (int i = 0; i < (int)part; i++)
		at = strstr(at, "\n\n") + 2;
	return mem_dupn(at, (size_t)(strstr(at, "\n\n") - at));
}

char *help_summary(enum command command)
{
	return help_part(command, HELP_SUMMARY);
}

/* ---- help ---- */

static bool is_built_in(const char *scheme)
{
	for (const struct lock_backend *b = lock_backends; b->scheme; b++)
		if (strcmp(b->scheme, scheme) == 0)
			return true;
	return false;
}

void help_own_locks(void (*found)(void *arg, const char *scheme), void *arg)
{
	struct dirent **entries = NULL;
	int n = scandir(lock_files_dir(), &entries, NULL, alphasort);

	for (int i = 0; i < n; i++) {
		char *name = entries[i]->d_name, *dot = strrchr(name, '.');
		if (dot && dot != name && strcmp(dot, ".lua") == 0) {
			*dot = '\0';
			if (!is_built_in(name))
				found(arg, name);
		}
		free(entries[i]);
	}
	free(entries);
}

static void print_own_lock(void *arg, const char *scheme)
{
	fprintf(arg, "  %-10s as %s/%s.lua has it\n", scheme, lock_files_dir(), scheme);
}

void help_print(FILE *out)
{
	fputs("Lunarch runs one Lua script (or command) on many machines and lets exactly one of them lead.\n\nUsage:\n",
	      out);
	for (enum command c = 0; c < COMMANDS; c++) {
		char *usage = help_part(c, HELP_USAGE), *summary = help_summary(c);
		fprintf(out, "  lunarch %-50s %s\n", usage, summary);
		free(usage);
		free(summary);
	}
	fputs("  lunarch COMMAND --help\n  lunarch help api [NAME]                                    what scripts can call\n  lunarch --version\n\nWhere the record lives (--lock):\n",
	      out);
	for (const struct lock_backend *b = lock_backends; b->scheme; b++)
		if (b->summary)
			fprintf(out, "  %-10s %s%s\n", b->scheme, b->summary,
			        b->module && !module_installed(b->module) ? " (not installed here)" : "");
	help_own_locks(print_own_lock, out);
	fputs("\nTry it, in two terminals:\n"
	      "  lunarch run -e 'term:every(1, function() print(\"still leading\") end)' --lock demo\n"
	      "  lunarch status --lock demo\n",
	      out);
}

static void print_option(const struct option_info *info)
{
	char name[160];

	snprintf(name, sizeof name, "%c%c --%s%s%s", info->letter ? '-' : ' ', info->letter ? info->letter : ' ',
	         info->name, info->value_name ? " " : "", info->value_name ? info->value_name : "");
	printf("  %-26s", name);
	if (strlen(name) > 26)
		printf("\n  %-26s", "");
	printf(" %s", info->help);
	if (info->preset)
		printf(" [%s]", info->preset);
	printf("\n");
}

static void print_orders(void)
{
	puts("Commands:");
	for (const struct order *x = order_table; x->name; x++) {
		const char *column = x->usage, *line = x->help;
		for (; column && *line; column = "", line += strcspn(line, "\n"), line += *line == '\n')
			printf("  %-16s %.*s\n", column, (int)strcspn(line, "\n"), line);
	}
}

void help_command(enum command command)
{
	char *usage = help_part(command, HELP_USAGE), *text = help_part(command, HELP_TEXT),
	     *examples = help_part(command, HELP_EXAMPLES);

	printf("Usage: lunarch %s\n\n", usage);
	if (command == COMMAND_CTL)
		print_orders();
	printf("%s\n\nOptions:\n", text);
	for (enum option i = 0; i < OPTIONS; i++)
		if (option_table[i].commands & 1u << command)
			print_option(&option_table[i]);
	const char *title = "\nEnvironment, where no option is given:\n";
	for (enum option i = 0; i < OPTIONS; i++) {
		if (!(option_table[i].commands & 1u << command) || !option_table[i].env)
			continue;
		printf("%s  %-26s --%s\n", title, option_table[i].env, option_table[i].name);
		title = "";
	}
	printf("\nExamples:\n%s\n", examples);
	free(usage);
	free(text);
	free(examples);
}

#define NAME_LETTERS "abcdefghijklmnopqrstuvwxyz_"

/* Whether this heading of docs/api.md is about it: "## term", "### `term:resign([seconds])`", "## lunarch.retry". */
static bool is_about(const char *heading, const char *name)
{
	size_t len = strlen(name);
	const char *at = heading + strspn(heading, "# `");

	if (strncmp(at, "lunarch.", 8) == 0 && strncmp(name, "lunarch.", 8) != 0)
		at += 8;
	return strncasecmp(at, name, len) == 0 && (at[len] == '\n' || at[len] == '(');
}

static size_t depth_of(const char *line)
{
	size_t depth = strspn(line, "#");

	return line[depth] == ' ' ? depth : 0;
}

/* The length of the name that a row of a table is about, which begins at its fourth byte: "| `on_leading` | ..."; or
 * 0. */
static size_t row_name(const char *line)
{
	size_t len = strncmp(line, "| `", 3) == 0 ? strspn(line + 3, NAME_LETTERS) : 0;

	return len && line[3 + len] == '`' ? len : 0;
}

static void print_line(const char *line)
{
	printf("%.*s\n", (int)strcspn(line, "\n"), line);
}

int help_api(const char *name)
{
	const char *section = "";
	size_t inside = 0;
	bool found = false;

	for (const char *line = prelude_find("api")->text, *end; *line; line = end) {
		size_t depth = depth_of(line), row = row_name(line);
		end = strchr(line, '\n') + 1;
		if (depth)
			section = line;
		if (depth && depth <= inside)
			inside = 0;
		if (!inside && (!name || (depth && is_about(line, name))))
			inside = name ? depth : 9;
		bool alone = name && !inside && row && strlen(name) == row && strncmp(line + 3, name, row) == 0;
		if (alone)
			print_line(section);
		if (inside || alone)
			print_line(line);
		found = found || inside || alone;
	}
	if (found)
		return EXIT_DONE;
	fprintf(stderr, "lunarch help api: nothing is called '%s': `lunarch help api` shows everything\n", name);
	return EXIT_USAGE;
}

void help_api_names(void)
{
	for (const char *line = prelude_find("api")->text; *line; line = strchr(line, '\n') + 1) {
		const char *name = line + (row_name(line) ? 3 : strspn(line, "# `"));
		size_t len = row_name(line) ? row_name(line) : depth_of(line) ? strspn(name, NAME_LETTERS ".:") : 0;
		if (len)
			printf("%.*s\n", (int)len, name);
	}
}

/* Opened for real: a module whose library is missing says so here and not on the night it is needed. */
static void print_module(const char *name)
{
	struct buf libraries = { 0 };
	struct err err;

	if (!module_installed(name)) {
		printf("module %s: not installed\n", name);
		return;
	}
	const struct module *m = module_open(name, &err);
	if (m && m->libraries)
		m->libraries(&libraries);
	printf("module %s: %s\n", name, m ? libraries.data ? libraries.data : "" : err.text);
	buf_fini(&libraries);
}

void help_version(void)
{
	struct buf libraries = { 0 };

	versions_add(&libraries);
	printf("lunarch %s\n%s\nlocks:", LUNARCH_VERSION, libraries.data);
	for (const struct lock_backend *b = lock_backends; b->scheme; b++)
		if (!b->module || module_installed(b->module))
			printf(" %s", b->scheme);
	printf("\n");
	buf_fini(&libraries);
	for (size_t i = 0; module_name(i); i++)
		print_module(module_name(i));
}

/* ---- how every command begins and fails ---- */

int command_begin(struct options *o, enum command command, int argc, char **argv)
{
	struct err err;

	if (options_parse(o, command, argc, argv, &err) < 0)
		return command_fail(command, EXIT_USAGE, "%s", err.text);
	if (o->value[OPTION_HELP].number) {
		help_command(command);
		return EXIT_DONE;
	}
	if (o->value[OPTION_VERSION].number) {
		help_version();
		return EXIT_DONE;
	}
	if (option_table[OPTION_LOG_LEVEL].commands & 1u << command)
		log_init((enum log_format)o->value[OPTION_LOG_FORMAT].number,
		         o->value[OPTION_VERBOSE].number ? LOG_DEBUG
		                                         : (enum log_level)o->value[OPTION_LOG_LEVEL].number);
	return -1;
}

void command_lines(FILE *out, const char *text)
{
	struct buf b = { 0 };

	while (*text) {
		size_t len = strcspn(text, "\n");
		char *line = mem_dupn(text, len);
		buf_plain(&b, line);
		buf_adds(&b, "\n");
		free(line);
		text += len + (text[len] == '\n');
	}
	if (b.len)
		fputs(b.data, out);
	buf_fini(&b);
}

int command_fail(enum command command, enum exit_status status, const char *fmt, ...)
{
	char text[8192];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	fprintf(stderr, "lunarch %s: ", command_names[command]);
	command_lines(stderr, text);
	return (int)status;
}

enum exit_status command_status_of(const struct err *err)
{
	return err->code == ERR_USAGE ? EXIT_USAGE : EXIT_UNREACHABLE;
}
