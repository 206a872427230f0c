#include "commands/commands.h"

#include "run/run.h"
#include "run/run_control.h"
#include "script/worker/worker.h"

static int choose_script(struct run *r)
{
	const struct options *o = &r->options;

	r->script = options_script(o, &r->is_text);
	if (!r->script)
		return command_fail(COMMAND_RUN, EXIT_USAGE, "no script: give SCRIPT.lua, or -e CODE");
	if (o->words > (r->is_text ? 0 : 1))
		return command_fail(COMMAND_RUN, EXIT_USAGE,
		                    "one script only, found \"%s\" as well: arguments for the script go behind --",
		                    o->word[r->is_text ? 0 : 1]);
	return -1;
}

int cmd_run(int argc, char **argv)
{
	struct run r = { 0 };
	struct err err;

	program_hold_signals(run_signals);
	int status = command_begin(&r.options, COMMAND_RUN, argc, argv);

	if (status >= 0)
		return status;
	status = choose_script(&r);
	if (status >= 0)
		return status;
	status = run_script(&r, worker_main, &run_control_ops, &err);
	if (status >= 0)
		return status;
	return command_fail(COMMAND_RUN, command_status_of(&err), "%s", err.text);
}
