"""The command under load: clients that go, that send nonsense, that do not read, and SIGTERM in the middle."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
import seeded
from recorded_adapters import small_adapter
from serve.client import Client
from serve.conftest import AUSTEN
from serve.promise import PLACES

import lispgpt
from lispgpt.cli.serve import address_of

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"


@contextmanager
def command(cache: Path, *more: str) -> Iterator[tuple[subprocess.Popen[bytes], Client]]:
    """A server, which may say nothing but where it is.

    Its memory is in one arena: by default each thread that meets another one gets an arena of its own, 20 to 40 MB of
    which stay, however many clients come (after 1,200 as after 200).
    """
    arguments = [sys.executable, "-m", "lispgpt", "serve", str(AUSTEN), *more]
    arguments += ["--port", "0", "--places", str(PLACES), "--threads", "1"]  # clients have the other cores
    log, environment = cache / "log", {**os.environ, "LISPGPT_CACHE": str(cache), "MALLOC_ARENA_MAX": "1"}
    with log.open("wb") as said:
        process = subprocess.Popen(arguments, stderr=said, env=environment)
    try:
        until = time.monotonic() + 300
        while not (found := re.fullmatch(r"serving at http://127.0.0.1:(\d+)\n", log.read_text())):
            assert process.poll() is None and time.monotonic() < until, log.read_text()
            time.sleep(0.02)
        yield process, Client(int(found[1]))
        assert len(log.read_text().splitlines()) == 1, log.read_text()
    finally:
        process.kill()
        process.wait()


def child_of(process: subprocess.Popen[bytes]) -> int:
    """The process that serves: the command waits for it."""
    return int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()[0])


def open_files(process: int) -> int:
    return len(os.listdir(f"/proc/{process}/fd"))


def memory(process: int) -> int:
    """Bytes of a process that no other has."""
    return int(re.findall(r"Pss_Anon:\s+(\d+)", Path(f"/proc/{process}/smaps_rollup").read_text())[0]) << 10


def raw(port: int, path: str, body: bytes, length: int | None = None) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    size = len(body) if length is None else length
    connection.sendall(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {size}\r\n\r\n".encode() + body)
    return connection


class Requests:
    """Random requests, most of them bad clients'; answers of good ones are held to what the same one got at first."""

    def __init__(self, client: Client, seed: int) -> None:
        self.client, self._random, self.wrong = client, np.random.default_rng(seed), list[str]()
        self.good = {"model": "austen", "prompt": "It is a truth", "temperature": 0, "max_tokens": 20}
        self.expected = client.ask(TEXT, self.good).json["choices"]

    def one(self) -> None:
        body = json.dumps({**self.good, "max_tokens": 200, "stream": True, "logit_bias": {"4095": -100}}).encode()
        with suppress(OSError):
            match int(self._random.integers(7)):
                case 0 | 1:
                    found = self.client.ask(TEXT, self.good)
                    if found.status == 200 and found.json["choices"] != self.expected:
                        self.wrong.append(found.body.decode())
                    elif found.status not in (200, 429):
                        self.wrong.append(str(found.status))
                case 2:  # goes in the middle of a stream
                    with raw(self.client.port, TEXT, body) as connection:
                        connection.recv(int(self._random.integers(1, 3000)))
                case 3:  # does not read
                    with raw(self.client.port, TEXT, body):
                        time.sleep(float(self._random.uniform(0, 0.05)))
                case 4:
                    text = bytes(self._random.integers(0, 256, 200, np.uint8))
                    if not 400 <= self.client.ask(CHAT, text).status < 500:
                        self.wrong.append(repr(text))
                case 5:  # sends less than it says
                    with raw(self.client.port, TEXT, body[:20], len(body)):
                        time.sleep(float(self._random.uniform(0, 0.05)))
                case 6:
                    if self.client.ask(TEXT, {**self.good, "prompt": "word " * 20_000}).status != 400:
                        self.wrong.append("a huge prompt")


