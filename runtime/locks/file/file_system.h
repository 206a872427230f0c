/* Kinds of file systems, as far as they matter to a file lock: of this machine alone, or shared with others.
 * Nothing is tried out: the type that statfs(2) tells decides, and a type that is not known counts as shared.
 * Used by the file lock. */
#pragma once

#include <stdint.h>

enum file_system {
	FILE_SYSTEM_MEMORY, /* no device to wait for, nothing to make durable */
	FILE_SYSTEM_DISK,   /* local, with inode numbers that stay */
	FILE_SYSTEM_LOCAL,  /* local; no more is relied upon */
	FILE_SYSTEM_SHARED, /* other machines or programs may have it, or nobody knows */
};

struct file_system_type {
	uint32_t magic; /* f_type of statfs(2) */
	enum file_system is;
	const char *name;
};

/* Never NULL: the type of this number, else one that is shared and says that it is unknown. */
const struct file_system_type *file_system_type(uint32_t magic);
