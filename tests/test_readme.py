"""README.md's examples do what it says: its commands run, its excerpts are in the dumps, its pass counts."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from guide_pages import AFTER_README, TEXTS

from lispgpt.cli.main import main
from lispgpt.cli.opt import parse_module
from lispgpt.ir.mlir import new_context
from lispgpt.runtime.training.run_folder import read_metrics

ROOT = Path(__file__).resolve().parent.parent
FIRST = (ROOT / "README.md").read_text(encoding="utf-8")
README = "\n".join([FIRST, *(TEXTS[name] for name in AFTER_README)])
"""And the pages of the guide that go on from it."""
COMMON = """
    the of and to a in was her it i that she he not be his had as with you for is but at have which my all so him on no
    this been they would were by very will from me or any could what there mr mrs
"""
"""Words that make up half of any page of English prose."""


@dataclass(frozen=True)
class Block:
    language: str
    about: str
    text: str


def blocks(language: str) -> list[Block]:
    found = re.findall(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [Block(*parts) for parts in found if parts[0] == language]


def commands() -> list[str]:
    """The lines for a shell, those that end in a backslash with the next."""
    return [line for block in blocks("sh") for line in block.text.replace("\\\n", " ").splitlines()]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where every command of the README has run, in order, beside the examples and the Lisp files it shows."""
    folder = tmp_path_factory.mktemp("readme")
    shutil.copytree(ROOT / "examples", folder / "examples")
    for block in blocks("lisp"):
        name = block.text.split()[1]
        assert name.endswith(".lisp")
        (folder / name).write_text(block.text)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("LISPGPT_CACHE", str(folder / "cache"))
        for command in commands():
            words = shlex.split(command, comments=True)
            assert words.pop(0) == "lispgpt"
            with pytest.raises(SystemExit) as ended:
                main(words)
            assert ended.value.code == 0, command
    return folder


def test_the_commands_run_and_write_what_they_say(place: Path) -> None:
    for name in (
        "small.bin",
        "tiny.lgpt",
        "same.mlir",
        "dumps/00-input.mlir",
        "story.png",
        "runs/story/latest/model.bin",
    ):
        assert (place / name).is_file()


def test_the_excerpts_are_in_the_dumps(place: Path) -> None:
    """Letter by letter, in order; `…` stands for what is left out."""
    assert [block.about for block in blocks("mlir")] == ["input", "plan-arena", "schedule-contractions"]
    for block in blocks("mlir"):
        dump = min((place / "dumps").glob(f"*-{block.about}.mlir"))  # some passes run again on what others left
        parts = [part.strip() for line in block.text.splitlines() for part in line.split("…") if part.strip()]
        text, at = dump.read_text(), 0
        for part in parts:
            assert part in text[at:], f"{dump.name}: {part}"
            at = text.index(part, at) + len(part)


def test_a_dump_fed_back_ends_in_the_last_one(place: Path) -> None:
    last = sorted((place / "dumps").glob("*.mlir"))[-1]
    with new_context() as context:
        assert str(parse_module(context, place / "same.mlir")) == str(parse_module(context, last))


