"""Passes of users' own files: found by `lispgpt opt --passes`, and told apart from ours where they fail."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from lispgpt.cli.main import main
from lispgpt.passes import base
from lispgpt.passes.base import Pass

MODULE = "module {\n  func.func private @f()\n}\n"
TEXT = """from dataclasses import dataclass
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.passes.base import Pass


@dataclass(frozen=True)
class MarkIt(Pass):
    with_text: str = "seen"

    def run(self, module: ir.Module, target: Any) -> None:
        module.operation.attributes["lispgpt.mark"] = ir.StringAttr.get(self.with_text)


class BadOne(Pass):
    def run(self, module: ir.Module, target: Any) -> None:
        module.wlk()
"""


def opt(capfd: pytest.CaptureFixture[str], folder: Path, *words: str) -> tuple[int, str, str]:
    (folder / "a.mlir").write_text(MODULE)
    (folder / "mine.py").write_text(TEXT)
    with pytest.raises(SystemExit) as ended:
        main(["opt", str(folder / "a.mlir"), *words])
    said = capfd.readouterr()
    return int(ended.value.code or 0), said.out, said.err


def test_a_pass_of_a_file_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    given = ("--passes", str(tmp_path / "mine.py"), "--pipeline", "cse,mark-it{with-text=here}")
    code, out, err = opt(capfd, tmp_path, *given)
    assert code == 0 and 'lispgpt.mark = "here"' in out, err


def test_a_fault_of_such_a_pass_is_its_authors(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, _, err = opt(capfd, tmp_path, "--passes", str(tmp_path / "mine.py"), "--pipeline", "bad-one")
    assert code == 1 and "pass bad-one, of a file of yours, failed: AttributeError" in err and "(mine.py:18)" in err
    assert "bug in lispgpt" not in err and "dump-dir" not in err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\n", "has no class of Pass"),
        ("import nothing_like_it\n", "cannot be read: ModuleNotFoundError"),
        ("(", "SyntaxError"),
    ],
)
def test_a_file_without_passes_is_told(text: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other.py").write_text(text)
    code, _, err = opt(capfd, tmp_path, "--passes", str(tmp_path / "other.py"), "--pipeline", "cse")
    assert code == 1 and said in err and err.count("error") == 1


def test_a_name_that_nobody_has_is_explained(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, _, err = opt(capfd, tmp_path, "--pipeline", "plan-arenna")
    assert "there is no pass 'plan-arenna'; did you mean 'plan-arena'" in err
    _, _, err = opt(capfd, tmp_path, "--pipeline", "wonderful")
    assert "there is no pass 'wonderful'; `lispgpt doc --about pass` finds" in err and "--passes FILE.py" in err
    module = ModuleType("lispgpt.passes.model.thing")
    module.Other = type("Other", (Pass,), {"__module__": module.__name__})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(base, "_modules", lambda: {"thing": module.__name__})
    assert base.why_unknown("thing") == (
        "; passes/model/thing.py is called so, and has no pass of that name (Other makes 'other')"
    )
