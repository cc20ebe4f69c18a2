"""`--timeline` and `lispgpt trace`: what ran when, as Chrome's trace format has it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from lispgpt.cli.main import main
from lispgpt.runtime.timeline import Timeline

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
MODEL = """(require nn)
(config vocab 16 context 8 width 32)
(weights (table [vocab width] bf16) (w [width width] bf16) (b [width]))
(entry logits [tokens positions]
  (let [x (last (rows table tokens))]
    (matmul-transposed (relu (linear x w b)) table)))
(generate logits {:max-new-tokens 4})
"""


def lispgpt(*arguments: object, code: int = 0) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, arguments)))
    assert ended.value.code == code


def check_format(data: Any) -> dict[tuple[int, int], list[dict[str, Any]]]:
    """Hold a file to the trace format's description; its complete events by process and thread, in order.

    Fields are those of "Trace Event Format" (JSON Object Format, complete and metadata events).
    """
    assert set(data) >= {"traceEvents"} and data["displayTimeUnit"] in ("ms", "ns")
    threads: dict[tuple[int, int], list[dict[str, Any]]] = defaultdict(list)
    named = set()
    for event in data["traceEvents"]:
        assert type(event["name"]) is str and type(event["pid"]) is int and type(event["tid"]) is int
        if event["ph"] == "M":
            assert event["name"] in ("process_name", "thread_name") and type(event["args"]["name"]) is str
            named.add((event["pid"], event["tid"]))
        else:
            assert event["ph"] == "X" and type(event["cat"]) is str and type(event["args"]) is dict
            assert event["ts"] >= 0 and event["dur"] >= 0
            threads[event["pid"], event["tid"]].append(event)
    assert set(threads) <= named
    for events in threads.values():
        events.sort(key=lambda event: event["ts"])
        for first, second in pairwise(events):
            assert first["ts"] + first["dur"] <= second["ts"] + 0.01, "events of a thread follow each other"
    return threads


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trace")
    (folder / "mine.lisp").write_text(MODEL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LISPGPT_CACHE", str(folder / "cache"))
        lispgpt("checkpoint", "make", folder / "mine.safetensors", "--for", folder / "mine.lisp")
        run = ["run", folder / "mine.lisp", "--checkpoint", folder / "mine.safetensors", "--prompt-tokens", "3,5"]
        lispgpt(*run, "--greedy", "--timeline", folder / "timeline.json")
        lispgpt("trace", folder, "-o", folder / "trace.json")
    return folder


def test_a_run_says_when_what_ran(place: Path) -> None:
    threads = check_format(json.loads((place / "trace.json").read_text()))
    launches = [event for events in threads.values() for event in events if event["cat"] == "launches"]
    steps = [event for events in threads.values() for event in events if event["cat"] == "host"]
    assert any(event["name"].startswith("contraction") and "@mine.lisp:" in event["name"] for event in launches)
    assert len(steps) >= 4 and any("logits" in event["name"] or "decode" in event["name"] for event in steps)
    for launch in launches:
        assert any(s["ts"] <= launch["ts"] and launch["ts"] + launch["dur"] <= s["ts"] + s["dur"] for s in steps)
    assert any(event["cat"] == "copies" and event["args"]["bytes"] > 0 for e in threads.values() for event in e)


def test_a_recorded_run_gives_what_others_do(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = ["run", place / "mine.lisp", "--checkpoint", place / "mine.safetensors", "--prompt-tokens", "3,5", "--greedy"]
    said = []
    for more in ([], ["--timeline", place / "again.json"]):
        lispgpt(*run, *more)
        said.append(capfd.readouterr().out)
    assert said[0] == said[1]


def test_what_is_no_time_line_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.json").write_text('{"traceEvents": [3]}')
    lispgpt("trace", tmp_path / "other.json", code=1)
    assert "is no time line" in capfd.readouterr().err
    lispgpt("trace", tmp_path, code=1)
    assert "has no timeline*.json" in capfd.readouterr().err


def test_processes_stand_side_by_side_as_their_clocks_say(place: Path, tmp_path: Path) -> None:
    one = json.loads((place / "timeline.json").read_text())
    later = one | {"otherData": one["otherData"] | {"began": one["otherData"]["began"] + 5e6}}
    for name, data in (("timeline-0.json", one), ("timeline-1.json", later)):
        (tmp_path / name).write_text(json.dumps(data))
    lispgpt("trace", tmp_path, "-o", tmp_path / "trace.json")
    threads = check_format(json.loads((tmp_path / "trace.json").read_text()))
    for (process, thread), events in threads.items():
        if process == 0:
            others = threads[1, thread]
            assert [b["ts"] - a["ts"] for a, b in zip(events, others, strict=True)] == pytest.approx(
                [5e6] * len(events)
            )


def test_a_server_says_when_what_ran(tmp_path: Path) -> None:
    """Its models' launches, from the first request until it is asked to end."""
    environment = os.environ | {"LISPGPT_CACHE": str(tmp_path / "cache")}
    serve = [sys.executable, "-m", "lispgpt", "serve", str(EXAMPLES / "models" / "austen"), "--port", "0"]
    more = ["--places", "2", "--context", "64", "--timeline", str(tmp_path / "timeline.json")]
    with subprocess.Popen([*serve, *more], env=environment, stderr=subprocess.PIPE, text=True) as running:
        assert running.stderr is not None
        try:
            said = next((line for line in running.stderr if "serving at" in line), "")
            request = urllib.request.Request(
                f"{said.split()[-1]}/v1/completions",
                json.dumps({"model": "austen", "prompt": "My dear", "max_tokens": 3}).encode(),
                {"content-type": "application/json"},
            )
            with urllib.request.urlopen(request, timeout=60) as answer:
                assert json.loads(answer.read())["usage"]["completion_tokens"] == 3
        finally:
            running.send_signal(signal.SIGTERM)
            running.communicate(timeout=60)
    lispgpt("trace", tmp_path, "-o", tmp_path / "trace.json")
    threads = check_format(json.loads((tmp_path / "trace.json").read_text()))
    launches = [event for events in threads.values() for event in events if event["cat"] == "launches"]
    assert len([event for event in launches if "@gpt2.lisp:" in event["name"]]) > 3


