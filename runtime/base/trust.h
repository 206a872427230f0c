/* Which links and directories may be used, where other users of the machine can write: what they put there must not
 * lead us to another place. Not about what a file contains, and not about who may read it. Used by the file lock, by
 * locks for the state directory, and by the control socket. */
#pragma once

#include "base/err.h"

struct stat;

/* Whether a symbolic link may be followed: in a directory that everybody may write into only one of root's, of ours, or
 * of the directory's owner. The kernel's rule is nearly the same (proc_sys_fs(5), protected_symlinks); but that may be
 * off, knows only directories with the sticky bit, and says nothing of links that are read and followed by hand.
 * path: absolute, of the link. link: of lstat(2). -1 with *err (ERR_USAGE), which says what to do. */
int trust_link(const char *path, const struct stat *link, struct err *err);

/* Whether only we and root can change what is in a directory: it is ours or root's, and not everybody may write into
 * it. -1 with *err, which says why not. */
int trust_dir(const char *path, struct err *err);
