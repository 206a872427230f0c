#include "commands/commands.h"

#include "commands/look.h"
#include "commands/record_text.h"

#include <stdio.h>

/* Says on stderr why there is no address, since stdout is for the address alone. */
static int no_address(const char *lock, const struct record *r)
{
	struct shown s = { .lock = lock, .record = r };
	struct buf b = { 0 };

	show_headline(&b, &s);
	command_fail(COMMAND_LEADER, EXIT_FAILED_SCRIPT, "%s: %s%s", lock, b.data,
	             show_leads(&s) ? ", but publishes no address (--address)" : "");
	buf_fini(&b);
	return EXIT_FAILED_SCRIPT;
}

static int follow(struct look *l, struct instant by)
{
	struct record r;
	struct instant at;
	struct err err;
	int status = -1;

	record_init(&r);
	while (status < 0) {
		enum lock_outcome o = look_read(l, &r, &at, &err);
		if (o == LOCK_ABSENT) {
			record_clear(&r);
		} else if (o != LOCK_OK) {
			status = command_fail(COMMAND_LEADER, command_status_of(&err), "%s", err.text);
			break;
		}
		nsec left = instant_until(by, clock_now());
		if (o == LOCK_OK && *r.holder && *r.address) {
			printf("%s\n", r.address);
			status = EXIT_DONE;
		} else if (left == 0) {
			status = no_address(look_url(l), o == LOCK_OK ? &r : NULL);
		} else {
			look_wait(l, left, NSEC_PER_SEC / 4);
		}
	}
	record_fini(&r);
	return status;
}

int cmd_leader(int argc, char **argv)
{
	struct options o;
	struct err err;
	int status = command_begin(&o, COMMAND_LEADER, argc, argv);

	if (status >= 0)
		return status;
	if (!options_set(&o, OPTION_LOCK))
		return command_fail(COMMAND_LEADER, EXIT_USAGE, "which lock? lunarch leader --lock URL");
	struct look *l = look_open(o.value[OPTION_LOCK].text, &err);
	if (!l)
		return command_fail(COMMAND_LEADER, command_status_of(&err), "%s", err.text);
	status = follow(l, instant_add(clock_now(), o.value[OPTION_WAIT].number * NSEC_PER_MS));
	look_close(l);
	return status;
}
