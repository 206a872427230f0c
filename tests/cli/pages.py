#!/usr/bin/env -S PYTHONPATH=. python3
"""Every command of Lunarch on every page is run as it stands there, on real stores; only the names of hosts and places
are replaced. A block that is marked "foreign" holds commands of other programs, and none of ours."""

import atexit
import glob
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator

from tests.lib.processes import LUNARCH, PATIENCE, ROOT, scratch, wait_for
from tests.lib.servers import Box, Etcd, Postgres, Redis, Server, ZooKeeper
from tests.lib.tap import done, note, ok, same

room = scratch()
tools = os.path.join(room, "bin")
os.mkdir(tools)
os.symlink(LUNARCH, os.path.join(tools, "lunarch"))
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith("LUNARCH")} | {"PATH": f"{tools}:{os.environ['PATH']}"}
# docs.py runs these, with their scripts and tests; api.md is made from annotations.
ELSEWHERE = ("docs/guide.md", "docs/cookbook.md", "docs/library.md", "docs/api.md")
KINDS = {"etcd": Etcd, "redis": Redis, "postgres": Postgres, "zookeeper": ZooKeeper}
LANGUAGES = {
    "",
    "sh",
    "sh foreign",
    "crontab foreign",
    "crontab",
    "lua",
    "python",
    "ini",
    "json",
    "mermaid",
    "c",
    "yaml",
    "sql",
    "go",
    "javascript",
    "text",
    "html",
}
IDLE = "return { on_leading = function() end }\n"
servers: dict[str, Server] = {}


def read(path: str) -> str:
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def write(path: str, text: str, mode: int = 0o644) -> None:
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    os.chmod(path, mode)


def base(kind: str) -> str:
    """What stands before a lock's name in a URL of the real server of that kind, started on first use."""
    if kind not in servers:
        servers[kind] = KINDS[kind]()
    url: str = servers[kind].url("NAME")  # type: ignore[attr-defined]
    return url.removesuffix("NAME")


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """(language, content) of each fenced block."""
    for fence in re.finditer(r"^```(.*?)\n(.*?)^```$", text, re.M | re.S):
        yield fence[1], fence[2]


def commands(language: str, text: str) -> list[str]:
    """The command lines of Lunarch in a block, without comments, continued lines joined."""
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    if language == "crontab":
        lines = [re.sub(r"^(\S+\s+){5}", "", line) for line in lines]
    elif language == "ini":
        lines = [re.sub("^ExecStart=/usr/(local/)?bin/", "", line) for line in lines if line.startswith("ExecStart=")]
        lines = [re.sub(r"(?<==)(\S*[?&]\S*)|(?<=--lock )(\S+)", r"'\g<0>'", line) for line in lines]  # no shell there
    elif language != "sh":
        return []
    return [
        re.sub(r"\s+# .*", "", line).strip()
        for line in lines
        if re.match(r"(\S+=\S+ )*lunarch\b|.*\$\(lunarch\b", line)
    ]


def here(line: str, place: str) -> str:
    """The command with the places of this test, and no minutes of waiting."""
    line = re.sub(r"(etcd|redis|zookeeper)://[^/\s']+/", lambda m: base(m[1]), line)
    line = re.sub(r"postgres://[^/\s']+/\w+#", lambda m: base("postgres"), line)
    if not line.startswith("lunarch new"):
        line = re.sub(r"--lock ([\w.{}-]+)(?=\s|$|\))", rf"--lock {place}/locks/\1", line)
    if "mystore" in line and "8080" in line:  # docs/write-a-lock.md
        if "mystore" not in servers:
            servers["mystore"] = Box()
        line = line.replace("127.0.0.1:8080", f"127.0.0.1:{servers['mystore'].port}")
    line = re.sub(r"/srv/shared|/srv/locks", f"{place}/shared", line)
    line = re.sub(r"/var/lib/lunarch-\w+", f"{place}/state", line)
    line = re.sub(r"--at-least \S+", "--at-least 1s", line)
    return re.sub(r"/(?:etc/lunarch|etc/jobs|usr/local/bin)/", f"{place}/", line)


