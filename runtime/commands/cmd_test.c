#include "commands/commands.h"

#include "simulation/sim.h"
#include "simulation/testing.h"

#include <stdlib.h>
#include <unistd.h>

/* Every file in a Lua state of its own; one TAP document for all of them. */
static int run_files(const struct options *o)
{
	int total = 0, failed = 0;
	struct err err;

	for (int i = 0; i < o->words; i++) {
		int count = 0, bad = testing_run(o->word[i], sim_fault, total + 1, &count, &err);
		if (bad < 0) {
			printf("not ok %d - %s can be run\n", ++total, o->word[i]);
			fflush(stdout);
			command_fail(COMMAND_TEST, EXIT_FAILED_SCRIPT, "%s", err.text);
			failed++;
			continue;
		}
		total += count;
		failed += bad;
	}
	printf("1..%d\n", total);
	return failed ? EXIT_FAILED_SCRIPT : EXIT_DONE;
}

int cmd_test(int argc, char **argv)
{
	struct options o;
	int status = command_begin(&o, COMMAND_TEST, argc, argv);

	if (status >= 0)
		return status;
	if (!o.words)
		return command_fail(COMMAND_TEST, EXIT_USAGE, "which tests? lunarch test FILE_test.lua...");
	for (size_t i = 0; option_variables[i]; i++)
		unsetenv(option_variables[i]); /* a test says itself with which options it runs */
	status = run_files(&o);
	fflush(stdout);
	_exit(status); /* simulated processes that died are not taken down task by task: this ends them all */
}
