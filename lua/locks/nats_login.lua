-- How a NATS client proves who it is by a key of Ed25519: files of credentials (.creds: a token, which is a JWT, and a seed) and of nkeys (a seed).
-- The server gives a nonce, the client signs it; a seed never leaves this process. Used by locks/nats.
--
-- A seed is, in base32: the kind "seed" and the kind of the public key in two bytes, the private key's 32 bytes, and a CRC-16 of these.

local hash = require "lunarch.hash"

local FILE_MAX <const> = 65536 -- bytes
local USER <const> = 20 << 3 -- kinds of key, in the five upper bits
local SEED <const> = 18 << 3

local DIGITS <const> = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"

-- CRC-16/XMODEM, two bytes, the lower one first.
local function crc16(bytes)
	local crc = 0
	for i = 1, #bytes do
		crc = crc ~ bytes:byte(i) << 8
		for _ = 1, 8 do
			crc = (crc << 1 ~ (crc & 0x8000 ~= 0 and 0x1021 or 0)) & 0xffff
		end
	end
	return ("<I2"):pack(crc)
end

-- Base32 (RFC 4648, 6) of bytes that come in fives, so nothing is left over and no padding follows.
local function base32(bytes)
	local digits, kept, bits = {}, 0, 0
	for i = 1, #bytes do
		kept, bits = (kept << 8 | bytes:byte(i)) & 0xffff, bits + 8
		while bits >= 5 do
			bits = bits - 5
			local at = (kept >> bits & 31) + 1
			digits[#digits + 1] = DIGITS:sub(at, at)
		end
	end
	return table.concat(digits)
end

local function unbase32(text)
	local bytes, kept, bits = {}, 0, 0
	for i = 1, #text do
		kept, bits = (kept << 5 | DIGITS:find(text:sub(i, i), 1, true) - 1) & 0xffff, bits + 5
		if bits >= 8 then
			bits = bits - 8
			bytes[#bytes + 1] = string.char(kept >> bits & 255)
		end
	end
	return table.concat(bytes)
end

-- The private key that a user's seed stands for; nil and what is wrong.
local function private_key(seed)
	local bytes = unbase32(seed)
	if #bytes ~= 36 or crc16(bytes:sub(1, 34)) ~= bytes:sub(35) then
		return nil, "a seed that was damaged or cut off"
	end
	local first, second = bytes:byte(1, 2)
	if first & 0xf8 ~= SEED or (first & 7) << 5 | second >> 3 ~= USER then
		return nil, "the seed of an account or operator"
	end
	return bytes:sub(3, 34)
end

-- The first token and the first seed in a file; the lines around them are for people.
local function found_in(text)
	local token, seed
	for line in text:gmatch "[^\r\n]+" do
		token = token or line:match "^%s*([%w_-]+%.[%w_-]+%.[%w_-]+)%s*$"
		seed = seed or line:match "^%s*(S[A-Z2-7]+)%s*$"
	end
	return token, seed
end

local function content_of(path)
	local file <close>, why = io.open(path)
	if not file then
		return nil, why
	end
	local text
	text, why = file:read(FILE_MAX)
	return text, why or (path .. ": the file is empty")
end

-- option, path: "creds" or "nkey", and its file, which is read for each connection: who renews it need not restart. Returns what CONNECT has of it;
-- nil and an error's text, which has nothing of the file but its name.
return function(option, path, nonce)
	local text, why = content_of(path)
	if not text then
		return nil, ("%s: %s"):format(option, why)
	end
	local token, seed = found_in(text)
	if option == "creds" and not token then
		return nil, ("creds: %s: expected a file as `nsc generate creds` writes it, found no user's token (JWT) in it"):format(path)
	elseif not seed then
		return nil, ("%s: %s: expected a user's seed (SU...) on a line of its own, found none"):format(option, path)
	end
	local key
	key, why = private_key(seed)
	if not key then
		return nil, ("%s: %s: expected a user's seed (SU...), found %s"):format(option, path, why)
	end
	local signature, public = hash.ed25519(key, nonce)
	local name = string.char(USER) .. public
	return { jwt = option == "creds" and token or nil, nkey = option == "nkey" and base32(name .. crc16(name)) or nil,
		sig = (hash.base64(signature):gsub("[+/=]", { ["+"] = "-", ["/"] = "_", ["="] = "" })) }
end
