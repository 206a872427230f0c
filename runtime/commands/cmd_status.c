#include "commands/commands.h"

#include "base/mem.h"
#include "client/board_text.h"
#include "client/history_text.h"
#include "client/watch_board.h"
#include "client/lock_client.h"
#include "client/record_text.h"
#include "client/screen.h"
#include "commands/named_lock.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define POLL (NSEC_PER_SEC / 4)
#define DRAW NSEC_PER_SEC              /* how often a drawing is made anew, since its times move on */
#define WATCH_LOOK (60 * NSEC_PER_SEC) /* with nobody leading and a store that gives notice: a look now and then */

/* The last look, since when the store has shown exactly that, and whether it was seen to show something else before. */
struct status {
	struct lock_client client;
	bool json;
	bool present; /* client.record is what the lock holds; false: there is no record */
	bool looked, moved;
	struct instant since;
	enum leadership_watched verified; /* by --verify */
	struct screen screen;             /* of --watch on a terminal */
};

/* What a read found. changed: the record is another than before. -1: an error, said here; *exit_with is its status. */
static int status_take(struct status *s, enum lock_outcome o, bool changed, int *exit_with)
{
	const struct err *err = &s->client.result.err;

	if (o != LOCK_OK && o != LOCK_ABSENT) {
		screen_leave(&s->screen);
		*exit_with = command_fail(COMMAND_STATUS, command_status_of(err), "%s", err->text);
		return -1;
	}
	s->present = o == LOCK_OK;
	if (changed) {
		s->moved = s->looked;
		s->since = s->client.answered;
	}
	s->looked = true;
	return 0;
}

/* As status_take. */
static int status_look(struct status *s, int *exit_with)
{
	uint64_t before = s->present ? record_sight_id(&s->client.record) : 0;
	enum lock_outcome o = lock_client_read(&s->client);
	bool present = o == LOCK_OK;

	return status_take(s, o, present != s->present || (present && record_sight_id(&s->client.record) != before),
	                   exit_with);
}

static struct record_text status_shown(const struct status *s)
{
	return (struct record_text){
		.lock = lock_client_url(&s->client),
		.record = s->present ? &s->client.record : NULL,
		.now_us = clock_wall_us(),
		.watched = s->verified ? s->verified : lock_client_watched(&s->client, s->since, s->moved),
	};
}

static enum leadership status_state(const struct status *s)
{
	struct record_text shown = status_shown(s);

	return record_text_state(&shown);
}

static void status_print(struct buf *b)
{
	fwrite(b->data, 1, b->len, stdout);
	fflush(stdout);
	buf_fini(b);
}

static void status_print_whole(const struct status *s)
{
	struct record_text shown = status_shown(s);
	struct buf b = { 0 };

	if (s->json) {
		record_text_json(&b, &shown);
		buf_adds(&b, "\n");
	} else {
		record_text_lines(&b, &shown);
	}
	status_print(&b);
}

/* The lease of the record that is watched, as a standby counts it. */
static nsec status_lease_left(const struct status *s)
{
	return s->client.record.lease_ms * NSEC_PER_MS - elapsed_standby(s->since, clock_now());
}

/* Watches until the holder renews (or another takes over), or its lease has passed without that. */
static int status_verify(struct status *s, int *exit_with)
{
	bool changed;

	if (status_state(s) < LEADERSHIP_OVERDUE)
		return 0;
	enum lock_outcome o = lock_client_watch_record(&s->client, status_lease_left(s), POLL, &changed);
	if (status_take(s, o, changed, exit_with) < 0)
		return -1;
	s->verified = changed ? WATCHED_RENEWS : WATCHED_SILENT;
	return 0;
}

/* ---- --watch ---- */

/* "2026-11-22 23:04:47.123 " */
static void put_now(struct buf *b, int64_t now_us)
{
	time_t sec = now_us / 1000000;
	struct tm tm;
	char now[32];

	localtime_r(&sec, &tm);
	strftime(now, sizeof now, "%F %T", &tm);
	buf_printf(b, "%s.%03d ", now, (int)(now_us / 1000 % 1000));
}

static void print_change(const struct status *s)
{
	struct record_text shown = status_shown(s);
	struct buf b = { 0 };

	if (s->json) {
		record_text_json(&b, &shown);
	} else {
		put_now(&b, shown.now_us);
		record_text_headline(&b, &shown);
	}
	buf_adds(&b, "\n");
	status_print(&b);
}

/* Runs until a signal or an error. A renewal changes nothing of the headline, and is not told. */
static int status_watch(struct status *s)
{
	struct buf told = { 0 };
	int exit_with;

	do {
		struct record_text shown = status_shown(s);
		struct buf now = { 0 };
		record_text_headline(&now, &shown);
		if (!told.data || strcmp(now.data, told.data) != 0)
			print_change(s);
		buf_fini(&told);
		told = now;
		nsec left = record_text_held(&shown) ? status_lease_left(s) : 0;
		lock_client_wait_change(&s->client, left > 0 ? left : WATCH_LOOK, POLL);
	} while (status_look(s, &exit_with) == 0);
	buf_fini(&told);
	return exit_with;
}

static void status_draw(struct status *s)
{
	struct record_text shown = status_shown(s);
	struct buf b = { 0 };

	screen_measure(&s->screen);
	buf_plain(&b, shown.lock);
	buf_adds(&b, "\n");
	record_text_headline(&b, &shown);
	buf_adds(&b, "\n\n");
	history_text_drawing(&b, &shown, s->screen.columns, s->screen.colour);
	buf_adds(&b, "\n");
	history_text_table(&b, &shown, true);
	screen_show(&s->screen, &b);
	buf_fini(&b);
}

