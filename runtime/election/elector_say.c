#include "election/elector_internal.h"

#include "base/mem.h"
#include "election/outcome.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static struct log_about elector_about(const struct elector *e)
{
	return (struct log_about){ .lock = e->lock->url,
		                   .identity = e->author.identity,
		                   .election = e->name,
		                   .term = e->term_open ? lease_term(e->lease) : 0,
		                   .token = e->term_open ? e->token : 0 };
}

void elector_say(struct elector *e, enum log_level level, const char *event, const char *fmt, ...)
{
	char text[1200];
	struct log_about a = elector_about(e);
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	decisions_add(decisions_of(e->env), e, event, text);
	log_event(level, &a, event, "%s", text);
}

void elector_say_trouble(struct elector *e, const char *event, const char *text)
{
	struct instant now = clock_now();

	e->unwritable = false;
	if (e->cb->trouble)
		e->cb->trouble(e->arg, text);
	if (e->trouble && strcmp(e->trouble, text) == 0 && elapsed_standby(e->trouble_at, now) < 60 * NSEC_PER_SEC)
		return;
	if (!e->trouble)
		e->trouble_since = now;
	mem_replace(&e->trouble, text);
	e->trouble_at = now;
	elector_say(e, LOG_WARN, event, "%s", text);
}

void elector_trouble_over(struct elector *e)
{
	if (!e->trouble)
		return;
	mem_replace(&e->trouble, NULL);
	if (e->cb->trouble)
		e->cb->trouble(e->arg, NULL);
	e->unwritable = false;
	elector_say(e, LOG_INFO, "store_back", "the store answers again, after %.1f s",
	            (double)elapsed_standby(e->trouble_since, clock_now()) / NSEC_PER_SEC);
}

void elector_read_failed(struct elector *e)
{
	struct instant now = clock_now();
	nsec silence = store_contact_silence(&e->contact, now);

	if (store_contact_read_failed(&e->contact, lease_publishes(e->lease)->renew, now))
		elector_say(e, LOG_WARN, "store_lost",
		            "the store has not answered for %.1f s: until it does, this candidate cannot lead%s",
		            (double)silence / NSEC_PER_SEC, e->contact.answered ? "" : " (it has not answered once)");
}

void elector_contact_good(struct elector *e)
{
	if (store_contact_good(&e->contact, clock_now()) && !e->low_token)
		elector_trouble_over(e);
}

void elector_write_failed(struct elector *e, const struct lock_result *r)
{
	if (store_contact_write_failed(&e->contact, outcome_of_write(r), lease_publishes(e->lease)->renew, clock_now()))
		elector_say(e, LOG_WARN, "store_unwritable",
		            "the store does not take our writes: until it does, this candidate cannot lead: %s",
		            r->err.text);
}

void elector_wrote(struct elector *e)
{
	store_contact_wrote(&e->contact);
	if (!e->low_token)
		elector_trouble_over(e);
}

void elector_was_read(struct elector *e, const struct version *seen)
{
	if (strcmp(seen->text, e->version.text) != 0)
		store_contact_others_wrote(&e->contact);
	else if (e->unwritable)
		return;
	if (!e->low_token && !e->contact.refused)
		elector_trouble_over(e);
}