def load(client: Client, count: int, workers: int = 8) -> list[str]:
    every = [Requests(client, seeded.fresh_seed()) for _ in range(workers)]

    def work(requests: Requests) -> None:
        for _ in range(count // workers):
            requests.one()

    threads = [threading.Thread(target=work, args=(requests,)) for requests in every]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [wrong for requests in every for wrong in requests.wrong]


def until_idle(client: Client) -> None:
    until = time.monotonic() + 30
    while client.ask("/health").json["models"]["austen"] and time.monotonic() < until:
        time.sleep(0.05)


def check_load(cache: Path, count: int) -> None:
    with command(cache) as (process, client):
        assert not load(client, 64)
        child = child_of(process)
        until_idle(client)
        files, before = open_files(child), memory(child)
        assert not load(client, count)
        until_idle(client)
        told = client.ask("/metrics").body.decode()
        assert 'lispgpt_running{model="austen"} 0' in told and 'lispgpt_waiting{model="austen"} 0' in told
        assert open_files(child) <= files + 2 and memory(child) < before + 16_000_000
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_nothing_is_left_of_bad_clients(cache: Path) -> None:
    check_load(cache, 160)


@pytest.mark.slow
def test_nothing_is_left_of_ten_thousand_requests(cache: Path) -> None:
    check_load(cache, 10_000)


def test_sigterm_lets_streams_end(cache: Path) -> None:
    with command(cache) as (process, client):
        found: list[dict[str, object]] = []
        body = {"prompt": "It", "max_tokens": 240, "temperature": 0, "logit_bias": {"4095": -100}}
        thread = threading.Thread(target=lambda: found.extend(client.stream(TEXT, body)))
        thread.start()
        until = time.monotonic() + 30
        while not client.ask("/health").json["models"]["austen"] and time.monotonic() < until:
            time.sleep(0.001)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        thread.join()
        assert found[-1]["choices"][0]["finish_reason"] == "length"  # type: ignore[index]


@pytest.mark.slow
def test_adapters_are_models_of_their_own(cache: Path, tmp_path: Path) -> None:
    """Asked for together, each says what it says alone.  Run it after a change of lispgpt/serve/ or of adapters."""
    folders = [small_adapter(tmp_path / f"adapter-{seed}", seed) for seed in (1, 2)]
    wanted = {}
    for name, adapter in (("austen", None), *((folder.name, folder) for folder in folders)):
        with lispgpt.load(AUSTEN, adapter=adapter, cache=cache) as model:
            wanted[name] = str(model.generate("It is a truth", greedy=True, max_new_tokens=12))
    assert len(set(wanted.values())) == 3
    with command(cache, *(part for folder in folders for part in ("--adapter", str(folder)))) as (_, client):
        assert [each["id"] for each in client.ask("/v1/models").json["data"]] == list(wanted)
        asked = {"prompt": "It is a truth", "temperature": 0, "max_tokens": 12}
        names = [*wanted] * 3
        with ThreadPoolExecutor(len(names)) as pool:
            answers = pool.map(lambda name: client.ask(TEXT, {**asked, "model": name}).json, names)
        assert [answer["choices"][0]["text"] for answer in answers] == [wanted[name] for name in names]


def test_ctrl_c_ends_a_server_that_will_not_wait(cache: Path) -> None:
    with command(cache, "--grace", "0") as (process, client):
        body = json.dumps(
            {"prompt": "It", "max_tokens": 250, "stream": True, "n": 16, "logit_bias": {"4095": -100}}
        ).encode()
        with raw(client.port, TEXT, body) as connection:
            assert connection.recv(100)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0


def test_a_port_or_host_that_cannot_be_had_is_one_error(cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for where, why in ((["--port", port], "in use"), (["--host", "no such host"], "cannot listen at no such host")):
            arguments = [sys.executable, "-m", "lispgpt", "serve", str(AUSTEN), *where]
            found = subprocess.run(arguments, capture_output=True, text=True, cwd=cache, timeout=60)
            assert found.returncode == 1 and why in found.stderr, found.stderr
            assert found.stderr.startswith("error: cannot listen at ") and found.stderr.count("\n") == 1
    assert address_of("::1", 80) == "http://[::1]:80" and address_of("127.0.0.1", 80) == "http://127.0.0.1:80"
