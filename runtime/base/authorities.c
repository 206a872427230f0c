#include "base/authorities.h"

#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

const char *authorities_file(const char *preset)
{
	static const char *const files[] = {
		"/etc/ssl/certs/ca-certificates.crt",                /* Debian, Ubuntu, Arch, Gentoo */
		"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", /* RHEL, Fedora, Amazon Linux */
		"/etc/pki/tls/certs/ca-bundle.crt",                  /* older ones of these */
		"/etc/ssl/ca-bundle.pem",                            /* SUSE */
	};
	const char *said = secure_getenv("SSL_CERT_FILE");

	if (access(preset, R_OK) == 0 || secure_getenv("SSL_CERT_DIR"))
		return NULL;
	for (size_t i = 0; !said && i < sizeof files / sizeof *files; i++)
		if (access(files[i], R_OK) == 0)
			said = files[i];
	return said;
}
