/* The file lock's directory, filled by the input: [kind, name, 0, content, 0]... are files, directories, links and
 * pipes beside the record, or in it where that is a directory (?shared=link). It is read, written and listed both ways;
 * a write that is said to have been done can be read. */
#include "fuzz.h"

#include "locks/file/file_link.h"
#include "locks/file/file_list.h"
#include "locks/file/file_swap.h"
#include "locks/lock_listing.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

static const struct clock_virtual machine = { .now = 1000 * NSEC_PER_SEC, .wall_us = INT64_C(1700000000000000) };
static char base[60], path[80];

static void empty(int dir)
{
	DIR *d = fdopendir(dir);
	struct dirent *e;

	while (d && (e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		if (unlinkat(dirfd(d), e->d_name, 0) < 0) {
			int inner = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
			if (inner >= 0)
				empty(inner);
			unlinkat(dirfd(d), e->d_name, AT_REMOVEDIR);
		}
	}
	if (d)
		closedir(d);
}

static void put(int dir, uint8_t kind, const char *name, const char *content, size_t len)
{
	if (!*name || strchr(name, '/') || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
		return;
	if (kind == 1) {
		mkdirat(dir, name, 0700);
	} else if (kind == 2) {
		if (symlinkat("record", dir, name) < 0)
			return;
	} else if (kind == 3) {
		mkfifoat(dir, name, 0600);
	} else {
		int fd = openat(dir, name, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_EXCL, 0600);
		if (fd >= 0 && write(fd, content, len) < 0)
			abort();
		if (fd >= 0)
			close(fd);
	}
}

static void fill(struct input *in, bool shared)
{
	int dir = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC), inner = -1;

	if (shared && mkdirat(dir, "record", 0700) == 0)
		inner = openat(dir, "record", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 12 && in->left; i++) {
		uint8_t kind = input_byte(in);
		size_t len;
		char *name = input_text(in, NULL), *content = input_text(in, &len);
		put(inner >= 0 && !(kind & 4) ? inner : dir, kind & 3, name, content, len);
		free(name);
		free(content);
	}
	if (inner >= 0)
		close(inner);
	close(dir);
}

static struct file_op operation(bool shared)
{
	struct file_op o = { .path = path, .shared = shared, .local = true, .in_memory = true, .temp_fd = -1 };

	o.by = instant_add(clock_now(), 8 * NSEC_PER_MS); /* too little to pause for a writer that never ends */
	file_temp_tag_init(&o.tag);
	snprintf(o.temp, sizeof o.temp, ".record.fuzz.tmp");
	return o;
}

static enum lock_outcome read_record(bool shared, struct version *version)
{
	struct file_op o = operation(shared);

	(shared ? file_link_read : file_swap_read)(&o);
	if (o.outcome == LOCK_OK)
		must(strlen(file_op_content(&o)) <= o.len && o.len <= RECORD_MAX_BYTES);
	*version = o.version;
	file_op_fini(&o);
	return o.outcome;
}

static void write_record(bool shared, const struct version *expected)
{
	struct file_op o = operation(shared);
	struct version now;

	o.text = "{\"holderIdentity\":\"fuzz\"}\n";
	o.expected = *expected;
	o.clean = true;
	if (shared)
		file_link_write(&o);
	else
		file_swap_write(&o);
	if (o.outcome == LOCK_OK) {
		must(read_record(shared, &now) == LOCK_OK);
		must(strcmp(now.text, o.version.text) == 0);
	}
	file_op_fini(&o);
}

static void list(bool shared)
{
	struct file_op o = operation(shared);
	struct lock_listing found = { 0 };
	char prefix[100];

	snprintf(prefix, sizeof prefix, "%s/" LOCK_PREFIX_END, base);
	o.path = prefix;
	file_list(&o, &found);
	for (size_t i = 1; i < found.count; i++)
		must(strcmp(found.name[i - 1], found.name[i]) < 0);
	lock_listing_fini(&found);
	file_op_fini(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	struct version version;
	uint8_t how = input_byte(&in);
	bool shared = how & 1;

	if (!*base) {
		fuzz_silence();
		clock_pretend(&machine); /* however slow the machine is, no deadline passes */
		snprintf(base, sizeof base, "/dev/shm/lunarch-fuzz-%d", (int)getpid());
		snprintf(path, sizeof path, "%s/record", base);
		if (mkdir(base, 0700) < 0)
			abort();
	}
	fill(&in, shared);
	enum lock_outcome read = read_record(shared, &version);
	if (read == LOCK_OK || read == LOCK_ABSENT || how & 2)
		write_record(shared, &version);
	list(shared);
	empty(open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	return 0;
}
