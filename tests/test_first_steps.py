"""What beginners did: each of these mistakes is answered with what to do next."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from training.tiny import begun, begun_folder, losses

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.chat import template
from lispgpt.cli.main import main
from lispgpt.cli.run import run
from lispgpt.cli.sections import SECTIONS
from lispgpt.passes.targets import find_target

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
