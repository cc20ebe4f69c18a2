"""README.md's examples do what it says: its commands run, its excerpts are in the dumps, its pass counts."""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from lispgpt.cli.main import main
from lispgpt.ir.mlir import ir, new_context
from lispgpt.passes.base import Pass, make_pass

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Block:
    language: str
    about: str
    text: str


def blocks(language: str) -> list[Block]:
    found = re.findall(r"^```(\w+) ?([^\n]*)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
    return [Block(*parts) for parts in found if parts[0] == language]


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
        for command in [line for block in blocks("sh") for line in block.text.splitlines()]:
            words = shlex.split(command, comments=True)
            assert words.pop(0) == "lispgpt"
            with pytest.raises(SystemExit) as ended:
                main(words)
            assert ended.value.code == 0, command
    return folder


def squeezed(text: str) -> str:
    """Without the numbers of values and without line breaks."""
    return " ".join(re.sub(r"%\w+(#\d)?", "%", text).split())


def test_the_commands_run_and_write_what_they_say(place: Path) -> None:
    for name in ("small.bin", "tiny.lgpt", "same.mlir", "dumps/00-input.mlir"):
        assert (place / name).is_file()


def test_the_excerpts_are_in_the_dumps(place: Path) -> None:
    shown = blocks("mlir")
    assert shown
    for block in shown:
        (dump,) = (place / "dumps").glob(f"*-{block.about}.mlir")
        text = squeezed(dump.read_text())
        for line in block.text.splitlines():
            for part in line.split("…"):
                assert squeezed(part) in text, f"{dump.name}: {line}"


def test_a_dump_fed_back_ends_in_the_last_one(place: Path) -> None:
    last = sorted((place / "dumps").iterdir())[-1]
    assert (place / "same.mlir").read_text().strip() == last.read_text().strip()


def test_the_pass_counts(place: Path) -> None:
    (block,) = blocks("python")
    names: dict[str, object] = {"__name__": "count_ops"}
    exec(compile(block.text, "README.md", "exec", dont_inherit=True), names)
    found = [v for v in names.values() if isinstance(v, type) and issubclass(v, Pass) and v is not Pass]
    (dump,) = (place / "dumps").glob("*-plan-arena.mlir")
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse(dump.read_text())
        counter = make_pass(found[0], {"of": "func.call"})
        counter.run(module, None)
        assert str(counter) == "count-ops{of=func.call}"
        counted = ir.IntegerAttr(module.operation.attributes["lispgpt_count"]).value
    assert counted == dump.read_text().count("call @") > 0


def test_what_it_names_is_there() -> None:
    for path in re.findall(r"`((?:examples|passes|runtime|lispgpt|tools)/[\w./]+)`", README):
        if path != "passes/model/count_ops.py":
            assert (ROOT / path.rstrip("/")).exists(), path
    assert len(README.splitlines()) < 200
    assert all(len(line) <= 120 or line.startswith("|") for line in README.splitlines())
