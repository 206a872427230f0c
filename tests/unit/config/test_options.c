#include "config/election_settings.h"
#include "tap.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define SEC NSEC_PER_SEC

static struct options o;
static struct err err;

/* Parses a command line that is written as people write it; the words live until the next call. */
static int parse(enum command command, const char *line)
{
	static char copy[1000];
	static char *argv[50];
	int argc = 0;

	snprintf(copy, sizeof copy, "%s", line);
	argv[argc++] = (char *)command_names[command];
	for (char *word = strtok(copy, " "); word; word = strtok(NULL, " "))
		argv[argc++] = word;
	argv[argc] = NULL;
	err = (struct err){ 0 };
	return options_parse(&o, command, argc, argv, &err);
}

static void refuses(enum command command, const char *line, const char *reason)
{
	int result = parse(command, line);
	int good = ok(result < 0 && err.code == ERR_USAGE && strstr(err.text, reason), "`%s %s` is refused: %s",
	              command_names[command], line, reason);

	if (!good)
		printf("# %d: %s\n", result, err.text);
}

/* ---- the table ---- */

static int is_removed(const char *variable)
{
	for (const char *const *v = option_variables; *v; v++)
		if (strcmp(*v, variable) == 0)
			return 1;
	return 0;
}

static void the_table_is_whole(void)
{
	int named = 1, removed = 1, presets = 1, keys = 1, count = 0, listed = 0;

	for (int i = 0; i < OPTIONS; i++) {
		const struct option_info *info = &option_table[i];
		named &= info->name && info->help && info->commands && !info->value_name == (info->type == OPTION_FLAG);
		keys &= !info->is_key ||
		        (info->type <= OPTION_DURATION || info->type == OPTION_PERIOD || info->type == OPTION_NUMBER);
		presets &= !info->preset || info->type != OPTION_FLAG || strcmp(info->preset, "yes") == 0;
		if (info->env && strcmp(info->env, "LUNARCH_CONTROL") != 0) {
			removed &= is_removed(info->env);
			count++;
		}
	}
	for (const char *const *v = option_variables; *v; v++)
		listed++;
	ok(named && presets, "every option has a name, a help text, a command, and a value's name if it takes one");
	ok(keys, "what a script may say is a text, a flag, a time or a number");
	ok(removed && is_removed("LUNARCH_LOCK_PASSWORD") && listed == count + 1,
	   "every option's variable and the lock's password are removed for what a term starts, and no other");
	ok(!is_removed("LUNARCH_CONTROL"), "but LUNARCH_CONTROL, by which a term finds its elector");
	for (int c = 0; c < COMMANDS; c++)
		ok(parse((enum command)c, "") == 0, "%s: the presets are valid", command_names[c]);
}

/* ---- parsing ---- */

static void values(void)
{
	ok(parse(COMMAND_RUN, "--lock a --identity=b --lease-duration 1.5s --once script.lua") == 0,
	   "options and a script");
	is_str(o.value[OPTION_LOCK].text, "a", "a value as the next word");
	is_str(o.value[OPTION_IDENTITY].text, "b", "a value behind =");
	is_int(o.value[OPTION_LEASE_DURATION].number, 1500, "a duration in milliseconds");
	ok(o.value[OPTION_ONCE].number == 1 && options_set(&o, OPTION_ONCE), "a flag");
	ok(o.words == 1 && strcmp(o.word[0], "script.lua") == 0 && !*o.rest, "the script");
	ok(!options_set(&o, OPTION_RECLAIM) && !o.value[OPTION_RECLAIM].number, "what was not given is not set");

	parse(COMMAND_RUN, "script.lua --lock a -- --once x");
	ok(o.words == 1 && !o.value[OPTION_ONCE].number && strcmp(o.rest[0], "--once") == 0 &&
	           strcmp(o.rest[1], "x") == 0,
	   "options may follow the script, and what follows -- is the script's");
	parse(COMMAND_EXEC, "--lock a ls -n --lock b");
	ok(o.words == 0 && strcmp(o.rest[0], "ls") == 0 && !o.value[OPTION_NO_WAIT].number &&
	           strcmp(o.value[OPTION_LOCK].text, "a") == 0,
	   "exec: the first word begins the command, whose options are its own");
	parse(COMMAND_EXEC, "-n --lock a -- -x");
	ok(o.value[OPTION_NO_WAIT].number && strcmp(o.rest[0], "-x") == 0,
	   "exec: a command that begins with a dash needs --");
	parse(COMMAND_RUN, "-e --comment");
	is_str(o.value[OPTION_SCRIPT].text, "--comment", "-e takes any text, even one that begins with a Lua comment");
	parse(COMMAND_RUN, "--lock=--odd x.lua");
	is_str(o.value[OPTION_LOCK].text, "--odd", "--name=value takes any value");
	parse(COMMAND_RUN, "--lock a --lock b x.lua");
	is_str(o.value[OPTION_LOCK].text, "b", "the last of two counts");
	parse(COMMAND_EXEC, "--lock x --restart on-loss --conflict-exit-code 0 true");
	is_int(o.value[OPTION_RESTART].number, RESTART_ON_LOSS, "a choice is its position");
	is_int(o.value[OPTION_CONFLICT_EXIT_CODE].number, 0, "an exit status");
	parse(COMMAND_EXEC, "--lock x true");
	is_int(o.value[OPTION_CONFLICT_EXIT_CODE].number, 75, "a preset has its number");
	ok(parse(COMMAND_RUN, "--help --nonsense") == 0 && o.value[OPTION_HELP].number,
	   "--help wins over what follows it");
}

