#include "base/mem.h"
#include "commands/commands.h"
#include "locks/lock_url.h"
#include "process/guard.h"
#include "script/driver/driver.h"
#include "script/worker/worker.h"

#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int command_fn(int argc, char **argv);

#define COMMAND_FUNCTION(NAME, name, words) cmd_##name,
static command_fn *const commands[COMMANDS] = { COMMAND_TABLE(COMMAND_FUNCTION) };
#undef COMMAND_FUNCTION

/* What the program itself and the shell start: `-x guard ...`, `-x worker ...`, `-x driver ...`, and `-x complete
 * WORD...`. */
static int run_role(int argc, char **argv)
{
	if (strcmp(argv[0], "guard") == 0)
		return guard_main(argc - 1, argv + 1, worker_main);
	if (strcmp(argv[0], "worker") == 0)
		return worker_main(argc - 1, argv + 1, -1);
	if (strcmp(argv[0], "driver") == 0)
		return driver_main(argc - 1, argv + 1);
	return strcmp(argv[0], "complete") == 0 ? complete_line(argc - 1, argv + 1) : EXIT_FAILED_SCRIPT;
}

/* If the program is started with stdin, stdout or stderr closed, the next file that is opened would get that number,
 * and what is printed would go into it. */
static void fill_standard_fds(void)
{
	for (int fd = 0; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0)
			open("/dev/null", O_RDWR);
}

/* Hides the passwords of lock URLs, before anything else runs: ps(1) shows a command line to everybody. */
static void hide_passwords(char **argv)
{
	static const char option[] = "--lock";
	bool bare = *argv && argv[1] && strcmp(argv[1], command_names[COMMAND_LIST]) == 0; /* its words are URLs */

	for (; *argv && strcmp(*argv, "--") != 0; argv++) {
		if (bare)
			lock_url_hide(argv);
		if (strncmp(*argv, option, strlen(option)) != 0)
			continue;
		if ((*argv)[strlen(option)] == '=')
			lock_url_hide(argv);
		else if (!(*argv)[strlen(option)] && argv[1])
			lock_url_hide(++argv);
	}
}

static int find_command(const char *name)
{
	for (int i = 0; i < COMMANDS; i++)
		if (strcmp(name, command_names[i]) == 0)
			return i;
	return -1;
}

static int unknown_command(const char *name)
{
	const char *near = options_nearest(name, command_names);
	size_t len = strlen(name);

	if (near)
		fprintf(stderr, "lunarch: unknown command '%s': did you mean `lunarch %s`?\n", name, near);
	else if (len > 4 && strcmp(name + len - 4, ".lua") == 0)
		fprintf(stderr, "lunarch: unknown command '%s': did you mean `lunarch run %s`?\n", name, name);
	else
		fprintf(stderr, "lunarch: unknown command '%s': `lunarch --help` lists them\n", name);
	return EXIT_USAGE;
}

static int help_about(const char *name, const char *part)
{
	if (name && strcmp(name, "api") == 0)
		return help_api(part);
	int command = name ? find_command(name) : -1;

	if (name && command < 0)
		return unknown_command(name);
	if (name)
		help_command((enum command)command);
	else
		help_print(stdout);
	return EXIT_DONE;
}

int main(int argc, char **argv)
{
	json_set_alloc_funcs(mem_take, free); /* what it cannot allocate it leaves out: of a record, or of an option */
	if (argc > 2 && strcmp(argv[1], "-x") == 0)
		return run_role(argc - 2, argv + 2);
	fill_standard_fds();
	hide_passwords(argv);
	if (argc < 2) {
		help_print(stderr);
		return EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
		return help_about(NULL, NULL);
	if (strcmp(argv[1], "help") == 0)
		return help_about(argv[2], argv[2] ? argv[3] : NULL);
	if (strcmp(argv[1], "--version") == 0) {
		help_version();
		return EXIT_DONE;
	}
	int command = find_command(argv[1]);
	return command < 0 ? unknown_command(argv[1]) : commands[command](argc - 1, argv + 1);
}
