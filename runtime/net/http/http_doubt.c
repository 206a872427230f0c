#include "net/http/http_internal.h"

#include <stdio.h>
#include <string.h>

static char *doubt_find(struct http *h, const char *ip)
{
	for (int i = 0; i < HTTP_DOUBTS; i++)
		if (strcmp(h->doubts[i], ip) == 0)
			return h->doubts[i];
	return NULL;
}

bool http_is_doubted(struct http *h, const char *ip)
{
	return *ip && doubt_find(h, ip);
}

void http_doubt(struct http *h, const char *ip)
{
	if (*ip && !doubt_find(h, ip))
		snprintf(h->doubts[h->doubted++ % HTTP_DOUBTS], HTTP_IP, "%s", ip);
}

void http_doubt_none(struct http *h)
{
	memset(h->doubts, 0, sizeof h->doubts);
}

/* Whether the address is to blame that the call heard nothing. It is not if other addresses took the call's time, nor
 * if the caller cancelled it long before its deadline. */
static bool doubt_is_fair(const struct http_call *c, struct instant now)
{
	nsec all = elapsed_holder(c->began, now), had = *c->at ? elapsed_holder(c->at_since, now) : all;
	bool ends = c->r.by.boot || c->r.by.raw;

	return had >= all / 4 && (c->err.code != ERR_CANCELLED || (ends && instant_until(c->r.by, now) <= all / 8));
}

/* "": libcurl knows none. */
static const char *address_of(const struct http_call *c)
{
	const char *ip = NULL;

	if (*c->at)
		return c->at;
	return curl_easy_getinfo(c->easy, CURLINFO_PRIMARY_IP, &ip) == CURLE_OK && ip ? ip : "";
}

void http_doubt_judge(struct http_call *c)
{
	const char *ip = address_of(c);
	char *known = *ip ? doubt_find(c->client, ip) : NULL;

	if (c->heard && known)
		*known = '\0';
	else if (!c->heard && doubt_is_fair(c, clock_now()))
		http_doubt(c->client, ip);
}