static void refusals(void)
{
	refuses(COMMAND_RUN, "--lok a", "did you mean --lock?");
	refuses(COMMAND_RUN, "-lock a", "did you mean --lock?");
	refuses(COMMAND_RUN, "--lease_duration 3s", "did you mean --lease-duration?");
	refuses(COMMAND_RUN, "--lease 3s", "did you mean --lease-duration?");
	refuses(COMMAND_RUN, "--ocne", "did you mean --once?");
	refuses(COMMAND_RUN, "--xyzzy", "unknown option --xyzzy: `lunarch run --help`");
	refuses(COMMAND_LEADER, "--once", "unknown option --once");
	refuses(COMMAND_RUN, "--start-timeout 999ms", "--start-timeout: '999ms' is not from 1s to 1h");
	refuses(COMMAND_CRON, "--start-timeout 3601s", "'3601s' is not from 1s to 1h");
	refuses(COMMAND_EXEC, "--start-timeout 9s", "unknown option --start-timeout");
	refuses(COMMAND_RUN, "--lock", "--lock needs a value: --lock URL");
	refuses(COMMAND_RUN, "--lock --once", "--lock needs a value");
	refuses(COMMAND_RUN, "--once=maybe", "--once: 'maybe' is neither yes nor no");
	refuses(COMMAND_RUN, "--lease-duration 15", "--lease-duration: '15' lacks a unit");
	refuses(COMMAND_RUN, "--lease-duration 0s", "not longer than 0");
	refuses(COMMAND_RUN, "--log-format xml", "'xml' is none of text|json");
	refuses(COMMAND_RUN, "--log-format tex", "none of");
	refuses(COMMAND_EXEC, "--conflict-exit-code 256", "0 to 255");
	refuses(COMMAND_EXEC, "--conflict-exit-code -1", "0 to 255");
	refuses(COMMAND_EXEC, "--conflict-exit-code 1x", "0 to 255");
	refuses(COMMAND_RUN, "a.lua b.lua c.lua", "unexpected argument 'c.lua'");
}

static void environment(void)
{
	setenv("LUNARCH_LOCK", "from-env", 1);
	setenv("LUNARCH_ONCE", "yes", 1);
	setenv("LUNARCH_IDENTITY", "", 1);
	parse(COMMAND_RUN, "x.lua");
	is_str(options_text(&o, OPTION_LOCK, "script"), "from-env", "the environment comes before the script");
	ok(options_flag(&o, OPTION_ONCE), "a flag from the environment");
	is_str(options_text(&o, OPTION_IDENTITY, "script"), "script", "an empty variable says nothing");
	parse(COMMAND_RUN, "--lock option --once=no x.lua");
	is_str(options_text(&o, OPTION_LOCK, "script"), "option", "an option comes before the environment");
	ok(!options_flag(&o, OPTION_ONCE), "a flag that is given as no beats script and environment");
	unsetenv("LUNARCH_LOCK");
	unsetenv("LUNARCH_ONCE");
	parse(COMMAND_RUN, "x.lua");
	is_str(options_text(&o, OPTION_LOCK, "script"), "script", "the script comes before the preset");
	is_str(options_text(&o, OPTION_LOCK, ""), "", "nobody says anything");
	is_str(options_text(&o, OPTION_LOG_FORMAT, NULL), "text", "the preset comes last");
	setenv("LUNARCH_RETRY_PERIOD", "2", 1);
	refuses(COMMAND_RUN, "x.lua", "LUNARCH_RETRY_PERIOD: '2' lacks a unit");
	ok(parse(COMMAND_RUN, "--help") == 0, "--help is answered whatever the environment says");
	ok(parse(COMMAND_LEADER, "--lock a") == 0, "a variable of an option that the command has not is not looked at");
	unsetenv("LUNARCH_RETRY_PERIOD");
}

