/* The environment of a process that is to be started: that of this one, with some variables set and others removed.
 * Not environ itself, which stays as it is. Used by what starts processes: the guard's start, a script's programs, the
 * worker's markers, and the simulation's nodes. */
#pragma once

/* The list `own` with the changes: "NAME=value" sets a variable, "NAME" alone removes it, and of several with one name
 * the last counts. Both lists are NULL-terminated and may be NULL. The caller frees the array, which has room for as
 * many entries as both lists have together; its entries are those of the lists. */
char **env_with(char *const *own, char *const *changes);
