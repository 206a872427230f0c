/* Proof of death, with real processes. A holder is a forked child that execs a shell as its tree: what must be found is
 * found and killed, what cannot be proved stays unknown, and nothing else is touched. */
#include "base/clock.h"
#include "base/mem.h"
#include "base/proc.h"
#include "election/death_proof.h"
#include "own_proc.h"
#include "tap.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x00000080 /* linux/sched.h; not in this libc's */
#endif

#ifndef PATIENCE_S
#define PATIENCE_S 30. /* mutants get less */
#endif
#define PATIENCE ((nsec)(PATIENCE_S * NSEC_PER_SEC))

static char dir[] = "/dev/shm/lunarch-proof-XXXXXX";
static struct proof_self self;
static char why[300];
/* The processes are those of this test alone: a process of the same user that cannot be read, as other tests have for a moment, would be in
 * doubt. */
static uid_t other_user;

/* A process that is, like an elector, the root of a tree; what it started is in `tree`. */
struct holder {
	pid_t pid, tree;
	struct record record;
};

static const char *verdict_name(enum proof_verdict v)
{
	return v == PROOF_DEAD ? "dead" : v == PROOF_DYING ? "dying" : v == PROOF_DOUBTED ? "doubted" : "unknown";
}

static void verdict_is(enum proof_verdict got, enum proof_verdict want, const char *sentence)
{
	if (!ok(got == want, "%s", sentence))
		printf("# got %s (%s), wanted %s\n", verdict_name(got), why, verdict_name(want));
}

static enum proof_verdict check(const struct holder *h, bool insist)
{
	return proof_check(&h->record, insist, why, sizeof why);
}

/* Asks as the elector does, until it is known. On a busy machine any process of the same user that executes another
 * program, or ends, may show nothing for longer than the search waits for it: that is asked again, too. */
static enum proof_verdict check_until(const struct holder *h, enum proof_verdict want)
{
	struct instant start = clock_now();
	enum proof_verdict v;

	while ((v = check(h, true)) != want && (v == PROOF_DYING || v == PROOF_DOUBTED) &&
	       elapsed_holder(start, clock_now()) < PATIENCE)
		usleep(1000);
	return v;
}

static bool runs(pid_t pid)
{
	struct proc_stat s;

	return pid > 0 && proc_stat((uint64_t)pid, &s) == 0 && proc_runs(&s);
}

/* Nothing has killed it: what was killed and is not dead yet never stops. */
static bool is_unhurt(pid_t pid)
{
	struct instant start = clock_now();
	struct proc_stat s = { 0 };

	kill(pid, SIGSTOP);
	while (proc_stat((uint64_t)pid, &s) == 0 && s.state != 'T' && proc_runs(&s) &&
	       elapsed_holder(start, clock_now()) < PATIENCE)
		usleep(1000);
	kill(pid, SIGCONT);
	return s.state == 'T';
}

static void put_text(const char *text, const char *path)
{
	FILE *f = fopen(path, "w");

	if (!f || fputs(text, f) < 0 || fclose(f) != 0)
		_exit(1);
}

/* The holder writes its record, starts its tree with the marker in its environment, as the supervisor does, and
 * waits. */
static void be_holder(const char *script, uid_t uid, int ready)
{
	char text[64], marker[80], fd[16];
	struct record r;

	if (uid && (setgid(uid) < 0 || setuid(uid) < 0))
		_exit(1);
	proof_self_init(&self, dir);
	record_init(&r);
	proof_self_fill(&self, &r);
	mem_replace(&r.holder, "holder");
	char *printed = record_print(&r), *path = mem_printf("%s/record", dir), *pid_path = mem_printf("%s/tree", dir);
	put_text(printed, path);
	snprintf(marker, sizeof marker, "%s=%s", PROOF_ENV, self.incarnation);
	snprintf(fd, sizeof fd, "%d", self.tree_fd);
	pid_t child = fork();
	if (child == 0) {
		char *env[] = { marker, "PATH=/usr/bin:/bin", NULL };
		close(ready);
		execle("/bin/bash", "bash", "-c", script, "bash", fd, pid_path, (char *)NULL, env);
		_exit(1);
	}
	while (access(pid_path, F_OK) < 0) /* the script says under which pid what it left runs */
		usleep(1000);
	snprintf(text, sizeof text, "x");
	if (write(ready, text, 1) != 1)
		_exit(1);
	for (;;)
		pause();
}