/* ---- joining ---- */

/* What a script says: option and number, up to an option of OPTIONS. */
static struct said said[8];
static struct election_settings a_script = { .said = said };

static const struct election_settings *says(uint32_t count, const struct said *numbers)
{
	memcpy(said, numbers, count * sizeof *numbers);
	a_script.said_count = count;
	return &a_script;
}
#define SAYS(...) \
	says(sizeof((struct said[]){ __VA_ARGS__ }) / sizeof(struct said), (const struct said[]){ __VA_ARGS__ })

static void times(void)
{
	struct lease_times t;

	parse(COMMAND_RUN, "x.lua");
	ok(election_times(&o, NULL, &t, &err) == 0 && t.lease == 15 * SEC && t.renew == 10 * SEC &&
	           t.retry == 2 * SEC && t.grace == 3 * SEC && t.kill == SEC && t.drift == SEC &&
	           election_time(&o, NULL, OPTION_SHUTDOWN_GRACE) == 30 * SEC,
	   "nobody says anything: 15, 10, 2, 3, 1, 1 and 30 seconds");
	ok(election_time(&o, NULL, OPTION_START_TIMEOUT) == 30 * SEC, "a worker may take 30 s to start and to answer,");
	parse(COMMAND_RUN, "--start-timeout 1h x.lua");
	ok(election_time(&o, NULL, OPTION_START_TIMEOUT) == 3600 * SEC, "or what an option says, up to an hour");
	parse(COMMAND_RUN, "x.lua");
	SAYS({ OPTION_LEASE_DURATION, 30000 }, { OPTION_SHUTDOWN_GRACE, 5000 });
	ok(election_times(&o, &a_script, &t, &err) == 0 && t.lease == 30 * SEC && t.renew == 20 * SEC &&
	           t.retry == 4 * SEC && election_time(&o, &a_script, OPTION_SHUTDOWN_GRACE) == 5 * SEC,
	   "the script says how long the lease is: the others follow from it");
	parse(COMMAND_RUN, "--lease-duration 6s --shutdown-grace 0s x.lua");
	ok(election_times(&o, &a_script, &t, &err) == 0 && t.lease == 6 * SEC && t.renew == 4 * SEC &&
	           election_time(&o, &a_script, OPTION_SHUTDOWN_GRACE) == 0,
	   "an option comes before the script");
	parse(COMMAND_RUN, "--lease-duration 6s --renew-deadline 9s x.lua");
	ok(election_times(&o, &a_script, &t, &err) < 0 && err.code == ERR_USAGE && strstr(err.text, "9s") &&
	           strstr(err.text, "6s") && strstr(err.text, "shorter") && strstr(err.text, "from --renew-deadline"),
	   "a renew deadline past the lease is refused, with both numbers and where they come from");
	SAYS({ OPTION_RENEW_DEADLINE, 3000 });
	parse(COMMAND_RUN, "--retry-period 4s x.lua");
	ok(election_times(&o, &a_script, &t, &err) < 0 && strstr(err.text, "3s from the script") &&
	           strstr(err.text, "4s from --retry-period"),
	   "a relation that does not hold between script and option names both");
	parse(COMMAND_RUN, "x.lua");
	ok(election_times(&o, SAYS({ OPTION_STOP_GRACE, 0 }), &t, &err) < 0 &&
	           strstr(err.text, "stop-grace from the script"),
	   "0 is refused, not taken for the preset");
	ok(election_times(&o, SAYS({ OPTION_SHUTDOWN_GRACE, 0 }), &t, &err) == 0, "but where there may be none");
	parse(COMMAND_RUN, "--lease-duration 10000h --renew-deadline 9000h x.lua");
	ok(election_times(&o, NULL, &t, &err) == 0 && t.lease == DURATION_MAX_MS * NSEC_PER_MS,
	   "the longest lease does not overflow");
}

