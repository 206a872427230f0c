#include "commands/named_lock.h"

#include "base/buf.h"
#include "base/mem.h"
#include "commands/commands.h"
#include "commands/script_probe.h"

#include <stdlib.h>
#include <string.h>

/* ", 'web', 'backup'" of all elections, for messages. */
static char *election_names(const struct script_probe *s)
{
	struct buf b = { 0 };

	for (uint32_t i = 0; i < s->count; i++)
		buf_printf(&b, "%s'%s'", i ? ", " : "", s->settings[i].name);
	return b.data;
}

/* The election that --election names, or the only one. NULL: it was said what is wrong. */
static const struct election_settings *election_chosen(const struct options *o, const struct script_probe *s)
{
	const char *name = options_text(o, OPTION_CTL_ELECTION, NULL);

	for (uint32_t i = 0; i < s->count; i++)
		if (strcmp(s->settings[i].name, name) == 0 || (!*name && s->count == 1))
			return &s->settings[i];
	char *names = election_names(s);
	if (*name && s->count > 1)
		command_fail(o->command, EXIT_USAGE, "--election %s: %s has %s", name, o->word[0], names);
	else if (*name)
		command_fail(o->command, EXIT_USAGE, "--election %s: %s has one election, without a name", name,
		             o->word[0]);
	else
		command_fail(o->command, EXIT_USAGE, "which election of %s? --election NAME: it has %s", o->word[0],
		             names);
	free(names);
	return NULL;
}

static int script_lock(const struct options *o, const struct script_probe *s, char **url)
{
	const struct election_settings *p = election_chosen(o, s);
	struct err err;

	if (!p)
		return EXIT_USAGE;
	char *fallback = options_default_lock(o->word[0], false, &err);
	*url = fallback ? options_election_lock(o, p->lock, fallback, p->name, s->count > 1, &err) : NULL;
	free(fallback);
	return *url ? -1 : command_fail(o->command, EXIT_USAGE, "%s", err.text);
}

int named_lock(const struct options *o, char **url)
{
	struct script_probe s = { 0 };

	*url = NULL;
	if (o->words > 1)
		return command_fail(o->command, EXIT_USAGE, "one script, or --lock URL: %s is too much", o->word[1]);
	if (!o->words && !options_set(o, OPTION_LOCK))
		return command_fail(o->command, EXIT_USAGE,
		                    "which lock? lunarch %s --lock URL, or SCRIPT.lua for the lock of a script",
		                    command_names[o->command]);
	if (!o->words) {
		*url = mem_dup(o->value[OPTION_LOCK].text);
		return -1;
	}
	char *wrong = script_probe_load(&s, o, o->word[0], false);
	if (wrong) {
		command_fail(o->command, EXIT_FAILED_SCRIPT, "%s", wrong);
		free(wrong);
		script_probe_fini(&s);
		return EXIT_FAILED_SCRIPT;
	}
	int status = script_lock(o, &s, url);
	script_probe_fini(&s);
	return status;
}
