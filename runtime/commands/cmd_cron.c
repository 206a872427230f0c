#include "commands/commands.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/json_out.h"
#include "client/lock_client.h"
#include "commands/ctl_electors.h"
#include "commands/script_probe.h"
#include "locks/lock.h"
#include "process/kernel.h"
#include "run/run.h"
#include "run/run_control.h"
#include "script/worker/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* All of it is lunarch.crontab (lua/lunarch/crontab.lua), whose options are the first argument, as JSON. Each is a
 * script: what shows something is loaded, prints, and ends before it campaigns. A second argument says how. What is
 * wrong with crontabs names their lines; the line of such a script, and a traceback, would say nothing. */
#define MODULE                                                                \
	"local crontab, options, how = require \"lunarch.crontab\", ... "     \
	"local given = json.decode(options) "                                 \
	"local function try(f, ...) local good, result, err = pcall(f, ...) " \
	"if good and result then return result end "                          \
	"return nil, good and err.message or tostring(result) end "
#define SHOW(call)                                                                     \
	MODULE "local text, why = try(" call ") if not text then return nil, why end " \
	       "io.write(text) io.stdout:flush() return { on_new_leader = print }"
/* What begins with "return" is a script, and not the body of on_leading. */
static const char leads[] = "return (function(...) " MODULE "return try(crontab.election, given) end)(...)";
static const char checks[] =
	SHOW("function() local jobs, err, odd = crontab.read(given) "
             "if not jobs then return nil, err end if how == \"quiet\" then return \"\" end "
             "for i, text in ipairs(odd) do odd[i] = \"warning: \" .. text .. \"\\n\" end "
             "return (\"%s%d job%s, %s\\n\"):format(table.concat(odd), #jobs, #jobs == 1 and \"\" or \"s\", "
             "#odd == 0 and \"no problem found\" or #odd == 1 and \"1 warning\" or #odd .. \" warnings\") end");
static const char lists[] = SHOW("crontab.list, given, how == \"json\"");
static const char tells[] = SHOW("crontab.tell, given.directory, how == \"json\"");

enum cron_order { CRON_LEADS, CRON_CHECKS, CRON_LISTS, CRON_TELLS, CRON_RUNS, CRON_ORDERS };
static const char *const order_words[] = {
	[CRON_CHECKS] = "check", [CRON_LISTS] = "list", [CRON_TELLS] = "history", [CRON_RUNS] = "run", NULL,
};

struct cron_call {
	struct options options;
	enum cron_order order;
	const char *const *files;
	int count;
	char directory[PATH_MAX]; /* of outputs and the history; "": none */
	struct buf json;
	char *rest[3]; /* the script's arguments: the JSON; "json", "quiet" or "" */
};

/* ---- run a job now ---- */

/* No elector that runs crontabs was found on this machine. With a lock its record says where one leads. */
static int cron_leads_elsewhere(const struct options *o, const struct err *why)
{
	const char *lock = options_text(o, OPTION_LOCK, NULL);
	struct lock_client client = { .env.state_dir = options_text(o, OPTION_STATE_DIR, NULL) };
	struct buf told = { 0 };
	struct err err;

	if (*lock && lock_client_open(&client, NULL, lock, &err) == 0 && lock_client_read(&client) == LOCK_OK &&
	    !lock_client_found_next(&client) && *client.record.holder) {
		char *headline = command_record_text("headline", lock, &client.record);
		buf_printf(&told, ". %s: give this order there", headline);
		free(headline);
	}
	lock_client_close(&client);
	int status = command_fail(COMMAND_CRON, command_status_of(why), "%s%s", why->text, told.len ? told.data : "");
	buf_fini(&told);
	return status;
}

static int cron_run_job(const struct options *o, const char *job)
{
	struct ctl_elector e;
	struct err err;

	int found = ctl_elector_find(&e, o, NULL, &err);
	json_t *answer = found == 0 ? ctl_ask(e.path,
	                                      &(struct ctl_request){ .command = "run",
	                                                             .election = e.election,
	                                                             .job = job,
	                                                             .wait = o->value[OPTION_RUN_WAIT].number,
	                                                             .ms = -1 },
	                                      &err)
	                            : NULL;
	ctl_elector_fini(&e);
	if (found < 0 && err.code != ERR_USAGE)
		return cron_leads_elsewhere(o, &err);
	if (!answer)
		return command_fail(COMMAND_CRON,
		                    err.code == ERR_CANCELLED ? EXIT_FAILED_SCRIPT : command_status_of(&err), "%s",
		                    err.text);
	const char *message = json_string_value(json_object_get(answer, "message"));
	int status = (int)(json_integer_value(json_object_get(answer, "exitStatus")) & 255);
	if (o->value[OPTION_JSON].number) {
		json_dumpf(answer, stdout, JSON_COMPACT);
		puts("");
	} else {
		command_lines(stdout, message ? message : "");
	}
	json_decref(answer);
	return status;
}

