/* Which certificate authorities this system trusts, for a library that was built on another distribution and looks for
 * them where that one has them. Not a judgement about certificates. Used by what verifies servers: net/tls, net/http,
 * and the connections to MariaDB. */
#pragma once

/* preset: the file or directory that the library looks at by itself. NULL: that is there, or SSL_CERT_DIR says where to
 * look, or nothing was found: the library's own way is as good. Else the file that SSL_CERT_FILE names, or the first
 * that is here of those that distributions have. The text lives as long as the environment. */
const char *authorities_file(const char *preset);
