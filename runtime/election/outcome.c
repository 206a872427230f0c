#include "election/outcome.h"

enum lease_outcome outcome_of(enum lock_outcome o)
{
	switch (o) {
	case LOCK_OK:
	case LOCK_ABSENT:
	case LOCK_FOREIGN:
		return OUTCOME_OK;
	case LOCK_CONFLICT:
		return OUTCOME_CONFLICT;
	case LOCK_UNKNOWN:
		return OUTCOME_UNKNOWN;
	case LOCK_REFUSED:
	case LOCK_INVALID:
	case LOCK_FAILED:
		return OUTCOME_FAILED;
	}
	return OUTCOME_UNKNOWN;
}

bool outcome_is_refusal(enum lock_outcome o)
{
	return o == LOCK_REFUSED || o == LOCK_INVALID;
}

enum write_failure outcome_of_write(const struct lock_result *r)
{
	if (r->err.code == ERR_FULL)
		return WRITE_FULL;
	return outcome_is_refusal(r->outcome) || r->err.code == ERR_DENIED ? WRITE_REFUSED : WRITE_UNSURE;
}
