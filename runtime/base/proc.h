/* What /proc and the kernel say of processes, and reading a directory, without the heap. Not a list of processes, and
 * no decisions: death_proof.c and file_temp.c decide what the numbers mean. Used by the proof of death and the file
 * lock, on threads that must not allocate, and by each process for its own title and name. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proc_stat {       /* of /proc/PID/stat, proc(5) */
	char state;      /* field 3: R S D Z T t X I */
	bool kernel;     /* a kernel thread: field 9, PF_KTHREAD */
	uint64_t parent; /* field 4; 0 = a process that we cannot see */
	long threads;    /* field 20: of a zombie, the first one and those that live */
	/* field 22: clock ticks since boot, as the reader's time namespace counts them (time_namespaces(7)) */
	uint64_t start;
};

/* 0; -1 with errno: ENOENT or ESRCH if /proc shows no such process. */
int proc_stat(uint64_t pid, struct proc_stat *out);

/* false: a zombie, which runs nothing any more. One whose first thread alone has ended is none, though its state is
 * Z. */
bool proc_runs(const struct proc_stat *s);

/* True if any of the process' four user ids is uid, or if they cannot be read. False of a process that has ended. */
bool proc_has_uid(uint64_t pid, uid_t uid);

/* True if no process has that number. A process that /proc hides from us (hidepid, proc(5)) is not gone. */
bool proc_gone(uint64_t pid);

/* Reads a file into text, at most size - 1 bytes, and terminates it. How many bytes; -1 with errno. */
ssize_t proc_slurp(const char *path, char *text, size_t size);

/* The machine's boot id; "" if it cannot be read. out: 37 bytes. */
void proc_boot_id(char *out);

/* The PID namespace of this process; 0 if /proc shows another namespace. */
uint64_t proc_pid_namespace(void);

/* A name that no other process of this machine has, for files in a directory that containers may share: the PID; in a
 * PID namespace that is not the machine's first, PID-NAMESPACE. out: PROC_SELF_NAME bytes. */
#define PROC_SELF_NAME 40
void proc_self_name(char *out);

/* The time namespace of this process; 0 where the kernel has none. -1 if it cannot be seen. */
int proc_time_namespace(uint64_t *out);

/* From now on ps(1) shows "lunarch: ROLE NAME" in place of this process's arguments: their memory is overwritten, so
 * copy first what is used later. The environment stays. name: a path, shown without its directory and ".lua". */
void proc_title(const char *role, const char *name);

/* From now on /proc shows these as the arguments and the environment of this process, as if it had been executed with
 * them: words, each with its NUL, in memory that stays. Its earlier environment is wiped. The caller sets environ. 0;
 * -1 with errno if the kernel cannot, or may not: then nothing has changed. prctl(2), PR_SET_MM_MAP, which needs no
 * privilege. */
int proc_show(char *arguments, size_t arguments_size, char *environment, size_t environment_size);

/* Calls each(arg, name) for every entry of the open directory until it returns false. 0; -1 with errno. */
int proc_each(int dir, bool (*each)(void *arg, const char *name), void *arg);