def furnish(line: str, place: str) -> None:
    """Scripts that the command names are there: those of the page, of examples/, or idle ones; programs end at once."""
    for word in re.findall(r"[\w./-]+", line):
        path = os.path.join(place, word)
        if os.path.exists(path) or word.startswith("-"):
            continue
        example, own = (os.path.join(d, os.path.basename(word)) for d in (os.path.join(ROOT, "examples"), place))
        if word.startswith("/") and os.path.isfile(own):  # the page has installed it there
            shutil.copyfile(own, path)
            continue
        if word.endswith(".lua"):
            write(path, read(example) if os.path.exists(example) and word.startswith("examples/") else IDLE)
        elif word == os.path.join(place, "crontab"):
            write(path, "* * * * * true\n")
        elif word.endswith(".sh") or word == os.path.join(place, "nightly"):
            write(path, "#!/bin/sh\nexit 0\n", 0o755)


def goes_on(words: list[str]) -> bool:
    """Ends by a signal alone."""
    if words[:3] == ["lunarch", "cron", "--lock"]:
        return True
    return words[:2] == ["lunarch", "run"] and "--once" not in words or "--watch" in words


def wanted(words: list[str]) -> set[int]:
    """Exit statuses that answer: 1 of those that look says that nobody leads."""
    if words[1:3] == ["ctl", "handover"]:  # the one elector that runs here has nobody to hand over to, or has resigned
        return {1, 75}
    return (
        {0, 1}
        if words[1] in ("status", "history", "leader", "list")
        or words[1:3] in (["ctl", "is-leading"], ["ctl", "--list"])
        else {0}
    )


def perform(line: str, place: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs it until it ends; what goes on is stopped when it leads, or has shown something."""
    out = os.path.join(place, "output")
    with open(out, "w+", encoding="utf-8") as f:
        p = subprocess.Popen(
            ["sh", "-c", line],
            cwd=place,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=f,
            stderr=f,
            start_new_session=True,
        )
        if goes_on(shlex.split(line)):
            sign = "leads" if "--watch" in line else "became_leader"
            wait_for(
                lambda: p.poll() is not None or sign in read(out) or os.path.getsize(out) > 0 and "--watch" in line
            )
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGTERM)
        status = p.wait(5 * PATIENCE)
    return subprocess.CompletedProcess(line, status, read(out))


def run_page(page: str) -> int:
    """Runs the page's commands. Returns their number."""
    place = os.path.join(room, page.replace("/", "-"))
    for path in (place, os.path.join(place, "locks"), os.path.join(place, "shared"), os.path.join(place, "examples")):
        os.makedirs(path)
    write(os.path.join(place, "shared", ".mounted"), "")
    elector = jobs = None
    count = 0
    for language, text in blocks(read(page)):
        if not ok(
            language in LANGUAGES, f"{page}: a block is marked with a language that is known, or none ({language})"
        ):
            continue
        script = re.match(r"-- (\w+\.lua)\n", text)
        if language == "lua" and script:
            write(os.path.join(place, script[1]), text)
        ours = re.findall(r"^(?:\$ )?lunarch .*", text, re.M) if language not in ("sh", "crontab", "ini") else []
        same(ours, [], f"{page}: commands of ours stand in blocks that are run ({text.strip().splitlines()[0][:60]})")
        for command in commands(language, text):
            line = here(command, place)
            furnish(line, place)
            environment = CLEAN | {"LUNARCH_LOCKS_DIR": os.path.join(place, "locks")}
            if re.match(r"lunarch (run|status)\b", line) and "--lock" not in line and "--state-dir" not in line:
                line += f" --state-dir {place}/state"
            if re.match(r"lunarch ctl\b", line):
                if not elector:
                    write(os.path.join(place, "backup.lua"), IDLE)
                    elector = Standing(place, "electors", "run", os.path.join(place, "backup.lua"))
                line += f" --state-dir {elector.state}"
            if re.match(r"lunarch cron run\b", line):
                if not jobs:
                    write(os.path.join(place, "jobs.tab"), "# lunarch: name=nightly\n0 0 1 1 * true\n")
                    jobs = Standing(place, "crons", "cron", os.path.join(place, "jobs.tab"))
                line += f" --state-dir {jobs.state}"
            p = perform(line, place, environment)
            words = shlex.split(re.sub(r".*\$\((lunarch [^)]*)\).*", r"\1", line))
            status = 0 if goes_on(words) and p.returncode in (0, -signal.SIGTERM, 143) else p.returncode
            good = wanted(words) if line.startswith("lunarch") else {0}
            if not ok(status in good, f"{page}: {command}"):
                note(f"{line}\nstatus {p.returncode}\n{p.stdout}")
            count += 1
    for standing in (elector, jobs):
        if standing:
            standing.stop()
    return count


class Standing:
    """An elector that leads, for `ctl` and `cron run`."""

    def __init__(self, place: str, name: str, command: str, file: str) -> None:
        self.state = os.path.join(place, name)
        self.process = subprocess.Popen(
            ["lunarch", command, "--lock", os.path.join(place, name + ".lock"), "--state-dir", self.state, file],
            env=CLEAN,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        atexit.register(self.process.kill)  # whatever happens to this test
        leads = ["lunarch", "ctl", "is-leading", "--state-dir", self.state]
        wait_for(lambda: subprocess.run(leads, env=CLEAN, capture_output=True).returncode == 0)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)


def named_options(page: str) -> None:
    """Commands in the middle of a sentence: their names and options exist."""
    known: dict[str, str] = {}
    unknown = []
    for command in re.findall(r"`lunarch ((?:[a-z]+\b)[^`]*)`", read(page)):
        name = command.split()[0]
        if name not in known:
            asked = [name] if name == "help" else [name, "--help"]
            p = subprocess.run(["lunarch", *asked], env=CLEAN, capture_output=True, text=True, timeout=PATIENCE)
            known[name] = p.stdout if p.returncode == 0 else ""
        own = command.split(" -- ")[0]
        options = re.findall(r"(?<=\s)--?[a-z][\w-]*", own)
        if not known[name] or any(not re.search(rf"(?<![\w-]){re.escape(o)}\b", known[name]) for o in options):
            unknown.append(command)
    same(unknown, [], f"{page}: the commands that its sentences name exist, with these options")


def anchors(text: str) -> set[str]:
    """What a link may name behind the #: each heading as GitHub spells it, and each <a id="...">."""
    found: set[str] = set(re.findall(r'<a id="([^"]+)">', text))
    seen: dict[str, int] = {}
    for title in re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S), re.M):
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        seen[slug] = seen.get(slug, 0) + 1
        found.add(slug if seen[slug] == 1 else f"{slug}-{seen[slug] - 1}")
    return found