/* script: $1 is the tree file's descriptor, $2 the file to which it moves the pid of what it leaves (mv: it must be
 * whole when it appears). */
static void hold(struct holder *h, const char *script, uid_t uid)
{
	char text[4096], *path = mem_printf("%s/record", dir), *pid_path = mem_printf("%s/tree", dir);
	int ready[2];

	fflush(stdout);
	if (pipe(ready) < 0)
		exit(1);
	h->pid = fork();
	if (h->pid == 0) {
		close(ready[0]);
		be_holder(script, uid, ready[1]);
	}
	close(ready[1]);
	(void)!read(ready[0], text, 1);
	close(ready[0]);
	record_init(&h->record);
	ssize_t n = proc_slurp(path, text, sizeof text);
	if (record_parse(&h->record, text, n > 0 ? (size_t)n : 0, NULL) < 0)
		printf("# no record\n");
	n = proc_slurp(pid_path, text, sizeof text);
	h->tree = n > 0 ? (pid_t)atoi(text) : 0;
	unlink(path);
	unlink(pid_path);
	free(path);
	free(pid_path);
}

static void kill_holder(struct holder *h)
{
	kill(h->pid, SIGKILL);
	waitpid(h->pid, NULL, 0);
}

static void forget(struct holder *h)
{
	if (runs(h->tree))
		kill(h->tree, SIGKILL);
	unlink(h->record.tree);
	record_fini(&h->record);
}

/* Until all of its tree are dead. */
static void await_free(const struct holder *h)
{
	struct instant start = clock_now();
	int fd = open(h->record.tree, O_RDONLY | O_CLOEXEC);

	while (flock(fd, LOCK_SH | LOCK_NB) < 0 && elapsed_holder(start, clock_now()) < PATIENCE)
		usleep(1000);
	close(fd);
}

#define SAY "echo $! >$2.new; mv $2.new $2; "

static void test_self(void)
{
	struct record r;
	struct stat st;

	ok(strlen(self.incarnation) == 36 && self.incarnation[14] == '4', "an incarnation is a random UUID");
	ok(self.tree && stat(self.tree, &st) == 0 && (st.st_mode & 0777) == 0600, "a tree file is made, for us alone");
	ok(self.tree_fd >= 0 && !(fcntl(self.tree_fd, F_GETFD) & FD_CLOEXEC), "whatever we start inherits it");
	int fd = open(self.tree, O_RDONLY | O_CLOEXEC);
	ok(flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK, "and it is locked");
	close(fd);
	record_init(&r);
	proof_self_fill(&self, &r);
	ok((pid_t)r.pid == getpid() && r.pid_start && r.pid_namespace && *r.boot_id && strcmp(r.tree, self.tree) == 0,
	   "the record says who we are");
	ok(!proof_possible(&self, &r), "of ourselves there is nothing to prove");
	record_fini(&r);
}

