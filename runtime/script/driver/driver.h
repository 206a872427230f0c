/* Room script/driver: the process that runs one lock file (Lua) for the electors of the process that started it.
 *
 * The driver's process: its limits, its socket and its loop. It has no elections, and decides nothing about any.
 * Not the elector's side of the socket (locks/lua), and not what a lock file may say (lua/driver).
 * Used by main.c, as the role `-x driver FD LOGFORMAT LOGLEVEL IDENTITY`. */
#pragma once

int driver_main(int argc, char **argv); /* argv[0] is FD; the process' exit status */
