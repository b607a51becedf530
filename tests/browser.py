"""A browser without a window, driven through its DevTools protocol over a pipe: no driver, no package besides.

Protocol: https://chromedevtools.github.io/devtools-protocol/; a message is JSON that ends with a zero byte, and with
`--remote-debugging-pipe` the browser reads them from file descriptor 3 and writes to 4.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome", "chromium-headless-shell")
PATIENCE_S = 60


def found() -> str | None:
    """The path of a browser of this machine, GEMMSIM_BROWSER first; None if it has none."""
    return next(filter(None, (shutil.which(name) for name in (os.environ.get("GEMMSIM_BROWSER", ""), *NAMES))), None)


class Browser:
    """One browser with one page."""

    def __init__(self, path: str, profile: Path) -> None:
        words = [
            path, "--headless=new", "--remote-debugging-pipe", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
            "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={profile}", "about:blank",
        ]  # fmt: skip
        if os.geteuid() == 0:
            words.insert(1, "--no-sandbox")  # which it does not run in as root
        here_in, there_out = os.pipe()
        there_in, here_out = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        # first out of the way of 3 and 4, which they may have themselves
        high_in, high_out = (os.dup2(each, 200 + number) for number, each in enumerate((there_in, there_out)))
        copies = [(high_in, 3), (high_out, 4), (nothing, 0), (nothing, 1), (nothing, 2)]
        actions = [(os.POSIX_SPAWN_DUP2, source, target) for source, target in copies]
        self._process = os.posix_spawn(path, words, dict(os.environ), file_actions=actions, setpgroup=0)
        for each in (there_in, there_out, high_in, high_out, nothing):
            os.close(each)
        self._in, self._out, self._buffer = here_in, here_out, b""
        self._number, self.events = 0, list[dict[str, Any]]()
        self._session: str | None = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """What the browser answers to one command; events that come before go to `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            reply = self._read()
            if reply.get("id") == self._number:
                assert "error" not in reply, (method, reply["error"])
                result: dict[str, Any] = reply["result"]
                return result
            self.events.append(reply)

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], PATIENCE_S)
            assert ready, "the browser says nothing"
            more = os.read(self._in, 1 << 20)
            assert more, "the browser has gone"
            self._buffer += more
        message, _, self._buffer = self._buffer.partition(b"\0")
        reply: dict[str, Any] = json.loads(message)
        return reply

    def open(self, path: Path, width: int, height: int = 900, scheme: str = "light", media: str = "screen") -> None:
        """Show a file in a window of this size, where people prefer light or dark; returns when it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.call(
            "Emulation.setEmulatedMedia", media=media, features=[{"name": "prefers-color-scheme", "value": scheme}]
        )
        self.events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def evaluate(self, expression: str) -> Any:
        """The value of an expression on the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    @property
    def complaints(self) -> list[str]:
        """What the page has written on the console, thrown, or been refused, since it was opened."""
        self.evaluate("0")  # whatever is on its way comes before the answer
        named = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        return [json.dumps(event["params"]) for event in self.events if event.get("method") in named]

    def screenshot(self, whole: bool = True) -> bytes:
        """The page as PNG."""
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        return base64.b64decode(answer["data"])

    def close(self) -> None:
        """Ends the browser and all that it started."""
        for descriptor in (self._in, self._out):
            os.close(descriptor)
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            deadline = time.monotonic() + 5
            try:
                os.killpg(self._process, signal_number)
            except ProcessLookupError:
                break
            while time.monotonic() < deadline:
                if os.waitpid(self._process, os.WNOHANG)[0]:
                    return
                time.sleep(0.02)


@contextmanager
def browser(profile: Path) -> Iterator[Browser]:
    """A browser for as long as it is needed."""
    path = found()
    assert path, "asked only where there is one"
    one = Browser(path, profile)
    try:
        yield one
    finally:
        one.close()
