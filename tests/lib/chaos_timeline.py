"""Draws a run of the chaos test: who acted, what was done to whom, and what everybody logged, over one time.

Not a verdict. Used by tests/cluster/faults/chaos.py."""

import html
import os
from typing import Any

ROW, LEFT, SECOND = 18, 130, 24.0  # pixels
COLOURS = ("#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#9c755f")
QUIET = ("saved ", "loaded ")


def events(c: Any) -> list[tuple[float, str, str]]:
    """(when, who, what) of all logs."""
    found = []
    for candidate in c.candidates:
        for e in list(candidate.events):
            text = f"{e.get('event')} {e.get('message', '')}".strip()
            if not any(e.get("message", "").startswith(q) for q in QUIET):
                found.append((e["seen"], f"{candidate.name} ({candidate.pid})", text))
    for f in c.faults:
        found.append((f.began, "fault", f"begins: {f} ({f.done})"))
        if f.ended:
            found.append((f.ended, "fault", f"ends: {f}"))
    found += [(at, "OVERLAP", what) for at, what in c.overlaps]
    found += [(at, "calm", what) for at, what in c.notes]
    found += [(at, "stall", f"of {length:.2f} s") for at, length in c.network.stalls]
    return sorted(found)


def write_log(c: Any, path: str) -> None:
    with open(path, "w") as f:
        f.write(c.headline() + "\n\nThe faults that were drawn:\n")
        f.writelines(f"  {fault}  ({fault.done})\n" for fault in c.faults)
        f.write("\nAll logs (seconds from the beginning):\n")
        f.writelines(f"{at - c.began:9.3f} {who:14} {what}\n" for at, who, what in events(c))
        f.write("\nThe ends of the servers' logs:\n" + c.site.ends_of_logs() + "\n")


class Drawing:
    def __init__(self, began: float, ended: float) -> None:
        self.began, self.ended, self.rows = began, ended, 1
        self.parts: list[str] = []

    def x(self, at: float) -> float:
        return LEFT + (min(max(at, self.began), self.ended) - self.began) * SECOND

    def text(self, row: int, text: str) -> None:
        self.parts.append(f'<text x="2" y="{row * ROW + 13}">{html.escape(text)}</text>')

    def bar(self, row: int, since: float, until: float, colour: str, title: str, label: str = "") -> None:
        x, width = self.x(since), max(2.0, self.x(until) - self.x(since))
        self.parts.append(
            f'<g><title>{html.escape(title)}</title><rect x="{x:.1f}" y="{row * ROW + 2}" width="{width:.1f}" '
            f'height="{ROW - 4}" fill="{colour}" fill-opacity="0.75"/>'
            f'<text x="{x + 2:.1f}" y="{row * ROW + 13}">{html.escape(label)}</text></g>'
        )

    def dot(self, row: int, at: float, colour: str, title: str) -> None:
        self.parts.append(
            f'<circle cx="{self.x(at):.1f}" cy="{row * ROW + ROW / 2}" r="3" fill="{colour}">'
            f"<title>{html.escape(title)}</title></circle>"
        )

    def save(self, path: str, headline: str) -> None:
        width, height = self.x(self.ended) + 20, (self.rows + 2) * ROW
        for second in range(0, int(self.ended - self.began) + 1, 5):
            x = self.x(self.began + second)
            line = f'<path d="M{x} {ROW}V{height}" stroke="#ddd"/>'
            self.parts.insert(0, f'{line}<text x="{x}" y="{height - 4}">{second} s</text>')
        size = f'width="{width:.0f}" height="{height}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="monospace" font-size="10">'
        title = f'<rect width="100%" height="100%" fill="white"/><text x="2" y="12">{html.escape(headline)}</text>'
        with open(path, "w") as f:
            f.write(f'{head}{title}{"".join(self.parts)}</svg>\n')


def draw(c: Any, path: str) -> None:
    d = Drawing(c.began, c.ended)
    rows = {n.name: 1 + 2 * i for i, n in enumerate(c.nodes)}
    for i, (name, row) in enumerate(rows.items()):
        d.text(row, f"{name} acts")
        d.text(row + 1, f"{name} log, faults")
        for t in c.acted.terms.values():
            if t.name == name:
                d.bar(row, t.first, t.last, COLOURS[i % len(COLOURS)], f"token {t.token}", str(t.token)[-6:])
    row = 1 + 2 * len(rows)
    for f in c.faults:
        if not f.done.startswith("e") or f.done.split()[0] not in rows:
            d.text(row, "servers")
            d.bar(row, f.began, f.ended or f.began, "#bbb", f"{f} ({f.done})", f.kind)
        else:
            d.bar(rows[f.done.split()[0]] + 1, f.began, f.ended or f.began, "#bbb", f"{f} ({f.done})", f.kind)
    for at, who, what in events(c):
        name = who.split()[0]
        if name in rows:
            colour = "#c00" if "fail" in what or "lost" in what else "#333"
            d.dot(rows[name] + 1, at, colour, f"{at - c.began:.3f} {who}: {what}")
    for at, what in c.overlaps:
        d.bar(1, at, at + 0.05, "#f00", what, "OVERLAP")
    for at, length in c.network.stalls:
        d.bar(row + 1, at - length, at, "#000", f"the machine stood still for {length:.2f} s", "stall")
    d.rows = row + 2
    d.save(path, c.headline())


def write(c: Any, directory: str) -> str:
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, f"{c.site.name}{'-beyond' if c.beyond else ''}-{c.seed}.svg")
    draw(c, path)
    write_log(c, path.replace(".svg", ".log"))
    return path
