#include "commands/commands.h"

#include "exec/exec.h"
#include "program/program.h"

static int exec_check_arguments(const struct options *o, const char **lock)
{
	*lock = o->value[OPTION_LEADER_ELECT].number ? options_text(o, OPTION_LOCK, NULL) : "none:";
	if (!**lock)
		return command_fail(COMMAND_EXEC, EXIT_USAGE,
		                    "no lock: say which, as in\n  lunarch exec --lock backup -- %s",
		                    o->rest[0] ? o->rest[0] : "COMMAND");
	if (options_set(o, OPTION_SHELL) && o->rest[0])
		return command_fail(COMMAND_EXEC, EXIT_USAGE,
		                    "-c and the command \"%s\" both say what to run: give one of them", o->rest[0]);
	if (!o->rest[0] && !options_set(o, OPTION_SHELL))
		return command_fail(COMMAND_EXEC, EXIT_USAGE,
		                    "no command: say what to run, as in\n  lunarch exec --lock %s -- COMMAND", *lock);
	return -1;
}

int cmd_exec(int argc, char **argv)
{
	struct options o = { 0 };
	struct err err;
	const char *lock;

	program_hold_signals(exec_signals);
	int status = command_begin(&o, COMMAND_EXEC, argc, argv);

	if (status < 0)
		status = exec_check_arguments(&o, &lock);
	if (status < 0)
		status = exec_run(&o, lock, &err);
	return status >= 0 ? status : command_fail(COMMAND_EXEC, command_status_of(&err), "%s", err.text);
}
