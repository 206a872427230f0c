/* The file lock: compare-and-swap, its errors, its notices, in memory and on disk. Whatever goes wrong, the old record
 * stays whole, no temporary file stays behind, and the error names the file. */
#include "base/proc.h"
#include "few_threads.h"
#include "lock_drive.h"
#include "lock_files.h"
#include "locks/file/file_temp.h"
#include "tap.h"

#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static char *get_file(const char *path)
{
	static char text[8192];
	FILE *f = fopen(path, "r");
	size_t n = f ? fread(text, 1, sizeof text - 1, f) : 0;

	text[n] = '\0';
	if (f)
		fclose(f);
	return text;
}

static mode_t mode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_mode & 07777 : 0;
}

/* ---- what a lock does ---- */

static void test_swap(void)
{
	struct drive d, other;
	struct version first;

	drive_init(&d, in("swap"));
	drive_init(&other, in("swap"));
	outcome_is(drive_read(&d), LOCK_ABSENT, "nothing there: absent");
	ok(!d.inside && d.calls == 1, "a read is answered once, and not from inside its start");
	outcome_is(drive_put(&d, "a", 1, ""), LOCK_OK, "the first write makes the record");
	ok(!d.inside && d.calls == 1, "a write is answered once, and not from inside its start");
	first = d.result.version;
	outcome_is(drive_read(&other), LOCK_OK, "another reads it");
	ok(strcmp(other.record.holder, "a") == 0 && other.record.token == 1, "as it was written");
	is_str(other.result.version.text, first.text, "with the version the writer was told");
	outcome_is(drive_put(&other, "b", 2, ""), LOCK_CONFLICT, "a write that expects none is a conflict");
	drive_read(&d);
	is_str(d.record.holder, "a", "and changes nothing");
	outcome_is(drive_put(&other, "b", 2, first.text), LOCK_OK, "a write that expects what is there replaces it");
	outcome_is(drive_put(&d, "a", 3, first.text), LOCK_CONFLICT,
	           "a write that expects what was there is a conflict");
	drive_read(&d);
	ok(strcmp(d.record.holder, "b") == 0 && strcmp(d.result.version.text, other.result.version.text) == 0,
	   "the winner's record is there");
	ok(elapsed_holder(d.result.sent_at, clock_now()) < DRIVE_PATIENCE && d.result.sent_at.raw > 0,
	   "results say when they were sent");
	is_int(files_in(base, true), 0, "no temporary file stays");
	has(d.lock->url, "file:/", "the lock knows its canonical URL");
	drive_fini(&d);
	drive_fini(&other);
}

static void test_hands(void)
{
	struct drive d;
	char version[64], *text;

	drive_init(&d, in("hands"));
	drive_put(&d, "a", 1, "");
	snprintf(version, sizeof version, "%s", d.result.version.text);
	text = get_file(in("hands"));
	put_file(in("copy"), text, strlen(text));
	unlink(in("hands"));
	outcome_is(drive_put(&d, "a", 1, version), LOCK_CONFLICT, "a record deleted by hand is a conflict");
	outcome_is(drive_read(&d), LOCK_ABSENT, "and absent");
	rename(in("copy"), in("hands"));
	outcome_is(drive_put(&d, "a", 1, version), LOCK_CONFLICT,
	           "so is a copy put in its place, byte for byte the same");
	outcome_is(drive_read(&d), LOCK_OK, "which is read");
	snprintf(version, sizeof version, "%s", d.result.version.text);
	*strstr(text, "15000") = '2';
	put_file(in("hands"), text, strlen(text));
	outcome_is(drive_put(&d, "a", 1, version), LOCK_CONFLICT, "so is a record edited in place");
	drive_fini(&d);
}

static void test_directory(void)
{
	struct drive d;
	char version[64];

	mkdir(in("dir"), 0755);
	drive_init(&d, in("dir/lock"));
	drive_put(&d, "a", 1, "");
	snprintf(version, sizeof version, "%s", d.result.version.text);
	unlink(in("dir/lock"));
	unlink(in("dir/.lock.lock"));
	rmdir(in("dir"));
	outcome_is(drive_read(&d), LOCK_FAILED, "without its directory a record cannot be looked for");
	ok(d.result.err.code == ERR_MISSING, "which is said to be missing");
	has(d.result.err.text, in("dir"), "by name");
	outcome_is(drive_put(&d, "a", 2, version), LOCK_FAILED, "nor written");
	mkdir(in("dir"), 0755);
	outcome_is(drive_read(&d), LOCK_ABSENT, "in a directory made again there is no record");
	outcome_is(drive_put(&d, "a", 2, ""), LOCK_OK, "until one is written");
	drive_fini(&d);
}

