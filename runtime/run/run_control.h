/* What a run does about signals, and what it answers to the control socket and the admin endpoint.
 * Not the socket (control.h), not the endpoint (admin.h). Used by cmd_run.c and cmd_cron.c. */
#pragma once

#include "program/program.h"

extern const struct program_ops run_control_ops; /* their arg is the struct run */
