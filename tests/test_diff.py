"""`lispgpt diff`: two dumps, two folders of dumps, two artifacts."""

from __future__ import annotations

import html
from pathlib import Path

import pytest

import lispgpt
from lispgpt.cli.main import main
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.plan.artifact import load_artifact
from lispgpt.runtime.plan.artifact_changes import artifact_changes

MODEL = """(require nn)
(config vocab 16 context 1 width 32)
(weights (table [vocab width] bf16) (w [width width] bf16) (b [width]))
(entry logits [tokens positions]
  (let [x (last (rows table tokens))]
    (matmul-transposed BODY table)))
"""
RELU = "(relu (linear x w b))"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model compiled with two activations, with its dumps; and the first once more."""
    folder = tmp_path_factory.mktemp("diff")
    for name, body in (("a", RELU), ("b", f"(square {RELU})"), ("same", RELU)):
        (folder / name).mkdir()
        program = folder / name / "model.lisp"
        program.write_text(MODEL.replace("BODY", body))
        artifact, _ = compile_request(Request(program, "cpu:x86-64-v3"), Observer(folder / name / "dumps"))
        artifact.save(folder / f"{name}.lgpt")
    return folder


def diff(capfd: pytest.CaptureFixture[str], before: Path, after: Path, code: int = 0) -> str:
    with pytest.raises(SystemExit) as ended:
        main(["diff", str(before), str(after)])
    captured = capfd.readouterr()
    assert ended.value.code == code, captured.err
    return captured.out + captured.err


def test_two_dumps_differ_where_their_ops_do(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dumps = [place / name / "dumps" / "00-input.mlir" for name in ("a", "b")]
    lines = diff(capfd, *dumps).splitlines()
    assert lines[0].startswith("1 function, ") and lines[1].startswith("@@ @logits")
    changed = [line for line in lines if line[0] in "-+"]
    assert any(line[0] == "+" and "arith.mulf" in line for line in changed)
    assert len(changed) < 12, "what is below has other numbers, and is the same"
    assert diff(capfd, dumps[0], dumps[0]) == "no difference\n"


def test_two_folders_differ_pass_by_pass(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said = diff(capfd, place / "a" / "dumps", place / "b" / "dumps")
    assert said.splitlines()[0].startswith("input: 1 function, ") and "\nplan-arena: " in said
    assert "lispgpt diff " in said
    assert diff(capfd, place / "a" / "dumps", place / "same" / "dumps") == "no difference\n"


def test_two_artifacts_differ_in_kernels_plan_and_cost(place: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert diff(capfd, place / "a.lgpt", place / "same.lgpt") == "no difference\n"
    relu, square = (load_artifact(place / f"{name}.lgpt") for name in ("a", "b"))
    lines = list(artifact_changes(relu, square))
    assert "@@ artifact @@" in lines and any(line.startswith("+code: ") for line in lines)
    assert "@@ cost @@" in lines and "@@ kernels @@" in lines
    assert any(line.startswith("-contraction") and "operations=" in line for line in lines)
    assert diff(capfd, place / "a.lgpt", place / "b.lgpt").splitlines() == lines


def test_what_cannot_be_compared_is_said(place: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert "give two of a kind" in diff(capfd, place / "a.lgpt", place / "a" / "dumps", code=1)
    assert "there is no file" in diff(capfd, place / "none.mlir", place / "a.lgpt", code=1)
    assert "has no dumps" in diff(capfd, tmp_path, place / "a" / "dumps", code=1)


def test_notebooks_show_a_difference(place: Path) -> None:
    dumps = [place / name / "dumps" / "00-input.mlir" for name in ("a", "b")]
    found = lispgpt.diff(*dumps)
    page = found._repr_html_()
    added = [line for line in found.lines if line.startswith("+")]
    assert added and all(f'#16653420">{html.escape(line)}</div>' in page for line in added)
    assert "<b>@@" not in page and page.count("<div") == page.count("</div>") and len(page) < 9000
    assert not lispgpt.diff(dumps[0], dumps[0]) and "no difference" in lispgpt.diff(dumps[0], dumps[0])._repr_html_()
    both = [load_artifact(place / f"{name}.lgpt") for name in ("a", "b")]
    assert lispgpt.diff(*both).lines == lispgpt.diff(place / "a.lgpt", place / "b.lgpt").lines != ()
    with pytest.raises(lispgpt.UserError, match="two of a kind"):
        lispgpt.diff(both[0], place / "b.lgpt")
