/* Whether NO_PROXY sends what goes to a URL past the proxy, by the rules of client-go
 * (golang.org/x/net/http/httpproxy), which differ from libcurl's for ports, CIDR, IPv6 and what is on this machine. Not
 * which proxy: that is the kubeconfig's, or what libcurl finds in the environment. Used by kube_api.c. */
#pragma once

#include <stdbool.h>

/* no_proxy: NULL is "". url: https://HOST[:PORT]... or http://. */
bool kube_proxy_is_passed(const char *no_proxy, const char *url);

/* NO_PROXY of the environment: the first spelling that is set and not empty, as client-go looks for it. */
const char *kube_proxy_environment(void);
