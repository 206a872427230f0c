#include "base/buf.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/module.h"
#include "commands/commands.h"
#include "locks/lock.h"
#include "script/prelude.h"
#include "runner/order_table.h"
#include "script/versions.h"
#include "version.h"

#include <dirent.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const struct command_help {
	const char *usage, *summary, *text, *examples;
} helps[COMMANDS] = {
	[COMMAND_RUN] = {
		"run [OPTIONS] SCRIPT.lua [-- ARGS]",
		"campaign, and run a script's hooks while leading",
		"Loads the script, then campaigns for each of its elections. While this process leads, on_leading and\n"
		"what it started run; when the lease is lost they are stopped, and killed if they do not stop in time.\n"
		"LUNARCH_SCRIPT, where no script is given, is one: its text, or its path that begins with \"/\".\n"
		"SIGTERM stops and hands over; SIGHUP loads the script again; SIGUSR1 resigns, and waits for one lease before it\n"
		"campaigns again.\n"
		"--service keeps a Kubernetes Service without a selector at the leader's address (--address, or POD_IP): from the\n"
		"beginning of on_leading until before on_stopping.\n"
		"Exit status: 0 done, 1 the script failed, 2 usage, 69 the lock cannot be reached, 76 leadership was lost\n"
		"(--once), 143 a second SIGTERM.",
		"  lunarch run backup.lua\n"
		"  lunarch run --lock '/srv/shared/backup?shared=link' --lease-duration 30s backup.lua -- /etc /home\n"
		"  lunarch run --once --lock etcd://etcd1,etcd2,etcd3/report -e 'exec { \"make\", \"report\" } term:resign()'\n",
	},
	[COMMAND_EXEC] = {
		"exec [OPTIONS] --lock URL -- COMMAND [ARGS]",
		"hold the lock while a command runs",
		"Waits for the lock, runs the command, and releases. If the lease is lost, the command and everything it\n"
		"started are killed before another may take over. The command sees LUNARCH_TOKEN, a number that grows\n"
		"with every holder. All signals are passed on to it, but for those that are ignored at the start (nohup).\n"
		"-n, -w, -c and -E are as in flock(1). With -n the holder is not waited for; only where its record says that it\n"
		"has not renewed for longer than its lease, that is waited out, since it may have died.\n"
		"--restart always starts the command again 1 s after it ended, then after 2 s, 4 s and so on up to 60 s; after\n"
		"a run of more than a minute it is 1 s again.\n"
		"--warm starts the command before it leads, when this candidate comes next. It must wait to be told: it makes\n"
		"itself ready, writes \"ready\" to the descriptor LUNARCH_WARM_FD, and reads \"lead TOKEN\" from it. If it is not\n"
		"ready when this candidate leads, it is ended, and started as usual, without that variable.\n"
		"--service keeps a Kubernetes Service without a selector at the leader's address (--address, or POD_IP): from the\n"
		"start of the command until before it is told to stop.\n"
		"Exit status: the command's, 128 + signal, 126 or 127 if it cannot be run; 2 usage, 69 the lock cannot be\n"
		"reached, 75 the lock was not acquired (-n, --wait; --conflict-exit-code), 76 the lease was lost.",
		"  lunarch exec -n --lock file:backup -- rsync -a /srv/ backup:/srv/           # once on this machine\n"
		"  lunarch exec -n --lock etcd://etcd1,etcd2,etcd3/nightly --at-least 5m -- ./nightly.sh  # in each crontab\n"
		"  lunarch exec --restart always --lock '/srv/shared/web?shared=link' -- ./singleton-daemon\n",
	},
	[COMMAND_CRON] = {
		"cron [OPTIONS] [WORD] --lock URL FILE...",
		"run crontabs, on the leader alone",
		"Runs the jobs of crontabs as cron does, with the same lock and the same files on every machine; the one that\n"
		"leads runs them. Files below /etc/cron.d and /etc/crontab have a user before each command; that must be the user\n"
		"that this runs as. Over a hand-over no job is lost; a job that was begun is not begun again by another machine, but\n"
		"with `# lunarch: on_crash=again` in the line above it. docs/cron.md has all settings. SIGHUP reads the files again.\n"
		"Or one WORD of these comes first:\n"
		"  check            says what is wrong with the files, and what was expected\n"
		"  list             the jobs with their names, and when each runs next\n"
		"  history          what ran on this machine, or on all that have the same --output-dir\n"
		"  run JOB          runs a job now, on the leader's machine; if it runs already, its overlap= decides. --wait waits\n"
		"                   for its end\n"
		"Exit status: 0 done (run: the job was started), 1 a file is wrong or cannot be read (run: not started, and why),\n"
		"2 usage, 69 the lock, or run's elector, cannot be reached, 143 a second SIGTERM; with run --wait the job's.",
		"  lunarch cron --lock etcd://etcd1,etcd2,etcd3/jobs /etc/jobs/crontab\n"
		"  lunarch cron check /etc/jobs/crontab\n"
		"  lunarch cron list /etc/jobs/crontab\n"
		"  lunarch cron history --lock etcd://etcd1,etcd2,etcd3/jobs\n"
		"  lunarch cron run --wait nightly\n",
	},
	[COMMAND_LEADER] = {
		"leader [--wait DUR] SCRIPT.lua | --lock URL",
		"print the leader's address",
		"Prints the address that the leader publishes (--address, or the script's key), alone on a line.\n"
		"With a script it is the lock that `lunarch run` takes for it: the script's text is run, but no hook.\n"
		"Exit status: 0 printed, 1 nobody leads, the leader is overdue (as `status` has it; with --wait its next renewal\n"
		"counts) or publishes no address, 2 usage, 69 the lock cannot be reached.",
		"  curl \"http://$(lunarch leader --lock etcd://etcd1,etcd2,etcd3/web)/health\"\n"
		"  lunarch leader --lock etcd://etcd1,etcd2,etcd3/web --wait 30s\n",
	},
	[COMMAND_STATUS] = {
		"status [OPTIONS] SCRIPT.lua | --lock URL...",
		"who leads, since when, with which token",
		"Shows the record as it is; times in it are the holder's. --verify watches whether the holder renews, for at\n"
		"most its lease. --watch goes on and prints every change of leader; on a terminal it draws who led when, until Ctrl-C,\n"
		"without colours if NO_COLOR is set. It takes several locks: --lock several times, a script with several elections, or\n"
		"--prefix; on a terminal each has a line, and each leader a letter. With a script it is the lock that\n"
		"`lunarch run` takes for it: the script's text is run, but no hook.\n"
		"Exit status: 0 somebody leads, 1 nobody does, or the leader is overdue: it renewed longer ago than its lease, by\n"
		"the wall clocks of both machines (with --verify: it did not renew while watched), 2 usage, 69 the lock cannot be\n"
		"reached.",
		"  lunarch status backup.lua\n"
		"  lunarch status --lock backup\n"
		"  lunarch status --json --lock backup | jq .leader\n"
		"  lunarch status --watch --lock '/srv/shared/backup?shared=link'\n"
		"  lunarch status --watch --prefix etcd://etcd1,etcd2,etcd3/app/\n",
	},
	[COMMAND_HISTORY] = {
		"history [--json] SCRIPT.lua | --lock URL",
		"who led before, from when until when, and why it ended",
		"The record tells its last eight terms; they are shown oldest first, then the one that lasts. Times are those of\n"
		"whoever wrote them. GAP is the time without a leader before a term. A term whose end nobody wrote, since its leader\n"
		"vanished, ended \"unknown\", and its time goes up to the last renewal; of one that is \"overdue\" nobody wrote the end\n"
		"yet. With a script it is the lock that\n"
		"`lunarch run` takes for it: the script's text is run, but no hook.\n"
		"Exit status: 0 shown, 1 no term is known, 2 usage, 69 the lock cannot be reached.",
		"  lunarch history --lock backup\n"
		"  lunarch history --json --lock etcd://etcd1,etcd2,etcd3/nightly | jq '.terms[-1].gapMs'\n",
	},
	[COMMAND_LIST] = {
		"list [--json] [URL-PREFIX]",
		"the elections of a place: who leads each",
		"A line for each election whose lock URL begins so: of a directory or a ZooKeeper node what is in it, else every\n"
		"such key; without a prefix, of the default directory. A term's token is the fencing token; times are the\n"
		"holder's; \"overdue\" was renewed longer ago than its lease. What is no election is not shown, but counted. At most\n"
		"1,000 names are looked at; if there are more, that is said. With --json an object a line, as `status --json` has it.\n"
		"Exit status: 0 somebody leads in each of them, 1 in one nobody does or it is overdue, or there is none, 2 usage, 69\n"
		"the store cannot be reached, or an election not be read.",
		"  lunarch list                                # in the default directory\n"
		"  lunarch list '/srv/shared/?shared=link'\n"
		"  lunarch list etcd://etcd1,etcd2,etcd3/app/\n"
		"  lunarch list --json kube://jobs/nightly- | jq -r 'select(.state != \"leading\").lock'\n",
	},
	[COMMAND_RELEASE] = {
		"release --force [OPTIONS] SCRIPT.lua | --lock URL",
		"free the record of a leader that is dead for sure",
		"A vanished leader costs one lease. Where a lease is long and the leader is dead for sure (its machine is switched\n"
		"off), this frees the record at once. Without --token it shows the record, with the token to give, and changes\n"
		"nothing. With it, it first watches the record for two retry periods: a holder that renews is not dead, and keeps\n"
		"it. If the holder is only cut off, it acts on beside the next leader until its renew deadline has passed. Who\n"
		"released it, when and why is in the record until the next term begins, and in the candidates' logs.\n"
		"Exit status: 0 released, 1 not: nobody holds it, another token is in force, or the holder renews; 2 usage, 69\n"
		"the lock cannot be reached.",
		"  lunarch release --force --lock etcd://etcd1/nightly --reason 'host7 is switched off'\n"
		"  lunarch release --force --lock etcd://etcd1/nightly --reason 'host7 is switched off' --token 4711\n",
	},
	[COMMAND_CHECK] = {
		"check [OPTIONS] SCRIPT.lua [-- ARGS]",
		"load a script, show its elections and timing, change nothing",
		"Runs the script's text but no hook, shows what `lunarch run` with the same options would do, and reads each\n"
		"lock. Nothing is written. If NAME.env is beside NAME.lua, which the unit lunarch@NAME reads, its variables count.\n"
		"Of a lock file (docs/write-a-lock.md) it says what is wrong with it.\n"
		"Exit status: 0 all is well, 1 a problem was found, 2 usage.",
		"  lunarch check backup.lua\n"
		"  lunarch check --lease-duration 5s --lock '/srv/shared/backup?shared=link' backup.lua\n",
	},
	[COMMAND_NEW] = {
		"new [--lock] NAME",
		"write a commented script and its test",
		"Writes NAME.lua, NAME_test.lua and, if there is none, .luacheckrc into the directory you are in. Nothing is overwritten.\n"
		"Exit status: 0 written, 1 it could not be, 2 usage.",
		"  lunarch new nightly && lunarch test nightly_test.lua\n"
		"  lunarch new --lock mystore && lunarch check mystore.lua      # a lock in a store of yours\n",
	},
	[COMMAND_TEST] = {
		"test FILE_test.lua...",
		"run a script's own tests, on virtual time",
		"Runs the tests in the files and prints TAP. A test runs a script on several simulated nodes, with the real\n"
		"elector on a simulated store and network: nothing is waited for, no program is started, no lock is reached.\n"
		"An hour of elections takes less than a second. docs/testing.md says what a test can do.\n"
		"Exit status: 0 all held, 1 one did not, 2 usage.",
		"  lunarch test backup_test.lua\n"
		"  prove --exec 'lunarch test' *_test.lua\n",
	},
	[COMMAND_DOCTOR] = {
		"doctor [--full] [--json] --lock URL",
		"prove that a store is fit to elect leaders on",
		"With a scratch record beside the lock, which it removes at the end: races writers with connections of their\n"
		"own, checks for stale reads and tokens that do not grow, measures writes and notices, and says which lease is the\n"
		"shortest to trust. The lock itself is not touched; an election may be running on it.\n"
		"--full examines all that a lock must do, in a minute or two: for who writes one (docs/write-a-lock.md).\n"
		"--service looks besides whether that Service could be kept at the leader's address, and writes nothing.\n"
		"Exit status: 0 fit, 1 unfit (or the Service or the kernel is), 2 usage, 69 the store cannot be reached.",
		"  lunarch doctor --lock '/srv/shared/backup?shared=link'\n"
		"  lunarch doctor --json --lock etcd://etcd1,etcd2,etcd3/backup | jq .shortest_lease_ms\n"
		"  lunarch doctor --full --lock 'lua:/srv/mystore.lua?host=127.0.0.1:8080#try'\n",
	},
	[COMMAND_CTL] = {
		"ctl [--list] [OPTIONS] COMMAND [SCRIPT.lua]",
		"talk to a running elector",
		"Inside a term LUNARCH_CONTROL says which elector to ask; outside, the only one of this user is asked. An elector\n"
		"that runs with --state-dir DIR is found only if ctl has the same --state-dir. Where several run, SCRIPT.lua,\n"
		"--lock URL or --control PATH says which. --control is needed where two run the same script.",
		"  lunarch ctl --list\n"
		"  lunarch ctl why\n"
		"  lunarch ctl why nightly.lua\n"
		"  lunarch ctl resign 1m\n"
		"  lunarch ctl handover\n"
		"  lunarch ctl handover --to host7 --timeout 1m nightly.lua\n",
	},
};

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
	for (int i = 0; i < COMMANDS; i++)
		fprintf(out, "  lunarch %-50s %s\n", helps[i].usage, helps[i].summary);
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
	const struct command_help *h = &helps[command];

	printf("Usage: lunarch %s\n\n", h->usage);
	if (command == COMMAND_CTL)
		print_orders();
	printf("%s\n\nOptions:\n", h->text);
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
	printf("\nExamples:\n%s", h->examples);
}

const char *help_summary(enum command command)
{
	return helps[command].summary;
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

/* The length of the name that a row of a table is about, which begins at its fourth byte: "| `on_leading` | ..."; or 0.
 */
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
