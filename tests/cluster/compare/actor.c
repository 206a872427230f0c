/* What a leader of make compare runs: it acts every 10 ms, and writes the moment of each act (CLOCK_MONOTONIC, a
 * double) into a file of its own, from which compare.py sees who acted when. Not a part of Lunarch, and it knows
 * nothing of it. Ends when the file DIR/NAME.finish is there. Usage: actor DIR NAME obedient|busy (busy: whoever asks
 * it to end is ignored). */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	const struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };
	char acts[4096], finish[4096];
	struct timespec now;

	if (argc != 4)
		return 2;
	if (strcmp(argv[3], "busy") == 0) {
		signal(SIGTERM, SIG_IGN);
		signal(SIGINT, SIG_IGN);
		signal(SIGHUP, SIG_IGN);
	}
	snprintf(acts, sizeof acts, "%s/%s.%d.acts", argv[1], argv[2], getpid());
	snprintf(finish, sizeof finish, "%s/%s.finish", argv[1], argv[2]);
	int fd = open(acts, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0)
		return 3;
	while (access(finish, F_OK) < 0) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		double at = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
		if (write(fd, &at, sizeof at) != sizeof at)
			return 4;
		nanosleep(&pause, NULL);
	}
	return 0;
}