static void test_possible(void)
{
	struct holder h;
	struct record r;

	hold(&h, "sleep 1000 & " SAY "wait", 0);
	record_init(&r);
	ok(proof_possible(&self, &h.record), "a holder on this host can be proved dead");
	record_copy(&r, &h.record);
	r.boot_id[0] = r.boot_id[0] == 'a' ? 'b' : 'a';
	ok(!proof_possible(&self, &r), "one of another host, or boot, cannot");
	record_copy(&r, &h.record);
	r.pid_namespace++;
	ok(!proof_possible(&self, &r), "one of another PID namespace cannot");
	record_copy(&r, &h.record);
	r.pid_start = 0;
	ok(!proof_possible(&self, &r), "one whose start is not known cannot");
	record_copy(&r, &h.record);
	mem_replace(&r.tree, "");
	ok(!proof_possible(&self, &r), "one without a tree file cannot");
	record_copy(&r, &h.record);
	mem_replace(&r.tree, strrchr(h.record.tree, '/'));
	ok(!proof_possible(&self, &r), "one whose tree file is in another directory than ours cannot");
	char *below = mem_printf("%s/below%s", dir, strrchr(h.record.tree, '/'));
	mem_replace(&r.tree, below);
	ok(!proof_possible(&self, &r), "nor one whose tree file is below it");
	free(below);
	mem_replace(&r.tree, self.tree);
	ok(!proof_possible(&self, &r), "nor one that names another's tree file");

	int fd = proof_pidfd(&h.record);
	struct pollfd p = { .fd = fd, .events = POLLIN };
	ok(fd >= 0 && poll(&p, 1, 0) == 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC), "a living holder has a pidfd");
	record_copy(&r, &h.record);
	r.pid_start++;
	is_int(proof_pidfd(&r), -1, "but not one that started at another time: its pid was given to somebody else");
	verdict_is(check(&h, true), PROOF_UNKNOWN, "while the holder lives nothing is proved");
	ok(is_unhurt(h.pid) && is_unhurt(h.tree), "and nothing is killed");
	verdict_is(proof_check(&r, true, why, sizeof why), PROOF_UNKNOWN,
	           "a record with a wrong start does not make the living dead");
	ok(is_unhurt(h.tree), "nor get its tree killed");
	r.pid = 0x3fffffff;
	verdict_is(proof_check(&r, true, why, sizeof why), PROOF_UNKNOWN, "nor one with a wrong pid");
	ok(is_unhurt(h.tree), "whoever wrote it");
	kill_holder(&h);
	ok(poll(&p, 1, 30000) == 1, "the pidfd tells of its death");
	close(fd);
	is_int(proof_pidfd(&h.record), -1, "after which there is none");
	record_fini(&r);
	forget(&h);
}

static void test_tree(void)
{
	struct holder h;

	hold(&h, "sleep 1000 & " SAY "wait", 0);
	kill_holder(&h);
	verdict_is(check(&h, false), PROOF_DYING, "a tree that outlives its holder is dying");
	ok(is_unhurt(h.tree), "but left to its guard at first");
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD, "then it is killed, and after that it is dead");
	ok(!runs(h.tree), "it is");
	verdict_is(check(&h, false), PROOF_DEAD, "whoever asks later is told the same");
	forget(&h);
}

static void test_daemon(void)
{
	struct holder h;

	/* Closes everything, a session and parent of its own: all it has left is its environment. */
	hold(&h,
	     "(for f in /proc/self/fd/*; do f=${f##*/}; [ $f -gt 2 ] && eval \"exec $f>&-\"; done; "
	     "exec </dev/null >/dev/null 2>&1; exec setsid sleep 1000) & " SAY,
	     0);
	kill_holder(&h);
	int fd = open(h.record.tree, O_RDONLY | O_CLOEXEC);
	struct instant start = clock_now();
	while (flock(fd, LOCK_SH | LOCK_NB) < 0 && elapsed_holder(start, clock_now()) < PATIENCE)
		usleep(1000);
	ok(runs(h.tree) && flock(fd, LOCK_SH | LOCK_NB) == 0, "a daemon that closed all descriptors runs");
	close(fd);
	verdict_is(check_until(&h, PROOF_DYING), PROOF_DYING, "it is found by its environment");
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD, "and killed");
	ok(!runs(h.tree), "it is dead");
	forget(&h);
}

static void *go_on(void *arg)
{
	for (;;)
		pause();
	return arg;
}

