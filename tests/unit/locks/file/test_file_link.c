/* The lock for shared directories, ?shared=link: a link whose answer is lost, that is done twice, or that comes late,
 * is never taken for what it is not; what is not the lock's is never touched; old versions go, and a name that is free
 * again deceives nobody. The program's own linkat stands between the lock and the kernel's. */
#include "lock_drive.h"
#include "lock_files.h"
#include "locks/file/file_link.h"
#include "locks/file/file_system.h"
#include "tap.h"

#include <errno.h>
#include <fcntl.h>
#include <semaphore.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the link between ---- */

static struct {
	enum { STRAIGHT, LOST, TWICE, REFUSED, NEVER, LATE } how; /* for the next link */
	int code;                                                 /* REFUSED, NEVER, LOST: what is answered */
	sem_t begun, go_on;                                       /* LATE */
} between;

static time_t now, step = 2 * FILE_LINK_YOUNG_S; /* the server's clock, which goes on with each version */

static int kernels_link(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	struct timespec times[] = { { .tv_nsec = UTIME_OMIT },
		                    { .tv_sec = __atomic_add_fetch(&now, step, __ATOMIC_SEQ_CST) } };
	int status = (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);

	if (status == 0)
		utimensat(to_dir, to, times, 0);
	return status;
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
	int how = between.how;

	between.how = STRAIGHT;
	if (how == LATE) {
		sem_post(&between.begun);
		sem_wait(&between.go_on);
	}
	if (how == LOST || how == TWICE)
		kernels_link(from_dir, from, to_dir, to, flags);
	if (how == LOST || how == REFUSED || how == NEVER) {
		errno = between.code;
		return -1;
	}
	return kernels_link(from_dir, from, to_dir, to, flags);
}

/* ---- names ---- */

static const char *shared(const char *name)
{
	static char url[2][700];
	static int turn;

	turn = !turn;
	snprintf(url[turn], sizeof url[0], "file:%s?shared=link", in(name));
	return url[turn];
}

struct two {
	struct drive a, b;
};

/* a has read what is there: version 1, b's. */
static void two_init(struct two *t, const char *name)
{
	drive_init(&t->a, shared(name));
	drive_init(&t->b, shared(name));
	drive_put(&t->b, "b", 1, "");
	drive_read(&t->a);
}

static void two_fini(struct two *t)
{
	drive_fini(&t->a);
	drive_fini(&t->b);
}

/* ---- answers ---- */

static void test_lost(void)
{
	struct two t;

	two_init(&t, "lost");
	between.how = TWICE;
	outcome_is(drive_put(&t.a, "a", 2, t.a.result.version.text), LOCK_OK,
	           "a link that is done twice, the second in vain, is our write all the same");
	between.how = LOST;
	between.code = EIO;
	outcome_is(drive_put(&t.a, "a", 3, t.a.result.version.text), LOCK_OK,
	           "so is one whose answer is an error, but which was done");
	drive_read(&t.b);
	ok(t.b.record.token == 3 && strcmp(t.b.result.version.text, t.a.result.version.text) == 0,
	   "and everybody reads it, with the version the writer was told");
	between.how = NEVER;
	between.code = EIO;
	outcome_is(drive_put(&t.a, "a", 4, t.a.result.version.text), LOCK_UNKNOWN,
	           "an error that does not say that nothing was done is unknown");
	between.how = REFUSED;
	between.code = EPERM;
	outcome_is(drive_put(&t.b, "b", 4, t.b.result.version.text), LOCK_REFUSED,
	           "a file system without hard links refuses");
	has(t.b.result.err.text, "link(2), which the file system must have", "and it is said what it lacks");
	between.how = REFUSED;
	between.code = ENOSPC;
	drive_read(&t.b);
	outcome_is(drive_put(&t.b, "b", 4, t.b.result.version.text), LOCK_FAILED, "one without room fails");
	drive_read(&t.a);
	ok(t.a.record.token == 3, "and the record stays as it was");
	is_int(files_in(in("lost"), true), 0, "no temporary file stays");
	two_fini(&t);
}

