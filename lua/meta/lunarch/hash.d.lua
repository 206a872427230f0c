---@meta lunarch.hash
-- luacheck: ignore

---Digests, and texts for bytes: for signatures, checksums and the headers that want them. A text is any bytes. Not for passwords: their
---digests must be slow.
---@class lunarch.hash
local hash = {}

---The SHA-256 of a text (FIPS 180-4).
---@param text string
---@return string hex 64 lower-case digits
function hash.sha256(text) end

---The HMAC of a text by SHA-256 (RFC 2104). A chain of them signs: each result is the next key.
---@param key string
---@param text string
---@return string bytes 32; `hash.hex` makes digits of them
function hash.hmac_sha256(key, text) end

---The signature of a text by a private key of RSA, over its SHA-256 (RSASSA-PKCS1-v1_5, RFC 8017; a JSON web token calls it RS256).
---@param key string as PEM (PKCS #8 or #1), without a password
---@param text string
---@return string? bytes
---@return lunarch.Error? err "invalid": it is no such key
function hash.rsa_sha256(key, text) end

---The signature of a text by a private key of Ed25519 (RFC 8032). The same key and text give the same signature.
---@param key string the 32 bytes of the private key
---@param text string
---@return string signature 64 bytes
---@return string public_key 32 bytes, by which others check the signature
function hash.ed25519(key, text) end

---The MD5 of a text, for protocols that ask for it (`Content-MD5`). It protects against accidents, and against nobody who means harm.
---@param text string
---@return string hex 32 lower-case digits
function hash.md5(text) end

---Two lower-case digits for each byte.
---@param text string any bytes
---@return string hex
function hash.hex(text) end

---Base64 with padding (RFC 4648, 4).
---@param text string any bytes
---@return string text
function hash.base64(text) end

---The bytes that a base64 text stands for.
---@param text string
---@return string? bytes
---@return lunarch.Error? err "invalid": it is not base64
function hash.unbase64(text) end

return hash
