"""What beginners did: each of these mistakes is answered with what to do next."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from training.tiny import begun, begun_folder, losses

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.base.machine import complaint
from lispgpt.chat import template
from lispgpt.cli import check
from lispgpt.cli.main import main
from lispgpt.cli.run import run
from lispgpt.cli.sections import SECTIONS
from lispgpt.compiler.compiled import declared
from lispgpt.compiler.driver import Observer, emit
from lispgpt.compiler.request import Request
from lispgpt.passes.targets import find_target
from lispgpt.runtime.data.shards import write_shard
from lispgpt.runtime.devices import cuda, driver, emulated

ROOT = Path(__file__).resolve().parent.parent


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_a_command_that_is_mistyped_is_guessed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "there is no command 'ran': did you mean 'train' or 'run'?" in said(capsys, "ran", "x.lisp")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "x.lisp").touch()
    assert "lispgpt run x.lisp" in said(capsys, "x.lisp")
    assert "there are convert, info, make" in said(capsys, "checkpoint", "show", "x.lisp")
    assert "there is no command 'trian': did you mean 'train'?" in said(capsys, "tokenizer", "trian")


def test_options_of_run_are_in_sections(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    shown = capsys.readouterr().out
    titles = re.findall(r"^(\w[\w ]+):$", shown, re.MULTILINE)
    assert titles == [*SECTIONS, "Others"]
    own = {parameter.name for parameter in run.params if parameter.name not in ("program", "arguments")}
    assert own <= {name for names in SECTIONS.values() for name in names}, "each option has a section"
    flags = [max(p.opts, key=len) for p in run.params if p.opts[0].startswith("--")]
    assert all(re.search(rf" {flag}\b", shown) for flag in flags)


@pytest.mark.parametrize(("chip", "runs"), [("sm_86", "sm_80"), ("sm_89", "sm_80"), ("sm_120", "sm_90"), ("sm_75", "")])
def test_a_chip_of_nvidias_that_is_not_listed_is_told_which_code_it_runs(chip: str, runs: str) -> None:
    with pytest.raises(UserError) as caught:
        find_target(f"cuda:{chip}")
    assert (f"cuda:{runs} is PTX" in caught.value.message) is bool(runs)


def test_sizes_are_named_where_a_shape_is_wrong(tmp_path: Path) -> None:
    program = (
        "(config vocab 8)\n(weights (t [vocab 4]))\n(require nn)\n(entry logits [tokens positions] (rows t tokens))"
    )
    (tmp_path / "m.lisp").write_text(program)
    weights = tmp_path / "m.safetensors"
    with pytest.raises(SystemExit):
        main(["checkpoint", "make", str(weights), "--for", str(tmp_path / "m.lisp")])
    with lispgpt.load(tmp_path / "m.lisp", weights) as model, pytest.raises(UserError) as caught:
        model.run("logits", tokens=np.zeros(2, np.int32), positions=np.zeros(2, np.int32))
    assert "tokens of logits is a tensor [batch positions], and a tensor [2] is given" in caught.value.message


def test_a_run_that_ended_before_its_first_checkpoint_leaves_its_folder_free(tmp_path: Path) -> None:
    place, run_folder = begun_folder(tmp_path), tmp_path / "run"
    with pytest.raises(UserError, match="diverged"):
        begun(place, run_folder, steps=40, lr=1e9, checkpoint_every=100)
    failed = losses(run_folder)
    begun(place, run_folder, steps=3, checkpoint_every=100)
    assert len(losses(run_folder)) == 3
    earlier = (run_folder / "metrics.earlier.jsonl").read_text().splitlines()
    assert [json.loads(line)["loss"] for line in earlier] == failed
    with pytest.raises(UserError, match="has a run already"):
        begun(place, run_folder, steps=3)


def test_a_run_knows_its_program(tmp_path: Path) -> None:
    place, folder = begun_folder(tmp_path), tmp_path / "run"
    begun(place, folder, steps=2)
    with lispgpt.load(folder) as model:
        assert list(model.generate([3], max_new_tokens=2)) is not None
    (place / "tiny.lisp").unlink()
    with pytest.raises(UserError, match=r"give the program that was trained, which was .*tiny\.lisp, and --checkpoint"):
        lispgpt.load(folder)


def test_a_folder_where_training_never_began_is_said_to_be_one(tmp_path: Path) -> None:
    place, folder = begun_folder(tmp_path), tmp_path / "run"
    with pytest.raises(UserError, match="and the model has 16 positions"):
        begun(place, folder, length=20, settings={"context": 16})
    asked: list[Callable[[], object]] = [
        lambda: lispgpt.load(folder),
        lambda: lispgpt.load(place / "tiny.lisp", folder),
        lambda: lispgpt.evaluate(folder, None, place),
        lambda: lispgpt.train(folder, run=tmp_path / "more", data=[place]),
    ]
    for ask in asked:
        with pytest.raises(
            UserError, match=rf"a run that ended before its first checkpoint: `lispgpt train … --run {folder}`"
        ):
            ask()


OWN = """(require nn training)
(config vocab 60  context 16  width 8  layers 2)
(weights (table [vocab width]) (per layers (norm-a [width]) (w [width width]) (b [width]))
         (norm-b [width] {:init 1}) (norm-c [width]))
(defn layer [x l] (+ x (linear (rms-norm x (norm-a l) 1e-5) (w l) (b l))))
(entry logits [tokens positions]
  (let [x (layer-norm (fold layer (rows table tokens) (range layers)) norm-c (b 0))]
    (matmul-transposed (rms-norm (last x) norm-b 1e-5) table)))
