"""Schedules of a user's own: what is said of them where they take a kernel, where they leave it, and where they err."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from tile_programs import plain

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.checking.check import Checked
from lispgpt.cli import check
from lispgpt.cli.main import main
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.compiler.folders import find_given
from lispgpt.compiler.kernel_report import kernel_table
from lispgpt.runtime.plan.artifact import Artifact

SCHEDULE = """
(schedule {name} [p]
  {{:takes (let [least {least}] (and (>= (tile.columns p) 32) (>= (tile.rows p) least)))}}
  (let [[batch row column] (tile.task p [32 64])]
    (tile.pipeline p {slots} (ceil-div (tile.inner p) 64)
      (fn [n] [(tile.box (tile.right p) [batch column (* n 64)] [64 64])
               (tile.box (tile.left p) [batch row (* n 64)] [32 64])])
      (fn [] (tile.sums p [32 64] 1 [2 2] "subgroup"))
      (fn [sums [b a]] (tile.mma p sums a b))
      (fn [sums] (tile.store p sums [batch row column])))))
"""


def schedule(name: str = "mine", least: int = 32, slots: int = 2) -> str:
    return SCHEDULE.format(name=name, least=least, slots=slots)


def compiled(folder: Path, *schedules: str, target: str = "cuda:sm_80") -> Artifact:
    (folder / "mine.lisp").write_text("".join(schedules))
    request = Request(plain(64, 64, 128).write(folder), target, schedules=[folder / "mine.lisp"])
    return compile_request(request, Observer())[0]


def test_schedules_that_leave_a_kernel_say_why_and_the_library_takes_it(tmp_path: Path) -> None:
    """One finds no room once it is lowered, and is not asked again; the other's condition has one clause that fails."""
    artifact = compiled(tmp_path, schedule("deep", slots=9), schedule("tall", least=999))
    (facts,) = artifact.kernels.values()
    assert facts["tiles"] == "matmul"
    (line,) = [line for line in kernel_table(artifact, "").splitlines() if " could be by: " in line]
    deep, tall, *library = line.partition(" could be by: ")[2].split("; ")
    assert deep.startswith("deep (yours) leaves it: its tiles want ") and " bytes of shared memory, of which" in deep
    assert tall == "tall (yours) leaves it: (>= (tile.rows p) least) is false"
    assert any(said.startswith("direct leaves it: (<= ") for said in library), "one clause of a long condition"
    assert any(said.startswith("matmul ") and said.endswith(" us (taken)") for said in library)
    assert library[-1].startswith("no launch of this chip has been timed"), "for others would take less"


def test_a_schedule_that_takes_a_kernel_stands_beside_the_librarys(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, schedule())
    (facts,) = artifact.kernels.values()
    own, *library = facts["offers"]
    assert facts["tiles"] == own["schedule"] == "mine" and own["us"] > 0 and own["own"] is True
    assert {offer["schedule"] for offer in library if "us" in offer} >= {"matmul", "schedule-gpu-contractions"}
    table = kernel_table(artifact, "")
    assert f"could be by: mine {own['us']:.1f} us (yours, tried first); " in table and "(taken)" not in table


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("p sums a b", "p sums b a", r"sums \[32 64\], A \[64 64\] and B \[32 64\] do not go together"),
        ("1 [2 2]", "1 [3 2]", "a member's .* are no whole instructions of 16"),
    ],
)
def test_tiles_that_do_not_go_together_are_an_error_at_the_form(
    before: str, after: str, says: str, tmp_path: Path
) -> None:
    text = schedule()
    assert before in text
    with pytest.raises(UserError, match=says) as found:
        compiled(tmp_path, text.replace(before, after))
    span = found.value.span
    assert span is not None and span.source.name == str(tmp_path / "mine.lisp")
    form = span.source.text[span.start : span.end]
    assert form.startswith("(tile.mma p sums ") and form.count("(") == form.count(")") == 1


