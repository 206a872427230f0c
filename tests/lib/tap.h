/* Thirty lines of TAP for C tests: ok, is, plan at the end.
 * Not a framework: a test is a main() that calls sentences and returns tap_done().
 * Used by tests/unit and tests/sim. */
#pragma once

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static int tap_count, tap_failed;

__attribute__((format(printf, 2, 3), unused)) static int ok(int good, const char *fmt, ...)
{
	va_list ap;

	printf("%sok %d - ", good ? "" : "not ", ++tap_count);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	tap_failed += !good;
	return good;
}

__attribute__((unused)) static int is_int(int64_t got, int64_t want, const char *what)
{
	int good = ok(got == want, "%s", what);

	if (!good)
		printf("# got %lld, wanted %lld\n", (long long)got, (long long)want);
	return good;
}

__attribute__((unused)) static int is_str(const char *got, const char *want, const char *what)
{
	int good = ok(got && want && strcmp(got, want) == 0, "%s", what);

	if (!good)
		printf("# got '%s', wanted '%s'\n", got ? got : "(null)", want ? want : "(null)");
	return good;
}

__attribute__((unused)) static int tap_done(void)
{
	printf("1..%d\n", tap_count);
	return tap_failed != 0;
}
