#include "service/service_target.h"

#include "base/mem.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#define LABEL_MAX 63 /* RFC 1123: what names of Services and namespaces are */

static bool is_label(const char *s)
{
	size_t len = strlen(s);

	return len && len <= LABEL_MAX && strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == len && *s != '-' &&
	       s[len - 1] != '-';
}

/* 1 to 65535; 0: it is something else. */
static int port_of(const char *s)
{
	size_t digits = strspn(s, "0123456789");

	if (!digits || digits > 5 || s[digits])
		return 0;
	int port = atoi(s);
	return port <= 65535 ? port : 0;
}

int service_target_parse(struct service_target *t, const char *text, struct err *err)
{
	const char *slash = strchr(text, '/'), *name = slash ? slash + 1 : text, *colon = strchr(name, ':');

	*t = (struct service_target){
		.ns = mem_dupn(text, slash ? (size_t)(slash - text) : 0),
		.name = mem_dupn(name, colon ? (size_t)(colon - name) : strlen(name)),
		.port = colon ? port_of(colon + 1) : 0,
	};
	if (is_label(t->name) && (slash ? is_label(t->ns) : true) && (!colon || t->port))
		return 0;
	service_target_fini(t);
	return err_set(err, ERR_USAGE,
	               "\"%.200s\" is no Service: expected [NAMESPACE/]NAME[:PORT], names of a-z, 0-9 and '-', a port "
	               "from 1 to 65535",
	               text);
}

void service_target_fini(struct service_target *t)
{
	free(t->ns);
	free(t->name);
	*t = (struct service_target){ 0 };
}

/* Without a port and brackets; NULL: it is too long to be one. */
static const char *without_port(const char *address, char out[SERVICE_HOST_SIZE])
{
	bool bracket = *address == '[';
	const char *from = address + bracket, *colon = strchr(address, ':');
	size_t len = bracket                            ? strcspn(from, "]")
	             : colon && !strchr(colon + 1, ':') ? (size_t)(colon - address)
	                                                : strlen(address);

	if (len >= SERVICE_HOST_SIZE)
		return NULL;
	memcpy(out, from, len);
	out[len] = '\0';
	return out;
}

int service_host(const char *address, char host[SERVICE_HOST_SIZE], struct err *err)
{
	const char *pod = getenv("POD_IP");
	unsigned char bytes[sizeof(struct in6_addr)];
	char text[SERVICE_HOST_SIZE];

	if (!*address && pod)
		address = pod;
	if (!*address)
		return err_set(
			err, ERR_USAGE,
			"a Service has the leader's address, and this candidate has none: give --address IP:PORT, or "
			"POD_IP in the environment (the downward API's status.podIP)");
	const char *plain = without_port(address, text);
	for (int family = AF_INET; plain; family = AF_INET6) {
		if (inet_pton(family, plain, bytes) == 1)
			return inet_ntop(family, bytes, host, SERVICE_HOST_SIZE) ? 0 : err_sys(err, "%s", plain);
		if (family == AF_INET6)
			break;
	}
	return err_set(
		err, ERR_USAGE,
		"a Service takes IP addresses, and this candidate's is \"%.200s\": give --address IP:PORT (to a script's "
		"address function: let it return one)",
		address);
}
