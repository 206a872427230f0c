#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch.hash by published vectors: FIPS 180-4 and RFC 1321, 4231, 4648, 8032; and what is refused."""

import os
import subprocess
from typing import Any

from tests.lib.processes import LUNARCH, PATIENCE, scratch
from tests.lib.tap import done, note, ok, same

HERE = scratch()
LONG = "12345678901234567890123456789012345678901234567890123456789012345678901234567890"
BLOCKS = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"

# RFC 8032, 7.1: the private key (base64), the text in Lua, the public key and the signature.
ED25519 = [
    (
        "nWGxne/9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A=",
        '""',
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "TM0Imyj/ltqdtsNG7BFOD1uKMZ81q6Yk2oz27U+4pvs=",
        '"\\x72"',
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
]

# In Lua, what is asked, and what the standard says.
VECTORS = [
    ('sha256 ""', "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"),
    ('sha256 "abc"', "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
    (f'sha256 "{BLOCKS}"', "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"),
    ('sha256(("a"):rep(1000000))', "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"),
    ('md5 ""', "d41d8cd98f00b204e9800998ecf8427e"),
    ('md5 "message digest"', "f96b697d7cb7938d525a2f31aaf161d0"),
    (f'md5 "{LONG}"', "57edf4a22be3c955ac49da2e2107b67a"),
    (
        'hex(hash.hmac_sha256(("\\x0b"):rep(20), "Hi There"))',
        "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
    ),
    (
        'hex(hash.hmac_sha256("Jefe", "what do ya want for nothing?"))',
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
    ),
    (
        'hex(hash.hmac_sha256(("\\xaa"):rep(20), ("\\xdd"):rep(50)))',
        "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe",
    ),
    (
        'hex(hash.hmac_sha256(("\\xaa"):rep(131), "Test Using Larger Than Block-Size Key - Hash Key First"))',
        "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
    ),
    ('hex(hash.hmac_sha256("", ""))', "b613679a0814d9ec772f95d778c35fc5ff1697c493715653c6c712144292c5ad"),
    *((f"hex((hash.ed25519(hash.unbase64 '{key}', {text})))", signature) for key, text, _, signature in ED25519),
    *((f"hex((select(2, hash.ed25519(hash.unbase64 '{key}', ''))))", public) for key, _, public, _ in ED25519),
    ('hex "\\0\\x7f\\xff"', "007fff"),
    ('hex ""', ""),
    *((f'base64 "{t}"', b) for t, b in zip(["", "f", "fo", "foo", "foob"], ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="])),
    *((f'unbase64 "{b}"', t) for t, b in zip(["", "f", "fo", "foo", "foob"], ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg=="])),
    ('hex(hash.unbase64 "AH//")', "007fff"),
]

NO_BASE64 = ["Zg=", "Zg", "Z===", "Zg==Zg==", "Zm 9v", " Zg==", "Zg==\\n", "Zm9-", "Z=g=", "Zg==\\0\\0\\0\\0", "===="]

# What is called, and the end of the error.
MISUSE = [
    ("sha256()", "hash.sha256: expected a text, found nil"),
    ("sha256(1)", "hash.sha256: expected a text, found a number"),
    ("md5 {}", "hash.md5: expected a text, found a table"),
    ("hmac_sha256(nil, 'x')", "hash.hmac_sha256: expected a text as the key, found nil"),
    ("hmac_sha256('x')", "hash.hmac_sha256: expected a text, found nil"),
    ("rsa_sha256(nil, 'x')", "hash.rsa_sha256: expected a text as the key, found nil"),
    ("rsa_sha256('x')", "hash.rsa_sha256: expected a text, found nil"),
    ("ed25519('x', 'y')", "hash.ed25519: expected a key of 32 bytes, found 1"),
    ("ed25519(('x'):rep(32))", "hash.ed25519: expected a text, found nil"),
    ("hex(true)", "hash.hex: expected a text, found a boolean"),
    ("base64(print)", "hash.base64: expected a text, found a function"),
    ("unbase64(7)", "hash.unbase64: expected a text, found a number"),
    ("sha265 ''", "'sha265'"),
]


def key(name: str, *how: str) -> str:
    """A key that openssl makes, as a long text of Lua."""
    path = os.path.join(HERE, name)
    subprocess.run(["openssl", *how, "-out", path], check=True, capture_output=True)
    with open(path) as f:
        return f"[[{f.read()}]]"


def signatures() -> None:
    """What openssl itself makes of the same key and text: this kind of signature has no chance in it."""
    rsa = ("genpkey", "-quiet", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048")
    good = key("rsa", *rsa)
    rest = {
        "a key with a password": key("locked", *rsa, "-aes256", "-pass", "pass:x"),
        "a key of another kind": key("ec", "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"),
        "a public key": key("public", "rsa", "-in", os.path.join(HERE, "rsa"), "-pubout"),
        "a text": "'x'",
        "nothing": "''",
    }
    old = key("pkcs1", "rsa", "-in", os.path.join(HERE, "rsa"), "-traditional")
    texts = ["", "a.text", "x" * 100_000]
    lines = [f"say(hash.hex(hash.rsa_sha256({k}, '{t}')))" for k in (good, old) for t in texts]
    lines += [f"say(select(2, hash.rsa_sha256({k}, 'x')).message)" for k in rest.values()]
    said = asked(lines)

    def by_openssl(text: str) -> str:
        how = ["openssl", "dgst", "-sha256", "-sign", os.path.join(HERE, "rsa")]
        return subprocess.run(how, input=text.encode(), capture_output=True, check=True).stdout.hex()

    for k, name in enumerate(("PKCS #8", "PKCS #1")):
        for t, text in enumerate(texts):
            same(said[3 * k + t], by_openssl(text), f"rsa_sha256: {name}, {len(text)} bytes: as openssl signs")
    for what, got in zip(rest, said[6:]):
        ok("expected a private key of RSA" in got, f"rsa_sha256: {what} is no key", got)


def asked(lines: list[str]) -> Any:
    """What a script with these lines says, one text a line."""
    out = os.path.join(scratch(), "out")
    path = os.path.join(scratch(), "hash.lua")
    with open(path, "w") as f:
        f.write(
            f'local hash = require "lunarch.hash"\nlocal out = io.open("{out}", "w")\n'
            "local function say(text) out:write(text, '\\n') end\n"
            + "\n".join(lines)
            + "\nout:close()\nreturn { on_leading = function() end }\n"
        )
    done_with = subprocess.run([LUNARCH, "check", path], capture_output=True, text=True, timeout=PATIENCE)
    if not same(done_with.returncode, 0, "a script can use it"):
        note(done_with.stdout + done_with.stderr)
    with open(out) as f:
        return f.read().split("\n")


def main() -> None:
    lines = [f"say('[' .. hash.{call} .. ']')" for call, _ in VECTORS]
    for text in NO_BASE64:
        lines += [
            f'do local bytes, err = hash.unbase64 "{text}" say(tostring(bytes) .. " " .. (err and err.code or "")) end'
        ]
    lines += [f"say(select(2, pcall(function() local x = hash.{call} end)))" for call, _ in MISUSE]
    said = asked(lines)
    for (call, wanted), got in zip(VECTORS, said):
        same(got, f"[{wanted}]", f"{call[:70]} is what the standard says")
    said = said[len(VECTORS) :]
    for text, got in zip(NO_BASE64, said):
        same(got, "nil invalid", f"'{text}' is not base64")
    said = said[len(NO_BASE64) :]
    for (call, wanted), got in zip(MISUSE, said):
        ok(wanted in got and "hash.lua:" in got, f"{call} is misuse, and the script's line is named", got)
    signatures()
    done()


main()
