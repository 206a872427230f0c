#!/usr/bin/env python3
"""examples/nginx.lua and examples/haproxy.lua: real balancers send clients to the leader, to the next one after a failover, and to
nobody while nobody leads."""
import http.server, os, re, signal, sys, threading, urllib.error, urllib.request
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from harness import *
from servers import Server, free_port

NOBODY = (502, 503)
LEADER = 'return { on_leading = function() print "serving" end }'


class Nginx(Server):
    script, settings = "nginx.lua", lambda self: [self.path("leader.conf"), f"nginx -c {self.path('conf')} -e {self.log} -s reload"]

    def path(self, name):
        return os.path.join(self.dir, name)

    def prepare(self):
        user = "user root;" if os.geteuid() == 0 else ""
        temporary = "".join(f"{kind}_temp_path {self.dir}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
        with open(self.path("leader.conf"), "w") as f:
            f.write("upstream leader { server 127.0.0.1:1; }\n")
        with open(self.path("conf"), "w") as f:
            f.write(f"daemon off; {user} worker_processes 1; pid {self.dir}/pid; error_log {self.log};\nevents {{ worker_connections 64; }}\n"
                    f"http {{ access_log off; {temporary}\n  include {self.path('leader.conf')};\n"
                    f"  server {{ listen 127.0.0.1:{self.port}; location / {{ proxy_pass http://leader; }} }}\n}}\n")

    def command(self):
        return ["nginx", "-c", self.path("conf"), "-e", self.log]

    def ready(self):
        return get(self.port)[0] is not None


class Haproxy(Server):
    script, settings = "haproxy.lua", lambda self: [self.path("leader.map"), self.path("socket")]
    path = Nginx.path

    def prepare(self):
        with open(self.path("leader.map"), "w") as f:
            f.write("leader 127.0.0.1:1\n")
        with open(self.path("cfg"), "w") as f:
            f.write(f"""global
  stats socket {self.path("socket")} mode 600 level admin
defaults
  mode http
  timeout connect 5s
  timeout client 60s
  timeout server 60s
  retries 0
listen front
  bind 127.0.0.1:{self.port}
  http-request set-var(txn.to) str(leader),map_str({self.path("leader.map")})
  http-request deny deny_status 503 unless {{ var(txn.to) -m found }}
  http-request set-dst var(txn.to),field(1,:)
  http-request set-dst-port var(txn.to),field(2,:)
  server leader 0.0.0.0:0
""")

    def command(self):
        return ["haproxy", "-db", "-f", self.path("cfg")]

    def ready(self):
        return get(self.port)[0] is not None


class Service:
    """What answers behind the balancer, with its name."""

    def __init__(self, name):
        self.asked = 0

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler):
                self.asked += 1
                handler.reply()

            def reply(self):
                self.send_response(200)
                self.send_header("Content-Length", str(len(name)))
                self.end_headers()
                self.wfile.write(name.encode())

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


def get(port):
    """(status, text); (None, "") if nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except OSError:
        return None, ""


def balancer(kind):
    what = kind.__name__
    with kind() as server:
        lock = os.path.join(scratch(), "lock")
        a, b = Service("a"), Service("b")
        def join(service, name):
            return Candidate("--lock", lock, "--identity", name, "--address", service.address, "-e", LEADER)
        watcher = Candidate("--lock", lock, os.path.join(ROOT, "examples", server.script), "--", *server.settings())
        told = lambda n: watcher.wait("upstream" if kind is Nginx else "map", count=n)
        ok(told(1) and wait_for(lambda: get(server.port)[0] in NOBODY), f"{what}: while nobody leads clients are told so")
        first = join(a, "a")
        if not ok(wait_for(lambda: get(server.port) == (200, "a")), f"{what}: clients get to the leader"):
            watcher.log()
        second = join(b, "b")
        second.wait("new_leader")
        same(b.asked, 0, f"{what}: and to no other")
        first.kill(signal.SIGKILL)
        ok(wait_for(lambda: get(server.port) == (200, "b")), f"{what}: after a crash they get to the next")
        second.kill(signal.SIGTERM)
        second.leave()
        ok(wait_for(lambda: get(server.port)[0] in NOBODY), f"{what}: when nobody leads any more to none")
        third = Candidate("--lock", lock, "--identity", "c", "--address", "127.0.0.1:1; } evil {", "-e", LEADER)
        ok(third.wait("became_leader") and watcher.wait("no_address"), f"{what}: an address that is none is said")
        ok("evil" not in open(server.settings()[0]).read() and wait_for(lambda: get(server.port)[0] in NOBODY), f"{what}: and written nowhere")
        same(len(watcher.all("became_leader")), 0, f"{what}: who watches never leads")
        third.kill(signal.SIGTERM)
        watcher.kill(signal.SIGTERM)
        same((third.leave(), watcher.leave()), (0, 0), f"{what}: all end in peace")


at_once(lambda: balancer(Nginx), lambda: balancer(Haproxy))
stop_everyone()
done()
