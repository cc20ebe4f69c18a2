"""Programs whose ops on weights alone are marked `once`, as a pass of the compiler's may: here all of them are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from compiled_models import compile_text

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import entry_functions, operations
from lispgpt.passes.model.make_weights import MakeWeights
from lispgpt.passes.model.weight_recipes import ONCE
from lispgpt.pipelines.pipeline_file import pipeline_path
from lispgpt.runtime.plan.artifact import Artifact

HEAD = """(require nn)
(config layers 2  width 24  outputs 10)
(weights (per layers (w [outputs width] bf16) (v [width])) (u [outputs]))
"""
OUT = """
(entry out [(x [batch outputs] f32)] {:shapes [SHAPES]}
  (fold (fn [x l] (sin (+ x (contract [a] (w l) [a k] (v l) [k])))) x (range layers)))
(entry other [(x [outputs] f32)] (+ x u))
(entry step [(x [1 outputs] f32)]
  (let [next (fold (fn [x l] (sin (+ x (contract [a] (w l) [a k] (v l) [k])))) x (range layers))]
    (update! x next)
    next))
"""
Mark = Callable[[ir.Operation], bool]


def products(op: ir.Operation) -> bool:
    """Whether an op is a product."""
    return op.name == "linalg.contract"


def everything(op: ir.Operation) -> bool:
    """Whether an op computes tensors."""
    return op.name.startswith("linalg.") and op.name != "linalg.fill"


def compile_marked(
    text: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    target: str = "cpu",
    mark: Mark = products,
    devices: int = 1,
) -> Artifact:
    """A program's text, whose ops that `mark` says are marked once ahead of make-weights."""
    own = MakeWeights.run

    def marked(self: MakeWeights, module: ir.Module, target: object) -> None:
        for entry in entry_functions(module):
            for op in filter(mark, operations(entry.regions[0].blocks[0])):
                op.attributes[ONCE] = ir.UnitAttr.get()
        own(self, module, target)

    pipeline = folder / f"{target.partition(':')[0]}.lisp"
    kind = pipeline_path("cpu" if target.startswith("cpu") else "gpu").read_text()
    if "make-weights" not in kind:
        kind = kind.replace("(pass outline-kernels", "(pass make-weights)\n    (pass outline-kernels")
    pipeline.write_text(kind)
    with monkeypatch.context() as patch:
        patch.setattr(MakeWeights, "run", marked)
        return compile_text(text, folder, target=target, pipeline=pipeline, devices=devices)
