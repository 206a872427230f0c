/* The file lock among processes: exactly one of many wins each compare-and-swap, also from two PID namespaces; a writer
 * killed at any moment leaves a whole record whose token never goes back, and nothing that stays for ever. */
#include "lock_drive.h"
#include "tap.h"

#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define PROCESSES 8
#define LOCKS 3
#define ROUNDS 60
#define UNSURE (LOCKS * ROUNDS / 10) /* so many writers with ?shared=link may not know whether they have won */

static char base[200];
static const char *option; /* of the locks' URLs */

static void record_url(char *out, size_t size, int lock)
{
	snprintf(out, size, "%s/r%d%s", base, lock, option);
}

/* What is known of a token's writers. */
struct token_writers {
	unsigned char won, unsure;
};

/* One round: read, then try to write the next token on exactly what was read. Each success is noted under its token,
 * and each writer who does not know. */
static void compete(struct drive *d, int process, struct token_writers *of, int rounds)
{
	char name[20];
	int64_t token = 0;

	snprintf(name, sizeof name, "p%d", process);
	while (token < rounds) {
		bool there = drive_read(d) == LOCK_OK;
		token = there ? d->record.token : 0;
		if (token >= rounds)
			break;
		enum lock_outcome o = drive_put(d, name, token + 1, there ? d->result.version.text : "");
		if (o == LOCK_OK)
			__atomic_add_fetch(&of[token + 1].won, 1, __ATOMIC_SEQ_CST);
		else if (o == LOCK_UNKNOWN)
			__atomic_add_fetch(&of[token + 1].unsure, 1, __ATOMIC_SEQ_CST);
	}
}

static void competitor(int process, struct token_writers *tokens, int rounds)
{
	for (int i = 0; i < LOCKS; i++) {
		char url[250];
		struct drive d;
		record_url(url, sizeof url, i);
		drive_init(&d, url);
		compete(&d, process, tokens + i * (rounds + 1), rounds);
		drive_fini(&d);
	}
}

static bool in_pid_namespace(void)
{
	if (unshare(CLONE_NEWPID) < 0)
		return false;
	pid_t pid = fork(); /* the first process inside; this one only waits for it */
	if (pid == 0)
		return true;
	int status = 0;
	waitpid(pid, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* Temporary files in the directory and in those in it, which are locks. */
static int files_left(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char inner[500];
	int n = 0;

	while (d && (e = readdir(d))) {
		snprintf(inner, sizeof inner, "%s/%s", dir, e->d_name);
		n += strstr(e->d_name, ".tmp") != NULL;
		n += e->d_type == DT_DIR && *e->d_name != '.' ? files_left(inner) : 0;
	}
	if (d)
		closedir(d);
	return n;
}

static void remove_all(void)
{
	char command[300];

	snprintf(command, sizeof command, "rm -rf '%s'/*", base);
	if (system(command) != 0)
		printf("# %s is not empty\n", base);
}

/* With ?shared=link a writer that was held up behind its link(2), until others wrote many versions, answers "unknown".
 * If nobody else has won, the token may be its own. */
static void count_writers(const struct token_writers *of, int *once, int *unsure)
{
	*once += of->won == 1 || (of->won == 0 && of->unsure > 0);
	*unsure += of->unsure;
}

static void race(bool namespaces)
{
	size_t size = LOCKS * (ROUNDS + 1) * sizeof(struct token_writers);
	struct token_writers *tokens = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[PROCESSES];
	int failed = 0, once = 0, unsure = 0;

	fflush(stdout);
	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			if (namespaces && !in_pid_namespace())
				_exit(2);
			competitor(i, tokens, ROUNDS);
			_exit(0);
		}
	}
	bool permitted = true;
	for (int i = 0; i < PROCESSES; i++) {
		int status;
		waitpid(pids[i], &status, 0);
		permitted = permitted && !(WIFEXITED(status) && WEXITSTATUS(status) == 2);
		failed += status != 0;
	}
	if (!permitted) {
		ok(1, "processes in PID namespaces of their own # SKIP needs root");
		return;
	}
	for (int i = 0; i < LOCKS; i++)
		for (int t = 1; t <= ROUNDS; t++)
			count_writers(&tokens[i * (ROUNDS + 1) + t], &once, &unsure);
	is_int(failed, 0, "all competitors come to the end");
	is_int(once, LOCKS * ROUNDS,
	       namespaces ? "each token was written by exactly one process, from eight PID namespaces too"
	                  : "each token was written by exactly one of eight processes");
	ok(unsure <= (*option ? UNSURE : 0),
	   "%d writers did not know whether it was theirs: few with shared=link, else none", unsure);
	is_int(files_left(base), 0, "no temporary file is left");
	munmap(tokens, size);
	remove_all();
}

/* Writes as fast as it can, saying which token it was told is written, until it is killed. */
static void write_for_ever(const char *path, volatile int64_t *said)
{
	struct drive d;

	drive_init(&d, path);
	for (;;) {
		bool there = drive_read(&d) == LOCK_OK;
		int64_t token = there ? d.record.token + 1 : 1;
		if (drive_put(&d, "writer", token, there ? d.result.version.text : "") == LOCK_OK)
			*said = token;
	}
}

static void crash(const char *where, int kills)
{
	char path[250];
	int64_t *said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int64_t highest = 0;
	int broken = 0, back = 0, most_left = 0;
	struct drive d;

	snprintf(path, sizeof path, "%s/crash%s", base, option);
	drive_init(&d, path);
	fflush(stdout);
	for (int i = 0; i < kills; i++) {
		int64_t before = *said;
		pid_t pid = fork();
		if (pid == 0)
			write_for_ever(path, said);
		while (*said < before + 1 + i % 3)
			sched_yield();
		usleep((useconds_t)(rand() % 400));
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		broken += drive_read(&d) != LOCK_OK;
		back += d.record.token < *said || d.record.token < highest;
		highest = d.record.token;
		int left = files_left(base);
		most_left = left > most_left ? left : most_left;
	}
	is_int(broken, 0, "a writer killed at any moment leaves a record that can be read");
	is_int(back, 0, "whose token is never smaller than one that was said to be written");
	ok(most_left <= 1, "the next writer removes what the killed one left");
	printf("# %s%s: %d kills, token %lld\n", where, option, kills, (long long)highest);
	drive_fini(&d);
	munmap(said, sizeof *said);
}

static void run_in(const char *where, const char *how)
{
	char command[300];

	snprintf(base, sizeof base, "%s/lunarch-race-XXXXXX", where);
	if (!mkdtemp(base)) {
		printf("# %s: no directory here\n", where);
		return;
	}
	option = how;
	race(false);
	race(true);
	crash(where, 60);
	snprintf(command, sizeof command, "rm -rf '%s'", base);
	if (system(command) != 0)
		printf("# %s is left\n", base);
}

int main(void)
{
	run_in("/dev/shm", "");
	run_in("/var/tmp", "");
	run_in("/dev/shm", "?shared=link");
	run_in("/var/tmp", "?shared=link");
	return tap_done();
}