def test_the_pass_counts_from_the_file_and_by_the_names_that_are_shown(place: Path, tmp_path: Path) -> None:
    """In a copy of the packages, as a user would add it: for `opt`, and in a copy of the CPU's pipeline."""
    (block,) = blocks("python")
    (file,) = re.findall(r"`(passes/\w+/count_ops\.py)`", README)
    (for_opt,) = re.findall(r"`--pipeline '(count-ops[^']*)'`", README)
    (for_pipelines,) = re.findall(r"`(\(pass count-ops [^`]*\))`", README)
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("lispgpt", "passes", "runtime"):
        shutil.copytree(ROOT / folder, tmp_path / folder, symlinks=True, ignore=ignored)
    (tmp_path / file).write_text(block.text)

    def lispgpt(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lispgpt", *map(str, arguments)]
        environment = os.environ | {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    (dump,) = (place / "dumps").glob("*-plan-arena.mlir")
    calls = dump.read_text().count("call @")
    done = lispgpt("opt", dump, "--pipeline", for_opt)
    assert done.returncode == 0, done.stderr
    assert f"lispgpt.count = {calls} : i64" in done.stdout and calls > 0
    pipeline = (ROOT / "passes" / "pipelines" / "cpu.lisp").read_text()
    (tmp_path / "mine.lisp").write_text(pipeline.replace("(pass plan-arena)", f"(pass plan-arena) {for_pipelines}"))
    emitted = ["compile", place / "tiny.lisp", "--pipeline", "mine.lisp", "--emit", "schedule"]
    done = lispgpt(*emitted)
    assert done.returncode == 0, done.stderr
    assert f"lispgpt.count = {calls} : i64" in done.stdout


def test_the_passes_that_opt_is_shown_with_run_where_they_can(place: Path) -> None:
    (passes,) = re.findall(r"`--pipeline '(cse,[^']*)'`", README)
    placed = max((place / "dumps").glob("*-destination-passing.mlir"))
    for dump, code in ((placed, 0), (place / "dumps" / "00-input.mlir", 1)):
        with pytest.raises(SystemExit) as ended:
            main(["opt", str(dump), "--pipeline", passes, "-o", str(place / "passed.mlir")])
        assert ended.value.code == code
    assert "call @" in (place / "passed.mlir").read_text()


def test_the_commands_of_the_first_lines_run(place: Path, tmp_path: Path) -> None:
    """Those that are indented: the demo, here with what is installed already, and a checkpoint of the user's."""
    commands = [line[4:] for line in FIRST.splitlines() if line.startswith("    ") and "lispgpt run" in line]
    assert commands and "    bash tools/demo" in FIRST.splitlines()
    (tmp_path / "tools").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / "tools" / "venv").write_text("")
    shutil.copy(ROOT / "tools" / "demo", tmp_path / "tools")
    script = f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m lispgpt "$@"\n'
    (tmp_path / ".venv" / "bin" / "lispgpt").write_text(script)
    (tmp_path / ".venv" / "bin" / "lispgpt").chmod(0o700)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for file in place.glob("small*"):
        shutil.copy(file, tmp_path / file.name.replace("small", "gpt2_124M_bf16"))
    found = {**os.environ, "PATH": f"{tmp_path / '.venv' / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    for command in ["bash tools/demo", *commands]:
        done = subprocess.run(command, shell=True, cwd=tmp_path, env=found, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        if command in commands:
            assert done.stdout.startswith(re.findall('--prompt "([^"]*)"', command)[0])
        else:
            words = re.findall("[a-z]+", done.stdout.lower())
            assert len(words) > 60 and sum(word in COMMON.split() for word in words) > 0.35 * len(words), done.stdout
            talk = done.stderr.splitlines()[-1].partition(": ")[2]
            said = subprocess.run(talk, shell=True, cwd=tmp_path, input="My dear\n", capture_output=True, text=True)
            assert said.returncode == 0 and len(said.stdout.split()) > 20, said.stderr


def test_a_run_of_steps_learns_and_goes_on(place: Path) -> None:
    records = read_metrics(place / "runs" / "story")
    assert [record["step"] for record in records] == list(range(1, 215))
    assert records[199]["loss"] < 0.5 * records[0]["loss"] and "val_loss" in records[199]


@pytest.mark.parametrize(("run", "steps"), [("tiny", 60), ("hipgpt", 5)])
def test_other_models_are_trained_as_they_are(run: str, steps: int, place: Path) -> None:
    losses = [record["loss"] for record in read_metrics(place / "runs" / run)]
    assert len(losses) == steps and losses[-1] < losses[0]


def test_its_one_picture_is_small() -> None:
    (picture,) = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", README)
    assert (ROOT / picture).stat().st_size < 150_000


def test_what_it_names_is_there() -> None:
    for path in re.findall(r"`((?:examples|passes|runtime|lispgpt|tools)/[\w./]+)`", README):
        if path != "passes/model/count_ops.py":
            assert (ROOT / path.rstrip("/")).exists(), path
    for path in re.findall(r"\]\(((?!https:|#)[^)]+)\)", FIRST):
        assert (ROOT / path).exists(), path
    headings = re.findall(r"^## (.*)$", FIRST, re.MULTILINE)
    assert re.findall(r"\]\(#([^)]+)\)", FIRST) == [heading.lower().replace(" ", "-") for heading in headings]
    assert len(FIRST.splitlines()) <= 150
    assert all(len(line) <= 120 or line.startswith("|") for line in README.splitlines())