static void test_modes(void)
{
	static const struct {
		mode_t dir, record, lock;
	} cases[] = {
		{ 0700, 0600, 0600 }, { 0755, 0644, 0600 },  { 0775, 0664, 0660 },
		{ 0777, 0666, 0666 }, { 01777, 0644, 0600 }, { 02770, 0660, 0660 },
	};
	mode_t before = umask(077);

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct drive d;
		char dir[20], record[40], lock[40];
		snprintf(dir, sizeof dir, "mode%zu", i);
		snprintf(record, sizeof record, "%s/r", dir);
		snprintf(lock, sizeof lock, "%s/.r.lock", dir);
		mkdir(in(dir), 0700);
		chmod(in(dir), cases[i].dir);
		drive_init(&d, in(record));
		drive_put(&d, "a", 1, "");
		ok(mode_of(in(record)) == cases[i].record && mode_of(in(lock)) == cases[i].lock,
		   "in a directory of mode %o the record has %o and its lock %o", cases[i].dir, cases[i].record,
		   cases[i].lock);
		drive_fini(&d);
	}
	umask(before);

	struct drive d;
	drive_init(&d, in("kept"));
	drive_put(&d, "a", 1, "");
	chmod(in("kept"), 0640);
	bool given = chown(in("kept"), (uid_t)-1, geteuid() == 0 ? 12345 : getgid()) == 0;
	drive_read(&d);
	drive_put(&d, "a", 2, d.result.version.text);
	struct stat st;
	stat(in("kept"), &st);
	ok(given && (st.st_mode & 0777) == 0640 && st.st_gid == (geteuid() == 0 ? 12345 : getgid()),
	   "mode and group that somebody gave a record are kept");
	drive_fini(&d);
}

static void test_links(void)
{
	struct drive d;
	struct stat st;
	struct lock *l;
	struct err err;

	mkdir(in("elsewhere"), 0755);
	symlink("elsewhere/target", in("link"));
	drive_init(&d, in("link"));
	outcome_is(drive_put(&d, "a", 1, ""), LOCK_OK, "through a link to nothing the target is made");
	ok(lstat(in("link"), &st) == 0 && S_ISLNK(st.st_mode) && access(in("elsewhere/target"), F_OK) == 0,
	   "and the link stays");
	has(d.lock->url, "elsewhere/target", "the lock is known by its target");
	drive_fini(&d);
	drive_init(&d, in("link"));
	outcome_is(drive_read(&d), LOCK_OK, "a link is followed to a record");
	outcome_is(drive_put(&d, "b", 2, d.result.version.text), LOCK_OK, "which is replaced");
	ok(lstat(in("link"), &st) == 0 && S_ISLNK(st.st_mode), "and not the link");
	rename(in("elsewhere/target"), in("elsewhere/moved"));
	symlink("moved", in("elsewhere/target"));
	outcome_is(drive_read(&d), LOCK_FOREIGN, "a record that becomes a link under our feet is not followed");
	has(d.result.err.text, "symbolic link", "and said to be one");
	outcome_is(drive_put(&d, "c", 3, ""), LOCK_CONFLICT, "nor replaced");
	ok(lstat(in("elsewhere/target"), &st) == 0 && S_ISLNK(st.st_mode), "it is still there");
	drive_fini(&d);

	symlink("loop2", in("loop1"));
	symlink("loop1", in("loop2"));
	struct lock_env env = { 0 };
	l = lock_open(&env, in("loop1"), &err);
	ok(!l && strstr(err.text, "loop1") && strstr(err.text, "symbolic links"), "a loop of links is refused by name");
}

/* ---- what is not a record ---- */

static void check_foreign(const char *name, const char *what, const char *says)
{
	struct drive d;
	char sentence[200], *before;

	drive_init(&d, in(name));
	snprintf(sentence, sizeof sentence, "%s is foreign", what);
	outcome_is(drive_read(&d), LOCK_FOREIGN, sentence);
	snprintf(sentence, sizeof sentence, "%s: the error says so", what);
	has(d.result.err.text, says, sentence);
	snprintf(sentence, sizeof sentence, "%s: and names the file", what);
	has(d.result.err.text, in(name), sentence);
	bool printable = true;
	for (const char *c = d.result.err.text; *c; c++)
		printable = printable && (unsigned char)*c >= 0x20 && (unsigned char)*c < 0x7f;
	ok(printable, "%s: in text that a terminal can bear", what);
	before = strdup(get_file(in(name)));
	snprintf(sentence, sizeof sentence, "%s: a write is a conflict", what);
	outcome_is(drive_put(&d, "a", 1, ""), LOCK_CONFLICT, sentence);
	is_str(get_file(in(name)), before, "and does not touch it");
	free(before);
	drive_fini(&d);
}

