"""A headless Chromium, driven over a pair of pipes by the DevTools protocol
(https://chromedevtools.github.io/devtools-protocol/): messages of JSON, each with a NUL behind it.

Not a network's client: it resolves no name. Used by the tests of the admin endpoint's page."""

import base64
import json
import os
import shutil
import subprocess
import threading
from typing import Any

from tests.lib.processes import PATIENCE, scratch, wait_for

OPTIONS = [
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # which root's processes cannot have
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--no-first-run",
    "--hide-scrollbars",
    "--mute-audio",
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1 , EXCLUDE localhost",
]


class Browser:
    def __init__(self) -> None:
        self.home = scratch()
        to_it, self._to = os.pipe()
        self._from, from_it = os.pipe()
        os.set_inheritable(to_it, True)
        os.set_inheritable(from_it, True)
        # it reads from descriptor 3 and writes to 4
        start = f'exec "$@" 3<&{to_it} 4>&{from_it}'
        command = ["chromium", *OPTIONS, f"--user-data-dir={self.home}/profile", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", start, "bash", *command],
            pass_fds=[to_it, from_it],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": self.home, "TMPDIR": self.home},
            start_new_session=True,
        )
        os.close(to_it)
        os.close(from_it)
        self.answers: dict[int, Any] = {}
        self.events: list[Any] = []
        self._last = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        rest = b""
        while more := os.read(self._from, 1 << 20):
            *messages, rest = (rest + more).split(b"\0")
            for message in map(json.loads, messages):
                if "id" in message:
                    self.answers[message["id"]] = message
                else:
                    self.events.append(message)

    def call(self, method: str, session: str | None = None, **params: Any) -> Any:
        self._last += 1
        number = self._last
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._to, json.dumps(message).encode() + b"\0")
        if not wait_for(lambda: number in self.answers):
            raise RuntimeError(f"the browser does not answer to {method}")
        answer = self.answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def open(self, url: str, **how: Any) -> "Tab":
        return Tab(self, url, **how)

    def close(self) -> None:
        try:
            self.call("Browser.close")
        except (OSError, RuntimeError):
            pass
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
        shutil.rmtree(self.home, ignore_errors=True)


class Tab:
    """A page of so many CSS pixels, in the dark or not."""

    def __init__(self, browser: Browser, url: str, width: int = 1000, height: int = 800, dark: bool = False) -> None:
        self.browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in "Page", "Runtime", "Log", "Network":
            self.call(domain + ".enable")
        self.size(width, height)
        self.dark(dark)
        self.call("Page.navigate", url=url)

    def call(self, method: str, **params: Any) -> Any:
        return self.browser.call(method, self.session, **params)

    def size(self, width: int, height: int) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )

    def dark(self, on: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if on else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)

    def run(self, expression: str) -> Any:
        """The value of JavaScript; a page's policy does not bind who debugs it."""
        r = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in r:
            raise RuntimeError(f"{expression}: {r['exceptionDetails']}")
        return r["result"].get("value")

    def text(self, selector: str = "body") -> str:
        """What stands there for whoever looks, all of it."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return str(self.run(f"{found}.map(e => e.innerText).join('\\n')"))

    def shows(self, text: str, selector: str = "body") -> bool:
        return bool(wait_for(lambda: text in self.text(selector)))

    def heard(self, method: str) -> list[Any]:
        """The events of that name so far."""
        return [
            e["params"]
            for e in list(self.browser.events)
            if e.get("sessionId") == self.session and e["method"] == method
        ]

    def complaints(self) -> list[str]:
        """What a developer's console shows in red: exceptions, refused by the page's policy, not loaded."""
        return (
            [str(e["exceptionDetails"]) for e in self.heard("Runtime.exceptionThrown")]
            + [str(e["args"]) for e in self.heard("Runtime.consoleAPICalled") if e["type"] in ("error", "warning")]
            + [e["entry"]["text"] for e in self.heard("Log.entryAdded") if e["entry"]["level"] in ("error", "warning")]
        )

    def requested(self) -> list[str]:
        return [e["request"]["url"] for e in self.heard("Network.requestWillBeSent")]

    def picture(self, path: str) -> None:
        data = self.call("Page.captureScreenshot", format="png", optimizeForSpeed=False)["data"]
        with open(path, "wb") as f:
            f.write(base64.b64decode(data))
