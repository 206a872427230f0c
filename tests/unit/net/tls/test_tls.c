/* TLS against OpenSSL's own server, over memory: what is accepted, what is not, and what the error says of it. */
#include "net/tls/tls.h"

#include "base/mem.h"
#include "tap.h"

#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <unistd.h>

static char dir[] = "/tmp/lunarch-tls-XXXXXX";

/* ---- certificates ---- */

struct identity {
	EVP_PKEY *key;
	X509 *cert;
};

static char *path_of(const char *name)
{
	static char path[8][100];
	static int at;

	at = (at + 1) % 8;
	snprintf(path[at], sizeof path[at], "%s/%s", dir, name);
	return path[at];
}

static void add_extension(X509 *cert, int nid, const char *value)
{
	X509_EXTENSION *e = X509V3_EXT_conf_nid(NULL, NULL, nid, value);

	X509_add_ext(cert, e, -1);
	X509_EXTENSION_free(e);
}

/* Signed by `by`, NULL: by itself, as an authority. Written to NAME.crt and NAME.key. */
static struct identity identity_new(const char *name, const struct identity *by, const char *alternative, long days)
{
	struct identity id = { .key = EVP_EC_gen("P-256"), .cert = X509_new() };
	X509_NAME *subject = X509_get_subject_name(id.cert);
	static int serial;

	X509_set_version(id.cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(id.cert), ++serial);
	X509_gmtime_adj(X509_getm_notBefore(id.cert), -10 * 86400);
	X509_gmtime_adj(X509_getm_notAfter(id.cert), days * 86400);
	X509_set_pubkey(id.cert, id.key);
	X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, (const unsigned char *)name, -1, -1, 0);
	X509_set_issuer_name(id.cert, by ? X509_get_subject_name(by->cert) : subject);
	if (!by)
		add_extension(id.cert, NID_basic_constraints, "critical,CA:TRUE");
	if (alternative)
		add_extension(id.cert, NID_subject_alt_name, alternative);
	X509_sign(id.cert, by ? by->key : id.key, EVP_sha256());
	char file[40];
	snprintf(file, sizeof file, "%s.crt", name);
	FILE *f = fopen(path_of(file), "w");
	PEM_write_X509(f, id.cert);
	fclose(f);
	snprintf(file, sizeof file, "%s.key", name);
	f = fopen(path_of(file), "w");
	PEM_write_PrivateKey(f, id.key, NULL, NULL, 0, NULL, NULL);
	fclose(f);
	return id;
}

static void identity_free(struct identity *id)
{
	EVP_PKEY_free(id->key);
	X509_free(id->cert);
}

/* ---- a server ---- */

struct server {
	SSL *ssl;
	BIO *in, *out;
	struct buf got;
};

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *len, const unsigned char *in,
                           unsigned in_len, void *arg)
{
	const unsigned char *ours = arg;

	(void)ssl;
	return SSL_select_next_proto((unsigned char **)out, len, ours, ours[0] + 1u, in, in_len) ==
	                       OPENSSL_NPN_NEGOTIATED
	               ? SSL_TLSEXT_ERR_OK
	               : SSL_TLSEXT_ERR_NOACK;
}

struct server_settings {
	const struct identity *identity;
	const char *protocol;            /* "\2h2" */
	int version;                     /* the newest one; 0: any */
	const struct identity *users_ca; /* clients need a certificate of it; NULL: none */
	bool anonymous;                  /* only ciphers without certificates */
};

static void server_init(struct server *s, const struct server_settings *how)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

	*s = (struct server){ 0 };
	SSL_CTX_use_certificate(ctx, how->identity->cert);
	SSL_CTX_use_PrivateKey(ctx, how->identity->key);
	SSL_CTX_set_security_level(ctx, 0);
	SSL_CTX_set_min_proto_version(ctx, TLS1_VERSION);
	if (how->anonymous)
		SSL_CTX_set_cipher_list(ctx, "aNULL:@SECLEVEL=0");
	if (how->version)
		SSL_CTX_set_max_proto_version(ctx, how->version);
	if (how->protocol)
		SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, (void *)how->protocol);
	if (how->users_ca) {
		SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
		X509_STORE_add_cert(SSL_CTX_get_cert_store(ctx), how->users_ca->cert);
	}
	s->ssl = SSL_new(ctx);
	SSL_CTX_free(ctx);
	s->in = BIO_new(BIO_s_mem());
	s->out = BIO_new(BIO_s_mem());
	SSL_set_bio(s->ssl, s->in, s->out);
	SSL_set_accept_state(s->ssl);
}

