#include "commands/by_hand.h"

#include "base/buf.h"
#include "base/mem.h"
#include "commands/named_lock.h"
#include "locks/lock_identity.h"

#include <ctype.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REASON_MAX 200 /* bytes; it stays in the record until the next term begins */
#define POLL (NSEC_PER_SEC / 4)

int by_hand_reason(enum command command, const char *reason)
{
	if (!reason || !*reason)
		return command_fail(command, EXIT_USAGE,
		                    "why? --reason TEXT is kept in the record, and logged by the candidates");
	if (strlen(reason) > REASON_MAX || !buf_is_utf8(reason))
		return command_fail(command, EXIT_USAGE,
		                    "--reason: expected UTF-8 without control characters, at most %d bytes",
		                    REASON_MAX);
	return -1;
}

int by_hand_token(enum command command, const char *text, int64_t *token)
{
	char *end;

	*token = strtoll(text, &end, 10);
	if (!isdigit((unsigned char)*text) || *end)
		return command_fail(command, EXIT_USAGE, "--token %s: expected the token's number", text);
	return -1;
}

int by_hand_open(enum command command, const struct options *o, struct lock_client *c)
{
	struct err err;
	char *url;
	int status = named_lock(o, &url);

	if (status >= 0)
		return status;
	c->env.state_dir = options_text(o, OPTION_STATE_DIR, NULL);
	if (lock_client_open(c, NULL, url, &err) < 0)
		status = command_fail(command, command_status_of(&err), "%s", err.text);
	free(url);
	return status;
}

int by_hand_read(enum command command, struct lock_client *c)
{
	enum lock_outcome o = lock_client_read(c);

	if (o == LOCK_ABSENT)
		return command_fail(command, EXIT_FAILED_SCRIPT, "nobody holds %s: there is no record",
		                    lock_client_url(c));
	if (o != LOCK_OK)
		return command_fail(command, command_status_of(&c->result.err), "%s", c->result.err.text);
	if (lock_client_found_next(c))
		return command_fail(command, EXIT_FAILED_SCRIPT,
		                    "%s is no lock, but the record of who comes next beside one: name that lock",
		                    lock_client_url(c));
	return -1;
}

int by_hand_watch(enum command command, struct lock_client *c)
{
	int64_t lease_ms = c->record.lease_ms, watch_ms = c->record.retry_ms > 0 ? 2 * c->record.retry_ms : lease_ms;
	bool changed;

	lock_client_watch(c);
	enum lock_outcome o =
		lock_client_watch_record(c, (watch_ms < lease_ms ? watch_ms : lease_ms) * NSEC_PER_MS, POLL, &changed);
	if (o != LOCK_OK && o != LOCK_ABSENT)
		return command_fail(command, command_status_of(&c->result.err), "%s", c->result.err.text);
	if (!changed)
		return -1;
	return command_fail(command, EXIT_FAILED_SCRIPT,
	                    "the record of %s has changed while this command watched it, so its holder is not dead, "
	                    "and nothing was done. `lunarch ctl resign` there hands over",
	                    lock_client_url(c));
}

char *by_hand_note(const char *reason)
{
	const struct passwd *who = getpwuid(getuid());
	char host[256] = "localhost", when[40];

	gethostname(host, sizeof host - 1);
	record_time_print(clock_wall_us(), when, sizeof when);
	return mem_printf("%s by %s at %s: %s", when, who ? who->pw_name : "an unknown user", host, reason);
}

int by_hand_write(enum command command, struct lock_client *c, const char *done)
{
	struct version version = c->result.version;

	lock_identity_sign(c->lock, &c->record);
	lock_client_start_write(c, &version, true);
	enum lock_outcome o = lock_client_wait(c);
	if (o == LOCK_OK) {
		fprintf(stderr, "lunarch %s: %s: %s\n", command_names[command], lock_client_url(c), done);
		return EXIT_DONE;
	}
	if (o == LOCK_CONFLICT)
		return command_fail(command, EXIT_FAILED_SCRIPT,
		                    "the record has changed meanwhile, so nothing was done: `lunarch status --lock %s`",
		                    lock_client_url(c));
	return command_fail(command, command_status_of(&c->result.err), "%s%s", c->result.err.text,
	                    o == LOCK_UNKNOWN ? " (it may be done: `lunarch status` shows it)" : "");
}
