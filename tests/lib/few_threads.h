/* Makes the next calls of pthread_create fail, as they do where pids.max or ulimit -u is reached.
 * Threads that are there go on.
 * Used by tests/unit of what works on threads (loop/offload.h). */
#pragma once

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>

#define CREATIONS_ALL 1000000000

static int creations_fail, creations_failed;

int pthread_create(pthread_t *id, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

	if (!real)
		*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	if (creations_fail > 0) {
		creations_fail--;
		creations_failed++;
		return EAGAIN;
	}
	return real(id, attr, start, arg);
}
