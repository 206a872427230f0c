/* Which mutant a program of tests/sim/mutants.py is: the number at the end of its own name.
 * Not by the environment, which some tests take away from what they start. Linked to those programs alone. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern int mutant_chosen;
int mutant_chosen;

__attribute__((constructor)) static void choose(void)
{
	char name[4096];
	ssize_t len = readlink("/proc/self/exe", name, sizeof name - 1);

	name[len < 0 ? 0 : len] = '\0';
	const char *dot = strrchr(name, '.');
	mutant_chosen = dot ? atoi(dot + 1) : 0;
}
