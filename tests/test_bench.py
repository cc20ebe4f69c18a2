"""`lispgpt bench`: a tiny model's figures on the CPU, and beside what is predicted on an emulated GPU."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import seeded
from emulated_amd.test_generation import PROGRAM, make_checkpoint
from test_cli import Call, assert_one_error, call, made

from lispgpt.base.errors import UserError
from lispgpt.bench import peers
from lispgpt.bench.measures import Bench, Measure
from lispgpt.bench.published import page
from lispgpt.cli.bench import measures_of

__all__ = ["call", "made"]


def test_a_program_with_a_main_is_no_model(call: Call) -> None:
    tour = PROGRAM.parent / "tour" / "01-constants.lisp"
    assert_one_error(call("bench", tour, "--target", "cpu"), 1, "generates no tokens: it is a program with a `main`")


@pytest.mark.slow
def test_figures_of_a_model_on_the_cpu(tmp_path: Path, call: Call) -> None:
    seed = int(seeded.rng().integers(1 << 30))
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", seed, layers=1, heads=2, context=64)
    options = ["--checkpoint", checkpoint, "--target", "cpu", "--rounds", 1, "--at", 5, "--prompt", 16]
    done = call("bench", PROGRAM, *options, "--batch", 2, "--lookup", 3, "--json", tmp_path / "found.json")
    assert done.code == 0, done
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["target"] == "cpu" and found["whole"]["first_token_s"] > 0 and found["whole"]["peak_bytes"] > 1 << 24
    measures = {measure["what"]: measure for measure in found["measures"]}
    assert [*measures][:-1] == [
        *("decode at 5", "decode of 2 sequences at 5", "8 ragged texts, 2 at once", "prompt of 16 tokens"),
        *("a repeating text, 0 drafted", "a repeating text, 3 drafted: 100% right", "its own text, 0 drafted"),
    ]
    assert re.fullmatch(r"its own text, 3 drafted: \d+% right", [*measures][-1])
    for what, measure in measures.items():
        assert what in done.out and measure["seconds"] > 0 and measure["rate"] > 0
    assert measures["decode at 5"]["floor"] is None  # caches hold all of it
    batch, ragged = measures["decode of 2 sequences at 5"], measures["8 ragged texts, 2 at once"]
    assert batch["rate"] * batch["seconds"] == pytest.approx(2)
    assert 0 < ragged["floor"] < 1 and ragged["share"] == pytest.approx(ragged["floor"] / ragged["seconds"])


def test_a_page_says_what_another_needs_to_measure_it_again(tmp_path: Path, call: Call) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", 1, layers=1, heads=2, context=64)
    options = ["--checkpoint", checkpoint, "--target", "cpu", "--rounds", 1, "--at", 5, "--prompt", 3, "--no-processes"]
    done = call("bench", PROGRAM, *options, "--publish", tmp_path / "page.md", "--json", tmp_path / "found.json")
    assert done.code == 0, done
    text, found = (tmp_path / "page.md").read_text(), json.loads((tmp_path / "found.json").read_text())
    command = shlex.split(text.partition("```bash\n")[2].partition("\n")[0])
    assert command[:2] == ["lispgpt", "bench"]
    again = call(*command[1:], "--no-processes")
    assert again.code == 0 and "decode at 5" in again.out and "prompt of 3 tokens" in again.out, again
    facts = dict(re.findall(r"^\| ([a-z ]+) \| (.+) \|$", text, re.MULTILINE))
    assert facts["device"] == found["device"] and facts["target"] == found["target"] == "cpu"
    assert "layers 1" in facts["model"] and "context 64" in facts["model"] and "MLIR of" in facts["lispgpt"]
    assert call("--version").out.strip().removeprefix("lispgpt, version ") in facts["lispgpt"]
    for measure in found["measures"]:
        row = next(line for line in text.splitlines() if line.startswith(f"| {measure['what']} |"))
        assert f"| {measure['seconds'] * 1e6:.1f} |" in row and f"| {measure['rate']:.1f} |" in row


def test_no_two_lines_are_of_one_measure() -> None:
    """Positions and prompts that the context cuts to one are measured once."""

    class Made(Bench):
        def __init__(self) -> None:
            self.generator = SimpleNamespace(context=64)  # type: ignore[assignment]

        def decode(self, position: int, batch: int = 1) -> Measure:
            return Measure(f"decode of {batch} at {position}", 1, "", 1, None, {})

        def ragged(self, batch: int) -> Measure:
            return Measure(f"ragged {batch}", 1, "", 1, None, {})

        def prompt(self, count: int) -> Measure:
            return Measure(f"prompt of {count}", 1, "", 1, None, {})

    asked = {"at": (64, 512, 8), "batches": (2, 2), "prompts": (16, 600, 700), "lookup": None}
    assert [measure.what for measure in measures_of(Made(), asked)] == [
        *("decode of 1 at 39", "decode of 1 at 8", "decode of 2 at 39", "decode of 2 at 8"),
        *("ragged 2", "prompt of 16", "prompt of 64"),
    ]


def test_a_page_has_a_column_for_each_peer() -> None:
    found = {"model": "a/b", "device": "X", "target": "cpu", "precision": "exact", "rates": None, "whole": None}
    process = subprocess.Popen(["true"], text=True)
    process.wait()
    other = peers.Peer("Other | 1", process, {"decode at 5": 2e-6}, {"prompt of 3 tokens": "no\nroom"})
    measures = [Measure("decode at 5", 3e-6, "step", 3e5, 1e-6), Measure("prompt of 3 tokens", 4e-6, "prompt", 7e5)]
    rows = [line for line in page("x", found, {}, measures, [other]).splitlines() if line.startswith("|")]
    width = {len(re.findall(r"(?<!\\)\|", line)) for line in rows[-4:]}
    assert width == {9}, rows[-4:]
    assert "| 2.0 | 1.50 |" in rows[-2] and "33%" in rows[-2]
    assert "| failed: no room |  |" in rows[-1]


def test_why_there_are_no_peers_is_said(tmp_path: Path, call: Call) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", 1, layers=1, heads=2, context=64)
    options = ["--checkpoint", checkpoint, "--target", "cpu", "--rounds", 1, "--at", 5, "--prompt", 1, "--no-processes"]
    said = f"PyTorch and llama.cpp read Hugging Face folders and GGUF files, and {checkpoint} is neither"
    assert f"no peers are measured: {said}\n" in call("bench", PROGRAM, *options).out
    assert json.loads(call("bench", PROGRAM, *options, "--format", "json").out)["no_peers"] == said
    assert "peers" not in call("bench", PROGRAM, *options, "--no-peers").out


def test_a_peers_answer_is_told_from_what_libraries_print() -> None:
    printed = 'loading\n{model}\n{"loaded": true}\n["seconds"]\n{"seconds": 2.5}\n'
    with subprocess.Popen([sys.executable, "-c", f"print({printed!r})"], stdout=subprocess.PIPE, text=True) as process:
        assert peers._said(process) == {"seconds": 2.5}
        assert peers._said(process) == {"failed": "its process ended with code 0"}


def test_kernels_stand_beside_what_is_predicted_of_them(tmp_path: Path, call: Call) -> None:
    seed = int(seeded.rng().integers(1 << 30))
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", seed, layers=1, heads=2, context=64)
    options = ["--checkpoint", checkpoint, "--target", "cpu", "--rounds", 1, "--at", 5, "--prompt", 16]
    done = call("bench", PROGRAM, *options, "--kernels", "--no-processes", "--format", "json")
    assert done.code == 0, done
    found = json.loads(done.out)
    assert [entry["title"] for entry in found["entries"]] == ["a decode step at position 5", "a prompt of 16 tokens"]
    for entry in found["entries"]:
        assert entry["measured"] > 0 and entry["predicted"] is None
        assert all(line["measured"] > 0 and line["predicted"] is None for line in entry["lines"])


@pytest.mark.slow
def test_an_emulated_gpu_is_predicted_as_a_whole_and_by_its_kernels(tmp_path: Path, call: Call) -> None:
    """Run it after a change of lispgpt/bench/ or of the emulator's counts."""
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", 1, layers=1, heads=2, context=64)
    options = ["--checkpoint", checkpoint, "--target", "emulated:gfx1151", "--rounds", 1, "--at", 5, "--prompt", 16]
    done = call("bench", PROGRAM, *options, "--kernels", "--no-processes", "--json", tmp_path / "found.json")
    assert done.code == 0, done
    decode = json.loads((tmp_path / "found.json").read_text())["entries"][0]
    parts = sum(line["launches"] * line["predicted"] for line in decode["lines"])
    assert decode["predicted"] == pytest.approx(parts, rel=0.2)
    assert "datasheet of Ryzen AI Max+ 395" in done.out and "guesses" in done.out


