"""Programs at random, and ones that would not end: evaluated or refused, never anything but a UserError."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from language.evaluating import DIALECTS, evaluated

from lispgpt.base.errors import UserError
from lispgpt.language.core import registry

ATOMS = [
    "0",
    "1",
    "-1",
    "2.5",
    "1e300",
    "99999999999",
    "true",
    "nil",
    '""',
    '"@f"',
    '"slt"',
    "i1",
    "i32",
    "i64",
    "f32",
    "bf16",
    "index",
    "memref<4xf32>",
    "tensor<4x4xf32>",
    "tensor<?xf32>",
    "vector<4xf32>",
    "!llvm.ptr",
    "affine_map<(d0)->(d0)>",
    "array<i32:1,2>",
    "dense<0>",
    "@f",
    "^b",
    "x",
    "y",
    "m",
    "t",
    "&",
    "->",
    "...",
    ":",
    "{:result",
    "i32}",
    "{:result",
    "[i32",
    "f32]}",
    "{:value",
    "3}",
    "{:predicate",
    "2}",
    "{:sym_name",
    '"f"}',
    "[]",
    "()",
    "[x]",
    "(do)",
    "(region)",
    ":else",
]
OPS = [
    "arith.addi",
    "arith.cmpi",
    "arith.constant",
    "arith.select",
    "memref.alloc",
    "memref.load",
    "memref.store",
    "memref.subview",
    "scf.for",
    "scf.if",
    "scf.while",
    "scf.parallel",
    "scf.yield",
    "func.func",
    "func.return",
    "func.call",
    "tensor.extract",
    "tensor.empty",
    "tensor.insert_slice",
    "linalg.generic",
    "linalg.matmul",
    "linalg.fill",
    "linalg.softmax",
    "linalg.reduce",
    "cf.br",
    "cf.cond_br",
    "gpu.launch",
    "gpu.shuffle",
    "vector.load",
    "vector.extract",
    "vector.transfer_read",
    "llvm.call",
    "llvm.getelementptr",
    "llvm.mlir.global",
    "llvm.load",
    "affine.for",
    "affine.load",
    "math.exp",
    "tensor.collapse_shape",
    "memref.cast",
    "scf.reduce",
]


def random_form(chance: random.Random, depth: int) -> str:
    if depth == 0 or chance.random() < 0.4:
        return (
            chance.choice(["x", "y", "m", "t", "1", "(: 1 index)"]) if chance.random() < 0.7 else chance.choice(ATOMS)
        )
    head = chance.choice(OPS) if chance.random() < 0.7 else chance.choice(list(registry.NAMES))
    return f"({head} {' '.join(random_form(chance, depth - 1) for _ in range(chance.randrange(5)))})"


@settings(max_examples=60, deadline=None)
@given(st.integers(min_value=0))
def test_random_programs_are_evaluated_or_refused(seed: int) -> None:
    chance = random.Random(seed)
    forms = "\n".join(random_form(chance, 3) for _ in range(2))
    parameters = "(: x i32) (: y f32) (: m memref<4xf32>) (: t tensor<4x4xf32>)"
    try:
        evaluated(f"{DIALECTS}(defn f [{parameters}]\n{forms})")
    except UserError as error:
        assert error.message and error.span is not None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(defn grow [l n] (if (= n 0) l (grow (concat l l) (- n 1)))) (grow [1 2] 60)", "longer than"),
        ("(defmacro m [x] `(m (m ~x))) (m 1)", "without an end"),
        ("(fold (fn [x i] (* x x)) 3 (range 100))", "more than 4096 bits"),
        ("(map (fn [i] (concat (range 1000000) [])) (range 1000000))", "still computing"),
        ("(weights (w [1000000000 1000000000])) (entry f [tokens positions] w)", "too large for any machine"),
        ('(def x (str "" (fold (fn [s i] (str s s)) "ab" (range 64))))', "longer than"),
    ],
)
def test_programs_that_would_not_end_do(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        evaluated(text, shapes=[(1, 1)])