def links(page: str) -> None:
    """Each link to a file leads to one that is there, and to a heading that it has."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"^```.*?^```$", "", read(page), flags=re.M | re.S)):
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if re.match(r"\w+:", link):
            continue
        if not os.path.exists(os.path.join(ROOT, target)) or anchor and anchor not in anchors(read(target)):
            broken.append(link)
    same(broken, [], f"{page}: its links lead to files and headings that are there")


def events() -> None:
    """What is logged for a person to see is in the table of docs/operations.md."""
    known = set(re.findall(r"`([a-z_]+)`", read("docs/operations.md")))
    logged: set[str] = set()
    for source in glob.glob(os.path.join(ROOT, "runtime", "**", "*.c"), recursive=True):
        if "/simulation/" not in source:
            logged |= set(
                re.findall(r'\w+_(?:event|say)\([^";]*?LOG_(?:INFO|WARN|ERROR)[^";]*?"([a-z_]+)",', read(source))
            )
    ok("became_leader" in logged and len(logged) > 40, f"events are found in the sources ({len(logged)})")
    same(sorted(logged - known), [], "docs/operations.md: every event from info on is in its table")


pages = sys.argv[1:] or [
    "README.md",
    "CONTRIBUTING.md",
    *sorted(os.path.relpath(p, ROOT) for p in glob.glob(os.path.join(ROOT, "docs", "**", "*.md"), recursive=True)),
]
counts = {page: run_page(page) for page in pages if page not in ELSEWHERE}
for page in pages:
    named_options(page)
for page in [*pages, "CHANGELOG.md", "tests/cluster/kubernetes/README.md"]:
    links(page)
events()
ok(
    sys.argv[1:] or counts["README.md"] and counts["docs/operations.md"] and counts["docs/migrate.md"],
    "commands were found, and run",
    counts,
)
for server in servers.values():
    server.close()
shutil.rmtree(room)
done()
