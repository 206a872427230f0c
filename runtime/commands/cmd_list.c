#include "commands/commands.h"

#include "client/lock_client.h"
#include "client/record_text.h"
#include "client/table.h"
#include "locks/lock_listing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const list_titles[] = { "LOCK", "STATE", "LEADER", "ADDRESS", "TERM", "TOKEN", "SINCE", NULL };

struct election_list {
	struct lock_client client;
	struct lock_listing names;
	char *prefix; /* the URL that each name is put behind; has the secrets that were given with it */
	bool json;
	struct table rows; /* the elections; not with --json, which prints each at once */
	size_t elections;
	int others;       /* names that are no elections */
	bool leaderless;  /* nobody leads in one, or its leader is overdue */
	int unreadable;   /* may be elections, but it was refused to read them */
	struct err first; /* of those: why the first one was */
};

/* ---- the lines ---- */

static void add_number(struct table *t, uint64_t n)
{
	char text[24] = "";

	if (n)
		snprintf(text, sizeof text, "%" PRIu64, n);
	table_add(t, text);
}

static void add_row(struct table *t, const struct record_text *s)
{
	const struct record *r = s->record;
	bool held = record_text_held(s);
	char since[32] = "";
	time_t sec = r->acquired_us / 1000000;
	struct tm tm;

	if (held && r->acquired_us != RECORD_TIME_UNKNOWN && localtime_r(&sec, &tm))
		strftime(since, sizeof since, "%F %T", &tm);
	table_add(t, s->lock);
	table_add(t, leadership_name(record_text_state(s)));
	table_add(t, r->holder);
	table_add(t, held ? r->address : "");
	add_number(t, r->term);
	add_number(t, (uint64_t)r->token);
	table_add(t, since);
}

static void add_election(struct election_list *l)
{
	const struct record_text shown = {
		.lock = lock_client_url(&l->client),
		.record = &l->client.record,
		.now_us = clock_wall_us(),
	};
	struct buf b = { 0 };

	l->leaderless |= record_text_state(&shown) != LEADERSHIP_LEADING;
	l->elections++;
	if (l->json) {
		record_text_json(&b, &shown);
		puts(b.data);
		fflush(stdout);
		buf_fini(&b);
		return;
	}
	add_row(&l->rows, &shown);
}

/* ---- what is there ---- */

/* Is its name that of the next record of another one here? Whoever may not read that has lost nothing. */
static bool is_beside(const struct election_list *l, const char *name)
{
	const char *next = l->client.place->ops->next;
	size_t len = strlen(name), end = next ? strlen(next) : len;

	if (len <= end || strcmp(name + len - end, next) != 0)
		return false;
	for (size_t i = 0; i < l->names.count; i++)
		if (strlen(l->names.name[i]) == len - end && strncmp(l->names.name[i], name, len - end) == 0)
			return true;
	return false;
}

/* -1 with *err: the store cannot be reached. */
static int look_at(struct election_list *l, const char *name, struct err *err)
{
	char *url = lock_url_beside(l->client.place, l->prefix, name);
	int opened = lock_client_turn_to(&l->client, url, err);

	free(url);
	enum lock_outcome o = opened < 0 ? LOCK_FOREIGN : lock_client_read(&l->client);
	const struct err *why = &l->client.result.err;

	if (o == LOCK_FAILED && why->code == ERR_DENIED)
		o = LOCK_REFUSED;
	if (o == LOCK_OK && !lock_client_found_next(&l->client))
		add_election(l);
	else if (o == LOCK_FOREIGN)
		l->others++; /* what cannot be a lock's name is nobody's */
	else if (o == LOCK_REFUSED && !is_beside(l, name) && l->unreadable++ == 0)
		l->first = *why;
	else if (o == LOCK_FAILED)
		*err = *why;
	return o == LOCK_FAILED ? -1 : 0;
}

/* What the lines do not say. The exit status. */
static int list_conclude(const struct election_list *l)
{
	if (l->names.more)
		command_fail(COMMAND_LIST, EXIT_DONE,
		             "there are more than these %zu names: a longer prefix shows fewer", l->names.count);
	if (l->others)
		command_fail(COMMAND_LIST, EXIT_DONE, "%d more that begin so are no elections", l->others);
	if (l->unreadable)
		return command_fail(COMMAND_LIST, EXIT_UNREACHABLE, "%d could not be read, the first one since: %s",
		                    l->unreadable, l->first.text);
	if (!l->elections && !l->others)
		return command_fail(COMMAND_LIST, EXIT_FAILED_SCRIPT,
		                    "no election begins so; to see what is in a directory, end its name with a slash");
	return l->elections && !l->leaderless ? EXIT_DONE : EXIT_FAILED_SCRIPT;
}

static int list_show(struct election_list *l)
{
	struct err err;
	int status = 0;

	if (!l->client.place->ops->list)
		return command_fail(COMMAND_LIST, EXIT_USAGE, "%s:... cannot be listed", l->client.place->ops->scheme);
	if (lock_client_list(&l->client, &l->names) != LOCK_OK)
		return command_fail(COMMAND_LIST, command_status_of(&l->client.result.err), "%s",
		                    l->client.result.err.text);
	for (size_t i = 0; i < l->names.count && status == 0; i++)
		status = look_at(l, l->names.name[i], &err);
	if (l->rows.cells) {
		struct buf b = { 0 };
		table_print(&b, &l->rows);
		fputs(b.data, stdout);
		buf_fini(&b);
	}
	return status < 0 ? command_fail(COMMAND_LIST, command_status_of(&err), "%s", err.text) : list_conclude(l);
}

static void list_fini(struct election_list *l)
{
	table_fini(&l->rows);
	free(l->prefix);
	lock_listing_fini(&l->names);
	lock_client_close(&l->client);
}

int cmd_list(int argc, char **argv)
{
	struct options o;
	struct err err;
	int exit_with = command_begin(&o, COMMAND_LIST, argc, argv);

	if (exit_with >= 0)
		return exit_with;
	if (o.words > 1)
		return command_fail(COMMAND_LIST, EXIT_USAGE, "one URL at a time: unexpected '%s'", o.word[1]);
	struct election_list l = { .rows.titles = list_titles,
		                   .json = o.value[OPTION_JSON].number,
		                   .client.env.state_dir = options_text(&o, OPTION_STATE_DIR, NULL) };
	if (lock_client_open_prefix(&l.client, o.words ? o.word[0] : "", &l.prefix, &err) < 0)
		exit_with = command_fail(COMMAND_LIST, command_status_of(&err), "%s", err.text);
	else
		exit_with = list_show(&l);
	list_fini(&l);
	return exit_with;
}
