#include "base/buf.h"
#include "base/module.h"
#include "script/bind.h"

#include <lauxlib.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <string.h>

/* What lua/lunarch/hash.lua is made of. That file has checked that the arguments are texts. */

#define BYTES_MAX (1 << 30) /* OpenSSL counts base64 in int */
#define RSA_BYTES_MAX 2048  /* of a signature: OpenSSL takes keys of 16,384 bits at most */
#define ED25519_KEY 32      /* bytes (RFC 8032) */
#define ED25519_SIGNATURE 64

static void push_hex(lua_State *L, const unsigned char *bytes, size_t len)
{
	static const char digits[] = "0123456789abcdef";
	luaL_Buffer b;
	char *out = luaL_buffinitsize(L, &b, 2 * len);

	for (size_t i = 0; i < len; i++) {
		out[2 * i] = digits[bytes[i] >> 4];
		out[2 * i + 1] = digits[bytes[i] & 15];
	}
	luaL_pushresultsize(&b, 2 * len);
}

static int digest(lua_State *L, const EVP_MD *kind, const char *name)
{
	unsigned char out[EVP_MAX_MD_SIZE];
	unsigned int len = 0;
	size_t size;
	const char *text = luaL_checklstring(L, 1, &size);

	if (EVP_Digest(text, size, out, &len, kind, NULL) != 1)
		return luaL_error(L, "%s: the system's OpenSSL does not offer it", name);
	push_hex(L, out, len);
	return 1;
}

static int hash_sha256(lua_State *L)
{
	return digest(L, EVP_sha256(), "sha256");
}

static int hash_md5(lua_State *L)
{
	return digest(L, EVP_md5(), "md5");
}

/* hmac_sha256(key, text) -> 32 bytes */
static int hash_hmac_sha256(lua_State *L)
{
	unsigned char out[EVP_MAX_MD_SIZE];
	unsigned int len = 0;
	size_t key_size, size;
	const char *key = luaL_checklstring(L, 1, &key_size);
	const char *text = luaL_checklstring(L, 2, &size);

	luaL_argcheck(L, key_size < BYTES_MAX, 1, "a key of more than 1 GB");
	if (!HMAC(EVP_sha256(), key, (int)key_size, (const unsigned char *)text, size, out, &len))
		return luaL_error(L, "hmac_sha256: the system's OpenSSL does not offer it");
	lua_pushlstring(L, (const char *)out, len);
	return 1;
}

/* Nobody types one in: without this OpenSSL asks the terminal. */
static int no_password(char *, int, int, void *)
{
	return -1;
}

static EVP_PKEY *private_key(const char *pem, size_t size)
{
	BIO *in = BIO_new_mem_buf(pem, (int)size);
	EVP_PKEY *key = in ? PEM_read_bio_PrivateKey(in, NULL, no_password, NULL) : NULL;

	BIO_free(in);
	if (key && EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA)
		return key;
	EVP_PKEY_free(key);
	return NULL;
}

/* digest_of: NULL: the kind of key has its own. Nothing here raises while the key is held. 0: no memory, or no such
 * signature. */
static size_t sign(EVP_PKEY *key, const EVP_MD *digest_of, const char *text, size_t size, unsigned char *out,
                   size_t out_size)
{
	EVP_MD_CTX *ctx = EVP_MD_CTX_new();
	bool good = ctx && EVP_DigestSignInit(ctx, NULL, digest_of, NULL, key) == 1 &&
	            EVP_DigestSign(ctx, out, &out_size, (const unsigned char *)text, size) == 1;

	EVP_MD_CTX_free(ctx);
	return good ? out_size : 0;
}

