"""A headless Chromium, driven over a pipe by the DevTools protocol: no package and no open port is needed.

Every command has a deadline. Leaving the context ends the browser with all its processes.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SECONDS = 60.0  # for one command, on a machine that is busy with other things
CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
_FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-background-networking", "--hide-scrollbars"),
    *("--host-resolver-rules=MAP * ~NOTFOUND",),  # whatever it may want to ask, nobody answers
)


class Browser:
    """One page; `events` are what it told, such as requests and messages of the console."""

    def __init__(self, profile: Path) -> None:
        assert CHROMIUM is not None
        to_browser, self._write = os.pipe()
        self._read, from_browser = os.pipe()
        # It wants the pipe at 3 and 4; a shell puts them there.
        line = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        command = ["bash", "-c", line, "bash", CHROMIUM, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(to_browser, from_browser),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_browser)
        os.close(from_browser)
        self._buffer, self._number = b"", 0
        self.events: list[dict[str, Any]] = []
        self._session: str | None = None

    def __enter__(self) -> Self:
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(target["targetId"] for target in targets if target["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._write)
        os.close(self._read)
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(timeout=SECONDS)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Carry out a command of the protocol and wait for its answer."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + SECONDS
        while True:
            answer = self._next(deadline)
            if answer.get("id") == self._number:
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([self._read], [], [], max(0.0, left))
            assert ready, "the browser did not answer in time"
            part = os.read(self._read, 1 << 20)
            assert part, "the browser has ended"
            self._buffer += part
        line, _, self._buffer = self._buffer.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def open(self, page: Path) -> None:
        """Load a file and wait until it is there."""
        self.events.clear()
        self.call("Page.navigate", url=page.resolve().as_uri())
        deadline = time.monotonic() + SECONDS
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next(deadline))

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def until(self, condition: str) -> None:
        """Wait until an expression is true."""
        deadline = time.monotonic() + SECONDS
        while not self.run(condition):
            assert time.monotonic() < deadline, f"never became true: {condition}"
            time.sleep(0.02)

    def resize(self, width: int, height: int = 900, phone: bool = False) -> None:
        """Of the page, in its own pixels."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone)
        self.until(f"innerWidth === {width}")

    def emulate(self, media: str = "", **features: str) -> None:
        """`prefers_color_scheme='dark'` and the like; nothing moves by itself, so that places stay where they are."""
        features = {"prefers_reduced_motion": "reduce", **features}
        found = [{"name": name.replace("_", "-"), "value": value} for name, value in features.items()]
        self.call("Emulation.setEmulatedMedia", media=media, features=found)

    def move(self, x: float, y: float) -> None:
        """The mouse, to a place of the window."""
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of an element."""
        x, y = self.middle(selector)
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def touch(self, x: float, y: float) -> None:
        """A finger, down and up."""
        self.call("Input.dispatchTouchEvent", type="touchStart", touchPoints=[{"x": x, "y": y}])
        self.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])

    def middle(self, selector: str) -> tuple[float, float]:
        """Where an element is in the window, which is moved to it."""
        found = self.run(
            f"(() => {{ const e = document.querySelector({json.dumps(selector)}); "
            f"e.scrollIntoView({{block: 'center', behavior: 'instant'}}); const b = e.getBoundingClientRect(); "
            f"return [b.x + b.width / 2, b.y + b.height / 2] }})()"
        )
        return float(found[0]), float(found[1])

    def press(self, key: str, shift: bool = False) -> None:
        """A key, down and up."""
        code = {"Tab": 9, "Enter": 13, " ": 32, "Escape": 27, "End": 35, "Home": 36}
        code |= {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        shared: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code[key], "modifiers": 8 if shift else 0}
        written = {"Enter": "\r", " ": " "}.get(key)
        self.call("Input.dispatchKeyEvent", type="keyDown", **shared, **({"text": written} if written else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **shared)

    def picture(self, whole: bool = False) -> bytes:
        """The page as a PNG: what is in the window, or all of it."""
        return base64.b64decode(self.call("Page.captureScreenshot", captureBeyondViewport=whole)["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True)["data"])

    def complaints(self) -> list[str]:
        """Errors and warnings of the console, and exceptions."""
        self.run("0")  # whatever was told before this answer has arrived
        found = []
        for event in self.events:
            parameters = event.get("params", {})
            if event.get("method") == "Runtime.exceptionThrown":
                found.append(json.dumps(parameters["exceptionDetails"]))
            elif event.get("method") == "Runtime.consoleAPICalled" and parameters["type"] in ("error", "warning"):
                found.append(json.dumps(parameters["args"]))
            elif event.get("method") == "Log.entryAdded":
                found.append(parameters["entry"]["text"])
        return found

    def requests(self) -> list[str]:
        """The addresses that were asked for."""
        self.run("0")
        sent = [event["params"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return [entry["request"]["url"] for entry in sent]
