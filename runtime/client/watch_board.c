#include "client/watch_board.h"

#include "base/mem.h"

#include <ev.h>
#include <stdlib.h>
#include <string.h>

#define GATHER (NSEC_PER_SEC / 20)     /* what else happens so soon is shown together with the first */
#define POLL NSEC_PER_SEC              /* where the store gives no notices */
#define LOOK_AGAIN (10 * NSEC_PER_SEC) /* where it does; and for new ones below the prefix */

/* ---- the locks ---- */

static void board_lock_free(struct board_lock *l)
{
	lock_client_close(&l->client);
	free(l->name);
	free(l);
}

/* name: as in struct board_lock. */
static int board_add(struct watch_board *b, const char *url, const char *name, struct err *err)
{
	struct board_lock *l = mem_zero(sizeof *l);

	if (lock_client_open_beside(&l->client, &b->base, url, err) < 0) {
		board_lock_free(l);
		return -1;
	}
	l->name = name ? mem_dup(name) : NULL;
	lock_client_watch(&l->client);
	b->lock = mem_resize(b->lock, (b->count + 1) * sizeof(struct board_lock *));
	b->lock[b->count++] = l;
	return 0;
}

static bool board_has(const struct watch_board *b, const char *name)
{
	for (size_t i = 0; i < b->count; i++)
		if (b->lock[i]->name && strcmp(b->lock[i]->name, name) == 0)
			return true;
	return false;
}

/* -1: it could not be listed; what was found before stays. What cannot be a lock's name is nobody's. */
static int board_list(struct watch_board *b, struct err *err)
{
	struct lock_listing names = { 0 };
	struct err none;

	b->listed = clock_now();
	if (lock_client_list(&b->base, &names) != LOCK_OK) {
		*err = b->base.result.err;
		lock_listing_fini(&names);
		return -1;
	}
	b->more = names.more;
	for (size_t i = 0; i < names.count; i++) {
		if (board_has(b, names.name[i]))
			continue;
		char *url = lock_url_beside(b->base.place, b->prefix, names.name[i]);
		board_add(b, url, names.name[i], &none);
		free(url);
	}
	lock_listing_fini(&names);
	return 0;
}

int watch_board_open(struct watch_board *b, const char *const *urls, size_t count, const char *state_dir,
                     struct err *err)
{
	b->base.env.state_dir = state_dir;
	if (lock_client_open_base(&b->base, err) < 0)
		return -1;
	for (size_t i = 0; i < count; i++)
		if (board_add(b, urls[i], NULL, err) < 0)
			return -1;
	return 0;
}

int watch_board_open_prefix(struct watch_board *b, const char *prefix, const char *state_dir, struct err *err)
{
	b->base.env.state_dir = state_dir;
	if (lock_client_open_prefix(&b->base, prefix, &b->prefix, err) < 0)
		return -1;
	if (!b->base.place->ops->list)
		return err_set(err, ERR_USAGE, "%s:... cannot be listed", b->base.place->ops->scheme);
	return board_list(b, err);
}

void watch_board_close(struct watch_board *b)
{
	for (size_t i = 0; i < b->count; i++)
		board_lock_free(b->lock[i]);
	free(b->lock);
	free(b->prefix);
	lock_client_close(&b->base);
}

/* ---- looking ---- */

static bool is_due(const struct board_lock *l)
{
	nsec after = l->client.watched && !l->failed ? LOOK_AGAIN : POLL;

	return !l->reading && (!l->answered || l->client.changed ||
	                       instant_until(instant_add(l->client.asked, after), clock_now()) <= 0);
}

static void board_lock_take(struct board_lock *l)
{
	enum lock_outcome o = l->client.result.outcome;
	bool present = o == LOCK_OK;
	uint64_t sight = present ? record_sight_id(&l->client.record) : 0;
	bool read_before = l->read_us;

	l->reading = false;
	l->failed = o != LOCK_OK && o != LOCK_ABSENT;
	l->read_us = l->failed ? l->read_us : clock_wall_us();
	if (!l->failed && (!read_before || present != l->present || sight != l->sight)) {
		l->moved = read_before;
		l->since = l->client.answered;
		l->present = present;
		l->sight = sight;
	}
	l->answered = true;
	l->hidden =
		l->name && (o == LOCK_ABSENT || o == LOCK_FOREIGN || (present && lock_client_found_next(&l->client)));
}

/* Whether anything has happened. */
static bool board_take(struct watch_board *b)
{
	bool any = false;

	for (size_t i = 0; i < b->count; i++) {
		struct board_lock *l = b->lock[i];
		if (l->reading && !l->client.busy) {
			board_lock_take(l);
			any = true;
		}
		any |= !l->reading && l->client.changed;
	}
	return any;
}

static void board_on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)w, (void)revents; /* it only ends ev_run */
}

static void board_start(struct watch_board *b)
{
	struct err err;

	if (b->prefix && instant_until(instant_add(b->listed, LOOK_AGAIN), clock_now()) <= 0)
		board_list(b, &err); /* it may fail: each lock says itself that it cannot be read */
	for (size_t i = 0; i < b->count; i++)
		if (is_due(b->lock[i])) {
			b->lock[i]->reading = true;
			lock_client_start_read(&b->lock[i]->client);
		}
}

void watch_board_look(struct watch_board *b, nsec most)
{
	struct instant by = instant_add(clock_now(), most);
	bool gathers = false;
	ev_timer timer;
	nsec left;

	board_start(b);
	ev_timer_init(&timer, board_on_timer, 0., 0.);
	while ((left = instant_until(by, clock_now())) > 0) {
		ev_now_update(b->base.loop);
		ev_timer_set(&timer, (double)left / NSEC_PER_SEC, 0.);
		ev_timer_start(b->base.loop, &timer);
		ev_run(b->base.loop, EVRUN_ONCE);
		ev_timer_stop(b->base.loop, &timer);
		if (board_take(b) && !gathers) {
			gathers = true;
			by = left > GATHER ? instant_add(clock_now(), GATHER) : by;
		}
	}
}

bool watch_board_complete(const struct watch_board *b)
{
	for (size_t i = 0; i < b->count; i++)
		if (!b->lock[i]->answered)
			return false;
	return true;
}

enum leadership_watched board_lock_watched(const struct board_lock *l)
{
	return lock_client_watched(&l->client, l->since, l->moved);
}