(generate logits)
(training logits)
"""


def test_training_says_what_it_takes_in_place_of_the_programs_own(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The context and the vocabulary of a run, and norms' weights that would be zeros."""
    (tmp_path / "own.lisp").write_text(OWN)
    write_shard(tmp_path / "d.bin", [np.arange(180) % 60], 60)
    words = ["train", str(tmp_path / "own.lisp"), "--data", str(tmp_path / "d.bin"), "--steps", "1"]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--length", "8", "--run", str(tmp_path / "run"), "--no-cache"])
    told = capfd.readouterr().err
    assert ended.value.code == 0
    assert "context is 8, by --length 8, and not the program's 16 (--set context=16 keeps that)" in told
    assert "vocab is" not in told
    warned = re.findall(r"own.lisp:[34]:\d+: warning: a norm multiplies by ([\w-]+), which begins as zeros", told)
    assert warned == ["norm-a", "norm-c"] and "(norm-a [8] {:init 1})" in told
    (tmp_path / "few.txt").write_text("few words")
    few = ["train", str(tmp_path / "own.lisp"), "--data", str(tmp_path / "few.txt"), "--vocab-size", "300"]
    with pytest.raises(SystemExit) as ended:
        main([*few, "--length", "40", "--run", str(tmp_path / "few")])
    told = capfd.readouterr().err
    assert ended.value.code == 1 and "context is 40, by --length 40, and not the program's 16\n" in told
    assert re.search(r"vocab is \d+, by the tokenizer, and not the program's 60\n", told)


def test_a_norm_of_zeros_is_told_to_who_trains_and_no_other(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "own.lisp"
    program.write_text(OWN)
    assert declared(Request(program, "cpu"), trial=True).generates
    assert "begins as zeros" not in capfd.readouterr().err
    emit(Request(program, "cpu", sizes=({"batch": 1, "length": 2},), entries=("train",)), "mlir", Observer())
    assert capfd.readouterr().err.count("begins as zeros") == 2


@pytest.mark.parametrize("more", [[], ["--vocab-size", "300"], ["--tokenizer", "none.json"], ["--preset", "gpt2-124m"]])
def test_what_trains_nothing_is_told_before_anything_else(
    more: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    program, text = tmp_path / "own.lisp", tmp_path / "text.txt"
    program.write_text(OWN.replace("(training logits)", ""))
    text.write_text("a few words")
    with pytest.raises(SystemExit) as ended:
        main(["train", str(program), "--data", str(text), "--run", str(tmp_path / "run"), *more])
    told = capfd.readouterr().err
    assert ended.value.code == 1 and told.count("error") == 1
    assert "own.lisp cannot be trained: add (require training) and (training logits), which make the entry" in told


def test_a_package_of_an_extra_is_named_by_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    told = complaint(ModuleNotFoundError("no", name="matplotlib.figure"))
    assert told is not None and told.endswith("pip install 'lispgpt[plot]'")
    monkeypatch.setattr(driver, "load_module", import_module)
    monkeypatch.setitem(sys.modules, cuda.API.module, None)
    with pytest.raises(UserError, match=r"cuda-bindings is missing \(pip install 'lispgpt\[cuda\]'\)"):
        driver.Driver(cuda.API)


def test_a_check_without_a_gpu_says_what_there_is_to_compare(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(check, "compiled_target", lambda target: {"auto": "cpu"}[target])
    (tmp_path / "own.lisp").write_text(OWN)
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tmp_path / "own.lisp")])
    assert ended.value.code == 1 and "there is no GPU here to compare" in capfd.readouterr().err
    monkeypatch.setattr(emulated, "PACKAGES", {"a_module_that_is_nowhere": "nothing"})
    with pytest.raises(SystemExit) as ended:
        main(["check", str(tmp_path / "own.lisp"), "--prompt-tokens", "1,2", "--target", "emulated:gfx1151"])
    told = capfd.readouterr().err
    assert ended.value.code == 1 and told == "error: emulation needs nothing: pip install 'lispgpt[emulated]'\n"


def test_a_missing_package_is_named_before_anything_else() -> None:
    code = "import sys\nsys.modules['click'] = None\nfrom lispgpt.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stderr.startswith("error: the Python package click is not installed here: pip")
    assert "Traceback" not in done.stderr


def test_a_missing_jinja2_is_named_by_what_renders_conversations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "renderer.py").write_text("import a_package_that_is_nowhere")
    monkeypatch.setattr(template, "__file__", str(tmp_path / "template.py"))
    monkeypatch.setattr(template, "find_spec", lambda name: None)
    monkeypatch.setattr(template, "_RENDERER", template._Renderer())
    with pytest.raises(UserError, match="the Python package jinja2 is not installed here: pip install jinja2"):
        template.find_template(None).render([])


def test_the_demo_does_not_contradict_itself(tmp_path: Path) -> None:
    """With a stand-in for the command, which says what it is given."""
    for folder in ("tools", ".venv/bin"):
        (tmp_path / folder).mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "demo", tmp_path / "tools")
    (tmp_path / "tools" / "venv").write_text("")
    fake = tmp_path / ".venv" / "bin" / "lispgpt"
    fake.write_text('#!/bin/sh\necho "$@"\n')
    fake.chmod(0o755)

    def given(*words: str) -> str:
        command = ["bash", str(tmp_path / "tools" / "demo"), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert "--temperature 0.7" in given() and "--seed 1" in given("--stats")
    assert "--temperature" not in given("--greedy") and "--seed" not in given("--greedy")


def test_the_examples_are_copied_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for code in (0, 1):
        with pytest.raises(SystemExit) as ended:
            main(["examples"])
        assert ended.value.code == code
    assert (tmp_path / "examples" / "models" / "austen" / "model.safetensors").is_file()
