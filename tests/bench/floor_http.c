/* The floor of a process that speaks HTTP: a program that links libcurl and sends one request.
 * No peer. Used by tests/bench/driver_rows.py: floor_http URL. It stays until it is killed, so that it can be weighed. */
#include <curl/curl.h>
#include <stdio.h>
#include <unistd.h>

static size_t drop(char *, size_t size, size_t count, void *)
{
	return size * count;
}

int main(int argc, char **argv)
{
	if (argc != 2 || curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
		return 2;
	CURL *easy = curl_easy_init();
	curl_easy_setopt(easy, CURLOPT_URL, argv[1]);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop);
	if (curl_easy_perform(easy) != CURLE_OK)
		return 1;
	puts("ready");
	fflush(stdout);
	pause();
	return 0;
}