/* a's link waits until b has written `versions`. */
static enum lock_outcome late(struct two *t, int versions, nsec within)
{
	char expected[64];
	struct record r;

	record_init(&r);
	drive_fill(&r, "late", 1000);
	snprintf(expected, sizeof expected, "%s", t->a.result.version.text);
	between.how = LATE;
	drive_start_write(&t->a, &r, expected, true, within);
	ev_ref(t->a.env.loop);
	while (sem_trywait(&between.begun) < 0 && t->a.calls == 0)
		ev_run(t->a.env.loop, EVRUN_NOWAIT); /* its turn comes from the loop */
	ev_unref(t->a.env.loop);
	drive_read(&t->b);
	for (int i = 0; i < versions; i++)
		drive_put(&t->b, "b", 10 + i, t->b.result.version.text);
	if (within < DRIVE_PATIENCE)
		drive_wait(&t->a); /* its deadline passes */
	sem_post(&between.go_on);
	record_fini(&r);
	return drive_wait(&t->a);
}

static void test_late(void)
{
	struct two t;

	two_init(&t, "late");
	outcome_is(late(&t, 1, DRIVE_PATIENCE), LOCK_CONFLICT, "a link that comes after another's write is a conflict");
	drive_read(&t.a);
	is_str(t.a.record.holder, "b", "and the other's record is the one that counts");
	outcome_is(late(&t, 1, 5 * NSEC_PER_SEC), LOCK_UNKNOWN, "one that hangs beyond its deadline is unknown");
	two_fini(&t); /* waits until it has come back */
	drive_init(&t.b, shared("late"));
	drive_read(&t.b);
	is_str(t.b.record.holder, "b", "and when it comes at last it changes nothing");
	drive_fini(&t.b);
}

/* So late that the name which it makes was another's, and is free again. */
static void test_free_again(void)
{
	static const int versions[] = { FILE_LINK_KEPT - 1, FILE_LINK_KEPT, FILE_LINK_KEPT + 1, FILE_LINK_KEPT + 2,
		                        3 * FILE_LINK_KEPT };
	struct two t;

	for (size_t i = 0; i < sizeof versions / sizeof versions[0]; i++) {
		char name[20];
		snprintf(name, sizeof name, "free%zu", i);
		two_init(&t, name);
		enum lock_outcome o = late(&t, versions[i], DRIVE_PATIENCE);
		drive_read(&t.b);
		ok((o == LOCK_CONFLICT || o == LOCK_UNKNOWN) && strcmp(t.b.record.holder, "b") == 0,
		   "a link that comes %d versions late does not succeed (%s), and is not read", versions[i],
		   lock_outcome_name(o));
		outcome_is(drive_put(&t.b, "b", 500, t.b.result.version.text), LOCK_OK,
		           "and the next write goes on from the newest");
		two_fini(&t);
	}
	/* The first version of all is a name that can be free again, too. */
	drive_init(&t.a, shared("first"));
	drive_init(&t.b, shared("first"));
	t.a.result.version = (struct version){ "" };
	enum lock_outcome o = late(&t, 2 * FILE_LINK_KEPT, DRIVE_PATIENCE);
	drive_read(&t.b);
	ok(o == LOCK_UNKNOWN && strcmp(t.b.record.holder, "b") == 0, "so with the very first version");
	two_fini(&t);
}

static void test_kept(void)
{
	struct drive d;

	drive_init(&d, shared("kept"));
	d.result.version = (struct version){ "" };
	for (int i = 0; i < 5 * FILE_LINK_KEPT; i++)
		if (drive_put(&d, "a", i + 1, d.result.version.text) != LOCK_OK)
			ok(0, "write %d", i);
	ok(files_in(in("kept"), false) <= FILE_LINK_KEPT + 1, "old versions are removed");
	ok(access(in("kept/0000000000000040"), F_OK) == 0, "a version's name is its number");
	drive_fini(&d);

	drive_init(&d, shared("young"));
	d.result.version = (struct version){ "" };
	step = FILE_LINK_YOUNG_S / 20;
	for (int i = 0; i < 5 * FILE_LINK_KEPT; i++)
		if (drive_put(&d, "a", i + 1, d.result.version.text) != LOCK_OK)
			ok(0, "write %d", i);
	int there = files_in(in("young"), false);
	ok(there >= 20 && there <= 22,
	   "those of the last five minutes stay, which other machines may have just read (%d)", there);
	step = 2 * FILE_LINK_YOUNG_S;
	ok(link(in("young/0000000000000040"), in("young/.left.tmp")) == 0 && drive_read(&d) == LOCK_OK &&
	           d.record.token == 5 * FILE_LINK_KEPT,
	   "a version whose writer died before it removed its temporary name is read all the same");
	drive_fini(&d);
}