@pytest.mark.slow
def test_whose_tokens_nobody_has_checked_is_said(tmp_path: Path, call: Call) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", 1, layers=1, heads=2, context=64)
    options = ["--checkpoint", checkpoint, "--rounds", 1, "--at", 2, "--prompt", 2, "--no-processes", "--no-peers"]
    done = call("bench", PROGRAM, *options, "--target", "emulated:gfx1151")
    assert done.code == 0 and "nobody has checked the tokens of what was measured: lispgpt check" in done.out, done


def test_a_wrong_target_is_one_clear_message(tmp_path: Path, call: Call) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", 1, layers=1, heads=2, context=32)
    done = call("bench", PROGRAM, "--checkpoint", checkpoint, "--target", "rocm:gfx000")
    assert_one_error(done, 1, "gfx000")


STUB = """
import time
__version__ = "0.0"

class Llama:
    def __init__(self, path, n_ctx, n_gpu_layers, n_threads, n_threads_batch, verbose):
        assert n_gpu_layers == 0 and n_threads == n_threads_batch == 1

    def n_vocab(self):
        return 50

    def reset(self):
        pass

    def eval(self, tokens):
        time.sleep(0.001)
"""


def test_peers_stand_beside_what_was_measured(tmp_path: Path) -> None:
    """A peer that takes a millisecond for each call, and one that does not start."""
    (tmp_path / "torch.py").write_text("raise RuntimeError('no torch')")
    (tmp_path / "transformers.py").write_text("")
    (tmp_path / "llama_cpp.py").write_text(STUB)
    (tmp_path / "model.gguf").write_text("")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    source = peers.Source({"n_layer": 1}, str(tmp_path / "model.gguf"), "bf16", 64)
    measures = [
        Measure("decode at 5", 0.0005, "step", 2000.0, asked={"what": "decode", "count": 5, "batch": 1}),
        Measure("decode of 2 sequences at 5", 1.0, "step", 2.0, asked={"what": "decode", "count": 5, "batch": 2}),
        Measure("prompt of 16 tokens", 1.0, "prompt", 16.0, asked={"what": "prompt", "count": 16}),
        Measure("a repeating text, one by one", 1.0, "token", 1.0),
    ]
    others = peers.start(str(python), source, 1, gpu=False)
    try:
        for peer in others:
            for measure in measures:
                peer.measure(measure, 2)
    finally:
        for peer in others:
            peer.close()
    found = {each["name"]: each for each in peers.described(measures, others)}
    assert [*found] == ["torch (it does not start)", "llama.cpp (llama-cpp-python 0.0)"]
    llama = {each["what"]: each for each in found["llama.cpp (llama-cpp-python 0.0)"]["measures"]}
    assert [*llama] == ["decode at 5", "prompt of 16 tokens"]
    for what, ours in (("decode at 5", 0.0005), ("prompt of 16 tokens", 1.0)):
        assert llama[what]["seconds"] >= 0.001 and llama[what]["ratio"] == pytest.approx(ours / llama[what]["seconds"])
    shown = peers.table(measures, others)
    assert "decode of 2 sequences at 5                     -  it is measured with one sequence" in shown
    assert "a repeating" not in shown


def test_an_interpreter_without_peers_has_none(tmp_path: Path) -> None:
    source = peers.Source("folder", "model.gguf", "bf16", 64)
    (tmp_path / "empty").write_text("#!/bin/sh\n")
    (tmp_path / "empty").chmod(0o755)
    assert peers.start(str(tmp_path / "empty"), source, 1, gpu=False) == []
    with pytest.raises(UserError, match=r"--peer-python .*no-such"):
        peers.start(str(tmp_path / "no-such"), source, 1, gpu=False)
