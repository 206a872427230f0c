#!/usr/bin/env -S PYTHONPATH=. python3
"""lunarch.notify against what it talks to: a web server, a mail server behind the real msmtp, a system log's socket."""

import email
import email.message
import email.policy
import json
import os
import shutil
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import cast

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.postbox import Mailbox
from tests.lib.processes import scratch, wait_for
from tests.lib.tap import done, note, ok, same

room = scratch()
posts, entries = [], []


class Hooks(BaseHTTPRequestHandler):
    """/busy/N: 429 until it was asked N times."""

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        posts.append((self.path, dict(self.headers), json.loads(body)))
        times = sum(p[0] == self.path for p in posts)
        status, answer = 200, b"ok"
        if self.path.startswith("/busy/") and times < int(self.path.split("/")[2]):
            status, answer = 429, b"slow down"
        elif self.path.startswith("/gone/"):
            status, answer = 410, b"no_service"
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)


def serve(server: ThreadingHTTPServer) -> int:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def listen(path: str) -> None:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(path)

    def collect() -> None:
        while True:
            entries.append(s.recv(65536))

    threading.Thread(target=collect, daemon=True).start()


web = serve(ThreadingHTTPServer(("127.0.0.1", 0), Hooks))
box = Mailbox()
mails, sendmail = box.mails, box.sendmail(room)
listen(os.path.join(room, "log"))
with open(os.path.join(room, "script.lua"), "w") as f:
    f.write(
        """
local notify = require "lunarch.notify"
local web, room, sendmail = ...
local msmtp = { "msmtp", "--file=" .. sendmail .. ".conf" }
local function say(name, good, err) print(name .. ": " .. tostring(good) .. " " .. tostring(err and err.code) .. " " ..\
 tostring(err)) end
local function misuse(name, f, ...) local args = { ... } local good, err = pcall(function() f(table.unpack(args)) end)\
 print(name .. ": " .. tostring(good) .. " " .. tostring(err)) end
return { on_leading = function(term)
  say("hook", notify.webhook(web .. "/hook?key=s3cret", { leader = term.identity, list = { 1, 2 } }, { token = true,\
 headers = { ["X-Mine"] = "yes" } }))
  say("busy", notify.webhook(web .. "/busy/3", { n = 1 }, { backoff = 0.01 }))
  say("gone", notify.webhook(web .. "/gone/s3cret", {}))
  say("closed", notify.webhook("http://user:s3cret@127.0.0.1:1/s3cret", {}, { retries = 0 }))
  say("slack", notify.slack(web .. "/services/T0/B0/s3cret", "*it* works", { channel = "#ops", username = "lunarch" }))
  say("mail", notify.mail { to = { "Ärger <ops@example.org>", "more@example.org" }, cc = "boss@example.org", from =\
 "Lunarch <lunarch@example.org>",
    subject = "Grüße, " .. ("ä"):rep(60), body = "one\\n.\\nGrüße\\n" .. ("long "):rep(400), headers = { ["X-Token"] =\
 term.token }, sendmail = msmtp })
  say("plain", notify.mail { to = "ops@example.org", from = "lunarch@example.org", subject = "plain", body = "From\
 here\\n.\\nthree\\n", sendmail = sendmail })
  say("refused", notify.mail { to = "nobody@example.org", from = "lunarch@example.org", subject = "x", body = "x",\
 sendmail = msmtp })
  say("nosendmail", notify.mail { to = "ops@example.org", from = "a@example.org", sendmail = room .. "/none" })
  say("log", notify.syslog("first\\n\\n<0>second", { priority = "crit", facility = "local3", tag = "backup", socket =\
 room .. "/log" }))
  say("nolog", notify.syslog("x", { socket = room .. "/none" }))
  misuse("typo", notify.webhook, web, {}, { retires = 3 })
  misuse("nourl", notify.slack, "hooks.example.org/s3cret", "x")
  misuse("injection", notify.mail, { to = "a@b", subject = "x\\nBcc: all@example.org" })
  misuse("option", notify.mail, { to = "-oQ/tmp@b" })
  misuse("nobody", notify.mail, { subject = "x" })
  misuse("priority", notify.syslog, "x", { priority = "urgent" })
  print "all said"
end }
"""
    )
