"""A headless Chromium, and what is asked of a page in it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import attrs
import pytest
import trio
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

BROWSER: Final = shutil.which("chromium") or shutil.which("chromium-browser")
DRIVER: Final = shutil.which("chromedriver")

needs_chromium = pytest.mark.skipif(
    BROWSER is None or DRIVER is None, reason="no chromium: apt install chromium chromium-driver"
)

FLAGS: Final = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run")

CONTRAST: Final = """
const numbers = (text) => text.match(/[\\d.]+/g).map(Number);
const linear = (one) => (one /= 255) <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4;
const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const ground = (node) => {
  for (let one = node; one; one = one.parentElement) {
    const [r, g, b, a = 1] = numbers(getComputedStyle(one).backgroundColor);
    if (a > 0) return [r, g, b];
  }
  return [255, 255, 255];
};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const found = [];
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
  if (element.closest("svg, noscript")) continue;
  const [front, back] = [light(numbers(getComputedStyle(element).color)), light(ground(element))];
  const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  if (ratio < 4.5) found.push(`${ratio.toFixed(2)}: ${walker.currentNode.textContent.trim().slice(0, 40)}`);
}
return found;
"""
"""Texts of the page whose contrast is under 4.5 (WCAG AA)."""


@attrs.define(eq=False)
class Chromium:
    """One tab. Its driver waits for answers, so it is asked in a thread."""

    _driver: webdriver.Chrome

    async def open(self, url: str) -> None:
        await self._ask(self._driver.get, url)

    async def script(self, text: str) -> Any:
        """Return what a script returns."""
        return await self._ask(self._driver.execute_script, text)

    async def text(self, selector: str) -> str:
        """Return the text of the first element; empty: there is none."""
        return str(await self.script(f"return document.querySelector({json.dumps(selector)})?.innerText ?? ''"))

    async def texts(self, selector: str) -> list[str]:
        """Return the texts of all elements."""
        found = f"[...document.querySelectorAll({json.dumps(selector)})]"
        return list(await self.script(f"return {found}.map((one) => one.innerText)"))

    async def until(self, condition: str) -> None:
        """Wait until an expression is true; the test's time is the bound."""
        while not await self.script(f"return Boolean({condition})"):
            await trio.lowlevel.checkpoint()

    async def press(self, key: str) -> None:
        """Press a key, as a user does: it goes to what has the focus."""
        pressed = getattr(Keys, key, key)
        await self._ask(lambda: self._driver.switch_to.active_element.send_keys(pressed))

    async def click(self, selector: str) -> None:
        await self.script(f"document.querySelector({json.dumps(selector)}).click()")

    async def size(self, width: int, height: int = 900) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        await self._command("Emulation.setDeviceMetricsOverride", **size)

    async def scheme(self, name: str) -> None:
        """Prefer `light` or `dark`."""
        await self._command("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    async def requested(self) -> list[str]:
        """Return the addresses that were asked for since this was asked last."""
        entries = await self._ask(self._driver.get_log, "performance")
        messages = [json.loads(entry["message"])["message"] for entry in entries]
        return [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]

    async def complaints(self) -> list[str]:
        """Return errors of scripts and reports of the content security policy since this was asked last."""
        return [entry["message"] for entry in await self._ask(self._driver.get_log, "browser")]

    async def forget_cookies(self) -> None:
        await self._ask(self._driver.delete_all_cookies)

    async def _command(self, name: str, **parameters: object) -> None:
        await self._ask(self._driver.execute_cdp_cmd, name, parameters)

    async def _ask(self, function: Any, *arguments: object) -> Any:
        return await trio.to_thread.run_sync(partial(function, *arguments))


@contextmanager
def chromium() -> Iterator[Chromium]:
    """Give a browser, and end it."""
    assert BROWSER is not None
    options = Options()
    options.binary_location = BROWSER
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    try:
        yield Chromium(driver)
    finally:
        driver.quit()
