/* Durations: what is printed reads as the same, and within its bounds. */
#include "fuzz.h"

#include "base/duration.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	char *text = input_text(&in, NULL), print[32];
	struct err err;
	int64_t ms, again;

	if (duration_parse(text, &ms, &err) == 0) {
		must(ms >= 0 && ms <= DURATION_MAX_MS);
		duration_print(ms, print, sizeof print);
		must(duration_parse(print, &again, &err) == 0 && again == ms);
	} else {
		must(*err.text);
	}
	free(text);
	return 0;
}
