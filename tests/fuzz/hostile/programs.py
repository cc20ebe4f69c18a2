"""Hostile programs and pipelines: near good ones, or such as grow without bound."""

from __future__ import annotations

import random
import re

from fuzz.hostile.base import EXAMPLES, ROOT
from fuzz.hostile.case import Case, Words
from fuzz.hostile.mutations import changed_text
from fuzz.mutated.mutate import program as mutated_program

PASSES = (
    "cse", "canonicalize", "outline-kernels", "plan-arena{alignment=64}", "emit-plan", "schedule-generic", "inline",
    "convert-linalg-to-loops", "bufferize-tensors", "destination-passing", "func.func(cse)", "any(cse)",
    "schedule-contractions{whole-numbers=false}", "count-ops{of=func.call}", "cse{a=1}", "symbol-dce",
)  # fmt: skip


def of_pipelines(case: Case) -> Words:
    target, name = case.rng.choice((("cpu", "cpu"), ("cpu", "cpu"), ("cuda:sm_90a", "gpu"), ("rocm:gfx1151", "gpu")))
    text = (ROOT / "passes" / "pipelines" / f"{name}.lisp").read_text()
    path = case.place / "mine.lisp"
    for _ in range(case.rng.choice((1, 1, 2, 3))):
        text = _other_passes(text, case.rng) if case.mostly(0.8) else changed_text(text, case.rng)
    path.write_text(text, errors="surrogatepass")
    target_words = ["--target", target, "-o", case.place / "out.lgpt"]
    compiled = ["compile", case.good / "entries.lisp", "--pipeline", path, *target_words]
    mlir = case.place / "in.mlir"
    mlir.write_text("func.func @f(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> }\n")
    some = ",".join(case.rng.choice(PASSES) for _ in range(case.rng.choice((1, 2, 4))))
    return compiled if case.mostly(0.8) else ["opt", mlir, "--pipeline", some]


def _other_passes(text: str, rng: random.Random) -> str:
    """A pass missing, twice, in another's place, or with another option."""
    calls = re.findall(r"\(pass [^()]*\)", text)
    one, other = rng.choice(calls), rng.choice(calls)
    kind = rng.randrange(4)
    if kind == 0:
        return text.replace(one, "", 1)
    if kind == 1:
        return text.replace(one, f"{one} {other}", 1)
    if kind == 2:
        return text.replace(one, "(pass)", 1).replace(other, one, 1).replace("(pass)", other, 1)
    with_options = [call for call in calls if "{" in call] or calls
    one, value = rng.choice(with_options), rng.choice(VALUES)
    return text.replace(one, re.sub(r" (\d+|true|false|\"[^\"]*\")", lambda _: f" {value}", one, count=1), 1)


VALUES = ("0", "-1", "1", "3", "1000000000", '"x"', "2.5", "true", "nil", "1000000000000000000000000")


def of_lisp(case: Case) -> Words:
    path = case.place / "program.lisp"
    sources = [*sorted((EXAMPLES / "tour").glob("*.lisp")), case.good / "entries.lisp", EXAMPLES / "classifier.lisp"]
    text = changed_text(case.rng.choice(sources).read_text(), case.rng)
    if case.rng.random() < 0.4:
        text = mutated_program(case.rng.randrange(1 << 30))
    if case.rng.random() < 0.1:
        text += case.rng.choice(GROWING)
    path.write_text(text, errors="surrogatepass")
    compiled, shown = ["compile", path, "-o", case.place / "out.lgpt"], ["compile", path, "--emit", "mlir"]
    return case.rng.choice((compiled, compiled, shown, ["fmt", path]))


GROWING = (
    "\n(defmacro more [x] `(do ~x (more ~x)))\n(more 1)\n",
    "\n(defmacro twice [x] `(twice (do ~x ~x)))\n(twice 1)\n",
    "\n(defn f [x] (f (+ x 1)))\n(f 1)\n",
    "\n(defn g [x] (if (< x 0) x (g (cons x x))))\n(g 1)\n",
    "\n(def l (range 100000000))\n",
    "\n(def l (for [i (range 3000000)] i))\n",
    f'\n(def s "{"a" * 3_000_000}")\n',
    f"\n(def l [{'1 ' * 300_000}])\n",
    "\n(" + "(" * 20_000,
)
