/* A holder: a process that pauses, and has the evidence that an elector has, so that its death can be proved.
 * Not a tree of processes: what it starts first is the test's.
 * Used by tests/unit/election. */
#pragma once

#include "election/death_proof.h"
#include "lease/record.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

struct holder {
	pid_t pid, child; /* child: started by `start`; 0: none */
	struct record record;
};

__attribute__((noreturn)) static void be_holder(int out, const char *home, pid_t (*start)(const struct proof_self *))
{
	struct proof_self self;
	struct record r;

	proof_self_init(&self, home);
	record_init(&r);
	proof_self_fill(&self, &r);
	mem_replace(&r.holder, "holder");
	pid_t child = start ? start(&self) : 0;
	char *text = record_print(&r);
	if (write(out, &child, sizeof child) < 0 || write(out, text, strlen(text) + 1) < 0)
		_exit(1);
	close(out);
	for (;;)
		pause();
}

/* Returns when it has its evidence. start: NULL, or what it does before. */
static void hold(struct holder *h, const char *home, pid_t (*start)(const struct proof_self *))
{
	char text[4096];
	size_t have = 0;
	int fds[2];
	ssize_t n;

	fflush(stdout);
	if (pipe(fds) < 0)
		exit(1);
	h->pid = fork();
	if (h->pid == 0) {
		close(fds[0]);
		be_holder(fds[1], home, start);
	}
	close(fds[1]);
	while ((have < sizeof h->child + 1 || text[have - 1] != '\0') &&
	       (n = read(fds[0], text + have, sizeof text - have)) > 0)
		have += (size_t)n;
	close(fds[0]);
	memcpy(&h->child, text, sizeof h->child);
	record_init(&h->record);
	if (record_parse(&h->record, text + sizeof h->child, strlen(text + sizeof h->child), NULL) < 0)
		exit(1);
}

static void end(const struct holder *h)
{
	kill(h->pid, SIGKILL);
	waitpid(h->pid, NULL, 0);
}

static void bury(struct holder *h)
{
	if (h->record.tree && *h->record.tree)
		unlink(h->record.tree);
	record_fini(&h->record);
}
