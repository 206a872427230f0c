/* The floor of a handover on a Lease: who leads writes it, a watch tells another one, and that one writes it; after
 * half a second in which nothing happened, as before a real one. Over TLS, by libcurl, on connections that are up. No
 * processes, hooks, proofs or leases. Not a peer. Used by tests/bench/kube_rows.py; prints the milliseconds of each
 * round. */
#include <curl/curl.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static CURLM *multi;
static int told, ended;
static char version[32];

static double now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Each event of a watch is a line; the last one's version is what the next write replaces. */
static size_t on_event(char *bytes, size_t one, size_t n, void *arg)
{
	static const char key[] = "\"resourceVersion\":\"";
	static char line[16384];
	static size_t len;

	(void)arg;
	for (size_t i = 0; i < n; i++) {
		if (len < sizeof line - 1)
			line[len++] = bytes[i];
		if (bytes[i] != '\n')
			continue;
		line[len] = '\0';
		const char *found = strstr(line, key);
		snprintf(version, sizeof version, "%.*s", found ? (int)strspn(found + strlen(key), "0123456789") : 0,
		         found ? found + strlen(key) : "");
		len = 0;
		told++;
	}
	return one * n;
}

static size_t on_body(char *bytes, size_t one, size_t n, void *arg)
{
	(void)bytes;
	(void)arg;
	return one * n;
}

static void note_end(const CURLMsg *m)
{
	long status = 0;

	curl_easy_getinfo(m->easy_handle, CURLINFO_RESPONSE_CODE, &status);
	if (m->data.result != CURLE_OK || status != 200)
		errx(1, "status %ld: %s", status, curl_easy_strerror(m->data.result));
	curl_multi_remove_handle(multi, m->easy_handle);
	ended++;
}

static void serve_until(const int *count, int want)
{
	int running, left;

	while (curl_multi_perform(multi, &running) == CURLM_OK) {
		for (CURLMsg *m; (m = curl_multi_info_read(multi, &left));)
			note_end(m);
		if (*count >= want)
			return;
		curl_multi_poll(multi, NULL, 0, 10000, NULL);
	}
	errx(1, "libcurl gave up");
}

static CURL *request(const char *url, const char *ca, struct curl_slist *headers)
{
	CURL *c = curl_easy_init();

	if (!c)
		errx(1, "libcurl cannot be used");
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_CAINFO, ca);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, headers);
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1); /* a connection for each */
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_body);
	return c;
}

/* Another holder each time, since a write that changes nothing tells nobody. */
static void write_lease(CURL *c, const char *name)
{
	static int writes;
	char body[400];

	snprintf(
		body, sizeof body,
		"{\"apiVersion\":\"coordination.k8s.io/v1\",\"kind\":\"Lease\",\"metadata\":{\"name\":\"%s\",\"resourceVersion\":\"%s\"},"
		"\"spec\":{\"holderIdentity\":\"floor-%d\",\"leaseDurationSeconds\":15}}",
		name, version, ++writes);
	curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, "PUT");
	curl_easy_setopt(c, CURLOPT_COPYPOSTFIELDS, body);
	curl_multi_add_handle(multi, c);
}

static double play_round(CURL *first, CURL *second, const char *name)
{
	int before = told, done = ended;

	usleep(500000);
	double began = now_ms();
	write_lease(first, name);
	serve_until(&told, before + 1);
	write_lease(second, name);
	serve_until(&ended, done + 2);
	double took = now_ms() - began;
	serve_until(&told, before + 2);
	return took;
}

int main(int argc, char **argv)
{
	char lease[300], watch[400], token[4000];

	if (argc != 6)
		errx(2, "usage: TOKEN=... floor_kube HTTPS://HOST:PORT CA NAMESPACE NAME ROUNDS");
	snprintf(token, sizeof token, "Authorization: Bearer %s", getenv("TOKEN") ? getenv("TOKEN") : "");
	snprintf(lease, sizeof lease, "%s/apis/coordination.k8s.io/v1/namespaces/%s/leases/%s", argv[1], argv[3],
	         argv[4]);
	snprintf(
		watch, sizeof watch,
		"%s/apis/coordination.k8s.io/v1/namespaces/%s/leases?watch=true&resourceVersion=0&fieldSelector=metadata.name=%s",
		argv[1], argv[3], argv[4]);
	struct curl_slist *headers = curl_slist_append(NULL, token);
	headers = curl_slist_append(headers, "Content-Type: application/json");
	multi = curl_multi_init();
	CURL *first = request(lease, argv[2], headers), *second = request(lease, argv[2], headers),
	     *notices = request(watch, argv[2], headers);
	curl_easy_setopt(notices, CURLOPT_WRITEFUNCTION, on_event);
	curl_multi_add_handle(multi, notices);
	serve_until(&told, 1);              /* the Lease as it is */
	play_round(first, second, argv[4]); /* which brings the connections up */
	for (int i = atoi(argv[5]); i > 0; i--)
		printf("%.3f\n", play_round(first, second, argv[4]));
	return 0;
}
