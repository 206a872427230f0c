#include "net/tls/tls.h"

#include "base/authorities.h"
#include "base/mem.h"
#include "base/module.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <string.h>

#define PIECE 16384 /* bytes of plain text in one record at most (RFC 8446, 5.1) */

struct tls {
	SSL *ssl;
	BIO *in, *out; /* of ssl: received, to be sent */
	char *host;    /* what the certificate must be for */
	char *protocol;
	struct buf early; /* plain text that waits for the end of the handshake */
	bool ready;
	struct err distrust; /* of the server's certificate; code ERR_NONE: none */
};

/* ---- errors ---- */

/* OpenSSL's reason for a failure, the first of those that it lists, without its own names of places. */
static const char *openssl_reason(void)
{
	unsigned long code = ERR_peek_error();
	const char *text = ERR_reason_error_string(code);

	return ERR_SYSTEM_ERROR(code) ? strerror(ERR_GET_REASON(code)) : text ? text : "unknown reason";
}

static void name_text(const X509_NAME *name, struct buf *out)
{
	BIO *bio = BIO_new(BIO_s_mem());
	char *text;

	X509_NAME_print_ex(bio, name, 0, XN_FLAG_ONELINE & ~ASN1_STRFLGS_ESC_MSB);
	long len = BIO_get_mem_data(bio, &text);
	char *copy = mem_dupn(text, len > 0 ? (size_t)len : 0);
	buf_plain(out, copy);
	free(copy);
	BIO_free(bio);
}

/* The names that a certificate is for: its alternative names. */
static void certificate_names(X509 *cert, struct buf *out)
{
	GENERAL_NAMES *names = X509_get_ext_d2i(cert, NID_subject_alt_name, NULL, NULL);

	for (int i = 0; i < sk_GENERAL_NAME_num(names) && out->len < 200; i++) {
		const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, i);
		char address[INET6_ADDRSTRLEN] = "";
		if (name->type == GEN_DNS) {
			char *dns = mem_dupn((const char *)ASN1_STRING_get0_data(name->d.dNSName),
			                     (size_t)ASN1_STRING_length(name->d.dNSName));
			buf_adds(out, out->len ? ", " : "");
			buf_plain(out, dns);
			free(dns);
		} else if (name->type == GEN_IPADD) {
			int len = ASN1_STRING_length(name->d.iPAddress);
			if (len == 4 || len == 16)
				inet_ntop(len == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(name->d.iPAddress),
				          address, sizeof address);
			buf_printf(out, "%s%s", out->len ? ", " : "", address);
		}
	}
	GENERAL_NAMES_free(names);
}

/* Says which certificate is not accepted, why, and what was expected. */
static void tls_distrust(struct tls *t, X509 *cert, int verdict)
{
	struct buf subject = { 0 }, issuer = { 0 }, names = { 0 };

	name_text(X509_get_subject_name(cert), &subject);
	name_text(X509_get_issuer_name(cert), &issuer);
	certificate_names(cert, &names);
	if (verdict == X509_V_ERR_HOSTNAME_MISMATCH || verdict == X509_V_ERR_IP_ADDRESS_MISMATCH)
		err_set(&t->distrust, ERR_DENIED, "the server's certificate (%s) is for %s, not for %s",
		        subject.len ? subject.data : "no subject", names.len ? names.data : "no name", t->host);
	else
		err_set(&t->distrust, ERR_DENIED, "the server's certificate (%s, issued by %s) is not accepted: %s",
		        subject.len ? subject.data : "no subject", issuer.len ? issuer.data : "nobody",
		        X509_verify_cert_error_string(verdict));
	buf_fini(&subject);
	buf_fini(&issuer);
	buf_fini(&names);
}

/* Called for each certificate of the chain. 0: the handshake fails. */
static int certificate_on_verdict(int accepted, X509_STORE_CTX *store)
{
	const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
	X509 *cert = X509_STORE_CTX_get_current_cert(store);

	if (!accepted && cert)
		tls_distrust(SSL_get_app_data(ssl), cert, X509_STORE_CTX_get_error(store));
	return accepted;
}

/* After a call of OpenSSL that did not succeed. 0: it only needs more bytes, or the server has said that it sends no more
 * (close_notify), and closes the connection. */