/* rsa_sha256(pem, text) -> bytes; nothing: it is no private key of RSA */
static int hash_rsa_sha256(lua_State *L)
{
	unsigned char out[RSA_BYTES_MAX];
	size_t pem_size, size, len = 0;
	const char *pem = luaL_checklstring(L, 1, &pem_size);
	const char *text = luaL_checklstring(L, 2, &size);

	luaL_argcheck(L, pem_size < BYTES_MAX, 1, "a key of more than 1 GB");
	EVP_PKEY *key = private_key(pem, pem_size);
	bool fits = key && EVP_PKEY_get_size(key) <= RSA_BYTES_MAX;
	if (fits)
		len = sign(key, EVP_sha256(), text, size, out, sizeof out);
	EVP_PKEY_free(key);
	ERR_clear_error();
	if (!fits)
		return 0;
	if (!len)
		return luaL_error(L, "rsa_sha256: OpenSSL makes no such signature");
	lua_pushlstring(L, (const char *)out, len);
	return 1;
}

/* ed25519(key, text) -> signature, public key */
static int hash_ed25519(lua_State *L)
{
	unsigned char signature[ED25519_SIGNATURE], public[ED25519_KEY];
	size_t key_size, size, public_size = sizeof public;
	const char *bytes = luaL_checklstring(L, 1, &key_size);
	const char *text = luaL_checklstring(L, 2, &size);

	EVP_PKEY *key = EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, NULL, (const unsigned char *)bytes, key_size);
	bool good = key && EVP_PKEY_get_raw_public_key(key, public, &public_size) == 1 &&
	            sign(key, NULL, text, size, signature, sizeof signature) == sizeof signature;
	EVP_PKEY_free(key);
	ERR_clear_error();
	if (!good)
		return luaL_error(L, "ed25519: the system's OpenSSL does not offer it");
	lua_pushlstring(L, (const char *)signature, sizeof signature);
	lua_pushlstring(L, (const char *)public, public_size);
	return 2;
}

static int hash_hex(lua_State *L)
{
	size_t size;
	const char *text = luaL_checklstring(L, 1, &size);

	push_hex(L, (const unsigned char *)text, size);
	return 1;
}

static int hash_base64(lua_State *L)
{
	luaL_Buffer b;
	size_t size;
	const char *text = luaL_checklstring(L, 1, &size);

	luaL_argcheck(L, size < BYTES_MAX, 1, "a text of more than 1 GB");
	char *out = luaL_buffinitsize(L, &b, (size + 2) / 3 * 4 + 1);
	int len = EVP_EncodeBlock((unsigned char *)out, (const unsigned char *)text, (int)size);
	luaL_pushresultsize(&b, (size_t)len);
	return 1;
}

/* How many '=' end it; -1: it is not base64 (RFC 4648, 4). OpenSSL would skip blanks and take '=' anywhere. */
static int padding_of(const char *text, size_t size)
{
	static const char alphabet[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t body = strspn(text, alphabet);

	if (size % 4 != 0 || size >= BYTES_MAX || size - body > 2 || strspn(text + body, "=") != size - body)
		return -1;
	return (int)(size - body);
}

/* unbase64(text) -> bytes; nothing: it is not base64 */
static int hash_unbase64(lua_State *L)
{
	luaL_Buffer b;
	size_t size;
	const char *text = luaL_checklstring(L, 1, &size);
	int padding = padding_of(text, size);

	if (padding < 0)
		return 0;
	char *out = luaL_buffinitsize(L, &b, size / 4 * 3 + 1);
	int len = EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)text, (int)size);
	luaL_pushresultsize(&b, (size_t)(len - padding));
	return 1;
}

static const luaL_Reg natives[] = {
	{ "sha256", hash_sha256 },         { "md5", hash_md5 },           { "hmac_sha256", hash_hmac_sha256 },
	{ "rsa_sha256", hash_rsa_sha256 }, { "ed25519", hash_ed25519 },   { "hex", hash_hex },
	{ "base64", hash_base64 },         { "unbase64", hash_unbase64 }, { NULL, NULL },
};

static int open_natives(lua_State *L)
{
	luaL_newlib(L, natives);
	return 1;
}

static void libraries(struct buf *out)
{
	buf_adds(out, OpenSSL_version(OPENSSL_VERSION));
}

const struct module lunarch_module = { .build = LUNARCH_BUILD, .open_lua = open_natives, .libraries = libraries };
