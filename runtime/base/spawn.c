#include "base/spawn.h"

#include <fcntl.h>
#include <unistd.h>

static void note(struct spawn *s, int error)
{
	if (!s->error)
		s->error = error;
}

void spawn_init(struct spawn *s, const sigset_t *blocked, const sigset_t *defaults, bool group)
{
	short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;

	s->error = 0;
	note(s, posix_spawn_file_actions_init(&s->files));
	note(s, posix_spawnattr_init(&s->attr));
	note(s, posix_spawnattr_setsigmask(&s->attr, blocked));
	note(s, posix_spawnattr_setsigdefault(&s->attr, defaults));
	note(s, posix_spawnattr_setpgroup(&s->attr, 0));
	note(s, posix_spawnattr_setflags(&s->attr, group ? (short)(flags | POSIX_SPAWN_SETPGROUP) : flags));
}

void spawn_no_input(struct spawn *s)
{
	note(s, posix_spawn_file_actions_addopen(&s->files, STDIN_FILENO, "/dev/null", O_RDONLY, 0));
}

void spawn_pass(struct spawn *s, int fd, int as)
{
	note(s, posix_spawn_file_actions_adddup2(&s->files, fd, as));
}

void spawn_directory(struct spawn *s, const char *path)
{
	note(s, posix_spawn_file_actions_addchdir_np(&s->files, path));
}

int spawn_run(struct spawn *s, pid_t *pid, const char *program, char *const *argv, char *const *env)
{
	if (!s->error)
		s->error = posix_spawnp(pid, program, &s->files, &s->attr, argv, env);
	posix_spawn_file_actions_destroy(&s->files);
	posix_spawnattr_destroy(&s->attr);
	return s->error;
}
