"""`lispgpt check-gradients`: right gradients pass, wrong ones are found, and the run changes nothing."""

from __future__ import annotations

import re
from pathlib import Path

import forked
import pytest

PROGRAM = """(require nn) (require gradients)
(weights (w [4 3] bf16) (b [4]))
(state (calls [1]))
(defn cube [x] (* x x x))
(defgradient cube [g y x] [(* g {} x x)])
(entry train [(x [2 3] f32) (ids [2] i32)]
  (let [h (rows (linear x w b) ids)
        y (first (scan (fn [s r] [(tanh (+ s (cube r))) nil]) (slice b [0] [1]) (reshape h [8 1])))
        loss (+ (sum y) (sum (sum (square (softmax h)))))
        [gw gb gh] (gradients loss [w b h])]
    (do (update! b (- b gb)) (update! calls (+ (read-state calls) 1.0)) {{:loss loss :gw gw}})))
(entry none [(x [2 3] f32)] x)"""
LINE = re.compile(
    r"(right|WRONG)  p\.lisp:10:20  (\w) \[([\d ]+)\]  \S+ by its gradient, \S+ by differences: (\S+) apart"
)


def checked(folder: Path, program: str, *options: str) -> tuple[int, str, str]:
    (folder / "p.lisp").write_text(program)
    done = forked.lispgpt("check-gradients", "p.lisp", *options, cwd=folder)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(("factor", "code"), [("3.0", 0), ("2.0", 1)])
def test_slopes_by_gradients_are_those_of_differences(tmp_path: Path, factor: str, code: int) -> None:
    found = checked(tmp_path, PROGRAM.format(factor), "--directions", "2", "--entry", "train")
    lines = [LINE.fullmatch(line) for line in found[1].splitlines()]
    assert found[0] == code and all(lines), found
    values = [(line[2], line[3]) for line in lines if line]
    assert values == [("w", "4 3")] * 2 + [("b", "4")] * 2 + [("h", "2 4")] * 2
    verdicts = {line[1] for line in lines if line}
    assert verdicts == ({"right"} if code == 0 else {"WRONG"})
    assert all(float(line[4]) < 1e-5 for line in lines if line) == (code == 0)
    assert ("slopes are not what differences say; --seed" in found[2]) == (code == 1)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--entry", "none"), "the entry none has no `gradients`, outside of loops, to check"),
        (("--entry", "nowhere"), "nowhere"),
    ],
)
def test_what_has_no_gradients_is_said(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    code, _, error = checked(tmp_path, PROGRAM.format("3.0"), *options)
    assert code in (1, 2) and said in error


def test_whole_numbers_that_mean_anything_are_asked_for(tmp_path: Path) -> None:
    text = "(require gradients) (entry y [(x [3] f32) (k [3] i32)] (first (gradients (sum (* (cast k f32) x)) [x])))"
    code, _, error = checked(tmp_path, text)
    assert code == 1 and "the input k is of whole numbers, of which any may be meant: give --input k=…" in error
    assert checked(tmp_path, text, "--entry", "y", "--input", "k=[3,1,2]", "--input", "x=[1,2,3]")[0] == 0


def test_slopes_of_nothing_show_nothing(tmp_path: Path) -> None:
    text = "(require gradients) (entry y [(x [3] f32) (k [3] i32)] (first (gradients (sum (* (cast k f32) x)) [x])))"
    code, _, error = checked(tmp_path, text, "--input", "k=[0,0,0]")
    assert code == 1 and "each slope of y is 0, which shows nothing" in error


def test_a_whole_training_is_checked_at_its_sizes_alone(tmp_path: Path) -> None:
    """Targets below 0 count for nothing, and an optimizer's random settings spoil weights for no other entry."""
    program = """(require nn training)
(config vocab 12 context 8 width 6)
(weights (table [vocab width]) (w [width width]))
(entry logits [tokens positions] (matmul-transposed (last (tanh (linear (rows table tokens) w))) table))
(generate logits)
(training logits)"""
    code, _, said = checked(tmp_path, program)
    assert code == 1 and "nothing says for which batch, length to compile train" in said, said
    code, out, said = checked(tmp_path, program, "--shape", "batch=2,length=3", "--directions", "1")
    slopes = re.findall(r"^right .* (\S+) by its gradient", out, re.MULTILINE)
    assert code == 0 and len(slopes) == 4 and all(float(slope) for slope in slopes), out + said


def test_dimensions_that_nothing_says_are_asked_for(tmp_path: Path) -> None:
    program = "(entry e [(x [n 4] f32)] (let [l (sum (* x x))] {:l l :g (first (gradients l [x]))}))\n"
    code, _, said = checked(tmp_path, program)
    assert code == 1 and "nothing says for which n to compile e" in said and "--shape n=4" in said, said
