#include "commands/unit_env.h"

#include "base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* malloc'd; NULL: the script's name ends otherwise, so that no unit has it. */
static char *env_path(const char *script)
{
	size_t len = strlen(script);

	if (len < 5 || strcmp(script + len - 4, ".lua") != 0)
		return NULL;
	return mem_printf("%.*s.env", (int)(len - 4), script);
}

static char *trim(char *text)
{
	char *end = text + strlen(text);

	while (end > text && isspace((unsigned char)end[-1]))
		*--end = '\0';
	while (isspace((unsigned char)*text))
		text++;
	return text;
}

/* Takes the quotes away that are around the whole value. */
static char *unquote(char *value)
{
	size_t len = strlen(value);

	if (len < 2 || (*value != '"' && *value != '\'') || value[len - 1] != *value)
		return value;
	value[len - 1] = '\0';
	return value + 1;
}

/* "": the line is good. What is wrong names no value, which may be a secret. */
static const char *take_line(char *line, struct buf *told)
{
	char *text = trim(line), *equals = strchr(text, '=');

	if (!*text || *text == '#' || *text == ';')
		return "";
	if (!equals || equals == text || isdigit((unsigned char)*text))
		return "expected NAME=VALUE";
	for (const char *c = text; c < equals; c++)
		if (!isalnum((unsigned char)*c) && *c != '_')
			return "expected NAME=VALUE, and no blank before the '='";
	if (text[strlen(text) - 1] == '\\')
		return "a value that goes on in the next line is not read here: write it in one";
	*equals = '\0';
	setenv(text, unquote(trim(equals + 1)), 1);
	buf_printf(told, " %s", text);
	return "";
}

static int take_lines(FILE *f, const char *path, struct buf *told, struct err *err)
{
	char *line = NULL;
	const char *wrong = "";
	size_t size = 0;
	int number = 0;

	while (!*wrong && getline(&line, &size, f) >= 0) {
		number++;
		wrong = take_line(line, told);
	}
	free(line);
	return *wrong ? err_set(err, ERR_INVALID, "%s:%d: %s", path, number, wrong) : 0;
}

int unit_env_load(const char *script, struct buf *told, struct err *err)
{
	char *path = env_path(script);
	FILE *f = path ? fopen(path, "re") : NULL;
	int status = 0;

	if (f) {
		buf_printf(told, "%s:", path);
		status = take_lines(f, path, told, err);
		fclose(f);
	} else if (path && errno != ENOENT) {
		status = err_set(err, ERR_SYSTEM, "%s: %s", path, strerror(errno));
	}
	free(path);
	return status;
}
