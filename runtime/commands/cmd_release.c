#include "commands/commands.h"

#include "base/buf.h"
#include "base/mem.h"
#include "base/nonce.h"
#include "client/lock_client.h"
#include "commands/named_lock.h"
#include "lease/record.h"
#include "locks/lock_identity.h"

#include <ctype.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REASON_MAX 200 /* bytes; it stays in the record until the next term begins */
#define POLL (NSEC_PER_SEC / 4)

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

/* Watches for as long as a healthy leader needs for two renewals, at most for its lease. true: it has renewed, or the
 * record has changed in another way; or *status is no longer -1, and that is said. */
static bool release_sees_life(struct lock_client *c, int *status)
{
	int64_t lease_ms = c->record.lease_ms, watch_ms = c->record.retry_ms > 0 ? 2 * c->record.retry_ms : lease_ms;
	bool changed;

	*status = -1;
	enum lock_outcome o =
		lock_client_watch_record(c, (watch_ms < lease_ms ? watch_ms : lease_ms) * NSEC_PER_MS, POLL, &changed);
	if (o != LOCK_OK && o != LOCK_ABSENT)
		*status = command_fail(COMMAND_RELEASE, command_status_of(&c->result.err), "%s", c->result.err.text);
	return changed || *status >= 0;
}

/* "2026-11-23T10:00:00.000000Z by alice at host: REASON" */
static char *release_note(const char *reason)
{
	const struct passwd *who = getpwuid(getuid());
	char host[256] = "localhost", when[40];

	gethostname(host, sizeof host - 1);
	record_time_print(clock_wall_us(), when, sizeof when);
	return mem_printf("%s by %s at %s: %s", when, who ? who->pw_name : "an unknown user", host, reason);
}

/* Writes what a leader writes when it releases, and why it was not the leader who did. */
static int release_write(struct lock_client *c, const char *reason)
{
	struct record *r = &c->record;
	struct version version = c->result.version;
	char *note = release_note(reason);

	record_note_past(r, r->holder, r->token, "forced");
	mem_replace(&r->previous_holder, r->holder);
	mem_replace(&r->holder, "");
	mem_replace(&r->address, "");
	mem_replace(&r->forced, note);
	r->state = RECORD_RELEASED;
	lock_identity_sign(c->lock, r);
	nonce_hex(r->write, sizeof r->write / 2);
	lock_client_start_write(c, &version, true);
	enum lock_outcome o = lock_client_wait(c);
	int status = EXIT_DONE;
	if (o == LOCK_OK)
		fprintf(stderr, "lunarch release: %s is free: released %s\n", lock_client_url(c), note);
	else if (o == LOCK_CONFLICT)
		status = command_fail(
			COMMAND_RELEASE, EXIT_FAILED_SCRIPT,
			"the record has changed meanwhile, so nothing was done: `lunarch status --lock %s`",
			lock_client_url(c));
	else
		status = command_fail(COMMAND_RELEASE, command_status_of(&c->result.err), "%s%s", c->result.err.text,
		                      o == LOCK_UNKNOWN ? " (it may be released: `lunarch status` shows it)" : "");
	free(note);
	return status;
}

/* The token that the user says is in force. -1 with a message: it is none, or another. */
static int release_check_token(const struct lock_client *c, const char *text)
{
	char *end;
	long long token = strtoll(text, &end, 10);

	if (!isdigit((unsigned char)*text) || *end)
		return command_fail(COMMAND_RELEASE, EXIT_USAGE, "--token %s: expected the token's number", text);
	if (token == c->record.token)
		return -1;
	return command_fail(COMMAND_RELEASE, EXIT_FAILED_SCRIPT,
	                    "token %lld is not in force, but %" PRId64 ", of %s: look again before you release", token,
	                    c->record.token, c->record.holder);
}

static int release_read(struct lock_client *c)
{
	enum lock_outcome o = lock_client_read(c);

	if (o != LOCK_OK && o != LOCK_ABSENT)
		return command_fail(COMMAND_RELEASE, command_status_of(&c->result.err), "%s", c->result.err.text);
	if (o == LOCK_OK && lock_client_found_next(c))
		return command_fail(COMMAND_RELEASE, EXIT_FAILED_SCRIPT,
		                    "%s is no lock, but the record of who comes next beside one: name that lock",
		                    lock_client_url(c));
	if (o == LOCK_OK && *c->record.holder)
		return -1;
	return command_fail(COMMAND_RELEASE, EXIT_FAILED_SCRIPT, "nobody holds %s: there is nothing to release",
	                    lock_client_url(c));
}

static int release_carry_out(struct lock_client *c, const struct options *o)
{
	int status = release_read(c);

	if (status >= 0)
		return status;
	if (!options_set(o, OPTION_TOKEN)) {
		release_explain(c, c->record.token != 0);
		return EXIT_USAGE;
	}
	status = release_check_token(c, o->value[OPTION_TOKEN].text);
	if (status >= 0)
		return status;
	lock_client_watch(c);
	if (release_sees_life(c, &status))
		return status >= 0
		               ? status
		               : command_fail(COMMAND_RELEASE, EXIT_FAILED_SCRIPT,
		                              "the record of %s has changed while this command watched it, so its "
		                              "holder is not dead, and nothing was done. `lunarch ctl resign` there "
		                              "hands over",
		                              lock_client_url(c));
	return release_write(c, o->value[OPTION_REASON].text);
}

static int release_check_options(const struct options *o)
{
	const char *reason = o->value[OPTION_REASON].text;

	if (!o->value[OPTION_FORCE].number)
		return command_fail(
			COMMAND_RELEASE, EXIT_USAGE,
			"a leader that runs hands over by `lunarch ctl resign`. --force frees the record of one "
			"that is dead for sure");
	if (!reason || !*reason)
		return command_fail(COMMAND_RELEASE, EXIT_USAGE,
		                    "why? --reason TEXT is kept in the record, and logged by the candidates");
	if (strlen(reason) > REASON_MAX || !buf_is_utf8(reason))
		return command_fail(COMMAND_RELEASE, EXIT_USAGE,
		                    "--reason: expected UTF-8 without control characters, at most %d bytes",
		                    REASON_MAX);
	return -1;
}

int cmd_release(int argc, char **argv)
{
	struct lock_client c = { 0 };
	struct options o;
	struct err err;
	char *url;
	int status = command_begin(&o, COMMAND_RELEASE, argc, argv);

	if (status >= 0)
		return status;
	status = release_check_options(&o);
	if (status >= 0)
		return status;
	status = named_lock(&o, &url);
	if (status >= 0)
		return status;
	c.env.state_dir = options_text(&o, OPTION_STATE_DIR, NULL);
	if (lock_client_open(&c, NULL, url, &err) < 0)
		status = command_fail(COMMAND_RELEASE, command_status_of(&err), "%s", err.text);
	else
		status = release_carry_out(&c, &o);
	lock_client_close(&c);
	free(url);
	return status;
}
