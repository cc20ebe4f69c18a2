"""The command line's promises: exit codes, one clear error and no traceback, and nothing lost."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import numpy as np
import pytest
import seeded

from lispgpt.cli.main import main, main_group
from lispgpt.execution import opening
from lispgpt.runtime import profile
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.plan.artifact import load_artifact

PROGRAM = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
LISPGPT = [sys.executable, "-m", "lispgpt"]


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


Call = Callable[..., Done]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small checkpoint, its tokenizer, and another checkpoint of another size without one."""
    folder = tmp_path_factory.mktemp("cli")
    make(
        folder / "small.bin", Gpt2Shape.unpadded(vocab=300, context=20, layers=1, heads=3, width=12), "llmc", "bf16", 1
    )
    make(folder / "other.bin", Gpt2Shape.unpadded(vocab=17, context=20, layers=1, heads=1, width=8), "llmc", "bf16", 1)
    os.environ["LISPGPT_CACHE"] = str(folder / "cache")
    return folder


@pytest.fixture
def call(made: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """`call("run", …)` in the folder of checkpoints."""
    monkeypatch.chdir(made)
    monkeypatch.setenv("LISPGPT_CACHE", str(made / "cache"))

    def run(*arguments: object) -> Done:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        captured = capfd.readouterr()
        assert isinstance(ended.value.code, int)
        return Done(ended.value.code, captured.out, captured.err)

    return run


def documented_codes() -> list[tuple[int, str]]:
    """The guide's exit codes, each with a command that ends so, where there is one."""
    page = (PROGRAM.parents[1] / "lispgpt" / "reference" / "guide" / "44-commands-and-targets.md").read_text()
    rows = re.findall(r"^\| (\d+) \| .* \| (?:`lispgpt (.*)`)? ?\|$", page, re.MULTILINE)
    return [(int(code), command) for code, command in rows]


@pytest.mark.parametrize(("code", "command"), documented_codes())
def test_exit_codes_are_as_the_guide_says(
    code: int, command: str, call: Call, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raised = {3: ZeroDivisionError("by zero"), 130: KeyboardInterrupt()}.get(code)
    assert (raised is None) == bool(command)
    (made / "crooked.lisp").write_text("(defn  f [x]\nx)\n")
    if raised is not None:
        monkeypatch.setattr(main_group, "main", lambda *_, **__: _raise(raised))
    assert call(*command.split()).code == code


def test_every_exit_code_is_documented() -> None:
    """Those that the command line's last lines give, in README, too."""
    codes = {code for code, _ in documented_codes()}
    assert codes == {0, 1, 2, 3, 130}
    readme = (PROGRAM.parents[1] / "README.md").read_text()
    said = re.search(r"Exit codes: (.*?)\.\n", readme, re.DOTALL)
    assert said is not None and set(map(int, re.findall(r"\b\d+\b", said[1]))) == codes


def _raise(error: BaseException) -> NoReturn:
    raise error


def assert_one_error(done: Done, code: int, *words: str) -> None:
    assert done.code == code, done
    assert "Traceback" not in done.out + done.err
    assert "bug" not in done.err
    assert done.err.lower().count("error: ") == 1, done.err
    for word in words:
        assert word in done.err, done.err


def generate(call: Call, *options: object, program: object = PROGRAM, checkpoint: str = "small.bin") -> Done:
    weights = () if "--checkpoint" in options else ("--checkpoint", checkpoint)
    return call("run", program, *weights, "--max-new-tokens", 3, *options)


BAD_RUNS: dict[str, tuple[list[object], int, list[str]]] = {
    "tokens beyond the vocabulary": (["--prompt-tokens", "1,300"], 1, ["300", "0 to 299"]),
    "negative tokens": (["--prompt-tokens", "-1"], 1, ["-1", "vocabulary"]),
    "no tokens": (["--prompt-tokens", ","], 1, ["empty"]),
    "words for tokens": (["--prompt-tokens", "one"], 2, ["--prompt-tokens", "1,2,3"]),
    "two prompts": (["--prompt", "a", "--prompt-tokens", "1"], 2, ["not both"]),
    "greedy and warm": (["--prompt", "a", "--greedy", "--temperature", "1"], 2, ["--temperature"]),
    "a negative top-k": (["--prompt", "a", "--top-k", "-3"], 2, ["top-k", "-3"]),
    "a large top-p": (["--prompt", "a", "--top-p", "1.5"], 2, ["top-p", "1.5"]),
    "no number for a temperature": (["--prompt", "a", "--temperature", "nan"], 2, ["temperature"]),
    "a large min-p": (["--prompt", "a", "--min-p", "1.5"], 2, ["min-p is 1.5"]),
    "no repeat penalty": (["--prompt", "a", "--rep-penalty", "0"], 2, ["the repeat penalty is 0"]),
    "words for a bias": (["--prompt", "a", "--logit-bias", "x=1"], 2, ["--logit-bias wants ID=BIAS"]),
    "a bias of no token": (["--prompt", "a", "--logit-bias", "300=1"], 1, ["no token 300"]),
    "drafts of drawn tokens": (["--prompt", "a", "--lookup", "3"], 1, ["--greedy"]),
    "drafts of several texts": (
        ["--prompt", "a", "--prompt", "b", "--lookup", "3", "--greedy", "--batch", "2"],
        1,
        ["one text at a time"],
    ),
    "stops without a tokenizer": (
        ["--prompt-tokens", "1", "--stop", "x", "--checkpoint", "other.bin"],
        1,
        ["wants a tokenizer"],
    ),
    "an empty stop": (["--prompt", "a", "--stop", ""], 1, ["is empty"]),
    "no threads": (["--prompt", "a", "--threads", "0"], 2, ["--threads"]),
    "a negative count": (["--prompt", "a", "--max-new-tokens", "-1"], 2, ["--max-new-tokens"]),
    "an unknown setting": (["--prompt", "a", "--set", "depth=3"], 1, ["depth", "layers"]),
    "a setting without a value": (["--prompt", "a", "--set", "depth"], 2, ["NAME=VALUE"]),
    "a setting that contradicts the checkpoint": (["--prompt", "a", "--set", "layers=2"], 1, ["[2 12]", "[1 12]"]),
    "an unknown target": (["--prompt", "a", "--target", "tpu"], 1, ["tpu", "rocm"]),
    "an unknown chip": (["--prompt", "a", "--target", "cpu:z80"], 1, ["z80", "x86-64-v3"]),
    "arguments of a model": (["surplus", "--prompt", "a"], 2, ["main"]),
    "a missing pipeline": (["--prompt", "a", "--pipeline", "none.lisp"], 1, ["none.lisp"]),
    "a missing tokenizer": (["--prompt", "a", "--tokenizer", "none.bin"], 1, ["none.bin"]),
}


@pytest.mark.drawn
@pytest.mark.parametrize("name", BAD_RUNS)
def test_a_bad_run_ends_with_one_error(name: str, call: Call) -> None:
    options, code, words = BAD_RUNS[name]
    assert_one_error(generate(call, *options), code, *words)


def test_missing_files_and_prompts(call: Call) -> None:
    assert_one_error(call("run", "none.lisp"), 1, "none.lisp")
    assert_one_error(call("run", PROGRAM), 1, "--checkpoint")
    assert_one_error(generate(call, "--prompt", "a", checkpoint="none.bin"), 1, "none.bin")
    assert_one_error(generate(call, "--prompt", "a", checkpoint="other.bin"), 1, "tokenizer", "--prompt-tokens")
    assert_one_error(call("compile", "none.lisp"), 1, "none.lisp")
    assert_one_error(call("opt", "none.mlir"), 1, "none.mlir")
    assert_one_error(call("nonsense"), 2, "nonsense")
    assert_one_error(call("run"), 2, "PROGRAM")


def test_damaged_checkpoints(call: Call, made: Path) -> None:
    data = (made / "small.bin").read_bytes()
    weights = np.frombuffer(data[1024:], np.uint16).copy()
    weights[seeded.rng().integers(weights.size)] = 0x7FC0
    cases = {
        "cut": (data[: len(data) // 2], "cut short"),
        "long": (data + b"x", ""),
        "magic": (b"JUNK" + data[4:], "no checkpoint"),
        "nan": (data[:1024] + weights.tobytes(), "NaN"),
        "empty": (b"", ""),
    }
    for name, (damaged, word) in cases.items():
        (made / f"{name}.bin").write_bytes(damaged)
        done = generate(call, "--prompt-tokens", "1,2", checkpoint=f"{name}.bin")
        assert_one_error(done, 1, f"{name}.bin", word)
        assert done.out == ""


BAD_PROGRAMS: dict[str, tuple[bytes, list[str]]] = {
    "bad UTF-8": (b"(module \xff\xfe)", ["UTF-8", "byte 8"]),
    "an open bracket": (b"(config a 1)\n(module (a b)", [":2:1: error", "never closed"]),
    "a closing bracket": (b"(config a 1))", [":1:13: error"]),
    "a million brackets": (b"(" * 1_000_000, [":1:201: error"]),
    "a million pairs": (b"(" * 1_000_000 + b")" * 1_000_000, [":1:201: error"]),
    "an unknown op": (b"(require-dialect arith)\n(defn main [] (-> [] [i64]) (arith.ad 1 2))", [":2:"]),
    "nothing": (b"", ["entry"]),
    "a missing require": (b'(require "none.lisp")', [":1:", "none.lisp"]),
}


@pytest.mark.parametrize("name", BAD_PROGRAMS)
@pytest.mark.parametrize("command", ["compile", "run"])
def test_a_bad_program_ends_with_one_error(name: str, command: str, call: Call, made: Path) -> None:
    text, words = BAD_PROGRAMS[name]
    (made / "bad.lisp").write_bytes(text)
    assert_one_error(call(command, "bad.lisp"), 1, "bad.lisp", *words)
    assert not (made / "bad.lgpt").exists()


def test_unknown_stages_passes_and_options(call: Call, made: Path) -> None:
    assert_one_error(call("compile", PROGRAM, "--emit", "nonsense"), 1, "nonsense", "kernels", "asm")
    assert_one_error(call("compile", PROGRAM, "--print-ir-after", "nonsense"), 1, "nonsense", "plan-arena")
    (made / "m.mlir").write_text("module {}")
    assert_one_error(call("opt", "m.mlir", "--pipeline", "nonsense"), 1, "nonsense")
    assert_one_error(call("opt", "m.mlir", "--pipeline", "schedule-generic{width=3}"), 1, "width", "long-sum")
    assert_one_error(call("opt", "m.mlir", "--pipeline", "schedule-generic{points=many}"), 1, "many", "int")
    assert_one_error(call("opt", "m.mlir", "--pipeline", "cse{"), 1)
    (made / "bad.mlir").write_text("module {\n  nonsense\n}")
    assert_one_error(call("opt", "bad.mlir", "--pipeline", "cse"), 1, "bad.mlir:2")
    (made / "p.lisp").write_text("(pipeline mine\n (stage one\n (pass nonsense)))")
    assert_one_error(call("compile", PROGRAM, "--pipeline", "p.lisp"), 1, "p.lisp:3", "nonsense")


def test_output_that_cannot_be_written_loses_nothing(call: Call, made: Path) -> None:
    artifact = ("compile", PROGRAM, "--checkpoint", "small.bin")
    (made / "folder").mkdir(exist_ok=True)
    assert_one_error(call(*artifact, "-o", "folder"), 1, "folder")
    assert_one_error(call(*artifact, "--emit", "mlir", "-o", "folder"), 1, "folder")
    assert_one_error(call(*artifact, "-o", "small.bin/x.lgpt"), 1, "small.bin")
    assert_one_error(call(*artifact, "--dump-dir", "small.bin"), 1, "small.bin")
    kept = made / "kept.mlir"
    kept.write_text("precious")
    assert_one_error(call("compile", "none.lisp", "--emit", "mlir", "-o", kept), 1)
    assert kept.read_text() == "precious"
    assert not list(made.glob(".*unfinished"))


def test_an_artifact_runs_and_one_for_another_size_does_not(call: Call) -> None:
    assert call("compile", PROGRAM, "--checkpoint", "small.bin", "-o", "small.lgpt").code == 0
    done = generate(call, "--prompt", "hello", "--greedy", "--format", "json", program="small.lgpt")
    tokens = json.loads(done.out.splitlines()[-1])["tokens"]
    assert len(tokens) == 3 or tokens[-1] == 299
    done = generate(call, "--prompt-tokens", "1", program="small.lgpt", checkpoint="other.bin")
    assert_one_error(done, 1, "300", "17")


@pytest.mark.parametrize("options", [("--prompt", "héllo 🎉"), ("--prompt", ""), ("--prompt-tokens", "299")])
def test_whatever_the_threads_and_the_prompt_greedy_tokens_are_the_same(options: tuple[str, str], call: Call) -> None:
    found = []
    for threads in (1, 2, 7, 64):
        done = generate(call, *options, "--greedy", "--threads", threads, "--format", "json", "--stats")
        assert done.code == 0, done
        found.append(json.loads(done.out.splitlines()[-1])["tokens"])
    assert len(found[0]) == 3 or found[0][-1] == 299
    assert found == [found[0]] * 4


def test_a_profile_has_every_kernel_of_a_step_and_their_sum(call: Call) -> None:
    done = generate(call, "--prompt-tokens", "1", "--greedy", "--profile")
    assert done.code == 0, done
    lines = done.err.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("a decode step at position"))
    header, *rows, total, whole = [line.split() for line in lines[start + 1 :]]
    assert header[:3] == ["kernel", "launches", "us"] and header[-3:] == ["floor", "us", "share"]
    assert total[0] == "sum" and int(total[1]) == sum(int(row[1]) for row in rows)
    assert whole[:4] == ["all", "at", "once", total[1]]
    assert any(row[0].startswith("attention") for row in rows)


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("target", "sampling", "said"),
    [
        ("cpu", ["--greedy"], "the most probable"),
        ("cpu", ["--temperature", 0.7], "drawn by the host"),
        ("cuda:sm_90", ["--greedy"], "the most probable"),
        ("cuda:sm_90", ["--temperature", 0.7, "--top-k", 5], "drawn by the device"),
    ],
)
def test_the_profiled_step_is_the_one_that_ran(
    target: str, sampling: list, said: str, call: Call, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = NullDevice()
    monkeypatch.setattr(opening, "open_device", lambda *_: device)
    monkeypatch.setattr(profile, "COPIED_BYTES", 1 << 16)
    assert call("compile", PROGRAM, "--checkpoint", "small.bin", "--target", target, "-o", "made.lgpt").code == 0
    given = ("--checkpoint", "small.bin", "--prompt-tokens", "1,2", "--max-new-tokens", 4)
    done = call("run", "made.lgpt", *given, *sampling, "--profile")
    assert done.code == 0 and f"a decode step at position 5, its token {said}, kernel by kernel" in done.err
    rows = {line.split()[0].partition("@")[0] for line in done.err.splitlines() if line}
    drawn = said == "drawn by the device"
    ran = "decode-drawn" if drawn else "decode-greedy"
    (step,) = [entry for entry in load_artifact(made / "made.lgpt").plan.entries if entry.name == ran]
    assert {launch.kernel for launch in step.launches} <= rows
    assert any(row.startswith("race_chunks") for row in rows) == drawn


def test_no_new_tokens_prints_the_prompt_alone(call: Call) -> None:
    done = call("run", PROGRAM, "--checkpoint", "small.bin", "--prompt", "hello", "--max-new-tokens", 0)
    assert (done.code, done.out) == (0, "hello\n")


def test_a_seed_repeats_and_no_cache_makes_no_difference(call: Call) -> None:
    texts = [generate(call, "--prompt", "hello", "--seed", 5, *more).out for more in ((), (), ("--no-cache",))]
    assert texts == [texts[0]] * 3


def test_a_program_may_give_the_seed(call: Call, made: Path) -> None:
    text = f'(require "{PROGRAM.parent / "gpt2.lisp"}")\n(generate logits {{:temperature 9.0 :seed %d}})\n'
    drawn = []
    for name, seed in (("one.lisp", 4), ("two.lisp", 4), ("three.lisp", 5)):
        (made / name).write_text(text % seed)
        drawn.append(generate(call, "--prompt-tokens", "1", "--max-new-tokens", 12, program=name).out)
    assert drawn[0] == drawn[1] != drawn[2]


def test_generation_stops_at_any_of_the_ends_in_the_config(made: Path, call: Call) -> None:
    folder = made / "folder"
    make(folder, Gpt2Shape.unpadded(vocab=300, context=20, layers=1, heads=3, width=12), "huggingface", "bf16", 1)
    options = ["--checkpoint", "folder", "--prompt-tokens", "5", "--max-new-tokens", 12, "--format", "json"]

    def generated(ends: object) -> list[int]:
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps({**config, "eos_token_id": ends}))
        done = call("run", PROGRAM, *options, "--temperature", 3, "--seed", 11)
        assert done.code == 0, done.err
        tokens: list[int] = json.loads(done.out)["tokens"]
        return tokens

    free = generated(299)
    assert len(free) == 12 and len(set(free)) > 6
    last = next(i for i in range(4, 12) if free[i] not in free[:i])
    absent = next(token for token in range(300) if token not in free)
    assert generated([absent, free[last]]) == free[: last + 1]
    assert generated([free[11], free[last]]) == free[: min(last, free.index(free[11])) + 1]
