/* A version of the script that is to come into force: which of its elections go on, which begin, and whether all of it
 * is good. All or nothing: what is wrong leaves everything as it was.
 * Not when that is asked (life.h), nor what a worker says of it (script_version.h). Used by run.c. */
#pragma once

#include "base/err.h"

struct run;

/* Carries out LIFE_DO_CHECK. 0: the version is in force, r->candidates are its elections, behind them those that
 * leave, and life.h knows. -1 with *err: nothing has changed. */
int reload_check(struct run *r, struct err *err);