static void test_foreign(void)
{
	static const char binary[] = "\x7f"
				     "ELF\x02\x01\x01\0\xff\xfe\x1b[31m";
	static const char wrong[] = "{\"holderIdentity\":\"a\",\"leaseDurationSeconds\":\"soon\"}";
	char *huge = calloc(1, RECORD_MAX_BYTES + 1);
	char *text;
	struct drive d;

	put_file(in("empty"), "", 0);
	check_foreign("empty", "an empty file", "is empty");
	drive_init(&d, in("whole"));
	drive_put(&d, "a", 1, "");
	drive_fini(&d);
	text = get_file(in("whole"));
	put_file(in("cut"), text, strlen(text) / 2);
	check_foreign("cut", "a truncated record", "no JSON: line");
	put_file(in("binary"), binary, sizeof binary - 1);
	check_foreign("binary", "a binary", "no JSON: line 1");
	put_file(in("huge"), huge, RECORD_MAX_BYTES + 1);
	check_foreign("huge", "a huge file", "262145 bytes");
	put_file(in("others"), "{\"name\": \"left-pad\"}", 20);
	check_foreign("others", "another program's JSON", "no election record");
	put_file(in("wrong"), wrong, sizeof wrong - 1);
	check_foreign("wrong", "a record with a wrong value",
	              "\"leaseDurationSeconds\" is \"soon\", expected a whole number");
	mkdir(in("directory"), 0755);
	check_foreign("directory", "a directory", "is a directory");
	free(huge);

	mkfifo(in("pipe"), 0600);
	drive_init(&d, in("pipe"));
	outcome_is(drive_read(&d), LOCK_FOREIGN, "a named pipe is foreign, and nobody waits for its writer");
	has(d.result.err.text, "named pipe", "and said to be one");
	drive_fini(&d);
	drive_init(&d, "/dev/null");
	outcome_is(drive_read(&d), LOCK_FOREIGN, "so is a device");
	drive_fini(&d);
}

static void test_large(void)
{
	struct record r;
	struct drive d;

	drive_init(&d, in("large"));
	record_init(&r);
	drive_fill(&r, "a", 1);
	r.address = realloc(r.address, 100001);
	memset(r.address, 'x', 100000);
	r.address[100000] = '\0';
	outcome_is(drive_write(&d, &r, ""), LOCK_OK, "a record of 100 KB is written");
	outcome_is(drive_read(&d), LOCK_OK, "and read");
	is_str(d.record.address, r.address, "whole");
	drive_fill(&r, "a", 2);
	outcome_is(drive_write(&d, &r, d.result.version.text), LOCK_OK, "and replaced");
	r.address = realloc(r.address, RECORD_MAX_BYTES + 1);
	memset(r.address, 'x', RECORD_MAX_BYTES);
	r.address[RECORD_MAX_BYTES] = '\0';
	outcome_is(drive_write(&d, &r, d.result.version.text), LOCK_INVALID,
	           "one that nobody would read is not written");
	has(d.result.err.text, "would have", "and the error says how large it would be");
	record_fini(&r);
	drive_fini(&d);
}

/* ---- deadlines, cancelling, a frozen holder ---- */

static void test_cancel(void)
{
	struct drive d;
	struct record r;

	drive_init(&d, in("cancel"));
	record_init(&r);
	drive_fill(&r, "a", 1);
	drive_start_write(&d, &r, "", true, DRIVE_PATIENCE);
	d.lock->ops->cancel(d.lock);
	is_int(d.calls, 1, "a cancelled write is answered before cancel returns");
	d.lock->ops->cancel(d.lock);
	drive_read(&d);
	is_int(d.calls, 1, "exactly once");
	drive_start_write(&d, &r, "", false, 0);
	drive_wait(&d);
	ok(d.result.outcome == LOCK_FAILED || d.result.outcome == LOCK_UNKNOWN || d.result.outcome == LOCK_CONFLICT,
	   "a write after its deadline is not a success");
	d.calls = 0;
	d.lock->ops->read(d.lock, instant_add(clock_now(), DRIVE_PATIENCE), drive_done, &d);
	d.lock->ops->close(d.lock);
	is_int(d.calls, 1, "closing cancels");
	d.lock = NULL;
	record_fini(&r);
	drive_fini(&d);
}

