#include "service/service_target.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

/* RFC 1123: what names of Services and namespaces are. */
static bool take_label(char out[SERVICE_NAME_SIZE], const char *s, size_t len)
{
	if (len == 0 || len >= SERVICE_NAME_SIZE || strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789-") < len ||
	    *s == '-' || s[len - 1] == '-')
		return false;
	memcpy(out, s, len);
	return true;
}

static bool take_port(int *port, const char *s)
{
	size_t digits = strspn(s, "0123456789");

	*port = digits > 0 && digits <= 5 && !s[digits] ? atoi(s) : 0;
	return *port > 0 && *port <= 65535;
}

int service_target_parse(struct service_target *t, const char *text, struct err *err)
{
	const char *slash = strchr(text, '/'), *name = slash ? slash + 1 : text, *port = strchrnul(name, ':');

	*t = (struct service_target){ 0 };
	if ((!slash || take_label(t->ns, text, (size_t)(slash - text))) &&
	    take_label(t->name, name, (size_t)(port - name)) && (!*port || take_port(&t->port, port + 1)))
		return 0;
	return err_set(err, ERR_USAGE,
	               "\"%.200s\" is no Service: expected [NAMESPACE/]NAME[:PORT], names of a-z, 0-9 and '-', a port "
	               "from 1 to 65535",
	               text);
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
