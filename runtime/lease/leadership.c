#include "lease/leadership.h"

#include "lease/next_record.h"

static bool is_overdue(const struct record *r, int64_t now_us, enum leadership_watched watched)
{
	if (watched != WATCHED_NOTHING)
		return watched == WATCHED_SILENT;
	return r->renewed_us != RECORD_TIME_UNKNOWN && now_us - r->renewed_us > r->lease_ms * 1000;
}

enum leadership leadership_of(const struct record *r, int64_t now_us, enum leadership_watched watched)
{
	if (!r)
		return LEADERSHIP_ABSENT;
	if (next_record_is(r))
		return LEADERSHIP_NO_LOCK;
	if (!*r->holder)
		return LEADERSHIP_RELEASED;
	if (is_overdue(r, now_us, watched))
		return LEADERSHIP_OVERDUE;
	return record_fences(r) ? LEADERSHIP_FENCING : LEADERSHIP_LEADING;
}

const char *leadership_name(enum leadership l)
{
	static const char *const names[] = {
		[LEADERSHIP_ABSENT] = "absent",   [LEADERSHIP_NO_LOCK] = "no lock", [LEADERSHIP_RELEASED] = "released",
		[LEADERSHIP_OVERDUE] = "overdue", [LEADERSHIP_FENCING] = "fencing", [LEADERSHIP_LEADING] = "leading",
	};

	return names[l];
}