/* ---- hands ---- */

static void test_hands(void)
{
	struct two t;
	char third[64];

	two_init(&t, "hands");
	drive_put(&t.a, "a", 2, t.a.result.version.text);
	drive_put(&t.a, "a", 3, t.a.result.version.text);
	snprintf(third, sizeof third, "%s", t.a.result.version.text);
	unlink(in("hands/0000000000000003"));
	outcome_is(drive_put(&t.a, "a", 4, third), LOCK_CONFLICT,
	           "after the newest version is deleted by hand its holder's write is a conflict");
	drive_read(&t.a);
	is_int(t.a.record.token, 2, "and the one before it is read");
	put_file(in("hands/0000000000000002"), "{\"holderIdentity\":\"hand\",\"leaseDurationSeconds\":15}",
	         strlen("{\"holderIdentity\":\"hand\",\"leaseDurationSeconds\":15}"));
	outcome_is(drive_put(&t.a, "a", 4, t.a.result.version.text), LOCK_CONFLICT,
	           "a version that is edited in place is not replaced unseen");
	put_text(in("hands/0000000000000003"), "");
	outcome_is(drive_read(&t.a), LOCK_FOREIGN, "an empty file as the newest version is foreign");
	outcome_is(drive_put(&t.a, "a", 4, ""), LOCK_CONFLICT, "and never written upon");
	unlink(in("hands/0000000000000003"));
	put_text(in("hands/README"), "x");
	outcome_is(drive_read(&t.a), LOCK_FOREIGN, "a directory with something else in it is foreign");
	has(t.a.result.err.text, "README", "and what that is is said");
	outcome_is(drive_put(&t.a, "a", 4, t.a.result.version.text), LOCK_CONFLICT, "nothing is written there");
	unlink(in("hands/README"));
	put_text(in("hands/.nfs0000000000a3"), "x");
	outcome_is(drive_read(&t.a), LOCK_OK, "what a client of NFS keeps of an open file is no matter");
	two_fini(&t);
}

/* ---- the two kinds of file lock on one path ---- */

static void test_kinds(void)
{
	struct drive plain, link;
	struct stat st;

	drive_init(&plain, in("kind"));
	drive_put(&plain, "plain", 1, "");
	drive_init(&link, shared("kind"));
	outcome_is(drive_read(&link), LOCK_FOREIGN, "a plain lock's record is foreign to ?shared=link");
	has(link.result.err.text, "named without ?shared=link, stop all of its candidates and remove it",
	    "and what to do is said");
	outcome_is(drive_put(&link, "link", 2, ""), LOCK_CONFLICT, "it is not written over");
	ok(stat(in("kind"), &st) == 0 && S_ISREG(st.st_mode), "it is still there");
	unlink(in("kind"));
	outcome_is(drive_put(&link, "link", 2, ""), LOCK_OK, "once it is removed the lock is made");
	outcome_is(drive_read(&plain), LOCK_FOREIGN, "and is foreign to a plain lock, as to an older Lunarch");
	has(plain.result.err.text, "named with ?shared=link", "which says so");
	outcome_is(drive_put(&plain, "plain", 3, ""), LOCK_CONFLICT, "a plain write is a conflict");
	ok(rename(in("kind/0000000000000001"), in("elsewhere")) == 0 && rename(in("elsewhere"), in("kind")) < 0 &&
	           errno == EISDIR,
	   "and a rename that an older one left hanging fails: the kernel puts no file over a directory");
	drive_fini(&plain);
	drive_fini(&link);
}

