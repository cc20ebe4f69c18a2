"""What is recognised as attention, and how a dump describes it; what is not quite attention stays what it is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lispgpt.compiler.driver import Observer, Request, emit

CACHED = """
(require nn)
(config context 40)
(weights (q [40 48]) (k [40 16]) (v [40 16]))
(state (kv [1 2 2 context 8] bf16))
(entry out [tokens positions]
  (let [n (dim tokens 0)
        heads-of (fn [x count] (reshape (slice x [0 0] [n (dim x 1)]) [n count 8]))]
    (attend (heads-of q 6) (heads-of k 2) (heads-of v 2) (kv 0) WEIGH)))
"""

LOOSE = """
(require nn)
(config context 1)
(weights (q [2 6 3 8]) (k [2 9 8] bf16) (v [2 9 4] bf16) (bias [3 6 9]))
(entry out [tokens positions]
  (let [scores (contract [b s h t] q [b s h e] k [b t e])
        seen (tensor [b 2 s 6 h 3 t 9] SEEN)]
    (contract [b s h d] (softmax seen) [b s h t] v [b t d])))
"""

NEAR = "(fn [score head t position] (select (< (- position t) (: 7 i32)) score -inf))"
SLOPED = "(fn [score head t position] (- score (cast (- position t) f32)))"


def described(text: str, folder: Path, rows: str) -> dict[str, str]:
    """The attribute of the attention whose extents begin with `rows`; empty where there is none."""
    (folder / "model.lisp").write_text(text)
    stage = emit(Request(folder / "model.lisp"), "kernels", Observer())
    found = [a for a in re.findall(r"attention = \{(.*?)\}, kernel", stage) if f"extents = [{rows}" in a]
    return dict(re.findall(r"(\w+) = (\{.*?\}|\[.*?\]|\"\w*\"|\d+)", found[0])) if found else {}


@pytest.mark.parametrize(
    ("weigh", "facts"),
    [
        ("", {"mask": '"causal"', "bias": '"none"', "positions": '"tensor"'}),
        (NEAR, {"mask": '"windowed"', "window": "7", "bias": '"none"'}),
        (SLOPED, {"mask": '"causal"', "bias": '"position"'}),
    ],
    ids=["causal", "windowed", "sloped"],
)
def test_attention_over_a_cache(weigh: str, facts: dict[str, str], tmp_path: Path) -> None:
    facts |= {"queries": "[1, 3]", "shared": "[0, 2]", "depths": "[8, 8]"}
    found = described(CACHED.replace("WEIGH", weigh), tmp_path, "1, 16, 2, 3, 40")
    assert facts.items() <= found.items()
    assert found["cache"] == "{each = 16 : i64, row = 1 : i64}"


@pytest.mark.parametrize(
    ("seen", "facts"),
    [
        ("(at scores b s h t)", {"mask": '"none"', "bias": '"none"', "positions": '"none"'}),
        ("(select (<= t (+ s 3)) (at scores b s h t) -inf)", {"mask": '"causal"', "positions": '"index"'}),
        ("(select (> t s) -inf (at scores b s h t))", {"mask": '"causal"'}),
        ("(select (>= t s) (at scores b s h t) -inf)", {"mask": '"ahead"'}),
        ("(+ (at scores b s h t) (at bias h s t))", {"mask": '"none"', "bias": '"tensor"'}),
    ],
    ids=["all", "shifted", "hidden", "ahead", "biased"],
)
def test_attention_without_a_cache(seen: str, facts: dict[str, str], tmp_path: Path) -> None:
    found = described(LOOSE.replace("SEEN", seen), tmp_path, "2, 6, 3, 9")
    assert (facts | {"depths": "[8, 4]", "shared": "[0]", "queries": "[1, 2]"}).items() <= found.items()
    assert "cache" not in found


@pytest.mark.parametrize(
    "seen",
    [
        "(+ (at scores b s h t) (at scores b s (- 2 h) t))",
        "(* (at scores b s h t) (at scores b (- 5 s) h t))",
    ],
    ids=["another head's scores", "another row's scores"],
)
def test_scores_that_are_read_elsewhere_are_no_attention(seen: str, tmp_path: Path) -> None:
    assert not described(LOOSE.replace("SEEN", seen), tmp_path, "2, 6, 3, 9")


def test_scores_that_something_else_reads_too_are_no_attention(tmp_path: Path) -> None:
    text = LOOSE.replace("SEEN", "(at scores b s h t)").replace("(contract [b s h d] (softmax", "(with scores (softmax")
    text = text.replace("(softmax seen) [b s h t] v [b t d])", "(softmax seen))")
    text += """(defn with [scores weights]
      (+ (contract [b s h d] weights [b s h t] v [b t d]) (slice scores [0 0 0 0] [2 6 3 4])))"""
    assert not described(text, tmp_path, "2, 6, 3, 9")
