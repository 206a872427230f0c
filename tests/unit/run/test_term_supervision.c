/* What a script is given of a record's checkpoint, under `run` and in the simulation. */
#include "run/term_supervision.h"

#include "base/log.h"
#include "lease/record.h"
#include "tap.h"

#include <stdlib.h>

static int logged;

static void on_log(void *arg, enum log_level level, const struct log_about *about, const char *event, const char *text)
{
	(void)arg, (void)about, (void)text;
	logged += level == LOG_WARN && strcmp(event, "checkpoint_too_long") == 0;
}

int main(void)
{
	const size_t most = 4 * RECORD_CHECKPOINT_MAX;
	struct log_about about = { 0 };
	char *text = malloc(most + 2);

	log_divert(on_log, NULL);
	memset(text, '1', most + 1);
	text[most + 1] = '\0';
	ok(term_checkpoint(NULL, &about) == NULL && logged == 0, "a record without a checkpoint has none");
	ok(term_checkpoint(text, &about) == NULL && logged == 1,
	   "one that is longer than a message may carry is not given to a script, and logged");
	text[most] = '\0';
	ok(term_checkpoint(text, &about) == text && logged == 1,
	   "one of four times what a script may save is: numbers may get longer on their way through a store");
	log_divert(NULL, NULL);
	free(text);
	return tap_done();
}
