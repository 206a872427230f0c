/* What a credential plugin of Kubernetes prints (an ExecCredential): a token, a certificate with its key, both, or a
 * reason why not. */
#include "fuzz.h"

#include "kube/kube_config.h"
#include "kube/kube_exec.h"

#include <jansson.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static char version[] = "client.authentication.k8s.io/v1";
	const struct kube_exec x = { .api_version = version };
	struct input in = { data, size };
	struct kube_exec_result r;
	json_t *keep = NULL;
	char *text = input_text(&in, NULL);

	kube_exec_parse(&x, text, &r, &keep);
	must((!r.token || *r.token) && (!r.cert_pem || *r.cert_pem) && (!r.key_pem || *r.key_pem));
	if (r.err.code == ERR_NONE)
		must(!r.cert_pem == !r.key_pem && (r.token || r.cert_pem));
	else
		must(*r.err.text);
	json_decref(keep);
	free(text);
	return 0;
}
