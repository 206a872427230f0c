#include "commands/commands.h"

#include "base/mem.h"
#include "script/prelude.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NAME_MAX_LEN 100
#define SCRIPT_TEMPLATE "starter" /* examples/starter.lua, in which that word stands for the name */
#define LOCK_TEMPLATE "mystore"   /* examples/mystore.lua, the same */
#define SCHEME_MAX_LEN 32

static bool is_name(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!isalnum((unsigned char)s[i]) && s[i] != '_' && (s[i] != '-' || i == 0))
			return false;
	return len > 0 && len <= NAME_MAX_LEN;
}

/* A lock file's name is the scheme of its URLs. */
static bool is_scheme(const char *s, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (!islower((unsigned char)s[i]) && (i == 0 || (!isdigit((unsigned char)s[i]) && s[i] != '-')))
			return false;
	return len > 0 && len <= SCHEME_MAX_LEN;
}

static int name_refused(const char *word, bool lock)
{
	if (lock)
		return command_fail(
			COMMAND_NEW, EXIT_USAGE,
			"'%s' is no name for a lock: expected small letters, digits and '-', since its URLs "
			"begin with it: NAME://",
			word);
	return command_fail(COMMAND_NEW, EXIT_USAGE,
	                    "'%s' is no name: expected letters, digits, '_' and '-'; it is written into the directory "
	                    "you are in",
	                    word);
}

static void put_named(FILE *f, const char *text, const char *word, const char *name)
{
	const char *at;

	while ((at = strstr(text, word))) {
		fwrite(text, 1, (size_t)(at - text), f);
		fputs(name, f);
		text = at + strlen(word);
	}
	fputs(text, f);
}

/* Never overwrites what is there. word: stands in the template for the name. */
static int write_file(const char *path, const char *template, const char *word, const char *name)
{
	FILE *f = fopen(path, "wxe");

	if (!f)
		return command_fail(COMMAND_NEW, EXIT_FAILED_SCRIPT, "cannot write %s: %s", path,
		                    errno == EEXIST ? "there is one already" : strerror(errno));
	put_named(f, prelude_find(template)->text, word, name);
	bool bad = ferror(f);
	if (fclose(f) != 0 || bad)
		return command_fail(COMMAND_NEW, EXIT_FAILED_SCRIPT, "cannot write %s: %s", path, strerror(errno));
	printf("%s\n", path);
	return EXIT_DONE;
}

int cmd_new(int argc, char **argv)
{
	struct options o;
	int status = command_begin(&o, COMMAND_NEW, argc, argv);

	if (status >= 0)
		return status;
	if (o.words != 1)
		return command_fail(COMMAND_NEW, EXIT_USAGE, "how shall it be called? lunarch new [--lock] NAME");
	size_t len = strlen(o.word[0]);
	if (len > 4 && strcmp(o.word[0] + len - 4, ".lua") == 0)
		len -= 4;
	bool lock = options_flag(&o, OPTION_NEW_LOCK);
	if (!(lock ? is_scheme : is_name)(o.word[0], len))
		return name_refused(o.word[0], lock);
	char *name = mem_dupn(o.word[0], len), *script = mem_printf("%s.lua", name),
	     *test = mem_printf("%s_test.lua", name);
	const char *word = lock ? LOCK_TEMPLATE : SCRIPT_TEMPLATE;
	status = write_file(script, word, word, name);
	if (status == EXIT_DONE)
		status = write_file(test, lock ? LOCK_TEMPLATE "_test" : SCRIPT_TEMPLATE "_test", word, name);
	if (status == EXIT_DONE && access(".luacheckrc", F_OK) < 0)
		status = write_file(".luacheckrc", "luacheckrc", word, "");
	free(name);
	free(script);
	free(test);
	return status;
}