static int tls_result(struct tls *t, int rc, struct err *err)
{
	int why = SSL_get_error(t->ssl, rc);

	if (why == SSL_ERROR_WANT_READ || why == SSL_ERROR_WANT_WRITE || why == SSL_ERROR_ZERO_RETURN)
		return 0;
	if (t->distrust.code != ERR_NONE) {
		*err = t->distrust;
		return -1;
	}
	unsigned long code = ERR_peek_last_error();
	/* The server's alerts are reasons above SSL_AD_REASON_OFFSET. */
	if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) > SSL_AD_REASON_OFFSET)
		return err_set(err, ERR_DENIED, "the server refused the connection (TLS): %s", openssl_reason());
	if (ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_WRONG_VERSION_NUMBER)
		return err_set(err, ERR_INVALID,
		               "the server speaks no TLS: name its TLS port, or the URL for connections without TLS");
	return err_set(err, ERR_INVALID, "TLS failed: %s", openssl_reason());
}

/* ---- beginning ---- */

static int context_load(SSL_CTX *ctx, const struct tls_settings *s, struct err *err)
{
	const char *key = s->key_file ? s->key_file : s->cert_file;
	const char *ca = s->ca_file ? s->ca_file : authorities_file(X509_get_default_cert_dir());

	if (ca && SSL_CTX_load_verify_file(ctx, ca) != 1)
		return err_set(err, ERR_MISSING, "cannot use the certificate authorities in %s: %s", ca,
		               openssl_reason());
	if (!ca && SSL_CTX_set_default_verify_paths(ctx) != 1)
		return err_set(err, ERR_MISSING, "cannot read the system's certificate authorities: %s",
		               openssl_reason());
	if (s->cert_file && SSL_CTX_use_certificate_chain_file(ctx, s->cert_file) != 1)
		return err_set(err, ERR_MISSING, "cannot use the certificate in %s: %s", s->cert_file,
		               openssl_reason());
	if (s->cert_file && SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1)
		return err_set(
			err, ERR_MISSING,
			"cannot use the private key in %s (one without a password must be there, and belong to the certificate): %s",
			key, openssl_reason());
	return 0;
}

/* A key with a password is refused instead of asking the terminal for it. */
static int no_password(char *, int, int, void *)
{
	return -1;
}

static SSL_CTX *context_new(const struct tls_settings *s, struct err *err)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());

	if (!ctx) {
		err_set(err, ERR_SYSTEM, "cannot use OpenSSL: %s", openssl_reason());
		return NULL;
	}
	SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
	SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, certificate_on_verdict);
	SSL_CTX_set_default_passwd_cb(ctx, no_password);
	SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
	SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION);
	if (context_load(ctx, s, err) < 0) {
		SSL_CTX_free(ctx);
		return NULL;
	}
	return ctx;
}

static int tls_set_protocol(SSL *ssl, const char *protocol)
{
	unsigned char list[256];
	size_t n = protocol ? strlen(protocol) : 0;

	if (n == 0 || n > 255)
		return n == 0 ? 0 : -1;
	list[0] = (unsigned char)n;
	memcpy(list + 1, protocol, n);
	return SSL_set_alpn_protos(ssl, list, (unsigned)n + 1) == 0 ? 0 : -1; /* 0 is success here */
}

