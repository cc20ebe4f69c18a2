"""What transformers generates from seeded random GPT-2s (see tools/record_references.py), and those GPT-2s."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import convert, make


@dataclass(frozen=True)
class Case:
    """Greedy `tokens` after `prompt`.

    gaps: best minus second-best logit before each token.  logits: some of those right after the prompt.
    """

    prompt: list[int]
    tokens: list[int]
    gaps: list[float]
    logits: dict[int, float]


@dataclass(frozen=True)
class Model:
    """A seeded GPT-2 whose weights were rounded to dtype, and its cases."""

    name: str
    shape: Gpt2Shape
    dtype: str
    seed: int
    cases: list[Case]

    def make(self, path: Path, format: str = "llmc", dtype: str | None = None) -> Path:
        """Write the checkpoint; as "f32", a BF16 model's values stay rounded."""
        if dtype in (None, self.dtype):
            make(path, self.shape, format, self.dtype, self.seed)
        else:
            assert dtype == "f32", "an F32 model's references do not hold for rounded weights"
            with TemporaryDirectory() as folder:
                own = Path(folder) / "own"
                make(own, self.shape, "llmc", self.dtype, self.seed)
                convert(own, path, format, dtype)
        return path


def models(largest_width: int = 128) -> list[Model]:
    """The recorded models up to a width; gpt2-124m, with a width of 768, is slow."""
    found = []
    for entry in json.loads((Path(__file__).parent / "references" / "gpt2.json").read_text()):
        cases = [Case(**{**case, "logits": {int(k): v for k, v in case["logits"].items()}}) for case in entry["cases"]]
        shape = Gpt2Shape.unpadded(**entry["shape"])
        if shape.width <= largest_width:
            found.append(Model(entry["name"], shape, entry["dtype"], entry["seed"], cases))
    return found
