"""`lispgpt serve` beside llama.cpp's server, on this CPU and in one run: tokens a second and the time to first tokens.

    python -m venv /tmp/peer && /tmp/peer/bin/pip install xllamacpp gguf numpy
    .venv/bin/python tools/compare_servers.py /tmp/peer/bin/python --model /tmp/gpt2.gguf

Both serve one GGUF file, which becomes a GPT-2 124M of random weights where it does not exist, to so many streams at
once, in turns.  Prompts are tokens that no other stream has.  xllamacpp holds llama.cpp's
own server.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

TOKENS, PROMPT, VOCAB = 48, 64, 50257
PEER = """
import json, sys, time, xllamacpp
path, slots, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
given = xllamacpp.CommonParams()
given.model.path, given.n_parallel, given.n_ctx, given.warmup, given.port = path, slots, 256 * slots, True, 0
given.cpuparams.n_threads = given.cpuparams_batch.n_threads = threads
given.n_gpu_layers, given.verbosity, given.kv_unified = 0, -1, False
server = xllamacpp.Server(given)
print("\\nat", server.listening_address, flush=True)
time.sleep(3600)
"""
WRITE = """
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import peer_llamacpp
peer_llamacpp.write_model(pathlib.Path(sys.argv[2]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("peer", help="a Python that has xllamacpp, gguf and numpy")
    parser.add_argument("--model", type=Path, default=Path("gpt2-random.gguf"))
    parser.add_argument("--streams", default="1,4,16")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    counts = [int(count) for count in given.streams.split(",")]
    if not given.model.exists():
        bench = Path(__file__).resolve().parent.parent / "lispgpt" / "bench"
        subprocess.run([given.peer, "-c", WRITE, str(bench), str(given.model)], check=True)
    found: dict[tuple[str, int], list[tuple[float, float]]] = {}
    with ours(given.model, max(counts), given.threads) as port, theirs(given, max(counts)) as other:
        places = (("lispgpt", port), ("llama.cpp", other))
        for _, place in places:
            measured(place, max(counts))
        for count in counts * given.rounds:
            for name, place in places:
                rate, first = measured(place, count)
                print(f"{name}, {count} streams: {rate:.1f} tokens/s, first token after {first:.2f} s", flush=True)
                found.setdefault((name, count), []).append((rate, first))
    print(table(found, counts))


@contextmanager
def ours(model: Path, places: int, threads: int) -> Iterator[int]:
    sizes = ["--places", str(places), "--threads", str(threads), "--context", "256"]
    words = [sys.executable, "-m", "lispgpt", "serve", str(model), "--port", "0", *sizes]
    with started(words, "serving at http://127.0.0.1:", True) as port:
        yield port


@contextmanager
def theirs(given: argparse.Namespace, slots: int) -> Iterator[int]:
    words = [given.peer, "-c", PEER, str(given.model), str(slots), str(given.threads)]
    with started(words, "at http://127.0.0.1:", False) as port:
        yield port


@contextmanager
def started(words: list[str], said: str, aside: bool) -> Iterator[int]:
    """A server's port, which it says behind some words, on standard error where `aside`."""
    streams: dict[str, Any] = {"stderr": subprocess.PIPE} if aside else {"stdout": subprocess.PIPE}
    with subprocess.Popen(words, text=True, **streams) as process:
        try:
            lines = process.stderr if aside else process.stdout
            assert lines is not None
            line = next(line for line in lines if line.startswith(said))
            yield int(line.removeprefix(said).split("/")[0])
        finally:
            process.terminate()


def measured(port: int, count: int) -> tuple[float, float]:
    """(tokens a second of so many streams together, the median seconds to their first tokens)"""
    firsts, starting = [0.0] * count, threading.Barrier(count + 1)

    def stream(number: int) -> None:
        prompt = random.sample(range(300, VOCAB - 1), PROMPT)
        body = {"prompt": prompt, "max_tokens": TOKENS, "temperature": 0, "stream": True, "ignore_eos": True}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        starting.wait()
        began = time.perf_counter()
        connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
        for line in connection.getresponse():
            if line.startswith(b"data: {") and not firsts[number]:
                firsts[number] = time.perf_counter() - began
        connection.close()

    threads = [threading.Thread(target=stream, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    starting.wait()
    began = time.perf_counter()
    for thread in threads:
        thread.join()
    return count * TOKENS / (time.perf_counter() - began), statistics.median(firsts)


def table(found: dict[tuple[str, int], list[tuple[float, float]]], counts: list[int]) -> str:
    titles = ("streams", "lispgpt, tokens/s", "llama.cpp", "ratio", "first token, s", "llama.cpp")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for count in counts:
        (a, first), (b, other) = (
            (max(rate for rate, _ in found[name, count]), min(seconds for _, seconds in found[name, count]))
            for name in ("lispgpt", "llama.cpp")
        )
        lines.append(f"| {count} | {a:.1f} | {b:.1f} | {a / b:.2f} | {first:.2f} | {other:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
