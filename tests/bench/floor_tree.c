/* The floor of killing a large family: a thousand children of a shell, killed by one call for their whole group while
 * the shell still makes them, and reaped by the process that they fall to. Nobody is searched for, nothing is proved.
 * Not a peer. Used by tests/bench/bench.py; prints the milliseconds from the kill until nobody is left. */
#include <err.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* The shell says a line when there are enough of them, and goes on. */
static void become_shell(int out, const char *script)
{
	setsid();
	dup2(out, STDOUT_FILENO);
	execl("/bin/sh", "sh", "-c", script, (char *)NULL);
	err(127, "sh");
}

int main(int argc, char **argv)
{
	int out[2];
	char word[8];

	if (argc != 2)
		errx(2, "usage: floor_tree SCRIPT");
	if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || pipe(out) < 0)
		err(1, "cannot set up");
	pid_t shell = fork();
	if (shell == 0)
		become_shell(out[1], argv[1]);
	close(out[1]);
	if (read(out[0], word, sizeof word) <= 0)
		errx(1, "the shell says nothing");
	double began = now_ms();
	while (kill(-shell, SIGKILL) == 0) /* one that is being made is not in the group yet */
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
	while (wait(NULL) > 0)
		;
	printf("%.3f\n", now_ms() - began);
	return 0;
}
