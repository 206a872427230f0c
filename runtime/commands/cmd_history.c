#include "commands/commands.h"

#include "base/duration.h"
#include "client/history_text.h"
#include "client/lock_client.h"
#include "commands/named_lock.h"

#include <stdio.h>
#include <stdlib.h>

/* present: c->record is what the lock holds. The exit status. */
static int history_show(const struct lock_client *c, bool present, bool json)
{
	const struct record_text shown = { .lock = lock_client_url(c),
		                           .record = present ? &c->record : NULL,
		                           .now_us = clock_wall_us() };
	struct buf b = { 0 };
	bool known = json ? history_text_json(&b, &shown) : history_text_table(&b, &shown, false);

	if (b.len)
		fputs(b.data, stdout);
	buf_fini(&b);
	if (!known && !json)
		return command_fail(
			COMMAND_HISTORY, EXIT_FAILED_SCRIPT, "%s: %s", lock_client_url(c),
			present ? "the record tells of no term: it is new, or its candidates are older than this"
				: "there is no record, so nobody has led yet, or it was deleted");
	return known ? EXIT_DONE : EXIT_FAILED_SCRIPT;
}

int cmd_history(int argc, char **argv)
{
	struct lock_client c = { 0 };
	struct options o;
	struct err err;
	char *url;
	int status = command_begin(&o, COMMAND_HISTORY, argc, argv);

	if (status >= 0)
		return status;
	status = named_lock(&o, &url);
	if (status >= 0)
		return status;
	c.env.state_dir = options_text(&o, OPTION_STATE_DIR, NULL);
	if (lock_client_open(&c, NULL, url, &err) < 0) {
		status = command_fail(COMMAND_HISTORY, command_status_of(&err), "%s", err.text);
	} else {
		enum lock_outcome found = lock_client_read(&c);
		bool present = found == LOCK_OK && !lock_client_found_next(&c);
		if (found == LOCK_OK || found == LOCK_ABSENT)
			status = history_show(&c, present, o.value[OPTION_JSON].number);
		else
			status = command_fail(COMMAND_HISTORY, command_status_of(&c.result.err), "%s",
			                      c.result.err.text);
	}
	lock_client_close(&c);
	free(url);
	return status;
}
