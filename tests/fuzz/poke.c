/* Pokes: what a record says of where to send one, and what comes at the port. The first text is an address; the rest is
 * a datagram. Whatever is an address is of one machine, and reads the same as it is printed. */
#include "fuzz.h"

#include "election/poke_socket.h"

#include <netdb.h>
#include <stdio.h>

static const char key[] = "00112233445566778899aabbccddeeff";

static void judge_address(const char *text)
{
	struct sockaddr_storage a = { 0 }, b = { 0 };
	socklen_t len, again_len;
	char host[NI_MAXHOST], port[NI_MAXSERV], again[NI_MAXHOST + NI_MAXSERV + 4];

	if (!poke_address(text, &a, &len))
		return;
	must(getnameinfo((struct sockaddr *)&a, len, host, sizeof host, port, sizeof port,
	                 NI_NUMERICHOST | NI_NUMERICSERV) == 0);
	must(atoi(port) >= 1024 && !strchr(host, '%'));
	snprintf(again, sizeof again, a.ss_family == AF_INET6 ? "[%s]:%s" : "%s:%s", host, port);
	must(poke_address(again, &b, &again_len) && len == again_len && memcmp(&a, &b, len) == 0);
}

static void judge_datagram(const uint8_t *data, size_t size)
{
	struct poke_gate g = { .key = "" };
	char expected[POKE_BYTES];

	must(!poke_gate_hear(&g, data, size));
	memcpy(g.key, key, sizeof key);
	poke_fill(expected, key);
	bool is = size == sizeof expected && memcmp(data, expected, size) == 0;
	must(poke_gate_hear(&g, data, size) == is && g.due == is);
	must(!poke_gate_hear(&g, data, size) || !is);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = { data, size };
	char *text = input_text(&in, NULL);

	judge_address(text);
	free(text);
	judge_datagram(data, size);
	return 0;
}
