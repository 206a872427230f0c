#!/usr/bin/env -S PYTHONPATH=. python3
"""Each alert of examples/prometheus-alerts.yml, by Prometheus itself (promtool test rules): it fires where it should,
with its text, and is silent just beside that; a rule that never fires would be noticed, and one that always does. And
by a Prometheus that scrapes running programs, with its presets: their labels are those that the alerts speak of. Takes
15 s, and up to a minute more for a job's time to come."""

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from functools import partial
from typing import Any

import yaml

from tests.lib.candidates import Candidate, stop_everyone
from tests.lib.commands import run
from tests.lib.processes import ROOT, scratch, wait_for
from tests.lib.servers import free_port
from tests.lib.tap import done, ok, same, skip

room = scratch()
A, B = 'name="web", instance="a:1"', 'name="web", instance="b:1"'
WEB, ON_A, ON_B = {"name": "web"}, {"name": "web", "instance": "a:1"}, {"name": "web", "instance": "b:1"}
LEADS_A = {f"leader_election_master_status{{{A}}}": "1x1000", f"leader_election_master_status{{{B}}}": "0x1000"}
NOBODY = {f"leader_election_master_status{{{A}}}": "0x1000", f"leader_election_master_status{{{B}}}": "0x1000"}
JOB = f'{A}, cron_job="nightly"'
# Alert, when it is looked at, its labels, its text; the series of which it fires, and of which it does not. There is a
# sample each 15 s, of JobLate each 5 min: "0+1x20" is 0, 1, 2... 20; "_" is none.
CASES: list[tuple[str, str, dict[str, str], str, dict[str, str], dict[str, str]]] = [
    ("NobodyLeads", "10m", WEB, "web: nobody has led for a minute", NOBODY, LEADS_A),
    # No candidate is left, or one of two.
    (
        *("NobodyLeads", "20m", WEB, "web: nobody has led for a minute"),
        {f"leader_election_master_status{{{A}}}": "1x20 _x1000"},
        {f"leader_election_master_status{{{A}}}": "1x1000", f"leader_election_master_status{{{B}}}": "0x20 _x900"},
    ),
    (
        *("NobodyWouldTakeOver", "10m", WEB),
        "web: no standby is ready to take over; `lunarch ctl why` on each candidate says why not",
        {**LEADS_A, f"lunarch_next_known{{{A}}}": "0x1000", f"lunarch_next_known{{{B}}}": "0x1000"},
        {**LEADS_A, f"lunarch_next_known{{{A}}}": "1x1000", f"lunarch_next_known{{{B}}}": "0x1000"},
    ),
    (
        *("TwoLeadersReported", "10m", WEB),
        "web: two processes say that they lead; look at their locks: are they the same record?",
        {f"leader_election_master_status{{{A}}}": "1x1000", f"leader_election_master_status{{{B}}}": "1x1000"},
        # One scrape of a hand-over.
        {f"leader_election_master_status{{{A}}}": "1x40 0x900", f"leader_election_master_status{{{B}}}": "0x39 1x900"},
    ),
    (
        *("LeaderChangesOften", "20m", WEB),
        "web: 6 changes of the leader in 15 minutes; `lunarch ctl why` says the reasons",
        {f"lunarch_transitions_total{{{A}}}": "0+0.05x1000", f"lunarch_transitions_total{{{B}}}": "0+0.05x1000"},
        {f"lunarch_transitions_total{{{A}}}": "0+0.05x1000", f"lunarch_transitions_total{{{B}}}": "7x1000"},
    ),
    (
        *("RenewalsFail", "10m", {**ON_A, "result": "failed"}),
        "web: the leader's renewals fail; the term ends when none succeeds within the renew deadline",
        {**LEADS_A, f'lunarch_renewals_total{{{A}, result="failed"}}': "0+1x1000"},
        # One that was a standby, and one that succeeds.
        {
            **LEADS_A,
            f'lunarch_renewals_total{{{B}, result="failed"}}': "0+1x1000",
            f'lunarch_renewals_total{{{A}, result="ok"}}': "0+1x1000",
        },
    ),
    (
        *("TermNearlyOver", "10m", ON_A),
        "web: 1.5 s are left of the term at every scrape: the store is too slow",
        {**LEADS_A, f"lunarch_remaining_seconds{{{A}}}": "1.5x1000"},
        {**LEADS_A, f"lunarch_remaining_seconds{{{A}}}": "8x1000", f"lunarch_remaining_seconds{{{B}}}": "0x1000"},
    ),
    (
        *("HooksFail", "10m", ON_A),
        "web: a hook raised an error; the log has the traceback",
        {f"lunarch_hook_errors_total{{{A}}}": "0x20 1x1000"},
        {f"lunarch_hook_errors_total{{{A}}}": "3x1000"},
    ),
    (
        *("CandidateLostItsStore", "10m", ON_B),
        "b:1 has not reached the store of web for 61 s: `lunarch ctl why` there",
        {
            f"lunarch_store_last_contact_seconds{{{B}}}": "61x1000",
            f"lunarch_store_last_contact_seconds{{{A}}}": "2x1000",
        },
        {f"lunarch_store_last_contact_seconds{{{B}}}": "60x1000"},
    ),
    (
        *("SameIdentity", "20m", ON_B),
        "web: another candidate has the identity of b:1: give each its own (--identity)",
        {f"lunarch_same_identity_writes_total{{{B}}}": "0+1x1000"},
        # It was mended, or never so.
        {
            f"lunarch_same_identity_writes_total{{{A}}}": "7x1000",
            f"lunarch_same_identity_writes_total{{{B}}}": "0x1000",
        },
    ),
    (
        *("NotFenced", "20m", ON_B),
        "web: earlier leaders may still act, and are not fenced: `lunarch ctl why` on b:1 names them",
        {f"lunarch_fencing{{{A}}}": "0x1000", f"lunarch_barred{{{B}}}": "1x1000"},
        # A fence that takes a moment.
        {f"lunarch_fencing{{{B}}}": "1 0x1000", f"lunarch_barred{{{B}}}": "0x1000"},
    ),
    (
        *("CandidateCouldNotLead", "30m", ON_B),
        "b:1 could not have led web for a quarter of an hour: `lunarch ctl why` there says why not",
        {f"lunarch_could_lead{{{A}}}": "1x1000", f"lunarch_could_lead{{{B}}}": "0x1000"},
        # One that sat out for a while.
        {f"lunarch_could_lead{{{A}}}": "1x1000", f"lunarch_could_lead{{{B}}}": "0x80 1x900"},
    ),
    (
        *("StoreFails", "20m", {**ON_A, "operation": "write"}),
        "web: 15 writes failed on a:1 in 15 minutes",
        {f'lunarch_store_failures_total{{{A}, operation="write"}}': "0+0.25x1000"},
        {
            f'lunarch_store_failures_total{{{A}, operation="watch"}}': "0+0.25x1000",
            f'lunarch_store_failures_total{{{A}, operation="read"}}': "0+0.15x1000",
        },
    ),
    (
        *("WatchesBreak", "20m", {**ON_A, "operation": "watch"}),
        "web: the store ends watches again and again on a:1, so a change of leader is seen late",
        {f'lunarch_store_failures_total{{{A}, operation="watch"}}': "0+0.25x1000"},
        {f'lunarch_store_failures_total{{{A}, operation="write"}}': "0+0.25x1000"},
    ),
    (
        *("NoTermLasts", "30m", WEB),
        "web: no term has lasted a minute for a quarter of an hour",
        {f"lunarch_term_seconds{{{A}}}": "0+15x3 0x300", f"lunarch_term_seconds{{{B}}}": "0x300"},
        {f"lunarch_term_seconds{{{A}}}": "0+15x300", f"lunarch_term_seconds{{{B}}}": "0x300"},
    ),
    (
        *("DurationsDiffer", "2h", WEB),
        "web: candidates run with different durations",
        {
            f'lunarch_durations_info{{{A}, lease_duration="15", renew_deadline="10", retry_period="2"}}': "1x1000",
            f'lunarch_durations_info{{{B}, lease_duration="30", renew_deadline="10", retry_period="2"}}': "1x1000",
        },
        {
            f'lunarch_durations_info{{{A}, lease_duration="15", renew_deadline="10", retry_period="2"}}': "1x1000",
            f'lunarch_durations_info{{{B}, lease_duration="15", renew_deadline="10", retry_period="2"}}': "1x1000",
        },
    ),
    (
        *("JobFails", "2h", {**ON_A, "cron_job": "nightly", "status": "failed"}),
        "web: the job nightly has failed: `lunarch cron history` on a:1 says why",
        {f'lunarch_cron_runs_total{{{JOB}, status="failed"}}': "_x440 1x600"},  # its first run there
        {
            f'lunarch_cron_runs_total{{{JOB}, status="failed"}}': "1x1000",
            f'lunarch_cron_runs_total{{{JOB}, status="ok"}}': "0+1x1000",
        },
    ),
    (
        *("JobMissed", "2h", {**ON_A, "cron_job": "nightly", "status": "skipped"}),
        "web: a time of the job nightly was left out: `lunarch cron history` on a:1 says why",
        {f'lunarch_cron_runs_total{{{JOB}, status="skipped"}}': "1x440 2x600"},
        {f'lunarch_cron_runs_total{{{JOB}, status="skipped"}}': "1x1000"},
    ),
    (
        *("JobLate", "27h", {**WEB, "cron_job": "nightly"}),
        "web: the job nightly has had no good run for 1d 3h 0m 0s",
        {f"lunarch_cron_last_success_time_seconds{{{JOB}}}": "0x300 _x400"},  # the figure ends with the term
        {f"lunarch_cron_last_success_time_seconds{{{JOB}}}": "0x300 36000x400"},
    ),
    (
        *("LeaderWithoutService", "10m", ON_A),
        "web: a:1 leads, and its Service does not lead to it",
        {**LEADS_A, f"lunarch_service_published{{{A}}}": "0x1000"},
        # A standby's Service is not its own; and a moment is none.
        {
            **LEADS_A,
            f"lunarch_service_published{{{A}}}": "1x37 0x1 1x900",
            f"lunarch_service_published{{{B}}}": "0x1000",
        },
    ),
    (
        *("QueueGrows", "20m", ON_A),
        "web: 1001 jobs wait",
        {f"queue_length{{{A}}}": "1001x1000"},
        {f"queue_length{{{A}}}": "1000x1000"},
    ),
    (
        *("QueueIsNotWatched", "20m", {"name": "queue"}),
        "queue: it has a leader, but nobody tells how long the queue is",
        {'leader_election_master_status{name="queue", instance="a:1"}': "1x1000"},
        {
            'leader_election_master_status{name="queue", instance="a:1"}': "1x1000",
            'queue_length{name="queue", instance="a:1"}': "5x1000",
        },
    ),
]


