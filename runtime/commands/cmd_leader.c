#include "commands/commands.h"

#include "client/lock_client.h"
#include "client/record_text.h"
#include "commands/named_lock.h"

#include <stdio.h>
#include <stdlib.h>

/* Says on stderr why there is no address, since stdout is for the address alone. */
static int no_address(const struct record_text *s)
{
	struct buf b = { 0 };

	record_text_headline(&b, s);
	command_fail(COMMAND_LEADER, EXIT_FAILED_SCRIPT, "%s: %s%s", s->lock, b.data,
	             record_text_state(s) == LEADERSHIP_LEADING ? ", but publishes no address (--address)"
	             : record_text_held(s)                      ? "; --wait finds out whether it still renews"
	                                                        : "");
	buf_fini(&b);
	return EXIT_FAILED_SCRIPT;
}

/* Reads until there is an address to print, or the time is over. The exit status. */
static int wait_for_address(struct lock_client *c, struct instant by)
{
	struct instant since = { 0 };
	uint64_t seen = 0; /* what was read before; it was first found at `since` */
	bool moved = false;

	for (;;) {
		enum lock_outcome o = lock_client_read(c);
		if (o != LOCK_OK && o != LOCK_ABSENT)
			return command_fail(COMMAND_LEADER, command_status_of(&c->result.err), "%s",
			                    c->result.err.text);
		uint64_t sight = o == LOCK_OK ? record_sight_id(&c->record) : 1;
		if (sight != seen) {
			moved = seen;
			seen = sight;
			since = c->answered;
		}
		const struct record_text s = { .lock = lock_client_url(c),
			                       .record = o == LOCK_OK ? &c->record : NULL,
			                       .now_us = clock_wall_us(),
			                       .watched = lock_client_watched(c, since, moved) };
		if (record_text_state(&s) == LEADERSHIP_LEADING && *c->record.address) {
			printf("%s\n", c->record.address);
			return EXIT_DONE;
		}
		nsec left = instant_until(by, clock_now());
		if (left == 0)
			return no_address(&s);
		lock_client_wait_change(c, left, NSEC_PER_SEC / 4);
	}
}

int cmd_leader(int argc, char **argv)
{
	struct lock_client c = { 0 };
	struct options o;
	struct err err;
	char *url;
	int status = command_begin(&o, COMMAND_LEADER, argc, argv);

	if (status >= 0)
		return status;
	status = named_lock(&o, &url);
	if (status >= 0)
		return status;
	c.env.state_dir = options_text(&o, OPTION_STATE_DIR, NULL);
	if (lock_client_open(&c, NULL, url, &err) < 0) {
		status = command_fail(COMMAND_LEADER, command_status_of(&err), "%s", err.text);
	} else {
		lock_client_watch(&c);
		status = wait_for_address(&c, instant_add(clock_now(), o.value[OPTION_WAIT].number * NSEC_PER_MS));
	}
	lock_client_close(&c);
	free(url);
	return status;
}
