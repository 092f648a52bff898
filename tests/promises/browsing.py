"""Browsing: a real browser, driven through chromedriver over HTTP with nothing but the standard library.

`apt-get install chromium chromium-driver` brings both.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
_FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --hide-scrollbars --force-color-profile=srgb"
)


class Browser:
    """One window. Scripts run beside the page's policy, as a developer's tools do."""

    def __init__(self, address: str, profile: Path) -> None:
        options = {"binary": CHROMIUM, "args": [*_FLAGS.split(), f"--user-data-dir={profile}"]}
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        self._address = address
        self._session = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self._address}{path}", data, {"Content-Type": "application/json"})
        request.method = method
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def _do(self, path: str, body: Any) -> Any:
        return self._ask("POST", f"/session/{self._session}{path}", body)

    def tool(self, command: str, **parameters: Any) -> Any:
        """A command of the developer's tools."""
        return self._do("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def show(self, address: str, width: int = 1000, height: int = 900, scheme: str = "light") -> None:
        self.tool(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500
        )
        self.tool("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self._do("/url", {"url": address})

    def run(self, script: str) -> Any:
        return self._do("/execute/sync", {"script": script, "args": []})

    def console(self) -> list[str]:
        """Messages since the last call: errors, and what the policy refused."""
        return [each["message"] for each in self._do("/se/log", {"type": "browser"})]

    def picture(self, width: int, height: int) -> bytes:
        """A PNG of the upper part of the page."""
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        return base64.b64decode(self.tool("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)["data"])

    def close(self) -> None:
        self._ask("DELETE", f"/session/{self._session}")


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """A browser of its own, ended with the block."""
    assert DRIVER, "no chromedriver"
    driver = subprocess.Popen([DRIVER, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert driver.stdout
        port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        browser = Browser(f"http://127.0.0.1:{port}", profile)
        try:
            yield browser
        finally:
            browser.close()
    finally:
        driver.terminate()
        driver.wait(timeout=30)