/* An address is verified as one, and is no server name (RFC 6066, 3). */
static int tls_set_host(struct tls *t)
{
	X509_VERIFY_PARAM *param = SSL_get0_param(t->ssl);
	unsigned char address[16];

	if (inet_pton(AF_INET, t->host, address) == 1 || inet_pton(AF_INET6, t->host, address) == 1)
		return X509_VERIFY_PARAM_set1_ip_asc(param, t->host) == 1 ? 0 : -1;
	X509_VERIFY_PARAM_set_hostflags(param, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
	return SSL_set1_host(t->ssl, t->host) == 1 && SSL_set_tlsext_host_name(t->ssl, t->host) == 1 ? 0 : -1;
}

static void connection_end(struct tls *t)
{
	if (!t)
		return;
	SSL_free(t->ssl); /* and its BIOs */
	free(t->host);
	free(t->protocol);
	if (t->early.data)
		explicit_bzero(t->early.data, t->early.len);
	buf_fini(&t->early);
	free(t);
}

static struct tls *connection_begin(const struct tls_settings *s, struct err *err)
{
	ERR_clear_error();
	SSL_CTX *ctx = context_new(s, err);
	if (!ctx)
		return NULL;
	struct tls *t = mem_zero(sizeof *t);
	t->host = mem_dup(s->server_name ? s->server_name : s->host);
	t->protocol = mem_dup(s->protocol);
	t->ssl = SSL_new(ctx);
	SSL_CTX_free(ctx); /* t->ssl holds it */
	t->in = BIO_new(BIO_s_mem());
	t->out = BIO_new(BIO_s_mem());
	if (!t->ssl || !t->in || !t->out)
		mem_end();
	SSL_set_bio(t->ssl, t->in, t->out);
	SSL_set_app_data(t->ssl, t);
	SSL_set_connect_state(t->ssl);
	if (tls_set_host(t) < 0 || tls_set_protocol(t->ssl, t->protocol) < 0) {
		err_set(err, ERR_USAGE, "\"%s\" is no name of a server: %s", t->host, openssl_reason());
		connection_end(t);
		return NULL;
	}
	int rc = SSL_do_handshake(t->ssl);
	if (rc != 1 && tls_result(t, rc, err) < 0) {
		connection_end(t);
		return NULL;
	}
	return t;
}

/* ---- bytes ---- */

static int connection_write(struct tls *t, const void *plain, size_t len, struct err *err)
{
	if (!t->ready) {
		buf_add(&t->early, plain, len);
		return 0;
	}
	ERR_clear_error();
	int rc = len > 0 ? SSL_write(t->ssl, plain, (int)len) : 1; /* into memory: all or nothing */
	if (rc > 0)
		return 0;
	if (tls_result(t, rc, err) == 0)
		err_set(err, ERR_INVALID, "TLS failed: the connection is closed");
	return -1;
}

/* The handshake may be over: then what waited for it is sent. */
static int connection_handshake(struct tls *t, struct err *err)
{
	const unsigned char *chosen = NULL;
	unsigned len = 0;
	int rc = SSL_do_handshake(t->ssl);

	if (rc != 1)
		return tls_result(t, rc, err);
	/* OpenSSL verifies what is shown. Where the system's settings allow ciphers without a certificate (aNULL), a
	 * server need not show one. */
	if (!SSL_get0_peer_certificate(t->ssl))
		return err_set(err, ERR_DENIED, "the server showed no certificate: expected one for %s", t->host);
	SSL_get0_alpn_selected(t->ssl, &chosen, &len);
	if (t->protocol && (len != strlen(t->protocol) || memcmp(chosen, t->protocol, len) != 0))
		return err_set(err, ERR_INVALID,
		               "the server does not speak %s: it did not choose that protocol in TLS (ALPN)",
		               t->protocol);
	t->ready = true;
	rc = t->early.len ? connection_write(t, t->early.data, t->early.len, err) : 0;
	if (t->early.data)
		explicit_bzero(t->early.data, t->early.len);
	buf_fini(&t->early);
	return rc;
}

static int connection_feed(struct tls *t, const void *bytes, size_t len, struct buf *plain, struct err *err)
{
	char piece[PIECE];
	int rc = 1;

	ERR_clear_error();
	if (len > 0 && BIO_write(t->in, bytes, (int)len) != (int)len)
		mem_end();
	if (!t->ready && connection_handshake(t, err) < 0)
		return -1;
	while (t->ready && rc > 0) {
		rc = SSL_read(t->ssl, piece, sizeof piece);
		if (rc > 0)
			buf_add(plain, piece, (size_t)rc);
	}
	return rc > 0 ? 0 : tls_result(t, rc, err);
}

static void connection_take(struct tls *t, struct buf *out)
{
	size_t n = BIO_ctrl_pending(t->out);

	if (n > 0)
		BIO_read(t->out, buf_more(out, n), (int)n);
}

static bool connection_is_ready(const struct tls *t)
{
	return t->ready;
}

static void name_libraries(struct buf *out)
{
	buf_printf(out, "OpenSSL %s", OpenSSL_version(OPENSSL_VERSION_STRING));
}

const struct tls_ops tls_openssl = {
	.begin = connection_begin,
	.end = connection_end,
	.feed = connection_feed,
	.write = connection_write,
	.take = connection_take,
	.ready = connection_is_ready,
};
const struct module lunarch_module = { .build = LUNARCH_BUILD, .libraries = name_libraries, .tls = &tls_openssl };
