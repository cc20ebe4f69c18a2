"""Models on the GPU and on the CPU, on the same random weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import seeded
from compiled_models import Weights, random_weights, rounded_to_bf16
from gpu.chips import Chip

from lispgpt.compiler.cache import Cache
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.execution.model import Model
from lispgpt.runtime.plan.artifact import Artifact


def loud_weights(artifact: Artifact, seed: int) -> Weights:
    """Random ones by which attention looks at some positions much more than at others, so that each of them counts."""
    made = random_weights(artifact, 1.6 / int(artifact.config["width"]) ** 0.5, seed)
    for name, values in made.values.items():
        if ("ln" in name or "norm" in name) and name.endswith("w"):
            values = 1 + 3 * values
            made.values[name] = rounded_to_bf16(values) if name in made.bf16 else values
    return made


class Pair:
    """settings: config values of a program.  folder: for what is compiled.  about: how to repeat it."""

    def __init__(self, chip: Chip, program: Path, folder: Path, settings: Mapping[str, Any]) -> None:
        self.chip, self.settings, self.program = chip, dict(settings), program
        self._cache = Cache(folder / "cache")
        if "(generate" not in program.read_text():
            self.program = folder / f"generating_{program.name}"
            self.program.write_text(f'(require "{program}")\n(generate logits {{:greedy true}})')
        seed = seeded.fresh_seed()
        self.about = f"{program.stem} {self.settings}, seed {seed}"
        one = Request(self.program, overrides=self.settings, entries=("logits",), sizes=[{"batch": 1, "positions": 1}])
        artifact = compile_request(one, Observer())[0]
        self.weights = loud_weights(artifact, seed)

    def on_chip(self, **request: Any) -> Model:
        """request: more that a `Request` takes."""
        return self._model(Request(self.program, self.chip.target, self.settings, **request), self.chip.device)

    def on_cpu(self) -> Model:
        return self._model(Request(self.program, overrides=self.settings), "cpu")

    def _model(self, request: Request, device: str) -> Model:
        return Model(request, self.weights, cache=self._cache, device=device)  # type: ignore[arg-type]