/* test_proof leaderless FD: a daemon whose main has left it to another thread, and which has closed the tree file. */
static int leaderless(int fd)
{
	pthread_t t;

	close(fd);
	if (pthread_create(&t, NULL, go_on, NULL) != 0)
		return 9;
	pthread_exit(NULL);
}

static bool is_zombie(pid_t pid)
{
	struct proc_stat s;

	return proc_stat((uint64_t)pid, &s) == 0 && s.state == 'Z';
}

/* In /proc it looks like a zombie, and shows no environment. */
static void test_leaderless(void)
{
	struct instant start = clock_now();
	char program[200] = "";
	struct holder h;

	(void)!readlink("/proc/self/exe", program, sizeof program - 1);
	char *script = mem_printf("'%s' leaderless $1 & " SAY, program);
	hold(&h, script, 0);
	free(script);
	kill_holder(&h);
	await_free(&h);
	while (!is_zombie(h.tree) && elapsed_holder(start, clock_now()) < PATIENCE)
		usleep(1000);
	ok(is_zombie(h.tree) && runs(h.tree), "a process whose first thread has ended runs");
	verdict_is(check_until(&h, PROOF_DYING), PROOF_DYING, "it is found by the environment of another thread");
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD, "and killed");
	ok(!runs(h.tree), "it is dead");
	forget(&h);
}

static void test_without_marker(void)
{
	struct holder h;

	hold(&h, "env -i /bin/bash -c 'echo $$ >$0.new; /bin/mv $0.new $0; exec -c /bin/sleep 1000' $2 & wait", 0);
	kill_holder(&h);
	verdict_is(check_until(&h, PROOF_DYING), PROOF_DYING, "the shell that waits is found");
	struct instant start = clock_now();
	while (!strstr(why, "without our marker") && elapsed_holder(start, clock_now()) < PATIENCE)
		check(&h, true);
	verdict_is(check_until(&h, PROOF_DYING), PROOF_DYING,
	           "a child with an empty environment that holds the tree file is not dead");
	ok(runs(h.tree) && strstr(why, "without our marker"), "nor is it killed: it could be anybody's");
	kill(h.tree, SIGKILL);
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD, "once it has ended the proof is there");
	forget(&h);
}

static void test_not_ours(void)
{
	struct holder h;

	hold(&h, "sleep 1000 & " SAY "wait", 0);
	pid_t older = getpid(), other = fork();
	if (other == 0) {
		char *env[] = { "LUNARCH_TREE=00000000-0000-4000-8000-000000000000", "X=LUNARCH_TREE", NULL };
		execle("/bin/sleep", "sleep", "1000", (char *)NULL, env);
		_exit(1);
	}
	kill_holder(&h);
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD, "a tree beside others is proved dead");
	ok(runs(other) && runs(older), "and the others live");
	kill(other, SIGKILL);
	waitpid(other, NULL, 0);
	forget(&h);
}

static void test_part_of_it(void)
{
	struct holder h;
	int status = 0;

	hold(&h, "sleep 1000 & " SAY "wait", 0);
	kill_holder(&h);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		char marker[80];
		snprintf(marker, sizeof marker, "%s=%s", PROOF_ENV, h.record.incarnation);
		char *record = record_print(&h.record), *env[] = { marker, NULL };
		execle("/proc/self/exe", "test_proof", record, (char *)NULL, env);
		_exit(1);
	}
	waitpid(pid, &status, 0);
	is_int(WIFEXITED(status) ? WEXITSTATUS(status) : -1, PROOF_UNKNOWN,
	       "a process that belongs to the tree itself proves nothing, and does not kill itself");
	check_until(&h, PROOF_DEAD);
	forget(&h);
}

/* test_proof RECORD: the verdict as exit status. */
static int judge(const char *text)
{
	struct record r;

	record_init(&r);
	if (record_parse(&r, text, strlen(text), NULL) < 0)
		return 99;
	int verdict = 0;
	do {
		verdict = (int)proof_check(&r, true, why, sizeof why);
	} while (verdict == PROOF_DYING);
	record_fini(&r);
	return verdict;
}

