"""Which sizes entries are compiled for, and what is said where these, or the entry itself, make no sense."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from compiled_models import compile_text

from lispgpt.base.errors import UserError

PRELUDE = "(require nn) (weights (w [4 3]))\n"
MISTAKES = {
    "no sizes": ("(entry e [(x [batch 3])] (linear x w))", {}, r"2:1: .*for which batch to compile e: give \{:shapes"),
    "a size too few": (
        "(entry e [(x [n m])] {:shapes [{n 2}]} (+ x 1.0))",
        {},
        "2:1: error: a shape of e does not say its m",
    ),
    "an unknown dimension": (
        "(entry e [(x [batch 3])] {:shapes [{bach 2}]} (linear x w))",
        {},
        "2:37: error: e has no free dimension `bach`; did you mean `batch`",
    ),
    "a size that is none": (
        "(entry e [(x [batch 3])] {:shapes [{batch -1}]} (linear x w))",
        {},
        "2:43: error: a size is a whole number from 0 on",
    ),
    "a size that is too large": (
        "(entry e [(x [batch 3])] {:shapes [{batch 99999999999999}]} (linear x w))",
        {},
        "2:43: error: a size is a whole number from 0 on, below 1,099,511,627,776, and",
    ),
    "an option of no entry": (
        "(entry e [(x [batch 3])] {:shapes [{batch 2}]} (linear x w))",
        {"sizes": [{"lenght": 3}]},
        "--shape lenght=3: no entry has a free dimension of this name; there are batch",
    ),
    "inputs that contradict each other": (
        "(entry e [(x [n 3]) (y [n 3])] (+ x y))",
        {"entries": ["e"], "inputs": {"e": {"x": (2, 3), "y": (4, 3)}}},
        r"y of e is \[n 3\] with `n` = 2, and 4 is given there",
    ),
    "no shapes at all": (
        "(entry e [(x [batch 3])] {:shapes []} (linear x w))",
        {},
        r"2:1: .*for which batch to compile e: give .* or --shape batch=4",
    ),
    "no shapes where a run may give them": (
        "(entry e [(x [batch 3])] (linear x w))",
        {"unsized": True},
        r"2:1: .*for which batch to compile e",
    ),
    "an entry by name without shapes": (
        "(entry e [(x [batch 3])] {:shapes []} (linear x w)) (entry f [(x [2 3])] (linear x w))",
        {"entries": ["e"]},
        r"2:1: .*for which batch to compile e",
    ),
    "an input of another rank": (
        "(entry e [(x [n 3])] (linear x w))",
        {"entries": ["e"], "inputs": {"e": {"x": (2, 3, 1)}}},
        r"x of e is a tensor \[n 3\], and a tensor \[2 3 1\] is given",
    ),
    "an entry that is none": ("(entry e [(x [2 3])] (linear x w))", {"entries": ["f"]}, "the program has no entry 'f'"),
    "an update of another type": (
        "(entry e [(x [2 3])] (update! w x))",
        {},
        r"2:22: error: `update!` gives tensor<2x3xf32> to what is tensor<4x3xf32>",
    ),
    "an update of nothing": ("(entry e [(x [2 3])] (update! y x))", {}, "2:31: error: `update!` wants a weight"),
    "a state of an unknown batch": (
        "(state (s [batch 3])) (entry e [(x [2 3])] (update! s x))",
        {},
        "the state s has a dimension batch, which no input of e has",
    ),
    "two inputs of one name": ("(entry e [(x [2 3]) (x [2 3])] x)", {}, "2:12: error: two inputs of e are called x"),
    "an input of no shape": ("(entry e [(x 3)] x)", {}, r"2:11: error: `\(x 3\)` is no input"),
    "an unknown type": ("(entry e [(x [2 3] f23)] x)", {}, "f23"),
    "a result that is none": ("(entry e [(x [2 3])] {:y 3})", {}, "y of `e` gives the number 3"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told_at_the_form(name: str, tmp_path: Path) -> None:
    text, options, words = MISTAKES[name]
    with pytest.raises(UserError) as caught:
        compile_text(PRELUDE + text, tmp_path, **options)
    told = caught.value.render()
    assert re.search(words, told), told


def test_sizes_come_from_the_form_from_options_or_from_inputs(tmp_path: Path) -> None:
    text = (
        PRELUDE + "(entry e [(x [n 3]) (y [m (+ m 1)])] {:shapes [{n 2 m 1} {n 3 m 5}]} {:x (linear x w) :y (+ y 1.0)})"
    )
    assert [e.sizes for e in compile_text(text, tmp_path).plan.entries] == [{"n": 2, "m": 1}, {"n": 3, "m": 5}]
    given = compile_text(text, tmp_path, sizes=[{"n": 7, "m": 2}])
    assert [e.sizes for e in given.plan.entries] == [{"n": 7, "m": 2}]
    told = compile_text(text, tmp_path, entries=["e"], inputs={"e": {"x": (9, 3), "y": (4, 5)}})
    assert [e.sizes for e in told.plan.entries] == [{"n": 9, "m": 4}]


def test_an_entry_that_is_asked_for_has_shapes_though_another_is_made_of_it(tmp_path: Path) -> None:
    text = "(config vocab 8) (weights (table [8 8])) (entry logits [tokens positions] (last (rows table tokens)))"
    text = PRELUDE + text + "(generate logits)"
    assert "logits" not in {e.name for e in compile_text(text, tmp_path).plan.entries}
    asked = compile_text(text, tmp_path, entries=["logits"]).plan.entries
    assert {e.name for e in asked} == {"logits"} and {"batch": 1, "positions": 1} in [e.sizes for e in asked]