/* A process that stops, or waits for a signal, with the kernel lock held. */
static pid_t hold(const char *path, bool stop)
{
	int ready[2];
	char c;

	if (pipe(ready) < 0)
		return -1;
	pid_t pid = fork();
	if (pid == 0) {
		int fd = open(path, O_RDWR | O_CREAT, 0600);
		if (flock(fd, LOCK_EX) < 0 || write(ready[1], "x", 1) != 1)
			_exit(1);
		if (stop)
			raise(SIGSTOP);
		for (;;)
			pause();
	}
	close(ready[1]);
	(void)!read(ready[0], &c, 1);
	close(ready[0]);
	if (stop)
		waitpid(pid, NULL, WUNTRACED);
	return pid;
}

static void test_frozen(void)
{
	struct drive d;
	struct record r;
	char want[60];
	pid_t pid = hold(in(".frozen.lock"), true);

	drive_init(&d, in("frozen"));
	record_init(&r);
	drive_fill(&r, "a", 1);
	struct instant before = clock_now();
	/* On a slow machine the thread may come too late to say more than that. */
	for (int tries = 0; tries < 20 && !strstr(d.result.err.text, "has it and is stopped"); tries++) {
		drive_start_write(&d, &r, "", true, (300 + 200 * tries) * NSEC_PER_MS);
		drive_wait(&d);
	}
	outcome_is(d.result.outcome, LOCK_FAILED,
	           "a write that cannot have the kernel lock fails, and surely changed nothing");
	ok(elapsed_holder(before, clock_now()) >= 200 * NSEC_PER_MS, "it waited");
	snprintf(want, sizeof want, "process %d has it and is stopped", (int)pid);
	has(d.result.err.text, want, "and says who holds it, and how that process is");
	has(d.result.err.text, "continue or kill it", "and what to do");
	outcome_is(drive_read(&d), LOCK_ABSENT, "reading needs no lock");
	drive_start_write(&d, &r, "", true, DRIVE_PATIENCE);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	outcome_is(drive_wait(&d), LOCK_OK, "once that process is dead the lock is free");
	is_int(files_in(base, true), 0, "no temporary file stays");

	pid = hold(in(".frozen.lock"), false);
	drive_start_write(&d, &r, d.result.version.text, true, DRIVE_PATIENCE);
	unlink(in(".frozen.lock"));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	outcome_is(drive_wait(&d), LOCK_OK, "a lock file that is removed while somebody waits for it locks nobody out");
	record_fini(&r);
	drive_fini(&d);
}

/* ---- no thread ---- */

/* What its time is over for is not done by a thread that comes later, and does not wait for one either. */
static void test_no_thread(void)
{
	struct drive d;
	struct record r;
	char url[700];

	snprintf(url, sizeof url, "file:%s?shared=link", in("threads"));
	drive_init(&d, url);
	record_init(&r);
	drive_fill(&r, "a", 1);
	creations_fail = CREATIONS_ALL;
	for (int i = 0; i < 5; i++) {
		drive_start_write(&d, &r, "", true, 20 * NSEC_PER_MS);
		ok(drive_wait(&d) != LOCK_OK, "a write that no thread is free for is no success");
	}
	d.calls = 0;
	d.lock->ops->read(d.lock, instant_add(clock_now(), DRIVE_PATIENCE), drive_done, &d);
	ev_run(d.env.loop, EVRUN_ONCE);
	d.lock->ops->cancel(d.lock);
	is_int(d.calls, 1, "a read that waits for a thread can be cancelled");
	ok(offload_wait(d.env.offload, 0), "what was given up does not wait for a thread any more");
	creations_fail = 0;
	outcome_is(drive_read(&d), LOCK_ABSENT, "when there is one it reads, and nothing was written");

	drive_fini(&d);

	snprintf(url, sizeof url, "file:%s?shared=link", in("late"));
	drive_init(&d, url);
	creations_fail = CREATIONS_ALL;
	drive_start_write(&d, &r, "", true, 50 * NSEC_PER_MS);
	ev_run(d.env.loop, EVRUN_ONCE); /* it begins, and waits for a thread; then the loop is held up */
	nanosleep(&(struct timespec){ .tv_nsec = 60 * NSEC_PER_MS }, NULL);
	creations_fail = 0;
	ok(offload_wait(d.env.offload, 600 * NSEC_PER_SEC), "a thread comes when its time is over");
	ok(access(in("late"), F_OK) < 0 && access(in("late?shared=link"), F_OK) < 0, "and makes nothing");
	ok(drive_wait(&d) != LOCK_OK, "which is no success");
	drive_fini(&d);

	pid_t pid = hold(in(".busy.lock"), false);
	drive_init(&d, in("busy"));
	creations_fail = CREATIONS_ALL;
	drive_start_write(&d, &r, "", true, 50 * NSEC_PER_MS);
	ok(drive_wait(&d) != LOCK_OK, "a write that waits for a thread, since another process has the kernel lock");
	is_int(files_in(base, true), 0, "leaves no temporary file");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	creations_fail = 0;
	outcome_is(drive_put(&d, "a", 1, ""), LOCK_OK, "and the next one is done");
	drive_fini(&d);
	record_fini(&r);
}