/* ---- run, and show ---- */

static int make_dir(const char *path, struct err *err)
{
	return mkdir(path, 0700) < 0 && errno != EEXIST ? err_sys(err, "%s", path) : 0;
}

/* Each lock has a directory of its own, so that the jobs of two locks do not write into the same files. make: makes
 * the directory if it is not there. */
static int cron_choose_dir(struct cron_call *c, bool make, struct err *err)
{
	const char *given = c->options.value[OPTION_OUTPUT_DIR].text,
		   *lock = options_text(&c->options, OPTION_LOCK, NULL);
	char state[PATH_MAX];
	size_t size = sizeof c->directory;

	if (given && *given)
		return snprintf(c->directory, size, "%s", given) < (int)size
		               ? (make ? make_dir(given, err) : 0)
		               : err_set(err, ERR_USAGE, "%s: too long", given);
	if (!*lock)
		return err_set(err, ERR_USAGE,
		               make ? "which lock? --lock URL, the same on every machine"
		                    : "which lock? --lock URL, or --output-dir DIR");
	if (lock_state_dir(options_text(&c->options, OPTION_STATE_DIR, NULL), state, sizeof state, err) < 0)
		return -1;
	if (snprintf(c->directory, size, "%s/cron", state) >= (int)size - 18)
		return err_set(err, ERR_USAGE, "%s: too long", state);
	if (make && make_dir(c->directory, err) < 0)
		return -1;
	size_t len = strlen(c->directory);
	snprintf(c->directory + len, size - len, "/%016" PRIx64, hash_fnv(HASH_FNV_SEED, lock, strlen(lock)));
	return make ? make_dir(c->directory, err) : 0;
}

static void add_text(struct buf *json, const char *name, const char *value)
{
	if (value && *value)
		json_out_text(json, name, value);
}

static void add_list(struct buf *json, const char *name, const char *const *list, int count)
{
	if (count)
		json_out_list(json, name, list, count);
}

/* The arguments of the texts above. */
static void cron_describe(struct cron_call *c, bool quiet)
{
	const struct options *o = &c->options;
	const struct passwd *who = getpwuid(geteuid());

	json_out_open(&c->json, NULL, "{");
	json_out_list(&c->json, "files", c->files, c->count);
	add_list(&c->json, "env", o->env, o->env_count);
	add_list(&c->json, "env_files", o->env_files, o->env_file_count);
	add_text(&c->json, "user", who ? who->pw_name : NULL);
	add_text(&c->json, "home", who ? who->pw_dir : NULL);
	add_text(&c->json, "on_failure", o->value[OPTION_ON_FAILURE].text);
	add_text(&c->json, "sendmail", o->value[OPTION_SENDMAIL].text);
	add_text(&c->json, "directory", c->directory);
	if (o->value[OPTION_SYSTEM].number)
		json_out_bool(&c->json, "system", true);
	/* What a list shows runs on another machine, perhaps. */
	if (c->order == CRON_LEADS || c->order == CRON_CHECKS)
		json_out_bool(&c->json, "need_shells", true);
	buf_adds(&c->json, "}");
	c->rest[0] = c->json.data;
	c->rest[1] = (char *)(quiet ? "quiet" : o->value[OPTION_JSON].number ? "json" : "");
	c->options.rest = c->rest;
}

static int cron_show(struct cron_call *c, const char *script)
{
	struct script_probe probe;
	char *wrong = script_probe_load(&probe, &c->options, script, true);

	if (wrong)
		command_lines(stderr, wrong);
	int status = wrong ? EXIT_FAILED_SCRIPT : EXIT_DONE;
	free(wrong);
	script_probe_fini(&probe);
	return status;
}

