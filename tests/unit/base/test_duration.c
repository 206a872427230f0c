#include "base/duration.h"
#include "tap.h"

static void reads(const char *text, int64_t want)
{
	struct err err;
	int64_t ms = -1;

	if (duration_parse(text, &ms, &err) < 0)
		printf("# %s\n", err.text);
	is_int(ms, want, text);
}

static void refuses(const char *text, const char *reason)
{
	struct err err = { 0 };
	int64_t ms = -1;
	int refused = duration_parse(text, &ms, &err) < 0;

	ok(refused && ms == -1 && err.code == ERR_USAGE && strstr(err.text, reason) && strstr(err.text, text),
	   "'%s' is refused: %s", text, reason);
	if (refused && !strstr(err.text, reason))
		printf("# %s\n", err.text);
}

static void prints(int64_t ms, const char *want)
{
	char text[32];

	duration_print(ms, text, sizeof text);
	is_str(text, want, want);
}

static void survives_a_round_trip(void)
{
	struct err err;
	int good = 1;

	for (int64_t ms = 0; good && ms <= DURATION_MAX_MS; ms = ms * 5 / 4 + 1) {
		char text[32];
		int64_t back = -1;
		duration_print(ms, text, sizeof text);
		good = duration_parse(text, &back, &err) == 0 && back == ms;
	}
	ok(good, "what is printed is read back exactly, from 0 to the longest");
}

int main(void)
{
	reads("500ms", 500);
	reads("2s", 2000);
	reads("1.5s", 1500);
	reads("1m30s", 90000);
	reads("1h", 3600000);
	reads("0s", 0);
	reads("0.001s", 1);
	reads(".5s", 500);
	reads("1.100s", 1100);
	reads("0.1h", 360000);
	reads("1h1m1s1ms", 3661001);
	reads("10000h", DURATION_MAX_MS);

	refuses("15", "unit");
	refuses("1.5", "unit");
	refuses("", "no duration");
	refuses("s", "no duration");
	refuses("-1s", "no duration");
	refuses("+1s", "no duration");
	refuses("1 s", "no duration");
	refuses("1s ", "no duration");
	refuses("1d", "no duration");
	refuses("1S", "no duration");
	refuses("1..5s", "no duration");
	refuses("1e3s", "no duration");
	refuses("nan", "no duration");
	refuses("0.0005s", "finer");
	refuses("1.5ms", "finer");
	refuses("10001h", "too long");
	refuses("10000h1ms", "too long");
	refuses("9223372036854775807h", "too long");
	refuses("99999999999999999999s", "no duration");

	prints(0, "0s");
	prints(1, "1ms");
	prints(999, "999ms");
	prints(1000, "1s");
	prints(1250, "1.25s");
	prints(1001, "1.001s");
	prints(60000, "1m");
	prints(90000, "1m30s");
	prints(3600000, "1h");
	prints(3600001, "1h0.001s");
	prints(-2500, "-2.5s");
	survives_a_round_trip();
	return tap_done();
}
