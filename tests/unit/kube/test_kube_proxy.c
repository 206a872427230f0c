/* NO_PROXY, each kind of entry: what golang.org/x/net/http/httpproxy (v0.38.0) says of the same. */
#include "kube/kube_proxy.h"

#include "tap.h"

int main(void)
{
	static const struct {
		const char *list, *url;
		bool passed;
	} rows[] = {
		{ "", "https://api.example:6443", false },
		{ "", "https://localhost:6443", true },
		{ "", "https://127.3.2.1:6443", true },
		{ "", "https://[::1]:6443", true },
		{ "", "https://[::ffff:127.0.0.1]", true },
		{ "", "https://LOCALHOST", false },
		{ "*", "https://api.example", true },
		{ "a.b, * ", "https://[fd00::1]:6443", true },
		{ "*x", "https://api.example", false },
		{ "example", "https://api.example:6443", true },
		{ "example", "https://example", true },
		{ "Example", "https://API.EXAMPLE", true },
		{ "example", "https://myexample", false },
		{ ".example", "https://example", false },
		{ ".example", "https://a.example", true },
		{ "*.example", "https://example", false },
		{ "*.example", "https://a.b.example", true },
		{ "api.example:6443", "https://api.example:6443", true },
		{ "api.example:443", "https://api.example", true },
		{ "api.example:443", "https://api.example:6443", false },
		{ "api.example:80", "http://api.example", true },
		{ ".example:6443", "https://api.example:6443", true },
		{ "api.example:", "https://api.example:6443", true },
		{ ":6443", "https://api.example:6443", false },
		{ "10.0.0.1", "https://10.0.0.1:6443", true },
		{ "10.0.0.1", "https://10.0.0.11:6443", false },
		{ "10.0.0.1:6443", "https://10.0.0.1:6443", true },
		{ "10.0.0.1:443", "https://10.0.0.1:6443", false },
		{ "10.0.0.0/8", "https://10.200.0.1:6443", true },
		{ "10.0.0.0/8", "https://11.0.0.1", false },
		{ "10.0.0.0/33", "https://10.0.0.1", false },
		{ "10.0.0.0/8:6443", "https://10.0.0.1:6443", false },
		{ "0.0.0.0/0", "https://10.0.0.1", true },
		{ "0.0.0.0/0", "https://[fd00::1]", false },
		{ "0.0.0.0/0", "https://api.example", false },
		{ "0.1", "https://10.0.0.1", false },
		{ "010.0.0.1", "https://10.0.0.1", false },
		{ "fd00::1", "https://[fd00::1]:6443", true },
		{ "fd00:0:0::1", "https://[FD00::1]", true },
		{ "[fd00::1]", "https://[fd00::1]:6443", false },
		{ "[fd00::1]:6443", "https://[fd00::1]:6443", true },
		{ "[fd00::1]:443", "https://[fd00::1]:6443", false },
		{ "[fd00::1]:443", "https://[fd00::1]", true },
		{ "fd00::/16", "https://[fd00:1::1]:6443", true },
		{ "fd00::/16", "https://[fd01::1]:6443", false },
		{ "[fd00::]/16", "https://[fd00::1]:6443", false },
		{ "fd00::/129", "https://[fd00::1]:6443", false },
		{ "::/0", "https://[fd00::1]", true },
		{ "::/0", "https://10.0.0.1", false },
		{ "::ffff:10.0.0.1", "https://10.0.0.1", true },
		{ "10.0.0.1", "https://[::ffff:10.0.0.1]", true },
		{ "::ffff:10.0.0.0/104", "https://10.9.9.9", true },
		{ "10.0.0.1 ,, fd00::1", "https://[fd00::1]", true },
		{ "10.0.0.1 fd00::1", "https://[fd00::1]", false },
		{ "api.example/x", "https://api.example", false },
		{ "https://api.example", "https://api.example", false },
	};

	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		ok(kube_proxy_is_passed(rows[i].list, rows[i].url) == rows[i].passed, "NO_PROXY=\"%s\": %s is %s",
		   rows[i].list, rows[i].url, rows[i].passed ? "reached directly" : "asked for at the proxy");
	return tap_done();
}