static int cron_lead(struct cron_call *c)
{
	struct run r = {
		.options = c->options, .is_text = true, .script = leads, .crontabs = c->files, .crontab_count = c->count
	};
	struct err err;

	if (!options_set(&c->options, OPTION_LOCK))
		return command_fail(COMMAND_CRON, EXIT_USAGE, "which lock? --lock URL, the same on every machine");
	if (kernel_check(&err) < 0) /* before crontabs, which are then not what is wrong */
		return command_fail(COMMAND_CRON, command_status_of(&err), "%s", err.text);
	int status = cron_show(c, checks); /* what is wrong is said once, and not in a log */
	if (status != EXIT_DONE)
		return status;
	status = run_script(&r, worker_main, &run_control_ops, &err);
	if (status >= 0)
		return status;
	return command_fail(COMMAND_CRON, command_status_of(&err), "%s", err.text);
}

static int cron_do(struct cron_call *c)
{
	static const char *const shown[] = { [CRON_CHECKS] = checks, [CRON_LISTS] = lists, [CRON_TELLS] = tells };
	struct err err;

	if (c->order == CRON_RUNS)
		return cron_run_job(&c->options, c->files[0]);
	if ((c->order == CRON_LEADS || c->order == CRON_TELLS) && cron_choose_dir(c, c->order == CRON_LEADS, &err) < 0)
		return command_fail(COMMAND_CRON, command_status_of(&err), "%s", err.text);
	cron_describe(c, c->order == CRON_LEADS);
	return c->order == CRON_LEADS ? cron_lead(c) : cron_show(c, shown[c->order]);
}

/* ---- the command line ---- */

/* The first word, if it is one of these. A file of such a name is ./check. */
static void cron_take_order(struct cron_call *c)
{
	c->files = c->options.word;
	c->count = c->options.words;
	for (enum cron_order i = CRON_CHECKS; c->count && i < CRON_ORDERS; i++)
		if (strcmp(c->files[0], order_words[i]) == 0)
			c->order = i;
	if (c->order == CRON_LEADS)
		return;
	c->files++;
	c->count--;
}

/* A word that is neither a file nor one of ours: most likely it was meant as one of ours. */
static int cron_check_word(const char *word)
{
	const char *near = options_nearest(word, order_words + CRON_CHECKS);

	if (strchr(word, '/') || access(word, F_OK) == 0)
		return EXIT_DONE;
	return command_fail(COMMAND_CRON, EXIT_USAGE,
	                    "'%s' is no file here, and none of the words check, list, history and run%s%s%s", word,
	                    near ? ": did you mean " : "", near ? near : "", near ? "?" : "");
}

static int cron_check(const struct cron_call *c)
{
	const struct options *o = &c->options;
	enum cron_order order = c->order;

	if (order == CRON_RUNS && c->count != 1)
		return command_fail(COMMAND_CRON, EXIT_USAGE,
		                    "which job? lunarch cron run JOB: `lunarch cron list` shows them");
	if (order != CRON_TELLS && c->count == 0)
		return command_fail(COMMAND_CRON, EXIT_USAGE, "which crontab? lunarch cron --lock URL FILE...");
	if (order == CRON_TELLS && c->count)
		return command_fail(COMMAND_CRON, EXIT_USAGE, "unexpected argument '%s'", c->files[0]);
	if (o->value[OPTION_JSON].number && (order == CRON_LEADS || order == CRON_CHECKS))
		return command_fail(COMMAND_CRON, EXIT_USAGE, "--json is for `lunarch cron list`, `history` and `run`");
	if (o->value[OPTION_RUN_WAIT].number && order != CRON_RUNS)
		return command_fail(COMMAND_CRON, EXIT_USAGE, "--wait is for `lunarch cron run`");
	return order == CRON_LEADS ? cron_check_word(c->files[0]) : EXIT_DONE;
}

int cmd_cron(int argc, char **argv)
{
	struct cron_call c = { 0 };

	program_hold_signals(run_signals);
	int status = command_begin(&c.options, COMMAND_CRON, argc, argv);

	if (status >= 0)
		return status;
	cron_take_order(&c);
	if (c.order != CRON_LEADS)
		program_release_signals(run_signals);
	status = cron_check(&c);
	if (status == EXIT_DONE)
		status = cron_do(&c);
	buf_fini(&c.json);
	return status;
}
