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
	const char *name = options_text(o, OPTION_ELECTION, NULL);

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

static void add_lock(struct named_locks *n, char *url_taken)
{
	n->url = mem_resize(n->url, (n->count + 1) * sizeof(char *));
	n->url[n->count++] = url_taken;
}

void named_locks_fini(struct named_locks *n)
{
	for (size_t i = 0; i < n->count; i++)
		free(n->url[i]);
	free(n->url);
}

/* The lock of that election; -1 with *err. */
static int add_election_lock(const struct options *o, const struct script_probe *s, const struct election_settings *p,
                             struct named_locks *out, struct err *err)
{
	char *fallback = election_default_lock(o->word[0], false, err);
	bool several = election_several(&s->settings[s->count - 1], s->count);
	char *url = fallback ? election_lock(o, p, fallback, several, err) : NULL;

	free(fallback);
	if (!url)
		return -1;
	add_lock(out, url);
	return 0;
}

static int script_locks(const struct options *o, const struct script_probe *s, bool all, struct named_locks *out)
{
	const struct election_settings *one = all ? NULL : election_chosen(o, s);
	struct err err;

	if (!all && !one)
		return EXIT_USAGE;
	for (uint32_t i = 0; i < (all ? s->count : 1); i++)
		if (add_election_lock(o, s, all ? &s->settings[i] : one, out, &err) < 0)
			return command_fail(o->command, EXIT_USAGE, "%s", err.text);
	return -1;
}

/* --lock, or the locks of its slots. */
static int url_locks(const struct options *o, struct named_locks *out)
{
	const char *url = o->value[OPTION_LOCK].text;
	struct err err;
	int slots = election_slots(o, &err);

	if (slots < 0)
		return command_fail(o->command, EXIT_USAGE, "%s", err.text);
	if (!slots)
		add_lock(out, mem_dup(url));
	for (uint32_t i = 1; i <= (uint32_t)slots; i++)
		add_lock(out, election_slot_lock(url, i));
	return -1;
}

int named_locks(const struct options *o, bool several, struct named_locks *out)
{
	struct script_probe s = { 0 };

	if (o->words > 1)
		return command_fail(o->command, EXIT_USAGE, "one script, or --lock URL: %s is too much", o->word[1]);
	if (!o->words && !options_set(o, OPTION_LOCK))
		return command_fail(o->command, EXIT_USAGE,
		                    "which lock? lunarch %s --lock URL, or SCRIPT.lua for the lock of a script",
		                    command_names[o->command]);
	if (!o->words && several && o->lock_count > 1) {
		for (int i = 0; i < o->lock_count; i++)
			add_lock(out, mem_dup(o->locks[i]));
		return -1;
	}
	if (!o->words)
		return url_locks(o, out);
	char *wrong = script_probe_load(&s, o, o->word[0], false);
	bool slots =
		s.count && !election_several(&s.settings[s.count - 1], s.count); /* one election has several locks */
	bool all = (several || (slots && o->command == COMMAND_STATUS)) && !options_set(o, OPTION_ELECTION) && s.count;
	int status = wrong ? command_fail(o->command, EXIT_FAILED_SCRIPT, "%s", wrong) : script_locks(o, &s, all, out);
	free(wrong);
	script_probe_fini(&s);
	return status;
}

int named_lock(const struct options *o, char **url)
{
	struct named_locks one = { 0 };
	int status = named_locks(o, false, &one);

	*url = status < 0 && one.url ? one.url[0] : NULL;
	free(one.url);
	return status;
}
