"""Schedules of a user's own: what is said of them where they take a kernel, where they leave it, and where they err."""

from __future__ import annotations

from pathlib import Path

import pytest
from tile_programs import plain

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request
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
        ("p [32 64] 1", "p [32 32] 1", r"sums \[32 32\], A \[32 64\] and B \[64 64\] do not go together"),
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
