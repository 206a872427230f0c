#!/usr/bin/env python3
"""What is inside an image or a tarball besides Lunarch itself: a bill of materials (CycloneDX 1.6, JSON), or a table
for people. Input: lines PACKAGE:ARCHITECTURE PLACE; what packages say of themselves is asked of dpkg. The same
input makes the same bytes.

    packaging/sbom.py [--text] VERSION SECONDS <LINES     SECONDS: the time it says, since 1970"""

import collections
import json
import os
import subprocess
import sys
import time
import urllib.parse
import uuid

HERE = os.path.dirname(os.path.abspath(__file__))
FIELDS = ("Package", "Version", "Architecture", "source:Package", "source:Version")


def licences() -> dict[str, str]:
    with open(os.path.join(HERE, "licences.txt")) as f:
        rows = [line.split("|") for line in f if "|" in line and not line.startswith("#")]
    return {source.strip(): text.strip() for source, text in rows}


def described(packages: list[str]) -> list[dict[str, str]]:
    """In the order of their names."""
    form = "\t".join("${%s}" % f for f in FIELDS) + "\n"
    asked = ["dpkg-query", "-W", "-f", form, *packages]
    said = subprocess.run(asked, check=True, stdout=subprocess.PIPE, text=True).stdout
    return sorted((dict(zip(FIELDS, line.split("\t"))) for line in said.splitlines()), key=lambda d: d["Package"])


def distribution() -> str:
    with open("/etc/os-release") as f:
        said = dict(line.strip().split("=", 1) for line in f if "=" in line)
    return f"{said['ID']}-{said['VERSION_ID']}".replace('"', "")


def component(d: dict[str, str], places: list[str], licence: str, distro: str) -> dict[str, object]:
    quoted = {k: urllib.parse.quote(v, safe="") for k, v in d.items()}
    asked = f"arch={quoted['Architecture']}&distro={distro}&upstream={quoted['source:Package']}"
    purl = f"pkg:deb/{distro.split('-')[0]}/{quoted['Package']}@{quoted['Version']}?{asked}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": d["Package"],
        "version": d["Version"],
        "licenses": [{"expression": licence}],
        "purl": purl,
        "evidence": {"occurrences": [{"location": p} for p in sorted(places)]},
    }


def bill(version: str, seconds: int, parts: list[dict[str, object]]) -> dict[str, object]:
    ours = {
        "type": "application",
        "bom-ref": "lunarch",
        "name": "lunarch",
        "version": version,
        "licenses": [{"expression": "MIT"}],
    }
    refs = [str(p["bom-ref"]) for p in parts]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": "urn:uuid:" + str(uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([version, seconds, parts]))),
        "version": 1,
        "metadata": {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds)), "component": ours},
        "components": parts,
        "dependencies": [{"ref": "lunarch", "dependsOn": refs}, *({"ref": r, "dependsOn": []} for r in refs)],
    }


def main(arguments: list[str]) -> None:
    as_text = arguments[:1] == ["--text"]
    version, seconds = arguments[-2:]
    places: dict[str, list[str]] = collections.defaultdict(list)
    lines = sys.stdin.read().splitlines()
    packages = sorted({line.split()[0] for line in lines})
    for line in lines:
        package, place = line.split(maxsplit=1)
        places[package.split(":")[0]].append(place)
    known, distro = licences(), distribution()
    found = described(packages)
    lacks = sorted({d["source:Package"] for d in found} - known.keys())
    if lacks:
        sys.exit(f"packaging/licences.txt has no line for {', '.join(lacks)} (/usr/share/doc/PACKAGE/copyright tells)")
    if as_text:
        for d in found:
            for place in sorted(places[d["Package"]]):
                print(f"{place:<50} {d['Package'] + ' ' + d['Version']:<45} {known[d['source:Package']]}")
        return
    parts = [component(d, places[d["Package"]], known[d["source:Package"]], distro) for d in found]
    print(json.dumps(bill(version, int(seconds), parts), indent=1))


main(sys.argv[1:])
