/* Why a term ended, in words for people.
 * Not for programs, which have lease_reason_name. Used by the elector. */
#pragma once

#include "lease/lease.h"
#include "lease/next.h"

/* Both begin in lower case and end without a full stop. "" for a value that is none. */
const char *reason_text(enum lease_reason r);
const char *reason_of_hand_over(enum next_why why);