/* As status_watch, on a terminal. */
static int status_watch_drawn(struct status *s)
{
	int exit_with;

	screen_enter(&s->screen);
	do {
		status_draw(s);
		lock_client_wait_change(&s->client, DRAW, DRAW);
	} while (status_look(s, &exit_with) == 0);
	return exit_with;
}

static int status_show(struct status *s, const struct options *o)
{
	int exit_with;

	if (status_look(s, &exit_with) < 0)
		return exit_with;
	if (o->value[OPTION_VERIFY].number && status_verify(s, &exit_with) < 0)
		return exit_with;
	s->verified = o->value[OPTION_WATCH].number ? WATCHED_NOTHING : s->verified; /* it goes on watching */
	if (o->value[OPTION_WATCH].number)
		return !s->json && screen_possible() ? status_watch_drawn(s) : status_watch(s);
	status_print_whole(s);
	return status_state(s) == LEADERSHIP_LEADING ? EXIT_DONE : EXIT_FAILED_SCRIPT;
}

static int status_of_one(const struct options *o, const char *url)
{
	struct status s = { .json = o->value[OPTION_JSON].number, .since = clock_now() };
	struct err err;
	int exit_with;

	s.client.env.state_dir = options_text(o, OPTION_STATE_DIR, NULL);
	if (lock_client_open(&s.client, NULL, url, &err) < 0) {
		exit_with = command_fail(COMMAND_STATUS, command_status_of(&err), "%s", err.text);
	} else {
		lock_client_watch(&s.client);
		exit_with = status_show(&s, o);
	}
	lock_client_close(&s.client);
	return exit_with;
}

/* ---- --watch of several ---- */

/* Until a signal: what cannot be read is shown as that. */
static void several_draw(struct watch_board *b)
{
	struct board_text text = { 0 };
	struct screen screen = { 0 };

	screen_enter(&screen);
	for (;;) {
		struct buf out = { 0 };
		screen_measure(&screen);
		board_text_draw(&text, &out, b, &screen, clock_wall_us());
		screen_show(&screen, &out);
		buf_fini(&out);
		watch_board_look(b, DRAW);
	}
}

static void print_told(const struct board_lock *l, const char *headline, bool json)
{
	struct record_text shown = board_text_shown(l, clock_wall_us());
	struct buf b = { 0 };

	if (json && l->failed)
		return (void)command_fail(COMMAND_STATUS, EXIT_DONE, "%s", headline);
	if (json) {
		record_text_json(&b, &shown);
	} else {
		put_now(&b, shown.now_us);
		buf_plain(&b, shown.lock);
		buf_printf(&b, ": %s", headline);
	}
	buf_adds(&b, "\n");
	status_print(&b);
}

/* A line for each change, until a signal. */
static void several_tell(struct watch_board *b, bool json)
{
	char **told = NULL; /* of each: what was said last; NULL: nothing */
	size_t count = 0;

	for (;;) {
		told = mem_resize(told, (b->count + 1) * sizeof(char *));
		for (; count < b->count; count++)
			told[count] = NULL;
		for (size_t i = 0; i < b->count; i++) {
			struct buf now = { 0 };
			if (!b->lock[i]->answered || b->lock[i]->hidden)
				continue;
			board_text_headline(&now, b->lock[i], clock_wall_us());
			if (told[i] && strcmp(told[i], now.data) == 0) {
				buf_fini(&now);
				continue;
			}
			print_told(b->lock[i], now.data, json);
			free(told[i]);
			told[i] = now.data; /* it is the buffer's block of memory */
		}
		watch_board_look(b, DRAW);
	}
}

static int status_of_several(const struct options *o, const char *prefix, const struct named_locks *locks)
{
	const char *state_dir = options_text(o, OPTION_STATE_DIR, NULL);
	bool json = o->value[OPTION_JSON].number;
	struct watch_board b = { 0 };
	struct err err;

	int opened = prefix ? watch_board_open_prefix(&b, prefix, state_dir, &err)
	                    : watch_board_open(&b, (const char *const *)locks->url, locks->count, state_dir, &err);
	if (opened < 0) {
		watch_board_close(&b);
		return command_fail(COMMAND_STATUS, command_status_of(&err), "%s", err.text);
	}
	watch_board_look(&b, NSEC_PER_SEC);
	if (!json && screen_possible())
		several_draw(&b);
	several_tell(&b, json);
	return EXIT_DONE; /* neither returns */
}

int cmd_status(int argc, char **argv)
{
	struct named_locks locks = { 0 };
	struct options o;
	int exit_with = command_begin(&o, COMMAND_STATUS, argc, argv);

	if (exit_with >= 0)
		return exit_with;
	bool watch = o.value[OPTION_WATCH].number;
	const char *prefix = o.value[OPTION_PREFIX].text;
	if ((prefix || o.lock_count > 1) && !watch)
		return command_fail(
			COMMAND_STATUS, EXIT_USAGE,
			"several locks: add --watch to see them as they change; `lunarch list` prints them once");
	if (prefix && (o.words || o.lock_count))
		return command_fail(COMMAND_STATUS, EXIT_USAGE, "--prefix, or locks by their names: not both");
	if (!prefix)
		exit_with = named_locks(&o, watch, &locks);
	if (exit_with < 0)
		exit_with = prefix || locks.count > 1 ? status_of_several(&o, prefix, &locks)
		                                      : status_of_one(&o, locks.url[0]);
	named_locks_fini(&locks);
	return exit_with;
}
