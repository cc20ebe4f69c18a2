"""Kernels by hand on a CPU, whose threads go in step as lanes of vectors: the bits that threads one by one give."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text

from lispgpt.execution.model import Model
from lispgpt.ir.mlir import ir
from lispgpt.passes.lower import hand_kernels_to_cpu
from lispgpt.passes.lower.lockstep import in_lockstep

# what a thread does, the grid and the block, and which of the results it stores
KERNELS: dict[str, tuple[str, str, Sequence[int]]] = {
    "parted": (  # rounds that some lanes make, and sides that some lanes take
        """[x n z out]
          (let [element (fn [i] (memref.load x i))
                total (over [i (thread-id x) 70 32] [s (: 0.5 f32)]
                        (+ s (if (> (element i) 0.0) (exp (element i)) (* 2.0 (element i)))))]
            (each-column [i 45] (memref.store (* total (element i)) out i)))""",
        "[1] [32]",
        range(45),
    ),
    "bounded": (  # what lies outside is not read, and nothing is divided by 0
        """[x n z out]
          (let [t (thread-id x) k (cast t i32)]
            (memref.store (: 0.25 f32) out t)
            (memref.store (: 0.5 f32) out (+ t 32))
            (when (< t 24)
              (let [d (memref.load n t)]
                (memref.store (cast (if (!= d 0) (arith.divsi k d) (- k)) f32) out t)
                (when (> (memref.load x t) 0.0) (memref.store (memref.load x (+ t 40)) out (+ t 32))))))""",
        "[1] [32]",
        range(64),
    ),
    "one-place": (  # of threads that store to one place the last one stays
        """[x n z out]
          (let [t (thread-id x)]
            (memref.store (memref.load x t) out (block-id x))
            (when (and (> t 3) (< t 9)) (memref.store (memref.load x t) out (+ 8 (block-id x)))))""",
        "[3] [20]",
        [0, 1, 2, 8, 9, 10],
    ),
    "grouped": (  # rows of threads that part ways, and rounds of some rows
        """[x n z out]
          (let [t (thread-id x) row (thread-id y) place (+ t (* row 8) (* 32 (block-id y)))
                part (shared [4 8] f32)]
            (memref.store (memref.load x place) part row t)
            (gpu.barrier)
            (let [sum (over [k 0 row 1] [s (: 0.0 f32)] (+ s (memref.load part k (- 7 t))))]
              (if (= row 2)
                (memref.store (+ sum 1.0) out place)
                (memref.store sum out place))))""",
        "[1 2] [8 4]",
        range(64),
    ),
    "clamped": (  # the last element for all places behind it
        """[x n z out]
          (let [t (thread-id x)
                sum (over [i 0 96 16] [s (: 0.0 f32)]
                      (+ s (memref.load x (min (+ i t) 69)) (memref.load z 0 (min t 7) 1)))]
            (memref.store sum out (+ t (* 16 (block-id x)))))""",
        "[2] [16]",
        range(32),
    ),
    "exchanged": (
        """[x n z out]
          (let [t (thread-id x)
                v (memref.load x t)
                read (fn [mode by width] (gpu.shuffle {:mode mode} v (: by i32) (: width i32)))]
            (memref.store (+ (read "xor" 5 32) (* 2.0 (read "up" 3 16))
                             (* 4.0 (read "down" 7 32)) (* 8.0 (read "idx" 6 8)))
                          out t))""",
        "[1] [32]",
        range(32),
    ),
    "squares": (  # columns of a square in shared memory, and of one that its rows do not fill
        """[x n z out]
          (let [t (thread-id x) row (thread-id y)
                square (shared [16 16] f32)
                wide (shared [16 20] f32)]
            (memref.store (memref.load x (min (+ t (* 4 row)) 69)) square row t)
            (memref.store (memref.load x (min (+ row (* 3 t)) 69)) wide t (+ row 2))
            (gpu.barrier)
            (let [both (fn [k] (+ (memref.load square t k) (memref.load wide t (+ k 2))))
                  sum (fold + 0.0 (map (fn [k] (* (memref.load square row k) (both k))) (range 16)))]
              (when (< row 4) (memref.store sum out (+ t (* 16 row))))))""",
        "[1] [16 16]",
        range(64),
    ),
    "halves": (  # two groups of a row of threads, each of which reads what the other wrote, backwards
        """[x n z out]
          (let [t (thread-id x)
                kept (shared [64] f32)]
            (memref.store (* 3.0 (memref.load x t)) kept t)
            (gpu.barrier)
            (when (< t 50)
              (over [k t 60 9] [s (: 0 index)]
                (let [] (memref.store (+ (memref.load kept (- 63 k)) (memref.load z 0 1 2)) out t) s))))""",
        "[1] [64]",
        range(50),
    ),
    "narrow": (  # 16 bits, and whole numbers that are not known to go up by one
        """[x n z out]
          (let [t (thread-id x) k (cast (arith.remui (* t (: 5 index)) (: 13 index)) i32)
                b (memref.load z 1 (quot t 4) (mod t 4))]
            (memref.store (+ (cast b f32) (cast (* k (memref.load n (mod t 7))) f32)) out t))""",
        "[1] [32]",
        range(32),
    ),
}
PROGRAM = """(require nn kernels)
(require-dialect arith gpu memref scf)
""" + "\n".join(
    f"(kernel {name} {text})\n"
    f"(entry {name}-of [(x [70] f32) (n [24] i32) (z [2 8 4] bf16)]"
    f" (launch {name} {place} x n z (output (tensor-type [64] f32))))"
    for name, (text, place, _) in KERNELS.items()
)  # fmt: skip


def results(
    folder: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, np.ndarray], one_by_one: bool
) -> tuple[list[np.ndarray], list[bool]]:
    taken: list[bool] = []

    def rewrite(kernel: ir.Operation, subgroup: int) -> bool:
        taken.append(not one_by_one and in_lockstep(kernel, subgroup))
        return taken[-1]

    monkeypatch.setattr(hand_kernels_to_cpu, "in_lockstep", rewrite)
    with Model(compile_text(PROGRAM, folder), None) as model:
        return [next(iter(model.run(f"{name}-of", **given).values())) for name in KERNELS], taken


def test_lanes_give_what_threads_one_by_one_give(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = seeded.rng()
    given = {"x": rng.standard_normal(70).astype(np.float32), "n": rng.integers(-3, 4, 24).astype(np.int32)}
    given["z"] = rng.standard_normal((2, 8, 4)).astype(np.float32)
    found, taken = results(tmp_path, monkeypatch, given, False)
    wanted, _ = results(tmp_path, monkeypatch, given, True)
    assert taken == [True] * len(KERNELS)
    for name, one, other in zip(KERNELS, found, wanted, strict=True):
        one, other = (whole[list(KERNELS[name][2])] for whole in (one, other))
        assert np.array_equal(one.view(np.int32), other.view(np.int32)), (name, one, other)


LEFT = {
    "the sides of a branch that lanes part at meet": """[x out]
      (let [t (thread-id x)
            v (memref.load x t)]
        (when (> v 0.0)
          (memref.store (gpu.shuffle {:mode "xor"} v (: 1 i32) (: 32 i32)) out t)))""",
    "rounds end where each lane says": """[x out]
      (let [t (thread-id x)]
        (memref.store (over [k 0 t 1] [s (: 0.0 f32)] (+ s (memref.load x k))) out t))""",
    "a thread has vectors of its own": """[x out]
      (let [t (thread-id x)]
        (vector.store (vector.load {:result vector<2xf32>} x t) out t))""",
}


@pytest.mark.parametrize("what", LEFT)
def test_other_kernels_are_left_to_threads_one_by_one(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []
    rewrite = hand_kernels_to_cpu.in_lockstep
    monkeypatch.setattr(hand_kernels_to_cpu, "in_lockstep", lambda *given: taken.append(rewrite(*given)) or taken[-1])
    compile_text(
        "(require nn kernels)\n(require-dialect arith gpu memref scf vector)\n"
        f"(kernel left {LEFT[what]})\n"
        "(entry e [(x [40] f32)] (launch left [1] [32] x (output (tensor-type [40] f32))))",
        tmp_path,
    )
    assert taken == [False]