/* What an older Lunarch makes of the same text on its command line: a record whose name has the options in it. */
static void test_older(void)
{
	static const char *const texts[] = { "older?shared=link", "oldplain?must_exist=.." };

	for (int i = 0; i < 2; i++) {
		struct drive d;
		struct stat st;
		char name[100];
		put_text(in(texts[i]), "{}");
		drive_init(&d, in(texts[i]));
		outcome_is(drive_put(&d, "a", 1, ""), LOCK_REFUSED,
		           "beside a record that an older one has made of the same text nobody leads");
		has(d.result.err.text, "older Lunarch", "and it is said who it was");
		has(d.result.err.text, texts[i], "and which file");
		snprintf(name, sizeof name, "%.*s", (int)strcspn(texts[i], "?"), texts[i]);
		ok(access(in(name), F_OK) < 0, "nothing is made");
		unlink(in(texts[i]));
		outcome_is(drive_put(&d, "a", 1, ""), LOCK_OK, "once it is removed somebody does");
		ok(stat(in(texts[i]), &st) == 0 && S_ISDIR(st.st_mode),
		   "and that name is a directory, which no version overwrites");
		d.calls = 0;
		d.expected = d.result.version;
		d.lock->ops->remove(d.lock, &d.expected, instant_add(clock_now(), DRIVE_PATIENCE), drive_done, &d);
		drive_wait(&d);
		ok(d.result.outcome == LOCK_OK && access(in(name), F_OK) < 0 && access(in(texts[i]), F_OK) < 0,
		   "doctor's removal takes it along");
		drive_fini(&d);
	}
}

static void test_modes(void)
{
	static const struct {
		mode_t outer, dir, record;
	} cases[] = {
		{ 0700, 0700, 0600 }, { 0755, 0755, 0644 },  { 0775, 0775, 0664 },
		{ 0777, 0777, 0666 }, { 01777, 0755, 0644 }, { 02770, 02770, 0660 },
	};
	mode_t before = umask(077);

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct drive d;
		struct stat dir = { 0 }, record = { 0 };
		char name[20], lock[40], version[80];
		snprintf(name, sizeof name, "mode%zu", i);
		snprintf(lock, sizeof lock, "%s/r", name);
		snprintf(version, sizeof version, "%s/0000000000000001", lock);
		mkdir(in(name), 0700);
		chmod(in(name), cases[i].outer);
		drive_init(&d, shared(lock));
		drive_put(&d, "a", 1, "");
		stat(in(lock), &dir);
		stat(in(version), &record);
		ok((dir.st_mode & 07777) == cases[i].dir && (record.st_mode & 07777) == cases[i].record,
		   "in a directory of mode %o the lock has %o and its record %o", cases[i].outer, cases[i].dir,
		   cases[i].record);
		drive_fini(&d);
	}
	umask(before);
}

/* ---- URLs, the marker ---- */

static void refused(const char *url, const char *says)
{
	struct lock_env env = { 0 };
	struct err err = { 0 };
	struct lock *l = lock_open(&env, url, &err);

	if (!ok(!l && strstr(err.text, says), "\"%s\" is refused: %s", strstr(url, "?") ? strstr(url, "?") : url, says))
		printf("# %s\n", err.text);
	lock_env_fini(&env);
}