/* What a worker's message says, which may be anything. */
static int copies(uint32_t option, int64_t number, size_t cut)
{
	struct buf list = { 0 };
	struct election_settings s;

	wire_said_put(&list, &(struct wire_said){ .option = option, .number = number });
	list.len -= cut;
	struct wire_election e = { .name = "",
		                   .lock = "",
		                   .identity = "",
		                   .address = "",
		                   .where = "",
		                   .hooks = "",
		                   .said = wire_parts(&list) };
	bool good = election_settings_copy(&s, &e);
	int said_count = good ? (int)s.said_count : -1;
	election_settings_fini(&s);
	buf_fini(&list);
	return said_count;
}

static void messages(void)
{
	is_int(copies(OPTION_MAX_TERM, 5, 0), 1, "what a worker says of an option that has a key is kept");
	ok(copies(OPTION_START_TIMEOUT, 5, 0) < 0 && copies(OPTIONS, 5, 0) < 0 && copies(UINT32_MAX, 5, 0) < 0,
	   "of another, or of none, it makes no sense");
	ok(copies(OPTION_MAX_TERM, 5, 1) < 0, "nor does one that is cut");
}

/* ---- who comes next ---- */

static struct next_options joined;

static int join_next(const char *line, const struct election_settings *s)
{
	parse(COMMAND_RUN, line);
	return election_next(&o, s, &joined, &err);
}

static void refuses_next(const char *line, const struct election_settings *s, const char *reason)
{
	ok(join_next(line, s) < 0 && err.code == ERR_USAGE && strstr(err.text, reason), "refused: %s (%s)", reason,
	   err.text);
}

static void next(void)
{
	ok(join_next("x.lua", NULL) == 0 && joined.priority == 0 && !joined.preempt && joined.max_term == 0 &&
	           joined.preempt_after == 30 * SEC,
	   "nobody says anything: priority 0, and no term ends for the next");
	ok(join_next("--priority -7 --preempt --preempt-after 5s --max-term 24h x.lua", NULL) == 0 &&
	           joined.priority == -7 && joined.preempt && joined.preempt_after == 5 * SEC &&
	           joined.max_term == 86400 * SEC,
	   "all of it by options");
	SAYS({ OPTION_PRIORITY, -1 }, { OPTION_PREEMPT, 1 }, { OPTION_PREEMPT_AFTER, 2000 }, { OPTION_MAX_TERM, 3000 });
	ok(join_next("x.lua", &a_script) == 0 && joined.priority == -1 && joined.preempt &&
	           joined.preempt_after == 2 * SEC && joined.max_term == 3 * SEC,
	   "all of it by the script, a priority of -1 too");
	ok(join_next("--priority=4 --preempt=no --preempt-after 9s --max-term 8s x.lua", &a_script) == 0 &&
	           joined.priority == 4 && !joined.preempt && joined.preempt_after == 9 * SEC &&
	           joined.max_term == 8 * SEC,
	   "options come before the script");
	setenv("LUNARCH_PRIORITY", "11", 1);
	ok(join_next("x.lua", &a_script) == 0 && joined.priority == 11, "and so do variables");
	setenv("LUNARCH_PRIORITY", "much", 1);
	refuses(COMMAND_RUN, "x.lua", "LUNARCH_PRIORITY: 'much' is no whole number from -1000000000 to 1000000000");
	unsetenv("LUNARCH_PRIORITY");
	for (const char *const *bad = (const char *const[]){ "1.5", "+3", "", "1000000001", "-1000000001", "1e3",
	                                                     "99999999999999999999", "-", NULL };
	     *bad; bad++) {
		char line[100];
		snprintf(line, sizeof line, "--priority=%s x.lua", *bad);
		refuses(COMMAND_RUN, line, "is no whole number");
	}
	refuses(COMMAND_RUN, "--max-term 0s x.lua", "not longer than 0");
	refuses(COMMAND_LEADER, "--priority 3 --lock x", "unknown option --priority");
	refuses_next("--preempt-after 5s x.lua", NULL, "--preempt-after does nothing without --preempt");
	setenv("LUNARCH_PREEMPT_AFTER", "5s", 1);
	refuses_next("x.lua", NULL, "LUNARCH_PREEMPT_AFTER does nothing without --preempt");
	ok(join_next("--preempt x.lua", NULL) == 0 && joined.preempt_after == 5 * SEC, "with it, it counts");
	unsetenv("LUNARCH_PREEMPT_AFTER");
	SAYS({ OPTION_PREEMPT_AFTER, 1000 });
	refuses_next("x.lua", &a_script, "preempt_after from the script does nothing");
	ok(join_next("--preempt=no x.lua", &a_script) == 0 && !joined.preempt,
	   "who has switched it off may leave the time where it is");
	ok(join_next("x.lua", SAYS({ OPTION_PREEMPT_AFTER, 1000 }, { OPTION_PREEMPT, 0 })) == 0 && !joined.preempt,
	   "in the script, too");
	refuses_next("x.lua", SAYS({ OPTION_PREEMPT, 2 }), "preempt from the script is 2");
	refuses_next("x.lua", SAYS({ OPTION_PRIORITY, 1000000001 }), "priority from the script is 1000000001");
	refuses_next("x.lua", SAYS({ OPTION_MAX_TERM, 0 }), "max-term from the script must be longer");
	refuses_next("x.lua", SAYS({ OPTION_MAX_TERM, DURATION_MAX_MS + 1 }), "at most 10000h");
}