static void server_fini(struct server *s)
{
	SSL_free(s->ssl);
	buf_fini(&s->got);
}

/* Both sides speak until nothing moves, in pieces of so many bytes. Returns what feed() returned at last. */
static int converse(struct tls *t, struct server *s, size_t piece, struct buf *plain, struct err *err)
{
	char bytes[4096];
	int rc = 0;

	for (bool moved = true; moved && rc == 0;) {
		struct buf up = { 0 };
		tls_openssl.take(t, &up);
		moved = up.len > 0;
		if (moved)
			BIO_write(s->in, up.data, (int)up.len);
		buf_fini(&up);
		for (int n; (n = SSL_read(s->ssl, bytes, sizeof bytes)) > 0;)
			buf_add(&s->got, bytes, (size_t)n);
		for (int n; rc == 0 &&
		            (n = BIO_read(s->out, bytes, (int)(piece < sizeof bytes ? piece : sizeof bytes))) > 0;) {
			rc = tls_openssl.feed(t, bytes, (size_t)n, plain, err);
			moved = true;
		}
	}
	return rc;
}

/* ---- sentences ---- */

static struct identity ca, other_ca, good, expired, user, stranger;

static void accepted(const struct server_settings *how, const struct tls_settings *settings, size_t piece,
                     const char *sentence)
{
	struct server s;
	struct err err = { 0 };
	struct buf plain = { 0 };

	server_init(&s, how);
	struct tls *t = tls_openssl.begin(settings, &err);
	if (!ok(t != NULL, "%s: begins", sentence))
		printf("# %s\n", err.text);
	if (t) {
		bool early = tls_openssl.ready(t);
		tls_openssl.write(t, "early", 5, &err);
		int rc = converse(t, &s, piece, &plain, &err);
		SSL_write(s.ssl, "answer", 6);
		rc |= tls_openssl.write(t, "late", 4, &err);
		rc |= converse(t, &s, piece, &plain, &err);
		if (!ok(rc == 0 && !early && tls_openssl.ready(t) && s.got.data &&
		                strcmp(s.got.data, "earlylate") == 0 && plain.data && strcmp(plain.data, "answer") == 0,
		        "%s: text passes in both directions, what was written early first", sentence))
			printf("# %s; %s; %s\n", err.text, s.got.data, plain.data);
		SSL_shutdown(s.ssl);
		ok(converse(t, &s, piece, &plain, &err) == 0, "%s: the server's good-bye is no error", sentence);
	}
	tls_openssl.end(t);
	server_fini(&s);
	buf_fini(&plain);
}

static void refused(const struct server_settings *how, const struct tls_settings *settings, enum err_code code,
                    const char *words, const char *more, const char *sentence)
{
	struct server s;
	struct err err = { 0 };
	struct buf plain = { 0 };
	int rc = 0;

	server_init(&s, how);
	struct tls *t = tls_openssl.begin(settings, &err);
	if (t) {
		tls_openssl.write(t, "secret", 6, &err);
		rc = converse(t, &s, 4096, &plain, &err);
	}
	ok((!t || rc < 0) && err.code == code && strstr(err.text, words) && strstr(err.text, more) && s.got.len == 0 &&
	           plain.len == 0,
	   "%s: %s", sentence, t && rc == 0 ? "accepted" : err.text);
	tls_openssl.end(t);
	server_fini(&s);
	buf_fini(&plain);
}