/* ---- rights, full and read-only file systems ---- */

/* Runs body in a child, as another user if uid is not 0, in a mount namespace of its own if mounts; 0-100: its exit
 * status, with which it says how many sentences failed; -1: not permitted here. */
static int in_child(uid_t uid, bool mounts, int (*body)(void))
{
	int status;

	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		tap_failed = 0;
		if (mounts && (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0))
			_exit(101);
		if (uid && (setgid(uid) < 0 || setuid(uid) < 0))
			_exit(101);
		int failed = body();
		fflush(stdout);
		_exit(failed < 100 ? failed : 100);
	}
	waitpid(pid, &status, 0);
	return !WIFEXITED(status) ? 100 : WEXITSTATUS(status) == 101 ? -1 : WEXITSTATUS(status);
}

/* The child's sentences are printed as comments; here they become one. */
static void check_child(int failed, const char *sentence)
{
	if (failed < 0)
		ok(1, "%s # SKIP needs root", sentence);
	else
		is_int(failed, 0, sentence);
}

static int expect(bool good, const char *what, const struct drive *d)
{
	if (!good)
		printf("# %s: %s: %s\n", what, lock_outcome_name(d->result.outcome), d->result.err.text);
	return !good;
}

static int body_unreadable(void)
{
	struct drive d;
	int failed = 0;

	drive_init(&d, in("rights/r"));
	drive_read(&d);
	failed += expect(d.result.outcome == LOCK_REFUSED && strstr(d.result.err.text, in("rights/r")) &&
	                         strstr(d.result.err.text, "Permission denied"),
	                 "an unreadable record is refused", &d);
	drive_put(&d, "a", 1, "");
	failed += expect(d.result.outcome == LOCK_REFUSED && strstr(d.result.err.text, in("rights/r")),
	                 "so is writing beside it", &d);
	drive_fini(&d);
	return failed;
}

static int body_sticky(void)
{
	struct drive d;
	int failed = 0;

	drive_init(&d, in("sticky/r"));
	drive_read(&d);
	failed += expect(d.result.outcome == LOCK_OK, "another user's record in a sticky directory is read", &d);
	drive_put(&d, "a", 2, d.result.version.text);
	failed += expect(d.result.outcome == LOCK_REFUSED && strstr(d.result.err.text, "sticky bit") &&
	                         strstr(d.result.err.text, "user 1234"),
	                 "writing is refused, and the error explains", &d);
	failed += expect(files_in(in("sticky"), true) == 0, "no temporary file stays", &d);
	drive_fini(&d);
	return failed;
}

static void test_rights(void)
{
	struct drive d;

	mkdir(in("rights"), 0755);
	drive_init(&d, in("rights/r"));
	drive_put(&d, "a", 1, "");
	chmod(in("rights/r"), 0);
	if (geteuid() != 0)
		chmod(in("rights"), 0500);
	check_child(in_child(geteuid() == 0 ? NOBODY : 0, false, body_unreadable),
	            "an unreadable record is an error that names it");
	drive_fini(&d);

	if (geteuid() != 0) {
		ok(1, "a sticky directory of another user # SKIP needs root");
		return;
	}
	mkdir(in("sticky"), 0777);
	chmod(in("sticky"), 01777);
	drive_init(&d, in("sticky/r"));
	drive_put(&d, "a", 1, "");
	drive_fini(&d);
	(void)!chown(in("sticky/r"), 1234, 1234);
	check_child(in_child(NOBODY, false, body_sticky),
	            "a record of another user in a sticky directory is an error that explains");
	mkdir(in("theirs"), 0700);
	(void)!chown(in("theirs"), 1234, 1234);
	drive_init(&d, in("theirs/r"));
	drive_put(&d, "a", 1, "");
	struct stat record, lock;
	ok(stat(in("theirs/r"), &record) == 0 && record.st_uid == 1234 && stat(in("theirs/.r.lock"), &lock) == 0 &&
	           lock.st_uid == 1234,
	   "root in somebody's directory does not lock its owner out");
	drive_fini(&d);
}

