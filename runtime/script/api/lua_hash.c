#include "base/buf.h"
#include "base/module.h"
#include "script/bind.h"

#include <lauxlib.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <string.h>

/* What lua/lunarch/hash.lua is made of. That file has checked that the arguments are texts. */

#define BYTES_MAX (1 << 30) /* OpenSSL counts base64 in int */

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
	{ "sha256", hash_sha256 },
	{ "md5", hash_md5 },
	{ "hmac_sha256", hash_hmac_sha256 },
	{ "hex", hash_hex },
	{ "base64", hash_base64 },
	{ "unbase64", hash_unbase64 },
	{ NULL, NULL },
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