static void test_tree_file(void)
{
	struct holder h;
	char *aside;

	hold(&h, "sleep 1000 & " SAY "wait", 0);
	kill_holder(&h);
	aside = mem_printf("%s.aside", h.record.tree);
	rename(h.record.tree, aside);
	verdict_is(check(&h, true), PROOF_UNKNOWN, "without its tree file nothing is proved");
	symlink(aside, h.record.tree);
	verdict_is(check(&h, true), PROOF_UNKNOWN, "a link in its place is not followed");
	unlink(h.record.tree);
	mkfifo(h.record.tree, 0600);
	verdict_is(check(&h, true), PROOF_UNKNOWN, "a pipe in its place is not waited for");
	unlink(h.record.tree);
	put_text("", h.record.tree);
	verdict_is(check(&h, true), PROOF_UNKNOWN, "an empty file proves nothing");
	ok(runs(h.tree), "and nothing is killed");
	rename(aside, h.record.tree);
	mem_replace(&h.record.tree, aside);
	verdict_is(check(&h, true), PROOF_UNKNOWN, "a path that is no tree file's proves nothing");
	aside[strlen(aside) - strlen(".aside")] = '\0';
	mem_replace(&h.record.tree, aside);
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD, "with its own it is proved");
	free(aside);
	forget(&h);
}

/* Whoever can write a record names the incarnation of one that lives, and a process of his own that is dead. */
static void test_forged(uid_t forger)
{
	struct holder victim, own;
	char text[200], *path;

	hold(&own, "sleep 1000 & " SAY "wait",
	     forger); /* the older one: what the victim started would be younger than it */
	hold(&victim, "sleep 1000 & " SAY "wait", 0);
	kill_holder(&own);
	ssize_t n = proc_slurp(own.record.tree, text, sizeof text);
	memcpy(text, victim.record.incarnation, 36);
	path = mem_printf("%s/forged", dir);
	mkdir(path, 0777);
	mem_replace(&own.record.tree, path);
	free(path);
	path = mem_printf("%s%s", own.record.tree, strrchr(victim.record.tree, '/'));
	if (n > 0)
		put_text(text, path);
	ok(chown(path, forger, forger) == 0, "a forged tree file of user %u", (unsigned)forger);
	memcpy(own.record.incarnation, victim.record.incarnation, 37);
	mem_replace(&own.record.tree, path);
	ok(!proof_possible(&self, &own.record), "in a directory of the forger's proves nothing");
	if (forger) { /* in ours, only our own user could have put one */
		verdict_is(check(&own, true), PROOF_UNKNOWN, "nor would it, were it in ours");
		ok(strstr(why, "another user's") != NULL, "since it is another user's");
	}
	ok(runs(victim.tree) && runs(victim.pid), "and the tree of the one that lives is left alone");
	kill_holder(&victim);
	verdict_is(check_until(&victim, PROOF_DEAD), PROOF_DEAD, "which its own record proves dead, once it is");
	unlink(path);
	*strrchr(path, '/') = '\0';
	rmdir(path);
	free(path);
	forget(&victim);
	forget(&own);
}

static int tree_files(void)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	int n = 0;

	while (d && (e = readdir(d)))
		n += strstr(e->d_name, ".tree") != NULL;
	if (d)
		closedir(d);
	return n;
}

static void age(const char *path)
{
	struct timespec old[2] = { { .tv_sec = time(NULL) - 7200 }, { .tv_sec = time(NULL) - 7200 } };

	utimensat(AT_FDCWD, path, old, 0);
}