static void test_options(void)
{
	char url[700];
	struct drive d;

	snprintf(url, sizeof url, "%s?share=link", in("o"));
	refused(url, "there is no option \"share\"; there are shared, must_exist");
	snprintf(url, sizeof url, "%s?shared=flock", in("o"));
	refused(url, "there is shared=link");
	snprintf(url, sizeof url, "%s?password_file=/x", in("o"));
	refused(url, "there is no option");
	snprintf(url, sizeof url, "%s?must_exist=", in("o"));
	refused(url, "expects the name of a file");
	snprintf(url, sizeof url, "%s?must_exist=mounted%%20here", in("o"));
	refused(url, "probably not mounted");
	put_text(in("mounted here"), "");
	for (int i = 0; i < 2; i++) {
		snprintf(url, sizeof url, "%s?must_exist=mounted%%20here%s", in(i ? "shared" : "plain"),
		         i ? "&shared=link" : "");
		put_text(in("mounted here"), "");
		drive_init(&d, url);
		has(d.lock->url, i ? "?shared=link&must_exist=mounted%20here" : "?must_exist=mounted%20here",
		    "the lock's URL has its options");
		outcome_is(drive_put(&d, "a", 1, ""), LOCK_OK, "with its marker there a lock works");
		unlink(in("mounted here"));
		outcome_is(drive_put(&d, "a", 2, d.result.version.text), LOCK_FAILED, "without it nothing is written");
		has(d.result.err.text, "mounted here, which must exist", "and the error names it");
		has(d.result.err.text, "not mounted", "and says what is probably the matter");
		outcome_is(drive_read(&d), LOCK_FAILED, "nor read");
		put_text(in("mounted here"), "");
		drive_read(&d);
		is_int(d.record.token, 1, "when it is back all is as it was");
		drive_fini(&d);
	}
}

/* File systems are known by their numbers in statfs(2). */
static void test_types(void)
{
	static const struct {
		uint32_t magic;
		enum file_system is;
		const char *name;
	} known[] = {
		{ 0x6969, FILE_SYSTEM_SHARED, "NFS" },       { 0xfe534d42, FILE_SYSTEM_SHARED, "SMB" },
		{ 0xff534d42, FILE_SYSTEM_SHARED, "SMB" },   { 0x65735546, FILE_SYSTEM_SHARED, "FUSE" },
		{ 0x00c36400, FILE_SYSTEM_SHARED, "Ceph" },  { 0x01021997, FILE_SYSTEM_SHARED, "9p" },
		{ 0x5346414f, FILE_SYSTEM_SHARED, "AFS" },   { 0x01161970, FILE_SYSTEM_SHARED, "GFS2" },
		{ 0x7461636f, FILE_SYSTEM_SHARED, "OCFS2" }, { 0x01021994, FILE_SYSTEM_MEMORY, "tmpfs" },
		{ 0xef53, FILE_SYSTEM_DISK, "ext4" },        { 0x58465342, FILE_SYSTEM_DISK, "XFS" },
		{ 0x9123683e, FILE_SYSTEM_DISK, "btrfs" },   { 0x794c7630, FILE_SYSTEM_DISK, "overlay" },
		{ 0x4d44, FILE_SYSTEM_LOCAL, "FAT" },        { 0x2011bab0, FILE_SYSTEM_LOCAL, "exFAT" },
		{ 0x7366746e, FILE_SYSTEM_LOCAL, "NTFS" },   { 0x12345678, FILE_SYSTEM_SHARED, "not know" },
	};

	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		const struct file_system_type *t = file_system_type(known[i].magic);
		ok(t->is == known[i].is && strstr(t->name, known[i].name), "0x%x is %s: %s", known[i].magic, t->name,
		   t->is == FILE_SYSTEM_SHARED ? "refused" : "this machine's alone");
	}
	refused("/proc/lock", "a type that Lunarch does not know");
}

static void run_in(const char *where)
{
	char command[300];

	snprintf(base, sizeof base, "%s/lunarch-link-XXXXXX", where);
	if (!mkdtemp(base)) {
		printf("# %s: no directory here\n", where);
		return;
	}
	printf("# in %s\n", base);
	test_lost();
	test_late();
	test_free_again();
	test_kept();
	test_hands();
	test_kinds();
	test_older();
	test_modes();
	test_options();
	snprintf(command, sizeof command, "rm -rf '%s'", base);
	if (system(command) != 0)
		printf("# %s is left\n", base);
}

int main(void)
{
	sem_init(&between.begun, 0, 0);
	sem_init(&between.go_on, 0, 0);
	test_types();
	run_in("/dev/shm");
	run_in("/var/tmp");
	return tap_done();
}
