#include "commands/commands.h"

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "commands/script_probe.h"
#include "locks/lock.h"
#include "runner/run.h"
#include "runner/run_control.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* All of it is lunarch.crontab (lua/lunarch/crontab.lua), whose options are the only argument, as JSON. Each is a
 * script: what shows something is loaded, prints, and ends before it campaigns. */
#define MODULE "local crontab, given = require \"lunarch.crontab\", json.decode((...)) "
#define SHOWN " io.stdout:flush() return { on_new_leader = print }"
static const char leads[] = "return require(\"lunarch.crontab\").election(json.decode((...)))";
static const char tries[] =
	MODULE "local jobs, err = crontab.read(given) if not jobs then error(err.message, 0) end" SHOWN;
static const char checks[] =
	MODULE "local jobs, err = crontab.read(given) if not jobs then error(err.message, 0) end "
	       "io.write(#jobs, #jobs == 1 and \" job\" or \" jobs\", \", no problem found\\n\")" SHOWN;
static const char lists[] =
	MODULE "local text, err = crontab.list(given) if not text then error(err.message, 0) end io.write(text)" SHOWN;
static const char tells[] =
	MODULE "local text, err = crontab.tell(given.directory, given.json) if not text then error(err.message, 0) end "
	       "io.write(text)" SHOWN;

enum cron_order { CRON_LEADS, CRON_CHECKS, CRON_LISTS, CRON_TELLS };

struct cron_call {
	struct options options;
	enum cron_order order;
	const char *const *files;
	int count;
	char directory[PATH_MAX]; /* of outputs and the history; "": none */
	struct buf json;
	char *rest[2]; /* the script's arguments: the JSON */
};

static int make_dir(const char *path, struct err *err)
{
	return mkdir(path, 0700) < 0 && errno != EEXIST ? err_sys(err, "%s", path) : 0;
}

/* Of each lock another, so that the jobs of two do not write into the same files. make: if it is not there. */
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
	if (!value || !*value)
		return;
	buf_printf(json, ",\"%s\":", name);
	buf_json(json, value);
}

/* The options of lunarch.crontab. */
static void cron_describe(struct cron_call *c)
{
	const struct options *o = &c->options;
	const struct passwd *who = getpwuid(geteuid());

	if (c->order == CRON_TELLS) {
		buf_printf(&c->json, "{\"json\":%s", o->value[OPTION_JSON].number ? "true" : "false");
	} else {
		buf_adds(&c->json, "{\"files\":[");
		for (int i = 0; i < c->count; i++) {
			buf_adds(&c->json, i ? "," : "");
			buf_json(&c->json, c->files[i]);
		}
		buf_adds(&c->json, "]");
		add_text(&c->json, "user", who ? who->pw_name : NULL);
		add_text(&c->json, "home", who ? who->pw_dir : NULL);
		add_text(&c->json, "on_failure", o->value[OPTION_ON_FAILURE].text);
		add_text(&c->json, "sendmail", o->value[OPTION_SENDMAIL].text);
		if (o->value[OPTION_SYSTEM].number)
			buf_adds(&c->json, ",\"system\":true");
	}
	add_text(&c->json, "directory", c->directory);
	buf_adds(&c->json, "}");
	c->rest[0] = c->json.data;
	c->options.rest = c->rest;
}

/* What is wrong with crontabs names their lines. The line of our own text before it, and the traceback, say nothing. */
static const char *cron_plain_error(char *wrong)
{
	static const char own[] = "(-e):1: ";
	char *traceback = strstr(wrong, "\nstack traceback:");

	if (traceback)
		*traceback = '\0';
	return strncmp(wrong, own, strlen(own)) == 0 ? wrong + strlen(own) : wrong;
}

static int cron_show(struct cron_call *c, const char *script)
{
	struct script_probe probe;
	char *wrong = script_probe_load(&probe, &c->options, script, true);
	int status = EXIT_DONE;

	if (wrong) {
		command_lines(stderr, cron_plain_error(wrong));
		status = EXIT_FAILED_SCRIPT;
	}
	free(wrong);
	script_probe_fini(&probe);
	return status;
}

static int cron_lead(struct cron_call *c)
{
	struct run r = { .options = c->options, .is_text = true, .script = leads };
	struct err err;

	if (!options_set(&c->options, OPTION_LOCK))
		return command_fail(COMMAND_CRON, EXIT_USAGE, "which lock? --lock URL, the same on every machine");
	int status = cron_show(c, tries); /* what is wrong is said once, and not in a log */
	if (status != EXIT_DONE)
		return status;
	status = run_script(&r, &run_control_ops, &err);
	if (status >= 0)
		return status;
	return command_fail(COMMAND_CRON, err.code == ERR_USAGE ? EXIT_USAGE : EXIT_FAILED_SCRIPT, "%s", err.text);
}

static int cron_do(struct cron_call *c)
{
	static const char *const shown[] = { [CRON_CHECKS] = checks, [CRON_LISTS] = lists, [CRON_TELLS] = tells };
	struct err err;

	if ((c->order == CRON_LEADS || c->order == CRON_TELLS) && cron_choose_dir(c, c->order == CRON_LEADS, &err) < 0)
		return command_fail(COMMAND_CRON, command_status_of(&err), "%s", err.text);
	cron_describe(c);
	return c->order == CRON_LEADS ? cron_lead(c) : cron_show(c, shown[c->order]);
}

/* The first word, if it is one of these. A file of such a name is ./check. */
static void cron_take_order(struct cron_call *c)
{
	static const char *const words[] = { [CRON_CHECKS] = "check", [CRON_LISTS] = "list", [CRON_TELLS] = "history" };

	c->files = c->options.word;
	c->count = c->options.words;
	for (enum cron_order i = CRON_CHECKS; c->count && i <= CRON_TELLS; i++)
		if (strcmp(c->files[0], words[i]) == 0)
			c->order = i;
	if (c->order == CRON_LEADS)
		return;
	c->files++;
	c->count--;
}

int cmd_cron(int argc, char **argv)
{
	struct cron_call c = { 0 };
	int status = command_begin(&c.options, COMMAND_CRON, argc, argv);

	if (status >= 0)
		return status;
	cron_take_order(&c);
	if (c.order != CRON_TELLS && c.count == 0)
		return command_fail(COMMAND_CRON, EXIT_USAGE, "which crontab? lunarch cron --lock URL FILE...");
	if (c.order == CRON_TELLS && c.count)
		return command_fail(COMMAND_CRON, EXIT_USAGE, "unexpected argument '%s'", c.files[0]);
	status = cron_do(&c);
	buf_fini(&c.json);
	return status;
}
