"""What transformers generates from seeded random models (see tools/record_references.py), and those models."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.llama import LlamaShape
from lispgpt.runtime.checkpoints.make import convert, make
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.session import Session

TIE = 2e-3
"""A smaller gap between the two best logits may go either way."""


@dataclass(frozen=True)
class Case:
    """Greedy `tokens` after `prompt`.

    gaps: best minus second-best logit before each token.  logits: some of those right after the prompt.
    """

    prompt: list[int]
    tokens: list[int]
    gaps: list[float]
    logits: dict[int, float]

    def accepts(self, tokens: list[int]) -> bool:
        """Equal up to the first near-tie, after which the texts may part."""
        for got, wanted, gap in zip(tokens, self.tokens, self.gaps, strict=True):
            if got != wanted:
                return gap < TIE
        return True


@dataclass(frozen=True)
class Model:
    """A seeded model whose weights were rounded to dtype, and its cases."""

    name: str
    shape: Any
    dtype: str
    seed: int
    cases: list[Case]

    def make(self, path: Path, format: str, dtype: str | None = None) -> Path:
        """Write the checkpoint; as "f32", a BF16 model's values stay rounded."""
        if dtype in (None, self.dtype):
            make(path, self.shape, format, self.dtype, self.seed)
        else:
            assert dtype == "f32", "an F32 model's references do not hold for rounded weights"
            with TemporaryDirectory() as folder:
                own = Path(folder) / "own"
                make(own, self.shape, "huggingface", self.dtype, self.seed)
                convert(own, path, format, dtype)
        return path

    def check(self, path: Path, program: Path) -> None:
        """The program generates the recorded tokens from the checkpoint at path."""
        with open_session(program, path) as session:
            for case in self.cases:
                tokens = list(Generator(session, "logits").generate(case.prompt, len(case.tokens)))
                assert case.accepts(tokens), f"{self.name}: {tokens} is not {case.tokens}"


def open_session(program: Path, path: Path, threads: int = 2) -> Session:
    checkpoint = checkpoints.open(path)
    artifact, _ = compile_request(Request(program, checkpoint_config=dict(checkpoint.config)), Observer())
    return Session(artifact, CpuDevice(threads), checkpoint)


def gpt2_models(largest_width: int = 128) -> list[Model]:
    """The recorded GPT-2s up to a width; gpt2-124m, with a width of 768, is slow."""
    return [m for m in _models("gpt2", Gpt2Shape.unpadded) if m.shape.width <= largest_width]


def llama_models() -> list[Model]:
    """The recorded Llamas."""
    return _models("llama", LlamaShape)


def _models(architecture: str, make_shape: Any) -> list[Model]:
    found = []
    for entry in json.loads((Path(__file__).parent / "references" / f"{architecture}.json").read_text()):
        cases = [Case(**{**case, "logits": {int(k): v for k, v in case["logits"].items()}}) for case in entry["cases"]]
        found.append(Model(entry["name"], make_shape(**entry["shape"]), entry["dtype"], entry["seed"], cases))
    return found
