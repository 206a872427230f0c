#!/usr/bin/env -S PYTHONPATH=. python3
"""http's aws_sigv4 before a server that checks each signature as Amazon's documents say (tests/lib/sigv4.py): odd paths
and queries, bodies, headers, a session token, a port; and what is refused without a secret in the error."""

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.lib import sigv4
from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.processes import PATIENCE, scratch
from tests.lib.tap import done, note, ok, same

SECRET, TOKEN = "s3cr3t/+k3y", "FQoG/Z+x=="
seen: list[tuple[str, dict[str, str]]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = dict(self.headers.items())
        seen.append((f"{self.command} {self.path}", {k.lower(): v for k, v in headers.items()}))
        wrong = sigv4.wrong_with(SECRET, self.command, self.path, headers, body)
        said = (wrong or "right").encode()
        self.send_response(307 if "moved" in self.path else 403 if wrong else 200)
        if "moved" in self.path:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(said)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve


# In Lua: method, path and query, further options; all are signed rightly.
GOOD = [
    ("get", "", ""),
    ("get", "/", ""),
    ("get", "/a%2Fb/c d/k\u00e4se%20%5B1%5D", ""),
    ("get", "/a%2fb/%7e/x+y=z:@!$&'()*,;", ""),
    ("get", "/100%/%zz//end/", ""),
    ("get", "/b?prefix=in&list-type=2&delimiter=/", ""),
    ("get", "/b?versioning", ""),
    ("get", "/b?a-b=1&a=2&a=1&=x&empty=", ""),
    ("get", "/b?x=a+b%20c", "query = { prefix = 'k\u00e4se [1]/', ['list-type'] = 2 }"),
    ("put", "/key", "body = 'a record'"),
    ("put", "/key", "body = ''"),
    ("put", "/key", ""),
    ("post", "/key", "json = { 1, 2 }"),
    ("put", "/key", "body = ('x'):rep(1500000)"),
    ("put", "/key", "body = 'x', headers = { ['If-None-Match'] = '*', ['Content-Type'] = 'text/plain' }"),
    ("put", "/key", "body = 'x', headers = { ['If-Match'] = '\"0123\"', Spaces = ' a   b ' }"),
    ("delete", "/key", "headers = { ['If-Match'] = '\"0123\"' }"),
    (
        "put",
        "/key",
        "body = 'x', headers = { ['x-amz-server-side-encryption'] = 'aws:kms', "
        "['x-amz-server-side-encryption-aws-kms-key-id'] = 'k' }",
    ),
    ("get", "/key", "headers = { Accept = false }"),
    ("head", "/key", ""),
]

# In Lua: options, and the end of the error.
BAD = [
    ("aws_sigv4 = { region = 'r', service = 's3', key = 'K' }", "option 'secret' is missing"),
    ("aws_sigv4 = { region = 'r', service = 's3', key = '', secret = S }", "option 'key' is missing"),
    (
        "aws_sigv4 = { region = 'r', service = 's3', key = 'K', secret = { S } }",
        "expected a text of one line, found a table",
    ),
    ("aws_sigv4 = { region = 'r', service = 's3', key = 'K', secret = S .. '\\n' }", "expected a text of one line"),
    ("aws_sigv4 = { region = 'r', service = 's3', key = 'K', secret = S, token = 12345 }", "'token': expected a text"),
    ("aws_sigv4 = { region = 'a:b', service = 's3', key = 'K', secret = S }", "expected a name as eu-central-1"),
    ("aws_sigv4 = { region = 'r', service = 's3', key = 'K', secret = S, regon = 'r' }", "unknown option 'regon'"),
    ("aws_sigv4 = keys, user = 'me'", "a request is signed, or it has the option 'user'"),
    ("aws_sigv4 = keys, bearer = 'me'", "a request is signed, or it has the option 'bearer'"),
    ("aws_sigv4 = keys, method = 'PUT', body = function() end", "the body must be a text"),
]


def script(port: int) -> str:
    lines = [f"local S, base = '{SECRET}', 'http://127.0.0.1:{port}'"]
    lines += ["local keys = { region = 'eu-central-1', service = 's3', key = 'AKID', secret = S }"]
    lines += [f"local temporary = {{ region = 'r', service = 's3', key = 'AKID', secret = S, token = '{TOKEN}' }}"]
    lines += ["local function say(r, err) print(r and r.status .. ' ' .. r.body or tostring(err)) end"]
    lines += ["return { on_leading = function()"]
    for keys in ("keys", "temporary"):
        lines += [f'say(http.{m}(base .. "{at}", {{ aws_sigv4 = {keys}, {more} }}))' for m, at, more in GOOD]
    lines += [
        "local other = { region = 'r', service = 's3', key = 'AKID', secret = 'another' }",
        "say(http.get(base .. '/x', { aws_sigv4 = other }))",
        "say(http.get(base .. '/moved', { aws_sigv4 = temporary }))",
        "local function bad(given) local _, r, err = pcall(http.request, given) print(tostring(err or r)) end",
    ]
    lines += [f"bad {{ url = base .. '/x', {given} }}" for given, _ in BAD]
    lines += ["bad { url = 'http://me:password@127.0.0.1/x', aws_sigv4 = keys }"]
    path = os.path.join(scratch(), "sign.lua")
    with open(path, "w") as f:
        f.write("\n".join(lines) + "\nlunarch.exit() end }\n")
    return path


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    c = Candidate("--lock", "none:", script(server.server_port), options=())
    same(c.leave(2 * PATIENCE), 0, "the script runs to its end")
    said = [e["message"] for e in c.all("print")]
    for words in ("", ", with a session token"):
        for (method, at, more), got in zip(GOOD, said):
            wanted = "200 " if method == "head" else "200 right"
            same(got, wanted, f"{method} {at} {more[:60]} is signed rightly{words}")
        said = said[len(GOOD) :]
    ok(any(h.get("x-amz-security-token") == TOKEN for _, h in seen), "the session token is sent")
    same(said.pop(0), "403 another signature", "another secret is another signature")
    ok(said.pop(0).startswith("307 "), "a signed request follows no redirect")
    ok(not any("elsewhere" in what for what, _ in seen), "so nothing that was signed reaches another place")
    for (given, wanted), got in zip(BAD, said):
        ok(wanted in got, f"{given}: refused", got)
    ok("without a user" in said[-1], "so is a URL with a user", said[-1])
    everything = "\n".join(str(e) for e in c.events)
    if not ok(SECRET not in everything and TOKEN not in everything, "no secret is in what is said"):
        note(everything[-500:])
    stop_everyone()
    done()


main()
