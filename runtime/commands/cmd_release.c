#include "commands/commands.h"

#include "base/mem.h"
#include "base/nonce.h"
#include "commands/by_hand.h"

#include <inttypes.h>
#include <stdlib.h>

/* What to say of a record that is not released because nobody asked for it in full. */
static void release_explain(const struct lock_client *c, bool token_known)
{
	char *lines = command_record_text("lines", lock_client_url(c), &c->record);
	char *text = mem_printf(
		"%s\nThis frees the record of a leader that is dead for sure; nobody waits for its lease to expire any more. If it "
		"is not dead,\nbut only cut off, it acts on beside the next leader until its renew deadline has passed. A receiver "
		"that\ndoes not check tokens then accepts what both send. A leader that can be reached hands over by itself: run\n"
		"`lunarch ctl resign` there.\n\nIf it is dead, say so with the token that is in force: --token %" PRId64
		"%s\n",
		lines, c->record.token, token_known ? "" : " (the record does not have it yet)");
	command_lines(stderr, text);
	free(text);
	free(lines);
}

/* Writes what a leader writes when it releases, and why it was not the leader who did. */
static int release_write(struct lock_client *c, const char *reason)
{
	struct record *r = &c->record;
	char *note = by_hand_note(reason), *done = mem_printf("it is free: released %s", note);

	record_note_past(r, r->holder, r->token, "forced");
	mem_replace(&r->previous_holder, r->holder);
	mem_replace(&r->holder, "");
	mem_replace(&r->address, "");
	mem_replace(&r->forced, note);
	r->state = RECORD_RELEASED;
	nonce_hex(r->write, sizeof r->write / 2);
	int status = by_hand_write(COMMAND_RELEASE, c, done);
	free(done);
	free(note);
	return status;
}

/* The token that the user says is in force. -1: it is. */
static int release_check_token(const struct lock_client *c, const char *text)
{
	int64_t token;
	int status = by_hand_token(COMMAND_RELEASE, text, &token);

	if (status >= 0 || token == c->record.token)
		return status;
	return command_fail(COMMAND_RELEASE, EXIT_FAILED_SCRIPT,
	                    "token %" PRId64 " is not in force, but %" PRId64 ", of %s: look again before you release",
	                    token, c->record.token, c->record.holder);
}

static int release_carry_out(struct lock_client *c, const struct options *o)
{
	int status = by_hand_read(COMMAND_RELEASE, c);

	if (status >= 0)
		return status;
	if (!*c->record.holder)
		return command_fail(COMMAND_RELEASE, EXIT_FAILED_SCRIPT, "nobody holds %s: there is nothing to release",
		                    lock_client_url(c));
	if (!options_set(o, OPTION_TOKEN)) {
		release_explain(c, c->record.token != 0);
		return EXIT_USAGE;
	}
	status = release_check_token(c, o->value[OPTION_TOKEN].text);
	if (status < 0)
		status = by_hand_watch(COMMAND_RELEASE, c);
	return status >= 0 ? status : release_write(c, o->value[OPTION_REASON].text);
}

int cmd_release(int argc, char **argv)
{
	struct lock_client c = { 0 };
	struct options o;
	int status = command_begin(&o, COMMAND_RELEASE, argc, argv);

	if (status >= 0)
		return status;
	if (!o.value[OPTION_FORCE].number)
		return command_fail(
			COMMAND_RELEASE, EXIT_USAGE,
			"a leader that runs hands over by `lunarch ctl resign`. --force frees the record of one "
			"that is dead for sure");
	status = by_hand_reason(COMMAND_RELEASE, o.value[OPTION_REASON].text);
	if (status < 0)
		status = by_hand_open(COMMAND_RELEASE, &o, &c);
	if (status < 0)
		status = release_carry_out(&c, &o);
	lock_client_close(&c);
	return status;
}
