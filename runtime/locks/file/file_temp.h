/* Names of temporary files that say whose they are, so that those of dead processes can be told and removed.
 * Not mkstemp: a random name says nothing.
 * Used by the file lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FILE_TEMP_EXTRA 100 /* bytes that a temporary name has more than the name it is for */

/* What makes this process' names different from every other's, on this host or another. */
struct file_temp_tag {
	char boot[17]; /* the first half of the boot id; "" if it is unknown: then nothing is ever removed */
	uint64_t pid_namespace, pid, start;
};

void file_temp_tag_init(struct file_temp_tag *t);

/* "BOOT-NAMESPACE-PID-START", as it is in names. */
#define FILE_TEMP_TAG 96
void file_temp_tag_print(const struct file_temp_tag *t, char *out, size_t size);

/* ".NAME.BOOT-NAMESPACE-PID-START-LOCK-": how all temporary names of one lock begin. */
void file_temp_prefix(const struct file_temp_tag *t, const char *name, unsigned lock, char *out, size_t size);

/* Removes what dead processes left in the open directory: of this boot and our PID namespace; and of earlier boots, if
 * no other host can have the directory (local). give_up is asked now and then. No heap. */
void file_temp_clean(const struct file_temp_tag *t, int dir, bool local, bool (*give_up)(void *arg), void *arg);
