/* What an elector's user must have, where a test does not look at it.
 * Not a user: each test has the calls that it is about.
 * Used by the tests of tests/unit that run real electors. */
#pragma once

#include "election/elector.h"

__attribute__((unused)) static void no_deadline(void *arg, struct instant end, struct instant kill)
{
	(void)arg, (void)end, (void)kill;
}

__attribute__((unused)) static void no_leader(void *arg, const struct elector_leader *l)
{
	(void)arg, (void)l;
}

__attribute__((unused)) static void nobody_leads(void *arg, const char *previous)
{
	(void)arg, (void)previous;
}

__attribute__((unused)) static void not_finished(void *arg, bool left)
{
	(void)arg, (void)left;
}