static void test_accepted(void)
{
	struct server_settings how = { .identity = &good, .protocol = "\2h2" };
	struct tls_settings name = { .host = "store.example", .ca_file = path_of("ca.crt"), .protocol = "h2" };
	struct tls_settings address = { .host = "127.0.0.1", .ca_file = name.ca_file, .protocol = "h2" };

	accepted(&how, &name, 4096, "a server by its name");
	accepted(&how, &name, 1, "the same byte by byte");
	accepted(&how, &address, 4096, "a server by its address");
	address.host = "::1";
	accepted(&how, &address, 4096, "also of IPv6");
	address.host = "10.0.0.1";
	address.server_name = "store.example";
	accepted(&how, &address, 4096, "a server by another name than the address it was reached at");
	name.host = "a.wild.example";
	accepted(&how, &name, 4096, "a server with a wildcard's certificate");
	how.version = TLS1_2_VERSION;
	accepted(&how, &name, 4096, "a server of TLS 1.2");
	how.version = 0;
	how.users_ca = &ca;
	name.cert_file = path_of("user.crt");
	name.key_file = path_of("user.key");
	accepted(&how, &name, 4096, "a server that asks for a certificate");
}

static void test_refused(void)
{
	struct server_settings how = { .identity = &good, .protocol = "\2h2" };
	struct tls_settings s = { .host = "other.example", .ca_file = path_of("ca.crt"), .protocol = "h2" };

	refused(&how, &s, ERR_DENIED, "not for other.example", "store.example, *.wild.example, 127.0.0.1, ::1",
	        "a certificate for other names");
	s.host = "127.0.0.2";
	refused(&how, &s, ERR_DENIED, "not for 127.0.0.2", "is for store.example", "a certificate for other addresses");
	s.host = "store.example";
	s.ca_file = path_of("other.crt");
	refused(&how, &s, ERR_DENIED, "issued by CN = ca", "unable to get local issuer certificate",
	        "another authority");
	s.ca_file = NULL;
	refused(&how, &s, ERR_DENIED, "issued by CN = ca", "unable to get local issuer certificate",
	        "an authority that the system does not know");
	s.ca_file = path_of("ca.crt");
	how.identity = &expired;
	refused(&how, &s, ERR_DENIED, "expired", "CN = expired", "a certificate that has expired");
	how.identity = &good;
	how.version = TLS1_1_VERSION;
	refused(&how, &s, ERR_DENIED, "refused", "version", "TLS 1.1");
	how.version = TLS1_2_VERSION;
	how.anonymous = true;
	refused(&how, &s, ERR_DENIED, "no certificate", "store.example",
	        "ciphers without a certificate, where the system allows them");
	how.anonymous = false;
	how.version = 0;
	how.protocol = NULL;
	refused(&how, &s, ERR_INVALID, "does not speak h2", "ALPN", "a server without the protocol");
	how.protocol = "\2h2";
	how.users_ca = &ca;
	how.version = TLS1_2_VERSION;
	refused(&how, &s, ERR_DENIED, "the server refused", "handshake failure",
	        "no certificate for a server of TLS 1.2 that wants one");
	how.version = 0;
}

/* With TLS 1.3 the client has finished before the server looks at its certificate: what was written is not read. */
static void test_client_certificates(void)
{
	struct server_settings how = { .identity = &good, .protocol = "\2h2", .users_ca = &ca };
	struct tls_settings s = { .host = "store.example", .ca_file = path_of("ca.crt"), .protocol = "h2" };

	refused(&how, &s, ERR_DENIED, "the server refused", "certificate required", "no certificate");
	s.cert_file = path_of("stranger.crt");
	s.key_file = path_of("stranger.key");
	refused(&how, &s, ERR_DENIED, "the server refused", "unknown ca", "a certificate of another authority");
}

static void test_files(void)
{
	struct server_settings how = { .identity = &good, .protocol = "\2h2" };
	struct tls_settings s = { .host = "store.example", .protocol = "h2" };

	s.ca_file = path_of("none.crt");
	refused(&how, &s, ERR_MISSING, "none.crt", "No such file", "a file of authorities that is not there");
	s.ca_file = path_of("ca.key");
	refused(&how, &s, ERR_MISSING, "ca.key", "authorities", "a file without authorities");
	s.ca_file = path_of("ca.crt");
	s.cert_file = path_of("none.crt");
	refused(&how, &s, ERR_MISSING, "certificate in", "No such file", "a certificate that is not there");
	s.cert_file = path_of("user.crt");
	refused(&how, &s, ERR_MISSING, "private key in", "user.crt", "a certificate without its key");
	s.key_file = path_of("stranger.key");
	refused(&how, &s, ERR_MISSING, "stranger.key", "belong to the certificate): key values mismatch",
	        "a key of another certificate");
}