def test_a_word_that_is_none_is_held_against_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no `tile\.sotre`; did you mean `tile\.store`") as found:
        compiled(tmp_path, schedule().replace("tile.store", "tile.sotre"))
    assert found.value.render().startswith(f"{tmp_path / 'mine.lisp'}:10:19: error: ")


def test_ir_that_passes_left_as_it_was_is_shown_once(tmp_path: Path) -> None:
    shown: list[str] = []
    (tmp_path / "mine.lisp").write_text(schedule())
    request = Request(plain(64, 64, 128).write(tmp_path), "cuda:sm_80", schedules=[tmp_path / "mine.lisp"])
    compile_request(request, Observer(print_after=("choose-tiles",), show=shown.append))
    texts = [text.split("\n", 1)[1] for text in shown if "\n" in text]
    assert len(texts) == len(set(texts)) and shown[0].startswith("// IR after choose-tiles\n")
    assert len(shown) > len(texts) and all(text.endswith(": as above") for text in shown if "\n" not in text)


def test_python_takes_files_of_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LISPGPT_CACHE", str(tmp_path / "cache"))
    Path("mine.lisp").write_text(schedule())
    Path("p.lisp").write_text("(require nn)(entry p [(a [40 64] f32) (b [70 64] f32)] (matmul-transposed a b))")
    (facts,) = lispgpt.compile("p.lisp", target="rocm:gfx1151", schedules=["mine.lisp"]).kernels.values()
    assert facts["tiles"] == "mine"
    with pytest.raises(UserError, match="schedules is a file, or a list of files, not 3"):
        lispgpt.load("p.lisp", schedules=3)  # type: ignore[arg-type]
    Path("wrong.lisp").write_text(schedule().replace("p sums a b", "p sums b a"))
    a, b = np.zeros((40, 64), np.float32), np.zeros((70, 64), np.float32)
    with (
        pytest.raises(UserError, match=r"do not go together") as found,
        lispgpt.load("p.lisp", target="emulated:gfx1151", schedules="wrong.lisp") as model,
    ):
        model.run("p", a=a, b=b)
    assert found.value.span is not None and found.value.span.source.name.endswith("wrong.lisp")


def test_check_compiles_with_the_schedules_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "p.lisp").write_text("(entry p [(a [40 64] f32)] a)")
    asked: dict[str, Any] = dict.fromkeys(("source", "context", "pipeline")) | {"settings": (), "batch": 1}
    asked |= {"target": "emulated:gfx1151", "precision": "exact", "schedules": (tmp_path / "mine.lisp",)}
    request = check._request(click.Context(check.check_), find_given(tmp_path / "p.lisp", None), asked, tmp_path)
    assert request.schedules == (tmp_path / "mine.lisp",)
    assert Checked(request, None, "emulated:gfx1151")._on_cpu.schedules == (), "whose kernels are no tile programs"


@pytest.mark.slow
def test_check_finds_what_a_schedule_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LISPGPT_CACHE", str(tmp_path / "cache"))
    Path("wrong.lisp").write_text(schedule(least=1).replace("p sums a b", "p sums b a"))
    Path("right.lisp").write_text(schedule(least=1))
    weights = "(require nn)(config vocab 64 context 64)(weights (table [vocab 64]) (w [64 64]))"
    logits = "(entry logits [tokens positions] (matmul-transposed (last (linear (rows table tokens) w)) table))"
    Path("m.lisp").write_text(f"{weights}\n{logits}(generate logits {{}})")
    check_ = "check m.lisp --checkpoint m.safetensors --target emulated:gfx1151 --length 40 --steps 1"
    for command, code, says in (
        ("checkpoint make m.safetensors --for m.lisp", 0, "wrote m.safetensors"),
        (f"{check_} --schedules right.lisp", 0, "beside float64"),
        (f"{check_} --schedules wrong.lisp", 1, "wrong.lisp:9:"),
    ):
        with pytest.raises(SystemExit) as ended:
            main(command.split())
        said = capfd.readouterr()
        assert ended.value.code == code and says in said.out + said.err, said
