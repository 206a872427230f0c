/* Drives a lock of any kind from outside, for the conformance suite: a script of operations, or a race. */
#include "conform.h"
#include "script/driver/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int main(int argc, char **argv)
{
	if (argc > 2 && strcmp(argv[1], "-x") == 0 && strcmp(argv[2], "driver") == 0) /* a lock starts it */
		return driver_main(argc - 3, argv + 3);
	if (argc == 1)
		return conform_script();
	if (argc == 6 && strcmp(argv[1], "race") == 0)
		return conform_race(argv[2], atoi(argv[3]), atoi(argv[4]), atoi(argv[5]));
	fprintf(stderr, "usage: conform [race URL ROUNDS RACERS PROCESSES]\n");
	return 2;
}