static void test_old_files(void)
{
	struct proof_self another;
	struct holder h;

	hold(&h, "sleep 1000 & " SAY "wait", 0);
	age(h.record.tree);
	kill_holder(&h);
	kill(h.tree, SIGKILL);
	while (check(&h, true) == PROOF_DYING)
		usleep(1000);
	age(h.record.tree);
	age(self.tree);
	is_int(tree_files(), 2, "a crashed process leaves its tree file");
	proof_self_init(&another, dir);
	proof_self_tidy(&another);
	is_int(tree_files(), 2,
	       "one that was found free two hours ago is removed by the next process that tidies; a held one is not");
	ok(access(h.record.tree, F_OK) < 0 && access(self.tree, F_OK) == 0, "however old it is");
	proof_self_fini(&another);
	is_int(tree_files(), 1, "a process that ends in order leaves none");
	forget(&h);

	hold(&h, "sleep 1000 & " SAY "wait", 0);
	age(h.record.tree);
	kill_holder(&h);
	kill(h.tree, SIGKILL);
	await_free(&h);
	proof_self_init(&another, dir);
	proof_self_tidy(&another);
	proof_self_fini(&another);
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD,
	           "a process that starts does not destroy the evidence of one that ran for days and crashed just now");
	forget(&h);

	struct stat before, after;
	hold(&h, "sleep 1000 & " SAY "wait", 0);
	kill_holder(&h);
	kill(h.tree, SIGKILL);
	await_free(&h);
	stat(h.record.tree, &before);
	proof_self_init(&another, dir);
	proof_self_tidy(&another);
	proof_self_fini(&another);
	ok(stat(h.record.tree, &after) == 0 && after.st_size == before.st_size, "nor touches a file of the last hour");
	forget(&h);
}

/* What a process of the same user with more rights carries cannot be read. */
static int body_unreadable(void)
{
	struct holder h;
	int failed = 0;

	hold(&h, "sleep 1000 & " SAY "wait", 0);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_DUMPABLE, 0);
		for (;;)
			pause();
	}
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/environ", (int)pid);
	while (access(path, R_OK) == 0 && open(path, O_RDONLY | O_CLOEXEC) >= 0)
		usleep(1000);
	kill_holder(&h);
	enum proof_verdict v = check_until(&h, PROOF_DOUBTED);
	char want[60];
	snprintf(want, sizeof want, "process %d cannot be read", (int)pid);
	failed += v != PROOF_DOUBTED || !strstr(why, want);
	if (failed)
		printf("# %s: %s\n", verdict_name(v), why);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	v = check_until(&h, PROOF_DEAD);
	failed += v != PROOF_DEAD;
	if (v != PROOF_DEAD)
		printf("# %s: %s\n", verdict_name(v), why);
	forget(&h);
	return failed;
}

static int body_foreign(void)
{
	struct holder *h = mem_zero(sizeof *h);
	char *path = mem_printf("%s/foreign", dir), text[4096];

	record_init(&h->record);
	ssize_t n = proc_slurp(path, text, sizeof text);
	if (n <= 0 || record_parse(&h->record, text, (size_t)n, NULL) < 0)
		return 1;
	enum proof_verdict v = check(h, true);
	if (v != PROOF_UNKNOWN)
		printf("# %s: %s\n", verdict_name(v), why);
	return v != PROOF_UNKNOWN;
}

static int as_other_user(int (*body)(void))
{
	int status;

	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		if (setgid(other_user) < 0 || setuid(other_user) < 0)
			_exit(1);
		int failed = body();
		fflush(stdout);
		_exit(failed);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 100;
}

static void test_users(void)
{
	struct holder h;

	if (geteuid() != 0) {
		ok(1, "other users' processes # SKIP needs root");
		return;
	}
	chmod(dir, 0777);
	is_int(as_other_user(body_unreadable), 0,
	       "a younger process of the same user that cannot be read makes it doubted, until it ends");
	hold(&h, "sleep 1000 & " SAY "wait", 0);
	kill_holder(&h);
	char *printed = record_print(&h.record), *path = mem_printf("%s/foreign", dir);
	put_text(printed, path);
	chmod(path, 0644);
	is_int(as_other_user(body_foreign), 0, "another user's tree cannot be proved dead");
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD, "its own user can");
	unlink(path);
	free(path);
	free(printed);
	forget(&h);
	hold(&h, "sleep 1000 & " SAY "wait", other_user);
	kill_holder(&h);
	verdict_is(check(&h, true), PROOF_UNKNOWN, "nor does root prove anybody's but its own");
	ok(runs(h.tree), "or end it");
	forget(&h);
	test_forged(other_user);
	test_forged(0);
}