/* ---- which lock ---- */

static void lock_is(const char *script_lock, const char *name, bool several, const char *want)
{
	const struct election_settings s = { .lock = (char *)script_lock, .name = (char *)name };
	char *lock = election_lock(&o, &s, "fallback", several, &err);

	is_str(lock, want, want);
	free(lock);
}

static void no_lock(const char *name, bool several, const char *reason)
{
	const struct election_settings s = { .lock = "", .name = (char *)name };
	char *lock = election_lock(&o, &s, "fallback", several, &err);

	ok(!lock && err.code == ERR_USAGE && strstr(err.text, reason), "refused: %s", reason);
	free(lock);
}

static void locks(void)
{
	parse(COMMAND_RUN, "x.lua");
	lock_is("", "", false, "fallback");
	lock_is("", "a", false, "fallback");
	lock_is("", "a", true, "fallback-a");
	lock_is("script", "a", true, "script");
	no_lock("", true, "has no name");
	no_lock("a/b", true, "'a/b'");
	no_lock("..\n", true, "other characters");
	parse(COMMAND_RUN, "--lock /srv/{name}/{name}.lock x.lua");
	lock_is("script", "a", true, "/srv/a/a.lock");
	lock_is("", "a", false, "/srv/a/a.lock");
	no_lock("../../etc/x", true, "other characters");
	parse(COMMAND_RUN, "--lock one x.lua");
	lock_is("script", "a", false, "one");
	no_lock("a", true, "put {name} in it");
}

static char *named_after(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");

	fputs(text, f);
	fclose(f);
	return election_default_lock(path, false, &err);
}

static void default_locks(void)
{
	char dir[] = "/tmp/lunarch-test-config-XXXXXX";

	if (!mkdtemp(dir) || chdir(dir) < 0 || mkdir("d", 0700) < 0 || symlink("d/a b.lua", "link.lua") < 0)
		ok(0, "cannot set up %s", dir);
	char *a = named_after("d/a b.lua", "1"), *b = named_after("d/a b.lua", "2"), *c = named_after("a b.lua", "1");
	char *link = election_default_lock("link.lua", false, &err),
	     *again = election_default_lock("../../tmp/../tmp", false, &err);
	ok(strncmp(a, "a_b-", 4) == 0 && strlen(a) == 4 + 16, "a lock is named after the script's file, and a hash");
	ok(strcmp(a, b) == 0, "whatever is in the script");
	ok(strcmp(a, c) != 0, "another directory's script of the same name has another lock");
	is_str(link, a, "a symbolic link to a script has the script's lock");
	char *t = election_default_lock("print(1)", true, &err), *u = election_default_lock("print(2)", true, &err);
	ok(strncmp(t, "eval-", 5) == 0 && strcmp(t, u) != 0, "text is named after its hash");
	ok(!election_default_lock("nowhere.lua", false, &err) && err.code == ERR_MISSING &&
	           strstr(err.text, "nowhere.lua"),
	   "a missing script is named");
	unlink("d/a b.lua");
	unlink("a b.lua");
	unlink("link.lua");
	rmdir("d");
	rmdir(dir);
	free(a), free(b), free(c), free(link), free(again), free(t), free(u);
}

/* ---- suggestions ---- */

