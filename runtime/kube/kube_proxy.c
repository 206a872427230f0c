#include "kube/kube_proxy.h"

#include <arpa/inet.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define NAME 256
#define V4_BITS 96 /* of ::ffff:0:0/96, in which IPv4 is (RFC 4291, 2.5.5.2) */

struct proxy_target {
	char host[NAME], port[NAME];
	struct in6_addr ip;
	bool has_ip;
};

static bool is_v4(const struct in6_addr *ip)
{
	return IN6_IS_ADDR_V4MAPPED(ip);
}

static bool read_ip(const char *text, struct in6_addr *out)
{
	struct in_addr v4;

	if (inet_pton(AF_INET6, text, out) == 1)
		return true;
	if (inet_pton(AF_INET, text, &v4) != 1)
		return false;
	*out = (struct in6_addr){ .s6_addr = { [10] = 0xff, [11] = 0xff } };
	memcpy(out->s6_addr + 12, &v4, sizeof v4);
	return true;
}

/* "HOST:PORT" or "[HOST]:PORT", as Go's net.SplitHostPort. false: it is none. */
static bool split_port(const char *text, char *host, char *port)
{
	const char *colon = strrchr(text, ':'), *end = colon;

	if (!colon)
		return false;
	if (*text == '[') {
		end = strchr(text++, ']');
		if (!end || end + 1 != colon)
			return false;
	}
	snprintf(host, NAME, "%.*s", (int)(end - text), text);
	snprintf(port, NAME, "%s", colon + 1);
	return !strpbrk(host, *end == ']' ? "[]" : ":[]") && !strpbrk(port, "[]");
}

static void target_read(struct proxy_target *t, const char *url)
{
	char place[NAME];
	const char *begin = strstr(url, "://") + 3;

	snprintf(place, sizeof place, "%.*s", (int)strcspn(begin, "/?#"), begin);
	if (!split_port(place, t->host, t->port)) {
		size_t n = strlen(place);
		bool brackets = n > 1 && *place == '[' && place[n - 1] == ']';
		snprintf(t->host, sizeof t->host, "%.*s", (int)(brackets ? n - 2 : n), place + brackets);
		*t->port = '\0';
	}
	if (!*t->port)
		snprintf(t->port, sizeof t->port, "%s", strncmp(url, "http:", 5) == 0 ? "80" : "443");
	t->has_ip = read_ip(t->host, &t->ip);
}

static bool is_loopback(const struct in6_addr *ip)
{
	return is_v4(ip) ? ip->s6_addr[12] == 127 : IN6_IS_ADDR_LOOPBACK(ip);
}

/* false: it is no CIDR. *matches: whether the target is in it. */
static bool read_network(const char *entry, const struct proxy_target *t, bool *matches)
{
	const char *slash = strchr(entry, '/');
	char text[NAME];
	struct in6_addr net;

	if (!slash || !slash[1] || slash[1 + strspn(slash + 1, "0123456789")])
		return false;
	snprintf(text, sizeof text, "%.*s", (int)(slash - entry), entry);
	long most = strchr(text, ':') ? 128 : 32, bits = strtol(slash + 1, NULL, 10);
	if (!read_ip(text, &net) || bits > most)
		return false;
	bits += 128 - most;
	*matches = t->has_ip && is_v4(&t->ip) == (is_v4(&net) && bits >= V4_BITS);
	for (int i = 0; i < bits; i++)
		*matches &= !((net.s6_addr[i / 8] ^ t->ip.s6_addr[i / 8]) & (0x80 >> i % 8));
	return true;
}

/* A name stands for itself and for all names below it; ".name" and "*.name" stand only for those below. */
static bool name_matches(const char *name, const char *host)
{
	bool below = strncmp(name, "*.", 2) == 0;
	const char *tail = name + below;
	size_t n = strlen(tail), len = strlen(host);

	if (*tail != '.' && strcasecmp(tail, host) == 0)
		return true;
	if (len <= n || strcasecmp(host + len - n, tail) != 0)
		return *tail == '.' && len == n && strcasecmp(host, tail) == 0;
	return *tail == '.' || host[len - n - 1] == '.';
}

static bool entry_matches(const char *entry, const struct proxy_target *t)
{
	char host[NAME], port[NAME];
	struct in6_addr ip;
	bool matches;

	if (strcmp(entry, "*") == 0)
		return true;
	if (read_network(entry, t, &matches))
		return matches;
	if (!split_port(entry, host, port)) {
		snprintf(host, sizeof host, "%s", entry);
		*port = '\0';
	}
	if (!*host || (*port && strcmp(port, t->port) != 0))
		return false;
	if (read_ip(host, &ip))
		return t->has_ip && IN6_ARE_ADDR_EQUAL(&ip, &t->ip);
	return !t->has_ip && name_matches(host, t->host);
}

bool kube_proxy_is_passed(const char *no_proxy, const char *url)
{
	struct proxy_target t = { .host = "" };
	char entry[NAME];

	target_read(&t, url);
	if (strcmp(t.host, "localhost") == 0 || (t.has_ip && is_loopback(&t.ip)))
		return true;
	for (const char *p = no_proxy ? no_proxy : ""; *p; p += *p == ',') {
		size_t n = strcspn(p, ",");
		const char *begin = p, *end = p + n;
		while (begin < end && isspace((unsigned char)*begin))
			begin++;
		while (end > begin && isspace((unsigned char)end[-1]))
			end--;
		p += n;
		if (end == begin || end - begin >= NAME)
			continue;
		snprintf(entry, sizeof entry, "%.*s", (int)(end - begin), begin);
		if (entry_matches(entry, &t))
			return true;
	}
	return false;
}

const char *kube_proxy_environment(void)
{
	const char *upper = getenv("NO_PROXY");

	return upper && *upper ? upper : getenv("no_proxy");
}