static int body_full(void)
{
	struct drive d;
	char block[4096] = "", version[64], *before;
	int failed = 0;

	mkdir(in("small"), 0755);
	if (mount("none", in("small"), "tmpfs", 0, "size=64k") < 0)
		_exit(101);
	drive_init(&d, in("small/r"));
	drive_put(&d, "a", 1, "");
	snprintf(version, sizeof version, "%s", d.result.version.text);
	before = strdup(get_file(in("small/r")));
	int fd = open(in("small/filler"), O_WRONLY | O_CREAT, 0600);
	while (write(fd, block, sizeof block) > 0)
		continue;
	close(fd);
	drive_put(&d, "a", 2, version);
	failed += expect(d.result.outcome == LOCK_FAILED && d.result.err.code == ERR_FULL &&
	                         strstr(d.result.err.text, "small/r") && strstr(d.result.err.text, "No space left"),
	                 "a full disk is said to be full", &d);
	failed += expect(strcmp(get_file(in("small/r")), before) == 0, "the old record is whole", &d);
	failed += expect(files_in(in("small"), true) == 0, "no temporary file stays", &d);
	unlink(in("small/filler"));
	drive_put(&d, "a", 2, version);
	failed += expect(d.result.outcome == LOCK_OK, "with room again it is replaced", &d);
	snprintf(version, sizeof version, "%s", d.result.version.text);
	mount("none", in("small"), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=64k");
	drive_read(&d);
	failed += expect(d.result.outcome == LOCK_OK, "a read-only file system is read", &d);
	drive_put(&d, "a", 3, version);
	failed += expect(d.result.outcome == LOCK_FAILED && strstr(d.result.err.text, "Read-only") &&
	                         strstr(d.result.err.text, "small/r"),
	                 "writing there is an error", &d);
	free(before);
	drive_fini(&d);
	return failed;
}

static void test_full(void)
{
	check_child(in_child(0, true, body_full),
	            "a full or read-only file system is an error, and the old record stays whole");
}

/* ---- what the dead leave ---- */

static void leave(const struct file_temp_tag *t, const char *name)
{
	char path[500];
	size_t n = (size_t)snprintf(path, sizeof path, "%s/", base);

	file_temp_prefix(t, name, 0, path + n, sizeof path - n);
	strcat(path, "7.tmp");
	put_file(path, "{", 1);
}

static void test_leftovers(void)
{
	struct file_temp_tag alive, dead, other_start, boot, elsewhere;
	struct drive d;
	int status;

	file_temp_tag_init(&alive);
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	waitpid(pid, &status, 0);
	dead = other_start = boot = elsewhere = alive;
	dead.pid = (uint64_t)pid;
	other_start.start--;
	memcpy(boot.boot, "0123456789abcdef", 17);
	elsewhere.pid = (uint64_t)pid;
	elsewhere.pid_namespace++;
	leave(&alive, "leftalive");
	leave(&elsewhere, "leftelsewhere");
	put_file(in(".letter.tmp"), "", 0);
	put_file(in(".x.0123456789abcdef-1-2-3-4.tmp"), "", 0);
	leave(&dead, "leftdead");
	leave(&other_start, "leftother");
	leave(&boot, "leftboot");
	is_int(files_in(base, true), 7, "seven files that end in .tmp");
	drive_init(&d, in("leftovers"));
	drive_put(&d, "a", 1, "");
	is_int(files_in(base, true), 5, "the first write removes those of a dead process, and of another boot");
	drive_fini(&d);
	DIR *dir = opendir(base);
	struct dirent *e;
	int kept = 0;
	while ((e = readdir(dir)))
		kept += strstr(e->d_name, ".leftalive") || strstr(e->d_name, ".leftother") ||
		        strstr(e->d_name, ".leftelsewhere") || strcmp(e->d_name, ".letter.tmp") == 0 ||
		        strcmp(e->d_name, ".x.0123456789abcdef-1-2-3-4.tmp") == 0;
	rewinddir(dir);
	while ((e = readdir(dir)))
		if (strstr(e->d_name, ".tmp"))
			unlinkat(dirfd(dir), e->d_name, 0);
	closedir(dir);
	is_int(kept, 5,
	       "and none of a living one, whenever it seems to have started, of another PID namespace, or that only look similar");
}

/* The first write looks at every name of the directory that ends in .tmp. */
static void test_bare_suffix(void)
{
	struct drive d;

	put_file(in(".tmp"), "", 0);
	drive_init(&d, in("beside"));
	outcome_is(drive_put(&d, "a", 1, ""), LOCK_OK, "a file named .tmp, with nothing before it, disturbs no write");
	drive_fini(&d);
	ok(unlink(in(".tmp")) == 0, "and is left alone");
}

/* ---- notices ---- */

static void test_notices(void)
{
	struct drive d, other;

	mkdir(in("watched"), 0755);
	drive_init(&d, in("watched/r"));
	drive_init(&other, in("watched/r"));
	ok(drive_watch(&d), "a local directory can be watched");
	ok(drive_watch(&d), "twice is as good");
	drive_put(&d, "a", 1, "");
	drive_read(&d);
	drive_put(&d, "a", 2, d.result.version.text);
	drive_read(&other);
	drive_put(&other, "b", 3, other.result.version.text);
	drive_wait_changes(&d, 1);
	is_int(d.changes, 1, "another's write is noticed, our own are not");
	unlink(in("watched/r"));
	drive_wait_changes(&d, 2);
	ok(1, "a deletion is noticed");

	d.changes = 0;
	drive_read(&other);
	drive_put(&other, "b", 4, "");
	unlink(in("watched/.r.lock"));
	unlink(in("watched/r"));
	rmdir(in("watched"));
	drive_wait_changes(&d, 1);
	while (drive_watch(&d))
		drive_wait_changes(&d, d.changes + 1);
	ok(1, "the end of the directory is noticed, and then it cannot be watched");
	drive_read(&d);
	mkdir(in("watched"), 0755);
	drive_put(&other, "b", 5, "");
	d.changes = 0;
	ok(drive_watch(&d), "when the directory is back it can be watched again");
	drive_wait_changes(&d, 1);
	ok(1, "and what happened between the last look and the watch is noticed");

	/* More than the queue holds (inotify(7), max_queued_events: 16,384): what is lost must count as a change. */
	drive_read(&other);
	d.changes = 0;
	for (int i = 0; i < 9000; i++) {
		char name[40];
		snprintf(name, sizeof name, "watched/f%d", i);
		close(open(in(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
		unlink(in(name));
	}
	drive_put(&other, "b", 6, other.result.version.text);
	drive_wait_changes(&d, 1);
	ok(1, "a change that the kernel had no room to report is noticed");
	drive_fini(&d);
	drive_fini(&other);
}

#ifndef PATIENCE_S
#define PATIENCE_S 60. /* mutants get less */
#endif

static void on_waited(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)w;
	(void)revents;
	ev_break(loop, EVBREAK_ONE);
}

/* Runs the loop for so long, or until there were so many changes. */
static bool run_on(struct drive *d, double length_s, int changes)
{
	ev_timer timer;

	ev_now_update(d->env.loop);
	ev_timer_init(&timer, on_waited, length_s, 0.);
	ev_timer_start(d->env.loop, &timer);
	while (d->changes < changes && ev_is_active(&timer))
		ev_run(d->env.loop, EVRUN_ONCE);
	ev_timer_stop(d->env.loop, &timer);
	return d->changes >= changes;
}

static bool noticed(struct drive *d, int changes)
{
	return run_on(d, PATIENCE_S, changes);
}

/* It takes longer than the lock puts off to watch something else. Its timer is older, so it is carried out before this
 * one. */
static void settle(struct drive *d)
{
	run_on(d, 1.5, INT_MAX);
}

/* A standby would be woken twice for each renewal, if it were told of files that are written in place. */
static void test_edits(void)
{
	struct drive d, other;

	mkdir(in("edited"), 0755);
	drive_init(&d, in("edited/r"));
	drive_init(&other, in("edited/r"));
	drive_put(&other, "b", 1, "");
	drive_read(&d);
	drive_watch(&d);
	settle(&d);
	d.changes = 0;
	put_file(in("edited/r"), "{}", 2);
	unlink(in("edited/r"));
	drive_put(&other, "b", 2, "");
	noticed(&d, 2);
	settle(&d);
	is_int(d.changes, 2, "an edit in place wakes nobody; a deletion and a replacement are noticed");
	drive_fini(&d);
	drive_fini(&other);
}

struct pair {
	struct drive first, second;
	int told;
};

static void on_first(void *arg)
{
	struct pair *p = arg;

	p->told++;
	p->second.lock->ops->close(p->second.lock);
	p->second.lock = NULL;
}

static void on_second(void *arg)
{
	((struct pair *)arg)->told += 100;
}

static void test_close_in_notice(void)
{
	struct pair p = { 0 };
	struct drive writer;

	drive_init(&p.first, in("pair"));
	drive_init(&p.second, in("pair2"));
	drive_init(&writer, in("pair"));
	struct lock *second = lock_open(&p.first.env, in("pair"), &p.first.err);
	p.second.lock->ops->close(p.second.lock);
	p.second.lock = second; /* in the first one's env, on the same file; told after it */
	second->ops->watch(second, on_second, &p);
	p.first.lock->ops->watch(p.first.lock, on_first, &p);
	drive_put(&writer, "a", 1, "");
	ev_ref(p.first.env.loop);
	while (!p.told)
		ev_run(p.first.env.loop, EVRUN_ONCE);
	ev_unref(p.first.env.loop);
	ok(p.told == 1 || p.told == 101, "a notice may close another lock that is about to get it");
	drive_fini(&p.first);
	drive_fini(&p.second);
	drive_fini(&writer);
}

/* ---- names ---- */

static void refused(const char *url, const char *says)
{
	struct lock_env env = { 0 };
	struct err err = { 0 };
	struct lock *l = lock_open(&env, url, &err);

	if (!ok(!l && strstr(err.text, says), "\"%.40s\" is refused: %s", url, says))
		printf("# %s\n", err.text);
	lock_env_fini(&env);
}

static void test_names(void)
{
	char longer[400], dir[4096];
	struct err err;
	struct lock_env env = { .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOSIGMASK | EVFLAG_NOENV) };

	refused("", "expected the path");
	refused("file:", "expected the path");
	refused("/tmp/", "expected the path");
	refused("..", "expected the path");
	refused("file://server/lock", "file:/PATH");
	refused("etcdd://localhost/x", "there are file:");
	refused("/no/such/place/lock", "make it first");
	memset(longer, 'n', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	memcpy(longer, "/tmp/", 5);
	refused(longer, "File name too long");
	longer[5 + 170] = '\0';
	refused(longer, "at most 155");

	if (chdir(base) < 0)
		return;
	struct lock *l = lock_open(&env, "file:./relative", &err);
	ok(l && strcmp(l->url + 5, in("relative")) == 0, "a relative path is made absolute");
	if (l)
		l->ops->close(l);
	char url[600];
	snprintf(url, sizeof url, "file://%s", in("slashes"));
	l = lock_open(&env, url, &err);
	ok(l && strcmp(l->url + 5, in("slashes")) == 0, "file:///PATH is file:/PATH");
	if (l)
		l->ops->close(l);
	lock_env_fini(&env);
	ev_loop_destroy(env.loop);
	setenv("HOME", "/nowhere", 1);
	setenv("XDG_STATE_HOME", "/nowhere", 1);
	bool have = lock_state_dir(NULL, dir, sizeof dir, &err) == 0;
	ok(have && !strstr(dir, "nowhere") && (geteuid() != 0 || strcmp(dir, "/var/lib/lunarch") == 0),
	   "the default directory does not depend on the environment");
	is_int(mode_of(dir) & 077, 0, "and is private");
}

static void run_in(const char *where)
{
	snprintf(base, sizeof base, "%s/lunarch-lock-XXXXXX", where);
	if (!mkdtemp(base)) {
		printf("# %s: no directory here\n", where);
		return;
	}
	chmod(base, 0755);
	printf("# in %s\n", base);
	test_swap();
	test_hands();
	test_directory();
	test_modes();
	test_links();
	test_foreign();
	test_large();
	test_cancel();
	test_frozen();
	test_no_thread();
	test_rights();
	test_full();
	test_leftovers();
	test_bare_suffix();
	test_notices();
	test_edits();
	test_close_in_notice();
	test_names();
	char command[500];
	snprintf(command, sizeof command, "chmod -R u+rwX %s; rm -rf %s", base, base);
	if (chdir("/") < 0 || system(command) != 0)
		printf("# %s is left\n", base);
}

int main(void)
{
	run_in("/dev/shm"); /* in memory: all on the loop */
	run_in("/var/tmp"); /* on disk, where it usually is: writing off the loop */
	return tap_done();
}