def test_each_device_of_a_process_has_its_tracks(tmp_path: Path) -> None:
    timeline = Timeline(tmp_path / "timeline.json", devices=["one", "two"])
    for number in (0, 1):
        timeline.note(number, "launches", "kernel", 0.0)
    threads = check_format(timeline.to_json())
    assert len(threads) == 2 and all(len(events) == 1 for events in threads.values())


@pytest.mark.slow
def test_two_devices_stand_side_by_side(tmp_path: Path) -> None:
    sizes = ["--set=layers=1", "--set=width=32", "--set=heads=2", "--set=context=16"]
    train = [sys.executable, "-m", "lispgpt", "train", str(EXAMPLES / "gpt2_train.lisp"), "--data"]
    train += [str(EXAMPLES / "texts" / "harbour.txt"), *sizes, "--vocab-size", "300", "--run", "run", "--steps", "2"]
    train += ["--batch", "2", "--length", "8", "--devices", "2", "--timeline", "timeline.json"]
    environment = os.environ | {"LISPGPT_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(train, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lispgpt("trace", tmp_path, "-o", tmp_path / "trace.json")
    threads = check_format(json.loads((tmp_path / "trace.json").read_text()))
    exchanged = {pid for (pid, _), events in threads.items() if any(e["cat"] == "exchanges" for e in events)}
    assert {pid for pid, _ in threads} == exchanged == {0, 1}
    first = min(events[0]["ts"] for events in threads.values())
    assert first < 60e6