def write(name: str, value: Any) -> str:
    path = os.path.join(room, name)
    with open(path, "w") as f:
        yaml.safe_dump(value, f)
    return path


def promtool(*args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(["promtool", *args], capture_output=True, text=True, timeout=600, cwd=room)


def test_of(case: tuple[Any, ...], fires: bool) -> dict[str, Any]:
    """One of promtool's tests."""
    alert, at, labels, summary, firing, silent = case
    expected = [{"exp_labels": labels, "exp_annotations": {"summary": summary}}] if fires else []
    series = [{"series": name, "values": values} for name, values in (firing if fires else silent).items()]
    test = {"eval_time": at, "alertname": alert, "exp_alerts": expected}
    return {"interval": "5m" if alert == "JobLate" else "15s", "input_series": series, "alert_rule_test": [test]}


def failed(name: str, rules: dict[str, str], fires: bool) -> tuple[list[str], str]:
    """The alerts whose case does not hold with the rules in their file, and what promtool says."""
    paths = [
        write(f"{name}-{number}-test.yml", {"rule_files": [rules[case[0]]], "tests": [test_of(case, fires)]})
        for number, case in enumerate(CASES)
    ]
    r = promtool("test", "rules", *paths)
    said = r.stdout + r.stderr
    found = re.findall(r"alertname: (\w+), time:", said)
    if r.returncode and not found:
        ok(False, f"promtool tells which alerts fail ({name})", said)
    return found, said


def with_expressions(name: str, rules: dict[str, list[dict[str, Any]]], change: str) -> dict[str, str]:
    """For each alert a file with its rule alone, whose expression is put into this one."""
    return {
        rule["alert"]: write(
            f"{name}-{rule['alert']}.yml",
            {"groups": [{"name": group["name"], "rules": [{**rule, "expr": change % rule["expr"]}]}]},
        )
        for group in rules["groups"]
        for rule in group["rules"]
    }


def main() -> None:
    path = os.path.join(room, "prometheus-alerts.yml")
    shutil.copy(os.path.join(ROOT, "examples", "prometheus-alerts.yml"), path)
    r = promtool("check", "rules", path)
    ok(r.returncode == 0, "promtool check rules finds nothing", r.stdout + r.stderr)
    with open(path) as f:
        rules = yaml.safe_load(f)
    names = [rule["alert"] for group in rules["groups"] for rule in group["rules"]]
    same(list(dict.fromkeys(case[0] for case in CASES)), names, "each alert has its cases, in the order of the file")
    fires, said = failed("fires", dict.fromkeys(names, path), True)
    silent, more = failed("silent", dict.fromkeys(names, path), False)
    for name in names:
        ok(name not in fires, f"{name}: fires, with its text", said)
        ok(name not in silent, f"{name}: is silent just beside that", more)
    never, said = failed("never", with_expressions("never-rules", rules, "(%s) > Inf"), True)
    always, more = failed(
        "always", with_expressions("always-rules", rules, "(%s) or count by (name) ({__name__=~'.+'})"), False
    )
    same(sorted(set(never)), sorted(names), "rules that never fire are all noticed")
    same(sorted(set(always)), sorted(names), "and rules that always do")


# ---- a scrape ----

# A job that fails, one whose time comes while it runs, one that is good. And an election's standby.
TAB = """MAILTO=''
# lunarch: name=fails
0 0 1 1 * exit 3
# lunarch: name=hangs overlap=skip
* * * * * exec sleep 1000
# lunarch: name=good
0 0 1 1 * true
"""
# What a program without a Service, a queue or failures of hooks and stores has no series of.
NOT_HERE = {"queue_length", "lunarch_service_published", "lunarch_store_failures_total"}


class Prometheus:
    """Scrapes these addresses each second. The jobs' alerts fire at once, and JobLate after a second, not a day."""

    def __init__(self, targets: list[str], rules: dict[str, list[dict[str, Any]]]) -> None:
        for rule in rules["groups"][0]["rules"]:
            rule["expr"] = rule["expr"].replace("> 26 * 3600", "> 1")
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [write("scraped-rules.yml", rules)],
            "scrape_configs": [{"job_name": "lunarch", "static_configs": [{"targets": targets}]}],
        }
        self.at = f"127.0.0.1:{free_port()}"
        argv = ["prometheus", "--config.file", write("prometheus.yml", config), "--web.listen-address", self.at]
        with open(os.path.join(room, "prometheus.log"), "w") as log:
            self.process = subprocess.Popen(
                [*argv, "--storage.tsdb.path", os.path.join(room, "tsdb")],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def get(self, path: str) -> Any:
        try:
            with urllib.request.urlopen(f"http://{self.at}/api/v1/{path}", timeout=30) as answer:
                return json.load(answer)["data"]
        except OSError:
            return None

    def series(self, metric: str) -> list[dict[str, str]]:
        found = self.get("query?query=" + urllib.parse.quote(metric))
        return [r["metric"] for r in (found or {}).get("result", [])]

    def says(self, alert: str) -> list[str]:
        """The texts of that alert that fire."""
        alerts = (self.get("alerts") or {}).get("alerts", [])
        found = [a for a in alerts if a["labels"]["alertname"] == alert and a["state"] == "firing"]
        return sorted(a["annotations"]["summary"] for a in found)

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def labels_there(server: Prometheus, rules: dict[str, list[dict[str, Any]]]) -> None:
    """Each metric of each rule is scraped, with the labels by which the rule groups and of which it speaks."""
    missing, absent = [], set()
    for rule in rules["groups"][0]["rules"]:
        bare = re.sub(r"\{[^}]*\}", "", rule["expr"])
        metrics = set(re.findall(r"\b(?:lunarch|leader_election|queue)_\w+", bare))
        words = re.findall(r"(?:by|on) \(([^)]*)\)", bare)
        spoken = re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])
        labels = {word.strip() for part in words for word in part.split(",")} | set(spoken)
        for metric in metrics:
            found = server.series(metric)
            if not found:
                absent.add(metric)
            missing += [(rule["alert"], metric, x) for x in labels if found and not any(x in one for one in found)]
    same(missing, [], "a scrape has the labels of which each alert speaks, by their names")
    ok(absent <= NOT_HERE, "and a series of each metric", absent - NOT_HERE)


