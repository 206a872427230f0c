#include "commands/commands.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/nonce.h"
#include "commands/by_hand.h"
#include "lease/debt_record.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What to say of a record that is not changed because nobody asked for it in full. */
static int fence_explain(const struct lock_client *c)
{
	char *lines = command_record_text("lines", lock_client_url(c), &c->record);
	struct debt d = { 0 };
	struct buf b = { 0 };

	buf_printf(&b, "%s\n", lines);
	debt_of(&d, &c->record);
	for (int i = 0; i < d.count; i++)
		buf_printf(&b, "may still act: %s, token %" PRId64 "\n", d.of[i].identity, d.of[i].token);
	buf_adds(
		&b,
		d.count ? "\nIf one of these does nothing any more for sure (its machine is off, its work is stopped), say so "
			  "with its token:\n--done NAME --token N --reason TEXT. Then nobody fences it any more.\n"
			: "nobody is to be fenced\n");
	command_lines(stderr, b.data);
	buf_fini(&b);
	debt_fini(&d);
	free(lines);
	return EXIT_USAGE;
}

/* The debtor that the user names. -1: it is there, with this token. */
static int fence_find(const struct lock_client *c, struct debt *d, const char *who, int64_t token)
{
	int64_t other = -1;

	for (int i = 0; i < d->count; i++)
		if (strcmp(d->of[i].identity, who) == 0 && d->of[i].token == token)
			return -1;
		else if (strcmp(d->of[i].identity, who) == 0)
			other = d->of[i].token;
	if (other >= 0)
		return command_fail(COMMAND_FENCE, EXIT_FAILED_SCRIPT,
		                    "token %" PRId64 " is not that of %s, but %" PRId64
		                    ": it has led since. Look again before you say that it does nothing any more",
		                    token, who, other);
	return command_fail(COMMAND_FENCE, EXIT_FAILED_SCRIPT,
	                    "%s is none of those that may still act: `lunarch status --lock %s` shows them", who,
	                    lock_client_url(c));
}

/* If the record still names that one as its holder, or says that it was released by force, it would be booked again: it
 * becomes a record that its holder has released. */
static void fence_release(struct record *r, const char *who)
{
	if (strcmp(r->holder, who) == 0) {
		record_note_past(r, r->holder, r->token, "fenced");
		mem_replace(&r->previous_holder, r->holder);
		mem_replace(&r->holder, "");
		mem_replace(&r->address, "");
		r->state = RECORD_RELEASED;
		r->fencing = 0;
		nonce_hex(r->write, sizeof r->write / 2);
	} else if (!*r->holder && strcmp(r->previous_holder, who) == 0) {
		mem_replace(&r->forced, "");
	}
}

/* While somebody holds the record it is that one's to write, or a holder of which nothing is heard is dead. */
static int fence_may_write(struct lock_client *c, const char *who)
{
	if (!*c->record.holder)
		return -1;
	if (strcmp(c->record.holder, who) != 0)
		return command_fail(
			COMMAND_FENCE, EXIT_FAILED_SCRIPT,
			"%s holds the lock, and only a record that nobody holds is changed by hand: try again "
			"when it is free (`lunarch ctl resign` at %s)",
			c->record.holder, c->record.holder);
	return by_hand_watch(COMMAND_FENCE, c);
}

static int fence_pay(struct lock_client *c, struct debt *d, const char *who, int64_t token, const char *reason)
{
	struct record *r = &c->record;

	debt_forgive(d, who, token);
	char *note = by_hand_note(reason), *done = mem_printf("%s is no longer fenced: paid %s", who, note);
	fence_release(r, who);
	free(r->unfenced);
	r->unfenced = debt_text(d);
	mem_replace(&r->paid, note);
	int status = by_hand_write(COMMAND_FENCE, c, done);
	free(done);
	free(note);
	return status;
}

static int fence_carry_out(struct lock_client *c, const struct options *o)
{
	const char *who = o->value[OPTION_DONE].text;
	struct debt d = { 0 };
	int64_t token;
	int status = by_hand_read(COMMAND_FENCE, c);

	if (status >= 0)
		return status;
	if (!options_set(o, OPTION_DONE) || !options_set(o, OPTION_TOKEN))
		return fence_explain(c);
	status = by_hand_token(COMMAND_FENCE, o->value[OPTION_TOKEN].text, &token);
	if (status >= 0)
		return status;
	debt_of(&d, &c->record);
	status = fence_find(c, &d, who, token);
	if (status < 0)
		status = fence_may_write(c, who);
	if (status < 0)
		status = fence_pay(c, &d, who, token, o->value[OPTION_REASON].text);
	debt_fini(&d);
	return status;
}

int cmd_fence(int argc, char **argv)
{
	struct lock_client c = { 0 };
	struct options o;
	int status = command_begin(&o, COMMAND_FENCE, argc, argv);

	if (status >= 0)
		return status;
	if (options_set(&o, OPTION_DONE))
		status = by_hand_reason(COMMAND_FENCE, o.value[OPTION_REASON].text);
	if (status < 0)
		status = by_hand_open(COMMAND_FENCE, &o, &c);
	if (status < 0)
		status = fence_carry_out(&c, &o);
	lock_client_close(&c);
	return status;
}
