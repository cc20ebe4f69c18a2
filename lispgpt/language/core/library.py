"""Where a name stands that a program does not have: in a file of the library, or in what users come from."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

__all__ = ["ELSEWHERE", "LIBRARY", "library_of"]

LIBRARY = Path(__file__).resolve().parents[2] / "lib"
_DEFINITION = re.compile(r"^\((?:def|defn|defmacro) ([^\s()\[\]]+)", re.MULTILINE)
ELSEWHERE = {
    "rotary": "positions are turned by ((turning-by positions pairs (rotary-frequency 10000.0 pairs)) x)",
    "embedding": "rows of a table are (rows table ids)",
    "backward": "gradients are (gradients loss [w …])",
    "cat": "lists and tensors are joined by (concat a b)",
    "view": "a tensor has another shape by (reshape x [n h d])",
    "unsqueeze": "a tensor has another shape by (reshape x [n 1 d])",
    "permute": "axes are put in another order by (tensor [i n j m] (at x j i))",
    "arange": "numbers in order are (range n), and in a tensor (tensor [i n] i)",
    "zeros": "one number everywhere is (tensor [i n j m] 0.0)",
    "lambda": "a function without a name is (fn [x] …)",
    "defun": "a function is (defn name [x] …)",
    "define": "a name is bound with (def name value)",
    "let*": "`let` binds in turn already",
    "begin": "`do` puts forms in a row",
    "progn": "`do` puts forms in a row",
    "set!": "a name is bound once; `loop` and scf.for carry values that change",
    "setq": "a name is bound once; `loop` and scf.for carry values that change",
    "while": "(loop [x start] :while condition :do next) repeats",
    "recur": "(loop [x start] :while condition :do next) repeats",
    "car": "the first of a list is (first x)",
    "cdr": "the rest of a list is (rest x)",
    "return": "a function's value is its last form, or (func.return x)",
}
"""What is called so in PyTorch or in other Lisps, and how it is written here."""
ELSEWHERE["rope"] = ELSEWHERE["rotary"]


@cache
def _files() -> dict[str, str]:
    """By each name the file that defines it; the first where several do."""
    found: dict[str, str] = {}
    for path in sorted(LIBRARY.glob("*.lisp")):
        for name in _DEFINITION.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, path.stem)
    return found


def library_of(name: str) -> str | None:
    """The library that has a name, as `require` calls it."""
    return _files().get(name)
