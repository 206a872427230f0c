/* The Lua state of a test file (lunarch test): its tests, its assertions, its stubs; TAP on stdout.
 * Not the world in which the scripts run, which is simulated (sim.h).
 * Used by the command test. */
#pragma once

#include "base/err.h"

struct sim;

/* sim_fault of sim.h, or what takes its place. */
typedef int testing_fault(struct sim *s, const char *what, const char *node, double number, struct err *err);

/* Runs one file's tests. first: the number of its first. Returns how many failed; *count is how many there were. -1:
 * the file cannot be run, with *err. */
int testing_run(const char *path, testing_fault *fault, int first, int *count, struct err *err);
