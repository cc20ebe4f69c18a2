"""The page at /, in a real browser: chromium, asked through its driver's HTTP."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from serve.conftest import Running, running, served

import lispgpt

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
"""What the WebDriver protocol calls an element."""


class Browser:
    """A session of a browser."""

    def __init__(self, port: int) -> None:
        self._address = f"http://127.0.0.1:{port}"
        options = {"args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]}
        wanted = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
        self._session = f"/session/{self.post('/session', wanted)['sessionId']}"

    def post(self, path: str, body: dict[str, Any]) -> Any:
        request = urllib.request.Request(self._address + path, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=60) as found:
            return json.loads(found.read())["value"]

    def go(self, url: str) -> None:
        self.post(f"{self._session}/url", {"url": url})

    def script(self, text: str) -> Any:
        return self.post(f"{self._session}/execute/sync", {"script": text, "args": []})

    def element(self, selector: str) -> str:
        found = self.post(f"{self._session}/element", {"using": "css selector", "value": selector})
        return f"{self._session}/element/{found[ELEMENT]}"

    def type(self, selector: str, text: str) -> None:
        self.post(f"{self.element(selector)}/value", {"text": text})

    def click(self, selector: str) -> None:
        self.post(f"{self.element(selector)}/click", {})

    def until(self, script: str) -> Any:
        """What a script returns, once that is something."""
        end = time.monotonic() + 30
        while not (found := self.script(script)):
            assert time.monotonic() < end, self.script("return document.body.innerText")
            time.sleep(0.05)
        return found

    def close(self) -> None:
        request = urllib.request.Request(self._address + self._session, method="DELETE")
        urllib.request.urlopen(request, timeout=30).close()


@pytest.fixture
def browser() -> Iterator[Browser]:
    driver = shutil.which("chromedriver")
    assert driver, "these tests want chromium and chromedriver"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 30
        while socket.socket().connect_ex(("127.0.0.1", port)):
            assert time.monotonic() < end
            time.sleep(0.05)
        made = Browser(port)
        yield made
        made.close()
    finally:
        process.terminate()
        process.wait()


@pytest.mark.slow
def test_a_conversation_on_the_page(server: Running, browser: Browser) -> None:
    browser.go(f"http://127.0.0.1:{server.port}/")
    assert browser.until("return document.querySelector('#model').value") == "austen"
    browser.type("#message", "It is a truth <b>universally</b>\ue007")
    browser.until("return document.querySelector('.assistant')?.textContent.length > 20")
    assert browser.script("return document.querySelector('.user').innerHTML").count("&lt;b&gt;") == 1
    browser.click("#stop")
    browser.until("return document.querySelector('#stop').hidden")
    said = browser.script("return document.querySelector('.assistant').textContent")
    browser.type("#message", "And\ue007")
    browser.until("return document.querySelectorAll('.assistant').length == 2 || document.querySelector('.error')")
    assert browser.script("return document.querySelector('.assistant').textContent") == said
    end = time.monotonic() + 30
    while server.scheduler.running and time.monotonic() < end:
        time.sleep(0.1)
    assert not server.scheduler.running


@pytest.mark.slow
def test_the_page_asks_for_the_key(model: lispgpt.Model, browser: Browser) -> None:
    with running(lambda: served(model, 8), key="secret") as server:
        browser.go(f"http://127.0.0.1:{server.port}/")
        browser.until("return !document.querySelector('#key').hidden")
        browser.type("#key", "secret\t")
        assert browser.until("return document.querySelector('#model').value") == "austen"