/* In a process of its own, the verdict as exit status. */
static int judge_apart(const struct record *r, bool (*prepare)(void))
{
	int status = 0;

	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		enum proof_verdict v = PROOF_DYING;
		if (!prepare())
			_exit(97);
		for (int tries = 0; v == PROOF_DYING && tries < 5000; tries++, usleep(1000))
			v = proof_check(r, true, why, sizeof why);
		_exit((int)v);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 96;
}

static bool may_not_kill(void)
{
	struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct data[2];

	if (syscall(SYS_capget, &header, data) < 0)
		return false;
	data[0].effective &= ~(1u << CAP_KILL);
	return syscall(SYS_capset, &header, data) == 0;
}

/* Until then it may be signalled by whoever started it. */
static bool becomes_user(pid_t pid, uid_t user)
{
	char path[40];
	struct stat st = { 0 };

	snprintf(path, sizeof path, "/proc/%d", (int)pid);
	for (int tries = 0; tries < 60000 && (stat(path, &st) < 0 || st.st_uid != user); tries++)
		usleep(1000);
	return st.st_uid == user;
}

/* Runs as another user, marked and without the tree file: found by root, which may read but not signal it here. */
static void test_cannot_be_ended(void)
{
	struct holder h;

	if (geteuid() != 0)
		return;
	char *script = mem_printf(
		"(eval \"exec $1>&-\"; exec setpriv --reuid %u --clear-groups sleep 1000) & " SAY "wait", other_user);
	hold(&h, script, 0);
	free(script);
	ok(becomes_user(h.tree, other_user), "a process of the tree runs as another user");
	kill_holder(&h);
	is_int(judge_apart(&h.record, may_not_kill), PROOF_DOUBTED,
	       "a process of the tree that cannot be ended is not dead");
	ok(runs(h.tree), "it lives");
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD, "who may end it proves it");
	ok(!runs(h.tree), "by doing so");
	forget(&h);
}

/* ---- a /proc that hides processes ---- */

static bool without_others(void)
{
	return unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
	       mount("proc", "/proc", "proc", 0, "hidepid=2") == 0;
}

static void test_hidden(void)
{
	struct holder h;

	if (geteuid() != 0) {
		ok(1, "a /proc with hidepid # SKIP needs root");
		return;
	}
	hold(&h, "sleep 1000 & " SAY "wait", 0);
	kill_holder(&h);
	is_int(judge_apart(&h.record, without_others), PROOF_UNKNOWN,
	       "where /proc may hide a process of the tree, nothing is proved");
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD, "where it hides none, it is");
	forget(&h);
}

/* ---- time namespaces ---- */

/* Goes on in a time namespace in which a thousand seconds more have passed since the boot. */
static bool enter_another_time(bool own_user)
{
	char map[40];
	pid_t inside;
	int status;

	snprintf(map, sizeof map, "%u %u 1", (unsigned)geteuid(), (unsigned)geteuid());
	if (unshare(CLONE_NEWTIME | (own_user ? CLONE_NEWUSER : 0)) < 0)
		return false;
	if (own_user)
		put_text(map, "/proc/self/uid_map");
	put_text("boottime 1000 0", "/proc/self/timens_offsets");
	inside = fork();
	if (inside == 0)
		return true;
	waitpid(inside, &status, 0);
	_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
}

static bool another_time(void)
{
	return enter_another_time(false);
}

static bool another_time_and_user(void)
{
	return enter_another_time(true);
}

