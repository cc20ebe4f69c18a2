"""Tile programs of products for tests: through each way in which tiles are brought to shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from random_products import RandomProduct

from lispgpt.compiler.driver import evaluate_request
from lispgpt.compiler.request import Request
from lispgpt.compiler.runners import runner_for
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import kernel_functions
from lispgpt.passes.targets import find_target
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline

SCHEDULE = """
; One tiling, whatever the product is.
(schedule fixed [p]
  {{:takes true}}
  (let [[rows columns step slots parts teams unit] {tiling}
        [batch row column] (tile.task p [rows columns])]
    (tile.pipeline p slots (ceil-div (tile.inner p) step)
      (fn [n] [(tile.box (tile.right p) [batch column (* n step)] [columns step])
               (tile.box (tile.left p) [batch row (* n step)] [rows step])])
      (fn [] (tile.sums p [rows columns] parts teams unit))
      (fn [sums [b a]] (tile.mma p sums a b))
      (fn [sums] (tile.store p (tile.add-parts p sums) [batch row column])))))
"""


@dataclass(frozen=True)
class Way:
    """A target, and a tiling and dtypes that have tiles brought in one of the ways that it has."""

    target: str
    tiling: str
    step: int
    dtypes: tuple[str, str] = ("bf16", "bf16")

    def product(self, rows: int, columns: int, inner: int) -> RandomProduct:
        return plain(rows, columns, inner, self.dtypes)

    def schedule(self, folder: Path) -> Path:
        path = folder / "fixed.lisp"
        path.write_text(SCHEDULE.format(tiling=self.tiling))
        return path

    def request(self, product: RandomProduct, folder: Path) -> Request:
        return Request(product.write(folder), self.target, schedules=[self.schedule(folder)])

    def module(self, product: RandomProduct, folder: Path) -> ir.Module:
        """The product's module once its tile program is chosen; needs an active context and location."""
        request, target = self.request(product, folder), find_target(self.target)
        pipeline = read_pipeline(pipeline_path("gpu"))
        names = [call.name for call in pipeline.calls]
        program = evaluate_request(request)
        runner = runner_for(target, request.schedules, program.schedules)
        runner.run(program.module, pipeline.before(names.index("lower-tiles")))
        return program.module


WAYS = {
    "one slot": Way("rocm:gfx1151", '[32 32 64 1 2 [1 2] "subgroup"]', 64),
    "two slots": Way("rocm:gfx942", '[32 64 32 2 1 [2 2] "subgroup"]', 32),
    "pieces": Way("cuda:sm_80", '[32 32 32 4 1 [2 2] "subgroup"]', 32),
    "pieces beside loads": Way("cuda:sm_80", '[32 32 32 4 1 [2 2] "subgroup"]', 32, ("f32", "bf16")),
    "boxes": Way("cuda:sm_90a", '[128 64 64 3 1 [2 1] "warpgroup"]', 64),
}


def plain(rows: int, columns: int, inner: int, dtypes: tuple[str, str] = ("bf16", "bf16")) -> RandomProduct:
    """x times the transpose of w, with a bias."""
    sizes = {"n": rows, "o": columns, "i": inner}
    return RandomProduct(("n", "i"), ("o", "i"), ("n", "o"), sizes, dtypes, True)


def kernel_of(module: ir.Module) -> ir.Operation:
    (kernel,) = kernel_functions(module)
    return kernel


def memory_of(kernel: ir.Operation, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The arrays of a kernel's arguments: weights in their order, and poison for what it writes."""
    given = iter(values.values())
    types = [argument.type for argument in kernel.regions[0].blocks[0].arguments]
    return [next(given, np.full(1, np.nan)).reshape(t.shape) if i < len(values) else np.full(t.shape, np.nan)
            for i, t in enumerate(types)]  # fmt: skip