c = Candidate(
    "--lock",
    os.path.join(room, "lock"),
    "--identity",
    "me",
    os.path.join(room, "script.lua"),
    "--",
    f"http://127.0.0.1:{web}",
    room,
    sendmail,
)
ok(c.wait("print", "all said"), "the script comes to its end")
said = {e["message"].split(":")[0]: e["message"] for e in c.all("print")}
token = c.event("became_leader")["token"]


def holds(name: str, *parts: str) -> bool:
    text = said.get(name, "")
    held = all(p in text for p in parts)
    if not held:
        note(text)
    return held


hook = [p for p in posts if p[0].startswith("/hook")]
ok(
    holds("hook", "true")
    and len(hook) == 1
    and hook[0][2] == {"leader": "me", "list": [1, 2]}
    and hook[0][1]["X-Mine"] == "yes"
    and hook[0][1]["Fencing-Token"] == str(token),
    "a webhook gets its value as JSON, and the token as a header",
)
ok(holds("busy", "true") and sum(p[0] == "/busy/3" for p in posts) == 3, "one that is busy is asked again")
ok(
    holds("gone", "nil failed", "410", "no_service", f"http://127.0.0.1:{web}/...")
    and sum(p[0].startswith("/gone") for p in posts) == 1,
    "one that refuses is an error with its status, and is not asked again",
)
ok(holds("closed", "nil unreachable", "127.0.0.1"), "one that is not there is an error")
ok("s3cret" not in json.dumps(c.events, default=str), "what a URL has of secrets is in no error and no log")
ok(
    holds("slack", "true")
    and any(p[2] == {"text": "*it* works", "channel": "#ops", "username": "lunarch"} for p in posts),
    "slack",
)
first = (
    cast(email.message.EmailMessage, email.message_from_bytes(mails[0][2], policy=email.policy.default))
    if mails
    else None
)
ok(
    holds("mail", "true")
    and first
    and mails[0][:2] == ("lunarch@example.org", ["ops@example.org", "more@example.org", "boss@example.org"]),
    "a mail goes through the real msmtp to all it is for",
)
same(
    first and (str(first["subject"]), str(first["x-token"])),
    ("Grüße, " + "ä" * 60, str(token)),
    "with its subject and headers",
)
same(
    first and first.get_content().replace("\r\n", "\n").rstrip("\n"),
    "one\n.\nGrüße\n" + "long " * 400,
    "its text is exact: dots, umlauts, long lines",
)
same(
    first and ([str(a) for a in first["to"].addresses], str(first["auto-submitted"])),
    (["Ärger <ops@example.org>", "more@example.org"], "auto-generated"),
    "and its addresses",
)
ok(first and first["date"].datetime and first["message-id"], "and date and message id")
ok(
    mails and max(len(line) for line in mails[0][2].split(b"\r\n")) < 998 and all(b < 128 for b in mails[0][2]),
    "in lines that every server takes",
)
ok(
    holds("plain", "true") and len(mails) > 1 and mails[1][2].endswith(b"\r\n\r\nFrom here\r\n.\r\nthree\r\n"),
    "a plain text stays plain",
)
ok(holds("refused", "nil failed", "550") and len(mails) == 2, "what the server refuses is an error with its reason")
ok(holds("nosendmail", "nil missing", "none"), "a missing sendmail is an error")
ok(
    holds("log", "true") and wait_for(lambda: len(entries) == 2),
    "the system log gets an entry for each line that is not empty",
)
ok(
    len(entries) == 2
    and all(e.startswith(b"<154>") and b" backup: " in e for e in entries)
    and entries[0].rstrip(b"\n\0").endswith(b"first")
    and entries[1].rstrip(b"\n\0").endswith(b"<0>second"),
    "with facility, priority and tag, whatever the text says",
    entries,
)
ok(holds("nolog", "nil failed", "none"), "a log that is not there is an error")
ok(
    holds("typo", "false", "script.lua:", "'retires' (did you mean 'retries'?)"),
    "an unknown option is refused, with a suggestion and the script's line",
)
ok(
    holds("nourl", "false", "expected a URL")
    and holds("injection", "false", "one line")
    and holds("option", "false", "expected an address")
    and holds("nobody", "false", "to whom")
    and holds("priority", "false", "expected one of"),
    "so is what is no URL, no header, no address, no priority",
)
stop_everyone()
shutil.rmtree(room, ignore_errors=True)
done()
