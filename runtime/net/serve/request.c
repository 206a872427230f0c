#include "net/serve/request.h"

#include <string.h>
#include <strings.h>

#define METHOD_MAX 16

/* What the headers say of how the request ends, beside struct request. */
struct request_frame {
	char *target;
	bool old; /* HTTP/1.0 */
	bool has_length;
};

/* ---- where it ends ---- */

/* The length of the head with its empty line; 0: that has not come. A line may end without its CR (RFC 9112, 2.2). */
static size_t head_length(const char *bytes, size_t len)
{
	for (const char *at = bytes; (at = memchr(at, '\n', len - (size_t)(at - bytes)));) {
		size_t next = (size_t)(++at - bytes);
		if (next < len && *at == '\n')
			return next + 1;
		if (next + 1 < len && at[0] == '\r' && at[1] == '\n')
			return next + 2;
	}
	return 0;
}

/* A CR stands before an LF alone (RFC 9112, 2.2). */
static bool is_text(const char *bytes, size_t len)
{
	for (size_t i = 0; i < len; i++) {
		unsigned char c = (unsigned char)bytes[i];
		bool ends = c == '\n' || (c == '\r' && i + 1 < len && bytes[i + 1] == '\n');
		if ((c < ' ' && c != '\t' && !ends) || c == 0x7f)
			return false;
	}
	return true;
}

/* Whether a line could begin a request: "METHOD TARGET HTTP/1.x". So a client that speaks something else is told at
 * once. */
static int check_first_line(const char *line, size_t len)
{
	const char *first = memchr(line, ' ', len);

	if (len && line[len - 1] == '\r')
		len--;
	if (!is_text(line, len) || !first || first == line || first - line > METHOD_MAX)
		return -400;
	for (const char *p = line; p < first; p++)
		if (*p < 'A' || *p > 'Z')
			return -400;
	if (len < 12 || memcmp(line + len - 9, " HTTP/", 6) != 0 || line + len - 9 <= first)
		return -400;
	if (memcmp(line + len - 3, "1.1", 3) != 0 && memcmp(line + len - 3, "1.0", 3) != 0)
		return -505;
	return memchr(first + 1, ' ', (size_t)(line + len - 9 - first - 1)) ? -400 : 0;
}

/* ---- the target ---- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Decodes the text in place. -1: no encoding, or an encoded NUL. plus: '+' is a space, as in forms. */
static int decode(char *text, bool plus)
{
	char *to = text;

	for (const char *from = text; *from; from++) {
		if (*from == '%') {
			int high = hex_digit(from[1]), low = high < 0 ? -1 : hex_digit(from[2]);
			if (low < 0 || (high == 0 && low == 0))
				return -1;
			*to++ = (char)(high << 4 | low);
			from += 2;
		} else {
			*to++ = plus && *from == '+' ? ' ' : *from;
		}
	}
	*to = '\0';
	return 0;
}

static int take_query(struct request *r, char *query)
{
	char *save = NULL;

	for (char *p = strtok_r(query, "&", &save); p; p = strtok_r(NULL, "&", &save)) {
		char *equals = strchr(p, '=');
		if (r->params == REQUEST_PARAMS)
			return -1;
		if (equals)
			*equals = '\0';
		r->param[r->params].name = p;
		r->param[r->params].value = equals ? equals + 1 : p + strlen(p);
		if (decode(p, true) < 0 || decode(r->param[r->params].value, true) < 0)
			return -1;
		r->params++;
	}
	return 0;
}

/* "/path?query", the same behind "http://host" (RFC 9112, 3.2.2), or "*". */
static int take_target(struct request *r, char *target)
{
	if (strncasecmp(target, "http://", 7) == 0) {
		target += 7 + strcspn(target + 7, "/?");
		if (*target != '/')
			return -400;
	}
	if (*target != '/' && strcmp(target, "*") != 0)
		return -400;
	char *query = strchr(target, '?');
	if (query)
		*query++ = '\0';
	r->path = target;
	return decode(target, false) < 0 || (query && take_query(r, query) < 0) ? -400 : 0;
}

/* ---- headers ---- */

static bool names_word(const char *value, const char *word)
{
	return strcasestr(value, word) != NULL;
}

static int take_header(struct request *r, struct request_frame *f, const char *name, const char *value)
{
	if (strcasecmp(name, "host") == 0) {
		if (r->host)
			return -400;
		r->host = value;
	} else if (strcasecmp(name, "transfer-encoding") == 0) {
		return -501;
	} else if (strcasecmp(name, "content-length") == 0) {
		if (f->has_length || !*value || value[strspn(value, "0123456789")])
			return -400;
		f->has_length = true;
		if (value[strspn(value, "0")])
			return -413;
	} else if (strcasecmp(name, "connection") == 0) {
		if (names_word(value, "close"))
			r->keep = false;
		else if (names_word(value, "keep-alive"))
			r->keep = true;
	} else if (strcasecmp(name, "accept") == 0) {
		r->html = r->html || names_word(value, "text/html");
	}
	return 0;
}

/* One line, terminated. A line that goes on in the next is refused (RFC 9112, 5.2), as is a space before the colon. */
static int take_line(struct request *r, struct request_frame *f, char *line)
{
	char *colon = strchr(line, ':');

	if (!colon || colon == line || strcspn(line, " \t") < (size_t)(colon - line))
		return -400;
	*colon = '\0';
	char *value = colon + 1 + strspn(colon + 1, " \t");
	size_t len = strlen(value);
	while (len && (value[len - 1] == ' ' || value[len - 1] == '\t'))
		value[--len] = '\0';
	return take_header(r, f, line, value);
}

/* The line at p, without its end and terminated; NULL: the empty one. *next: behind it. */
static char *cut_line(char *p, char **next)
{
	char *end = strchr(p, '\n');

	*next = end + 1;
	if (end > p && end[-1] == '\r')
		end--;
	*end = '\0';
	return end == p ? NULL : p;
}

static int take_head(struct request *r, char *head)
{
	struct request_frame f = { 0 };
	char *next, *line = cut_line(head, &next);
	char *space = strchr(line, ' '), *version = strrchr(line, ' ');

	*space = *version = '\0';
	r->method = line;
	f.target = space + 1;
	f.old = version[8] == '0';
	r->keep = !f.old;
	while ((line = cut_line(next, &next))) {
		int refused = take_line(r, &f, line);
		if (refused)
			return refused;
	}
	if (!r->host && !f.old)
		return -400;
	return take_target(r, f.target);
}

int request_parse(struct request *r, char *bytes, size_t len)
{
	size_t skip = 0;

	*r = (struct request){ 0 };
	while (skip < len && (bytes[skip] == '\r' || bytes[skip] == '\n')) /* RFC 9112, 2.2 */
		skip++;
	char *start = bytes + skip;
	const char *newline = len > skip ? memchr(start, '\n', len - skip) : NULL;
	if (newline) {
		int refused = check_first_line(start, (size_t)(newline - start));
		if (refused)
			return refused;
	}
	size_t head = newline ? head_length(start, len - skip) : 0;
	if (!head)
		return len >= REQUEST_MAX ? -431 : 0;
	if (!is_text(start, head))
		return -400;
	int refused = take_head(r, start);
	return refused ? refused : (int)(skip + head);
}

const char *request_param(const struct request *r, const char *name)
{
	for (size_t i = 0; i < r->params; i++)
		if (strcmp(r->param[i].name, name) == 0)
			return r->param[i].value;
	return NULL;
}
