/* The variables that a script has in its unit: those of NAME.env, which lunarch@NAME reads beside NAME.lua. Not all
 * of systemd's syntax: a value that goes on in a next line is refused, where it could be misread. Used by check, so
 * that it sees what the unit's `lunarch run` will see. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

/* Sets the variables of the file that belongs to this script, over those that are there, as systemd does
 * (systemd.exec(5), EnvironmentFile=). Adds the file's path and the variables' names to *told; nothing if there is no
 * such file. -1 with *err: it cannot be read, or a line is wrong; ERR_INVALID or ERR_SYSTEM. */
int unit_env_load(const char *script, struct buf *told, struct err *err);