static void test_no_tls(void)
{
	struct tls_settings s = { .host = "store.example", .ca_file = path_of("ca.crt") };
	static const char *const answers[] = { "HTTP/1.1 400 Bad Request\r\n\r\n", "\0\0\0\4\0\0\0\0\0",
		                               "-ERR what\r\n" };
	struct buf plain = { 0 };

	for (int i = 0; i < 3; i++) {
		struct err err = { 0 };
		struct tls *t = tls_openssl.begin(&s, &err);
		int rc = tls_openssl.feed(t, answers[i], i == 1 ? 9 : strlen(answers[i]), &plain, &err);
		ok(rc < 0 && err.code == ERR_INVALID && plain.len == 0, "a server without TLS: %s", err.text);
		tls_openssl.end(t);
	}
	tls_openssl.end(NULL);
}

/* Bytes that were changed on the way: an error, and nothing of them comes out. */
static void test_changed(void)
{
	struct server_settings how = { .identity = &good, .protocol = "\2h2" };
	struct tls_settings settings = { .host = "store.example", .ca_file = path_of("ca.crt"), .protocol = "h2" };
	int wrong = 0;

	for (int i = 0; i < 40; i++) {
		struct server s;
		struct err err = { 0 };
		struct buf plain = { 0 }, down = { 0 };
		server_init(&s, &how);
		struct tls *t = tls_openssl.begin(&settings, &err);
		converse(t, &s, 4096, &plain, &err);
		SSL_write(s.ssl, "answer", 6);
		size_t n = BIO_ctrl_pending(s.out);
		BIO_read(s.out, buf_more(&down, n), (int)n);
		down.data[(size_t)i % n] ^= 1;
		int rc = tls_openssl.feed(t, down.data, n, &plain, &err);
		wrong += plain.len != 0 || (rc == 0 && (size_t)i % n > 4); /* a longer record is awaited */
		tls_openssl.end(t);
		server_fini(&s);
		buf_fini(&plain);
		buf_fini(&down);
	}
	ok(wrong == 0, "a record that was changed is refused, wherever");
}

/* A system whose settings allow what OpenSSL's presets do not. Read when OpenSSL is first used: config(5). */
static void allow_everything(void)
{
	FILE *f = fopen(path_of("openssl.cnf"), "w");

	fputs("openssl_conf=a\n[a]\nssl_conf=b\n[b]\nsystem_default=c\n[c]\nMinProtocol=TLSv1\n"
	      "CipherString=ALL:@SECLEVEL=0\n",
	      f);
	fclose(f);
	setenv("OPENSSL_CONF", path_of("openssl.cnf"), 1);
}

int main(void)
{
	alarm(300); /* a test that hangs */
	if (!mkdtemp(dir))
		return 1;
	allow_everything();
	ca = identity_new("ca", NULL, NULL, 10);
	other_ca = identity_new("other", NULL, NULL, 10);
	good = identity_new("good", &ca, "DNS:store.example,DNS:*.wild.example,IP:127.0.0.1,IP:::1", 10);
	expired = identity_new("expired", &ca, "DNS:store.example", -1);
	user = identity_new("user", &ca, NULL, 10);
	stranger = identity_new("stranger", &other_ca, NULL, 10);
	test_accepted();
	test_refused();
	test_client_certificates();
	test_files();
	test_no_tls();
	test_changed();
	struct identity *all[] = { &ca, &other_ca, &good, &expired, &user, &stranger };
	char command[100];
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		identity_free(all[i]);
	snprintf(command, sizeof command, "rm -r %s", dir);
	return system(command) | tap_done();
}
