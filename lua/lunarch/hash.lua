-- lunarch.hash: digests, and texts for bytes: for signatures, checksums and the headers that want them. By libcrypto
-- (runtime/script/api/lua_hash.c). For no passwords: their digests must be slow.

return function(natives)
	local core = natives.module "hash"
	local hash = {}

	local function check(name, what, value)
		if type(value) ~= "string" then
			error(("hash.%s: expected %s, found %s"):format(name, what, value == nil and "nil" or "a " .. type(value)), 3)
		end
	end

	for _, name in ipairs { "sha256", "md5", "hex", "base64" } do
		hash[name] = function(text)
			check(name, "a text", text)
			return core[name](text)
		end
	end

	function hash.hmac_sha256(key, text)
		check("hmac_sha256", "a text as the key", key)
		check("hmac_sha256", "a text", text)
		return core.hmac_sha256(key, text)
	end

	function hash.rsa_sha256(key, text)
		check("rsa_sha256", "a text as the key", key)
		check("rsa_sha256", "a text", text)
		local signature = core.rsa_sha256(key, text)
		if not signature then
			return natives.fail("invalid", "hash.rsa_sha256: expected a private key of RSA as PEM and without a password, found something else")
		end
		return signature
	end

	function hash.ed25519(key, text)
		check("ed25519", "a text as the key", key)
		check("ed25519", "a text", text)
		if #key ~= 32 then
			error(("hash.ed25519: expected a key of 32 bytes, found %d"):format(#key), 2)
		end
		return core.ed25519(key, text)
	end

	function hash.unbase64(text)
		check("unbase64", "a text", text)
		local bytes = core.unbase64(text)
		if not bytes then
			return natives.fail("invalid", "hash.unbase64: this is not base64 (RFC 4648, with padding and without blanks)")
		end
		return bytes
	end

	return hash
end
