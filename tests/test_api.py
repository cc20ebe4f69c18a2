"""The package from Python and the run command's entries: load, generate, run, compile, and what they need to import."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import seeded
from safetensors.numpy import save_file
from test_cli import Call, assert_one_error, call, made

import lispgpt
from lispgpt.cli.arrays import read_inputs
from lispgpt.runtime.plan.artifact import load_artifact

__all__ = ["call", "made"]

GPT2 = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"
COUNTER = """(require nn)
(weights (w [4 3]))
(state (total [3]) (calls [1] i32))
(entry add [(x [n 3])]
  (let [sums (sum (tensor [c 3 i n] (at x i c)))]
    (update! total (+ (read-state total) sums))
    (update! calls (+ (read-state calls) 1))
    {:total (read-state total) :calls (read-state calls)}))
(entry project [(x [n 3])] (linear x w))
(entry learn [(by [] f32)] (update! w (tensor [i 4 j 3] (+ (at w i j) (at by)))))
"""


@pytest.fixture
def counter(tmp_path: Path) -> tuple[Path, Path]:
    (tmp_path / "counter.lisp").write_text(COUNTER)
    weights = tmp_path / "weights.safetensors"
    save_file({"w": np.arange(12, dtype=np.float32).reshape(4, 3)}, weights)
    return tmp_path / "counter.lisp", weights


def test_entries_are_compiled_for_what_they_are_run_on_and_share_states_and_weights(
    counter: tuple[Path, Path],
) -> None:
    rng, w = seeded.rng(), np.arange(12.0).reshape(4, 3)
    total = np.zeros(3)
    with lispgpt.load(*counter, check=True) as model:
        for call_number, rows in enumerate([2, 5, 2, 1], 1):
            x = rng.normal(size=(rows, 3))
            total = total + x.sum(0)
            found = model.run("add", x=x)
            np.testing.assert_allclose(found["total"], total, atol=1e-5)
            assert found["calls"] == [call_number]
            np.testing.assert_allclose(model.run("project", x=x)["project"], x @ w.T, atol=1e-4)
        model.run("learn", by=2)
        np.testing.assert_allclose(model.run("project", x=x)["project"], x @ (w + 2).T, atol=1e-4)
        np.testing.assert_allclose(model.run("project", x=x[:0].reshape(0, 3).sum(0)[None])["project"], [[0] * 4])
        with pytest.raises(lispgpt.UserError, match=r"x of project is \[n 3\] with `3` = 3, and 4 is given there"):
            model.run("project", x=np.zeros((1, 4)))
        with pytest.raises(lispgpt.UserError, match="no entry 'nothing'"):
            model.run("nothing", x=x)
    assert (np.fromfile(counter[1], np.uint8)[-48:].view(np.float32) == np.arange(12)).all()


def test_text_is_generated_piece_by_piece(made: Path, tmp_path: Path) -> None:
    with lispgpt.load(GPT2, made / "small.bin", cache=tmp_path / "cache") as model:
        text = model.generate("hello", max_new_tokens=6, greedy=True)
        pieces = list(text)
        assert 1 <= len(text.tokens) <= 6 and "".join(pieces) == text.text
        again = model.generate(model.prompt("hello"), max_new_tokens=6, temperature=0.0)
        assert "".join(again) == text.text and again.tokens == text.tokens
        drawn = [list(model.generate("hello", max_new_tokens=8, seed=3, temperature=2.0)) for _ in range(2)]
        assert drawn[0] == drawn[1]
        logits = model.run("logits", tokens=[model.prompt("hello")], positions=[range(len(model.prompt("hello")))])
        assert int(np.argmax(logits["logits"][0, : model.session.config["vocab"]])) == text.tokens[0]
    artifact = lispgpt.compile(GPT2, checkpoint=made / "small.bin")
    artifact.save(tmp_path / "small.lgpt")
    assert load_artifact(tmp_path / "small.lgpt").plan == artifact.plan
    with lispgpt.load(tmp_path / "small.lgpt", made / "small.bin") as model:
        assert "".join(model.generate("hello", max_new_tokens=6, greedy=True)) == text.text


def test_a_model_without_its_weights_is_refused(counter: tuple[Path, Path]) -> None:
    with lispgpt.load(counter[0]) as model, pytest.raises(lispgpt.UserError, match="needs weights"):
        model.run("project", x=np.zeros((1, 3)))
    with lispgpt.load(*counter) as model, pytest.raises(lispgpt.UserError, match="no `generate` form"):
        model.generate([1])
    with pytest.raises(lispgpt.UserError, match="there is no file"):
        lispgpt.compile("/nowhere/model.lisp")


def test_running_an_artifact_imports_no_compiler(made: Path, tmp_path: Path) -> None:
    lispgpt.compile(GPT2, checkpoint=made / "small.bin").save(tmp_path / "small.lgpt")
    code = (
        "import sys\n"
        "for name in ('lark', 'mlir', 'flydsl', 'lispgpt.ir', 'lispgpt.language', 'lispgpt.passes'):\n"
        "    sys.modules[name] = None\n"
        "import lispgpt\n"
        f"with lispgpt.load({str(tmp_path / 'small.lgpt')!r}, {str(made / 'small.bin')!r}) as model:\n"
        "    print(len(list(model.generate([1, 2], max_new_tokens=3, greedy=True))))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
    light = "import sys, lispgpt; assert 'numpy' not in sys.modules and 'lispgpt.api' not in sys.modules"
    subprocess.run([sys.executable, "-c", light], check=True)


def test_the_command_runs_any_entry(call: Call, counter: tuple[Path, Path], tmp_path: Path) -> None:
    program, weights = counter
    x = seeded.rng().normal(size=(2, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x, other=x[:1])
    w = np.arange(12.0).reshape(4, 3)
    options = ("run", program, "--checkpoint", weights, "--entry", "project")
    for number, given in enumerate((tmp_path / "x.npy", tmp_path / "x.npz")):
        out = tmp_path / f"y{number}.npz"
        assert call(*options, "--input", f"x={given}", "--output", out).code == 0
        np.testing.assert_allclose(np.load(out)["project"], x @ w.T, atol=1e-4)
    assert call(*options, "--input", f"x={x.tolist()}", "--output", tmp_path / "y.npy").code == 0
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), x @ w.T, atol=1e-4)
    printed = call(*options, "--input", "x=[[1, 0, 0]]", "--check")
    assert printed.out.splitlines()[0] == "project float32 [1 4]" and "0." in printed.out
    told = json.loads(call(*options, "--input", "x=[[1, 0, 0]]", "--format", "json").out)
    assert np.shape(told["project"]) == (1, 4) and list(told) == ["project"]
    assert call("compile", program, "--shape", "n=2", "-o", "two.lgpt").code == 0
    artifact = ("run", "two.lgpt", "--checkpoint", weights, "--entry", "add")
    assert "calls int32 [1]\n[1]" in call(*artifact, "--input", f"x={tmp_path / 'x.npy'}").out
    assert_one_error(call(*artifact, "--input", "x=[[1, 2, 3]]"), 1, "compiled for x [2 3], and not x [1 3]")
    for words in (("--set", "a=1"), ("--shape", "n=3"), ("--dump-dir", "d"), ("--pipeline", "p.lisp")):
        assert_one_error(call(*artifact, *words), 2, f"{words[0]} is for programs: two.lgpt is compiled")
    assert_one_error(call(*artifact, "--target", "cuda"), 2, "--target cuda: two.lgpt was compiled for cpu")


WRONG = [
    (("--input", "x"), 2, "NAME=FILE.npy"),
    (("--input", "x=none.npy"), 1, "cannot read none.npy"),
    (("--input", "x=[[1, 2], 3]"), 1, "--input x="),
    (("--input", "x=word"), 1, "neither a .npy"),
    (("--input", "y=[[1, 2, 3]]"), 1, "takes x, and y is given"),
    (("--input", "x=[[1, 2, 3]]", "--output", "out.txt"), 1, "out.txt"),
    (("--input", "x=[[1, 2, 3]]", "--shape", "n"), 2, "--shape wants"),
    (("--input", "x=[[1, 2, 3]]", "--greedy"), 2, "--greedy is for texts that are generated"),
    (("--input", "x=[[1, 2, 3]]", "--prompt-tokens", "1"), 2, "--prompt-tokens is for texts"),
    (("--input", "x=[[1, 2, 3]]", "--stats"), 2, "--stats is for texts"),
]


@pytest.mark.parametrize(("options", "code", "word"), WRONG)
def test_what_is_wrong_with_inputs_is_said_in_one_line(
    options: tuple[str, ...], code: int, word: str, call: Call, counter: tuple[Path, Path]
) -> None:
    given = ("run", counter[0], "--checkpoint", counter[1], "--entry", "project", *options)
    assert_one_error(call(*given), code, word)


@pytest.mark.parametrize("option", [("--greedy",), ("--format", "json"), ("--input", "x=1"), ("--check",)])
def test_what_a_program_has_no_use_for_is_refused(option: tuple[str, ...], call: Call) -> None:
    tour = Path(__file__).resolve().parent.parent / "examples" / "tour" / "01-constants.lisp"
    assert_one_error(call("run", tour, *option), 1, f"{option[0]} is for models")


def test_weights_for_a_program_come_from_the_command_line(call: Call, tmp_path: Path) -> None:
    (tmp_path / "tiny.lisp").write_text(
        "(require nn) (config vocab 300  context 8  width 8) (weights (table [vocab width] bf16))\n"
        "(entry logits [tokens positions] (matmul-transposed (last (rows table tokens)) table))\n(generate logits)"
    )
    tiny = tmp_path / "tiny.safetensors"
    done = call("checkpoint", "make", tiny, "--for", tmp_path / "tiny.lisp", "--set", "width=16", "--seed", 4)
    assert done.code == 0 and "tiny.tokenizer.bin" in done.err
    ran = call("run", tmp_path / "tiny.lisp", "--checkpoint", tiny, "--prompt", "ab", "--max-new-tokens", 4, "--greedy")
    assert ran.code == 0 and ran.out.startswith("ab")
    assert_one_error(call("checkpoint", "make", tiny, "--for", tmp_path / "tiny.lisp", "--layers", 2), 2, "--for")
    assert_one_error(call("checkpoint", "make", tiny, "--set", "width=3"), 2, "--for PROGRAM")
    assert_one_error(call("checkpoint", "make", tiny, "--for", tmp_path / "tiny.lisp", "--initial"), 2, "--initial")


def test_initial_weights_lose_what_a_guess_does(tmp_path: Path, call: Call) -> None:
    sizes = [
        "--layers",
        2,
        "--heads",
        2,
        "--width",
        32,
        "--vocab",
        300,
        "--context",
        64,
        "--seed",
        seeded.rng().integers(99),
    ]
    losses = {}
    for more in ((), ("--initial",)):
        done = call("checkpoint", "make", tmp_path / "made.bin", *sizes, *more)
        assert done.code == 0, done
        done = call(
            "evaluate", GPT2, "--checkpoint", tmp_path / "made.bin", "--data", GPT2.parent / "texts", "--length", 32
        )
        losses[more] = float(re.search(r"loss ([\d.]+)", done.out)[1])  # type: ignore[index]
    assert losses["--initial",] == pytest.approx(math.log(300), abs=0.1) and losses[()] > math.log(300) + 1, losses


def test_damaged_arrays_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(12.0).reshape(3, 4))
    np.savez_compressed(tmp_path / "b.npz", x=np.arange(50), y=np.ones(3))
    rng = seeded.rng()
    for _ in range(300):
        name = str(rng.choice(["a.npy", "b.npz"]))
        data = bytearray((tmp_path / name).read_bytes())
        for place in rng.integers(0, min(len(data), 300), rng.integers(1, 4)):
            data[place] = rng.integers(256)
        damaged = tmp_path / f"damaged{name[1:]}"
        damaged.write_bytes(data[: rng.integers(1, len(data))] if rng.random() < 0.2 else data)
        with suppress(lispgpt.UserError, MemoryError):
            read_inputs((f"x={damaged}",))


def test_a_checkpoint_of_another_program_is_said_to_lack_what_it_lacks(tmp_path: Path, call: Call) -> None:
    """And nothing begins as :init says where it has not all that is without one."""
    (tmp_path / "own.lisp").write_text(
        "(require nn)\n(weights (table [9 4]) (gain [4] {:init 1}) (mix [4 4]))\n"
        "(entry logits [tokens positions]\n"
        "  (matmul-transposed (linear (rms-norm (last (rows table tokens)) gain 1e-5) mix) table))\n(generate logits)\n"
    )
    (tmp_path / "other.lisp").write_text("(weights (table [9 4]) (b [4]))\n")
    assert call("checkpoint", "make", tmp_path / "w.safetensors", "--for", tmp_path / "other.lisp").code == 0
    found = call("run", tmp_path / "own.lisp", "--checkpoint", tmp_path / "w.safetensors", "--prompt-tokens", "1")
    assert found.code == 1 and "begin as" not in found.err and found.err.rstrip().endswith("declares (it has table, b)")
