#include "commands/commands.h"

#include "base/mem.h"
#include "client/lock_client.h"
#include "client/record_text.h"
#include "locks/lock_listing.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum list_column { LIST_LOCK, LIST_STATE, LIST_LEADER, LIST_ADDRESS, LIST_TOKEN, LIST_SINCE, LIST_COLUMNS };

static const char *const list_titles[LIST_COLUMNS] = {
	[LIST_LOCK] = "LOCK",       [LIST_STATE] = "STATE", [LIST_LEADER] = "LEADER",
	[LIST_ADDRESS] = "ADDRESS", [LIST_TOKEN] = "TOKEN", [LIST_SINCE] = "SINCE",
};

struct list_row {
	char *cell[LIST_COLUMNS];
};

struct election_list {
	struct lock_client client;
	struct lock_listing names;
	char *prefix; /* the URL that each name is put behind; has the secrets that were given with it */
	bool json;
	struct list_row *rows; /* the elections; not with --json, which prints each at once */
	size_t elections;
	int others;       /* names that are no elections */
	bool leaderless;  /* nobody leads in one */
	int unreadable;   /* may be elections, but it was refused to read them */
	struct err first; /* of those: why the first one was */
};

/* ---- the lines ---- */

static char *plain(const char *text)
{
	struct buf b = { 0 };

	buf_plain(&b, *text ? text : "-");
	return b.data;
}

static void row_fill(struct list_row *row, const struct record_text *s)
{
	const struct record *r = s->record;
	bool leads = record_text_leads(s);
	char since[32] = "", token[24] = "";
	time_t sec = r->acquired_us / 1000000;
	struct tm tm;

	if (leads && r->acquired_us != RECORD_TIME_UNKNOWN && localtime_r(&sec, &tm))
		strftime(since, sizeof since, "%F %T", &tm);
	if (r->token)
		snprintf(token, sizeof token, "%" PRId64, r->token);
	row->cell[LIST_LOCK] = plain(s->lock);
	row->cell[LIST_STATE] = plain(!leads ? "released" : record_text_overdue(s) ? "overdue" : "leading");
	row->cell[LIST_LEADER] = plain(r->holder);
	row->cell[LIST_ADDRESS] = plain(leads ? r->address : "");
	row->cell[LIST_TOKEN] = plain(token);
	row->cell[LIST_SINCE] = plain(since);
}

/* In characters, as far as those of UTF-8 are one column wide. */
static int width_of(const char *text)
{
	int n = 0;

	for (; *text; text++)
		n += (*text & 0xc0) != 0x80;
	return n;
}

static void print_row(const char *const *cell, const int *width)
{
	for (int c = 0; c < LIST_COLUMNS; c++)
		printf("%s%*s", cell[c], c == LIST_COLUMNS - 1 ? 0 : width[c] - width_of(cell[c]) + 2, "");
	printf("\n");
}

static void print_rows(const struct election_list *l)
{
	int width[LIST_COLUMNS];

	for (int c = 0; c < LIST_COLUMNS; c++)
		width[c] = (int)strlen(list_titles[c]);
	for (size_t i = 0; i < l->elections; i++)
		for (int c = 0; c < LIST_COLUMNS; c++) {
			int n = width_of(l->rows[i].cell[c]);
			width[c] = n > width[c] ? n : width[c];
		}
	print_row(list_titles, width);
	for (size_t i = 0; i < l->elections; i++)
		print_row((const char *const *)l->rows[i].cell, width);
}

static void add_election(struct election_list *l)
{
	const struct record_text shown = {
		.lock = lock_client_url(&l->client),
		.record = &l->client.record,
		.now_us = clock_wall_us(),
	};
	struct buf b = { 0 };

	l->leaderless |= !record_text_leads(&shown);
	l->elections++;
	if (l->json) {
		record_text_json(&b, &shown);
		puts(b.data);
		fflush(stdout);
		buf_fini(&b);
		return;
	}
	l->rows = mem_resize(l->rows, l->elections * sizeof *l->rows);
	row_fill(&l->rows[l->elections - 1], &shown);
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
	if (l->rows)
		print_rows(l);
	return status < 0 ? command_fail(COMMAND_LIST, command_status_of(&err), "%s", err.text) : list_conclude(l);
}

static void list_fini(struct election_list *l)
{
	for (size_t i = 0; l->rows && i < l->elections; i++)
		for (int c = 0; c < LIST_COLUMNS; c++)
			free(l->rows[i].cell[c]);
	free(l->rows);
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
	struct election_list l = { .json = o.value[OPTION_JSON].number,
		                   .client.env.state_dir = options_text(&o, OPTION_STATE_DIR, NULL) };
	if (lock_client_open_prefix(&l.client, o.words ? o.word[0] : "", &l.prefix, &err) < 0)
		exit_with = command_fail(COMMAND_LIST, command_status_of(&err), "%s", err.text);
	else
		exit_with = list_show(&l);
	list_fini(&l);
	return exit_with;
}