static void check_another_time(bool own_user)
{
	const char *how = own_user ? "with a user namespace of its own" : "as the same user";
	bool (*enter)(void) = own_user ? another_time_and_user : another_time;
	struct holder h;

	hold(&h, "sleep 1000 & " SAY "wait", 0);
	is_int(judge_apart(&h.record, enter), PROOF_UNKNOWN,
	       "from another time namespace nothing is proved of one that lives");
	ok(runs(h.tree) && runs(h.pid), "nothing is killed (%s)", how);
	kill_holder(&h);
	is_int(judge_apart(&h.record, enter), PROOF_UNKNOWN, "nor of one that is dead");
	verdict_is(check_until(&h, PROOF_DEAD), PROOF_DEAD, "from its own time namespace it is");
	forget(&h);
}

static int body_another_time(void)
{
	struct holder h;
	int failed = 0;

	prctl(PR_SET_DUMPABLE, 1); /* a process that changed its user may not write its own map otherwise */
	hold(&h, "sleep 1000 & " SAY "wait", 0);
	failed += judge_apart(&h.record, another_time_and_user) != PROOF_UNKNOWN || !runs(h.tree);
	kill_holder(&h);
	enum proof_verdict v = check_until(&h, PROOF_DEAD);
	failed += v != PROOF_DEAD;
	if (failed)
		printf("# %s: %s\n", verdict_name(v), why);
	forget(&h);
	return failed;
}

/* The tree file of a Lunarch that did not yet know of time namespaces. */
static void test_older(void)
{
	struct holder h;
	char text[200];

	hold(&h, "sleep 1000 & " SAY "wait", 0);
	kill_holder(&h);
	ssize_t n = proc_slurp(h.record.tree, text, sizeof text);
	char *end = strstr(text, " time:[");
	ok(n > 0 && end, "a tree file says in which time namespace its maker counts");
	if (end) {
		strcpy(end, "\n");
		put_text(text, h.record.tree);
		verdict_is(check(&h, true), PROOF_UNKNOWN,
		           "one that does not say it, as older versions made it, proves nothing");
		ok(runs(h.tree), "and nothing is killed");
	}
	forget(&h);
}

static void test_time_namespaces(void)
{
	if (geteuid() == 0) {
		check_another_time(false);
		is_int(as_other_user(body_another_time), 0, "nor is it without any rights, in namespaces of one's own");
	}
	check_another_time(true);
	test_older();
}

static void test_pid_namespace(void)
{
	int status;

	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		if (unshare(CLONE_NEWPID) < 0)
			_exit(2);
		pid_t inside = fork();
		if (inside == 0) {
			struct proof_self s;
			proof_self_init(&s, NULL);
			_exit(s.pid_namespace != 0 || s.pid_start != 0);
		}
		waitpid(inside, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
	}
	waitpid(pid, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 2)
		ok(1, "a /proc of another PID namespace # SKIP needs root");
	else
		is_int(status, 0,
		       "with a /proc of another PID namespace than ours we give no evidence about ourselves");
}

int main(int argc, char **argv)
{
	if (argc == 2)
		return judge(argv[1]);
	if (argc == 3)
		return leaderless(atoi(argv[2]));
	own_proc();
	if (!mkdtemp(dir))
		return 1;
	other_user = 1300000000 + (uid_t)getpid();
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	signal(SIGCHLD, SIG_DFL);
	proof_self_init(&self, dir);
	test_self();
	test_possible();
	test_tree();
	test_daemon();
	test_leaderless();
	test_without_marker();
	test_not_ours();
	test_part_of_it();
	test_tree_file();
	test_old_files();
	test_users();
	test_cannot_be_ended();
	test_hidden();
	test_pid_namespace();
	test_time_namespaces();
	proof_self_fini(&self);
	char command[100];
	snprintf(command, sizeof command, "rm -rf %s", dir);
	if (system(command) != 0)
		printf("# %s is left\n", dir);
	return tap_done();
}