static void suggestions(void)
{
	static const char *const words[] = { "status", "is-leading", "resign", "reload", "pause", NULL };
	char huge[2000];

	is_str(options_nearest("statsu", words), "status", "a swap");
	is_str(options_nearest("rezign", words), "resign", "another letter");
	is_str(options_nearest("pauses", words), "pause", "one too many");
	is_str(options_nearest("relo", words), "reload", "a beginning");
	ok(!options_nearest("frobnicate", words) && !options_nearest("", words) && !options_nearest("x", words),
	   "nothing for what is like none");
	memset(huge, 'a', sizeof huge);
	huge[sizeof huge - 1] = '\0';
	ok(!options_nearest(huge, words), "a very long word is no trouble");
}

/* ---- letters, as getopt(3) and flock(1) have them ---- */

static void letters(void)
{
	ok(parse(COMMAND_EXEC, "--lock a -nw10 -E7 true") == 0 && o.value[OPTION_NO_WAIT].number == 1 &&
	           o.value[OPTION_WAIT].number == 10000 && o.value[OPTION_CONFLICT_EXIT_CODE].number == 7 &&
	           strcmp(o.rest[0], "true") == 0,
	   "-nw10 -E7: a value may follow its letter, and a flag stand before it");
	ok(parse(COMMAND_EXEC, "--lock a -w 1.5 -E=0 -n=no true") == 0 && o.value[OPTION_WAIT].number == 1500 &&
	           o.value[OPTION_CONFLICT_EXIT_CODE].number == 0 && o.value[OPTION_NO_WAIT].number == 0,
	   "a value may follow a space or '=', and seconds need no unit");
	ok(parse(COMMAND_EXEC, "--lock a --wait 300ms true") == 0 && o.value[OPTION_WAIT].number == 300,
	   "but may have one");
	ok(parse(COMMAND_EXEC, "--lock a -c ls") == 0 && !o.rest[0] &&
	           strcmp(options_text(&o, OPTION_SHELL, NULL), "ls") == 0,
	   "-c LINE stands for the command");
	refuses(COMMAND_EXEC, "--lock a -nq true", "unknown option -nq");
	refuses(COMMAND_EXEC, "--lock a -w", "-w needs a value");
	refuses(COMMAND_EXEC, "--lock a -w . true", "'.'");
	refuses(COMMAND_EXEC, "--lock a -w 1.2.3 true", "'1.2.3'");
	refuses(COMMAND_EXEC, "--lock a -wait 3s true", "did you mean --wait");
	refuses(COMMAND_RUN, "-lock a b.lua", "did you mean --lock");
	refuses(COMMAND_RUN, "--lease-duration 10 b.lua", "lacks a unit");
}

static const char *script_of(int *is_text)
{
	bool text;
	const char *script = options_script(&o, &text);

	*is_text = text;
	return script ? script : "none";
}

static void scripts(void)
{
	int text;

	parse(COMMAND_RUN, "");
	ok(strcmp(script_of(&text), "none") == 0 && !text, "without a word, -e and LUNARCH_SCRIPT there is no script");
	setenv("LUNARCH_SCRIPT", "return {}", 1);
	parse(COMMAND_RUN, "");
	ok(strcmp(script_of(&text), "return {}") == 0 && text, "LUNARCH_SCRIPT is a text");
	parse(COMMAND_RUN, "x.lua");
	ok(strcmp(script_of(&text), "x.lua") == 0 && !text, "a script that is named comes before it");
	parse(COMMAND_CHECK, "-e code");
	ok(strcmp(script_of(&text), "code") == 0 && text, "and so does -e");
	parse(COMMAND_RUN, "-e code x.lua");
	ok(strcmp(script_of(&text), "code") == 0 && text && o.words == 1,
	   "-e with a word stays -e, for the command to refuse");
	setenv("LUNARCH_SCRIPT", "/etc/x.lua", 1);
	parse(COMMAND_RUN, "");
	ok(strcmp(script_of(&text), "/etc/x.lua") == 0 && !text, "what begins with a slash is a path");
	parse(COMMAND_RUN, "-e /etc");
	ok(script_of(&text) && text, "but not what -e is given");
	unsetenv("LUNARCH_SCRIPT");
}

int main(void)
{
	for (const char *const *v = option_variables; *v; v++)
		unsetenv(*v);
	the_table_is_whole();
	values();
	refusals();
	environment();
	scripts();
	times();
	messages();
	next();
	locks();
	default_locks();
	suggestions();
	letters();
	return tap_done();
}
