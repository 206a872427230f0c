#include "lease/lease.h"

static nsec whole_ms(nsec d)
{
	return d >= 100 * NSEC_PER_MS ? d / NSEC_PER_MS * NSEC_PER_MS : d;
}

void lease_times_default(struct lease_times *t)
{
	if (!t->lease)
		t->lease = 15 * NSEC_PER_SEC;
	if (!t->renew)
		t->renew = whole_ms(t->lease / 3 * 2);
	if (!t->retry)
		t->retry = whole_ms(t->lease / 15 * 2);
	nsec rest = t->lease - t->renew;
	if (!t->grace)
		t->grace = whole_ms(rest / 5 * 3);
	if (!t->kill)
		t->kill = whole_ms(rest / 5);
	if (!t->drift)
		t->drift = whole_ms(rest / 5);
}

static double seconds(nsec d)
{
	return (double)d / (double)NSEC_PER_SEC;
}

static int check_positive(const struct lease_times *t, struct err *err)
{
	const struct {
		const char *name;
		nsec value;
	} all[] = {
		{ "lease duration", t->lease }, { "renew deadline", t->renew }, { "retry period", t->retry },
		{ "stop grace", t->grace },     { "kill allowance", t->kill },  { "drift allowance", t->drift },
	};

	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		if (all[i].value <= 0)
			return err_set(err, ERR_USAGE, "%s must be greater than zero, found %gs", all[i].name,
			               seconds(all[i].value));
	return 0;
}

int lease_times_check(const struct lease_times *t, struct err *err)
{
	if (check_positive(t, err) < 0)
		return -1;
	if (t->renew > t->lease || t->grace > t->lease || t->kill > t->lease || t->drift > t->lease ||
	    t->renew + t->grace + t->kill + t->drift > t->lease)
		return err_set(
			err, ERR_USAGE,
			"renew deadline %gs + stop grace %gs + kill allowance %gs + drift allowance %gs must be at most "
			"the lease duration %gs: shorten one of them or lengthen the lease",
			seconds(t->renew), seconds(t->grace), seconds(t->kill), seconds(t->drift), seconds(t->lease));
	if (t->retry > t->renew || t->renew <= t->retry + t->retry / 5)
		return err_set(
			err, ERR_USAGE,
			"renew deadline %gs must be greater than 1.2 times the retry period %gs: else one failed renewal "
			"loses the lease",
			seconds(t->renew), seconds(t->retry));
	return 0;
}

double lease_drift_tolerance(const struct lease_times *t)
{
	return (double)t->drift / (double)(t->lease - t->drift);
}