def scraped() -> None:
    ports = [free_port() for _ in range(3)]
    tab, state = os.path.join(room, "tab"), ("--state-dir", os.path.join(room, "state"))
    with open(tab, "w") as f:
        f.write(TAB)
    crons = Candidate(*state, "--lock", "jobs", "--listen", f"127.0.0.1:{ports[0]}", tab, command="cron")
    for port in ports[1:]:
        Candidate(*state, "--lock", "web", "--listen", f"127.0.0.1:{port}", "-e", "lunarch.sleep(10000)")
    with open(os.path.join(ROOT, "examples", "prometheus-alerts.yml")) as f:
        rules = yaml.safe_load(f)
    server = Prometheus([f"127.0.0.1:{port}" for port in ports], rules)
    try:
        crons.event("became_leader")
        for args in (["--wait", "fails"], ["--wait", "good"], ["hangs"]):
            run("cron", "run", *state, "--lock", "jobs", *args)
        crons.event("cron_skipped", '"hangs"')
        here, lock = f"127.0.0.1:{ports[0]}", f"file:{room}/state/jobs"
        for alert, want in (
            ("JobFails", f"{lock}: the job fails has failed: `lunarch cron history` on {here} says why"),
            ("JobMissed", f"{lock}: a time of the job hangs was left out: `lunarch cron history` on {here} says why"),
            ("JobLate", f"{lock}: the job good has had no good run for "),
        ):
            texts = wait_for(partial(server.says, alert)) or []
            ok(len(texts) == 1 and texts[0].startswith(want), f"{alert}: by a scrape, too, it names the job", texts)
        wait_for(lambda: len(server.series("lunarch_next_known")) == 3)
        labels_there(server, rules)
    finally:
        server.stop()


if shutil.which("promtool"):
    main()
    try:
        scraped()
    except Exception as e:  # pylint: disable=broad-except
        ok(False, "the scrape comes to its end", repr(e))
    stop_everyone()
else:
    skip("the alerts", "this needs promtool: Debian's package prometheus")
done()
