/* What the kernel must have so that a term can be supervised: each call is tried once, and nothing is left of that. A
 * call that can be done without is not tried: close_range(2), locked memory, PR_SET_MM_MAP. Used by program/program.c
 * before anything campaigns, and by check and doctor. */
#pragma once

#include "base/err.h"

/* 0; -1 with *err: the first call that the kernel does not have, or that a seccomp filter refuses, with what it is for
 * and what to do. A shortage (of descriptors, of memory) is no refusal: what needs the call says so then. Takes some
 * microseconds, allocates nothing. */
int kernel_check(struct err *err);
