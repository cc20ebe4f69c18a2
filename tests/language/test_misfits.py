"""Sizes that do not go together in a layer of the library: one error, at the user's call, in the layer's own words."""

from __future__ import annotations

import pytest
from language.evaluating import evaluated

from lispgpt.base.errors import UserError

PROGRAM = """(require nn scan convolutions arrays)
(config vocab 16  context 8  width 48  heads 4)
(weights (table [vocab width]) (qkv [144 width]) (odd [145 width]) (w [48 4]) (b [48]))
(state (kv [1 batch 2 4 context 12]))
(defn cut [x h d] (reshape (slice x [0 0] [(dim x 0) (* h d)]) [(dim x 0) h d]))
(entry f [tokens positions]
  (let [x (rows table tokens)]
    %s))
"""
OF_TENSORS = """(require nn scan convolutions arrays kernels)
(weights (b [48]) (c [6]) (taps [4 2 3 3]))
(entry f [(x [2 6 4 8] f32) (k3 [2 6 3 8] f32) (k7 [2 6 4 7] f32) (y [12 48] f32) (i [1 8 8 6] f32) (r [6 4 7] f32)
          (a [6 3] f32)]
  %s)
"""
WHEN_GENERATING = [
    ("(attention (linear x qkv) (kv 0) 5)", "a width of 48 cannot be divided among 5 heads: 48 is no multiple of 5"),
    ("(attention (linear x odd) (kv 0) 4)", "145 columns are no queries, keys and values of one width, side by side"),
    ("(attention (linear x qkv) (kv 0) 0)", "0 is no number of heads"),
    ("(attention (linear x qkv) (kv 0) 2.5)", "2.5 is no number of heads"),
    ("(attention (cut x 4 12) (kv 0) 4)", "queries, keys and values are [rows 3*width] here, and [1 4 12] are given"),
    ("(attend x (cut x 4 12) (cut x 4 12) (kv 0))", "are each [rows heads size] here, and [1 48], [1 4 12] and"),
    ("(attend (cut x 3 12) (cut x 4 12) (cut x 4 12) (kv 0))", "3 heads of queries cannot share 4 of keys and values"),
    (
        "(attend (cut x 4 10) (cut x 4 12) (cut x 4 12) (kv 0))",
        "queries are of 10 numbers here, and those of keys of 12",
    ),
    ("(attend (cut x 4 12) (cut x 4 12) (cut x 3 12) (kv 0))", "there are 4 heads of keys here, and 3 of values"),
    ("(attend (cut x 4 12) (cut x 4 12) (cut x 4 10) (kv 0))", "[1 4 12] and [1 4 10] are given"),
    ("(linear x w)", "rows of 48 are multiplied by weights of [out 48] here, and [48 4] is given"),
    ("(linear x b)", "rows of 48 are multiplied by weights of [out 48] here, and [48] is given"),
    ("(rms-norm x w 1e-5)", "a norm is of [rows width] with weights of [width] here, and [1 48] with [48 4] is given"),
    ("(layer-norm x b w)", "a norm is of [rows width] with weights of [width] here, and [1 48] with [48 4] is given"),
]
WHEN_CALLED = [
    ("(over [n 0 3 1] [s [x x]] s)", "one value is carried, and this is a list of 2: `scan` carries several, as in"),
    ("(attention-to x k3 k3)", "4 heads of queries cannot share 3 of keys and values alike"),
    ("(attention-to x k7 k7)", "heads of queries are of 8 numbers here, and those of keys of 7"),
    ("(attention-to y y y)", "are each [texts positions heads size] here, and [12 48], [12 48] and [12 48] are given"),
    ("(causal-self-attention y 2 5)", "a width of 16 cannot be divided among 5 heads"),
    ("(causal-self-attention y 5 4)", "12 rows are no 5 texts of one length"),
    ("(group-norm y b 5 1e-5)", "a width of 48 cannot be divided among 5 groups"),
    ("(group-norm-of-images i 4 c c 1e-5)", "a number of channels of 6 cannot be divided among 4 groups"),
    ("(convolution i taps)", "taps are [out 6 3 3] here, and [4 2 3 3] are given"),
    ("(convolution i taps {:groups 4})", "a number of channels of 6 cannot be divided among 4 groups"),
    ("(rotate-all r a a)", "a head of 7 cannot be divided among 2 halves"),
]


@pytest.mark.parametrize(
    ("program", "form", "said"),
    [(PROGRAM, *case) for case in WHEN_GENERATING] + [(OF_TENSORS, *case) for case in WHEN_CALLED],
    ids=[form for form, _ in (*WHEN_GENERATING, *WHEN_CALLED)],
)
def test_a_misfit_is_told(program: str, form: str, said: str) -> None:
    with pytest.raises(UserError) as raised:
        evaluated(program % form, shapes=[(1, 1)])
    message = str(raised.value)
    line = 1 + program[: program.index("%s")].count("\n")
    assert message.startswith(f"t.lisp:{line}:") and f"in `{form.split()[0][1:]}`: " in message and said in message


def test_a_list_that_is_too_long_for_its_names_is_told_at_the_call() -> None:
    with pytest.raises(UserError) as raised:
        evaluated("(defn second [[a b]] b)\n(def x (second [1 2 3]))", shapes=[(1, 1)])
    assert str(raised.value).startswith("t.lisp:2:8: error: [a b] names 2 values, and there are 3")
