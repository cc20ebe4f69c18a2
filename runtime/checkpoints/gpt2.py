"""GPT-2's sizes and the names and shapes of its tensors, which every GPT-2 format shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lispgpt.base.errors import UserError

VOCAB_MULTIPLE = 128
"""Vocabularies are padded to a multiple of this many rows, as llm.c does, so that kernels need no ragged last tile."""


@dataclass(frozen=True)
class Gpt2Shape:
    """A GPT-2's sizes; UserError when they cannot be a GPT-2's."""

    vocab: int
    context: int
    layers: int
    heads: int
    width: int
    padded_vocab: int

    def __post_init__(self) -> None:
        for name in ("vocab", "context", "layers", "heads", "width"):
            if getattr(self, name) < 1:
                raise UserError(f"{name} is {getattr(self, name)}, which must be at least 1")
        if self.padded_vocab < self.vocab:
            raise UserError(
                f"the padded vocabulary ({self.padded_vocab}) is smaller than the vocabulary ({self.vocab})"
            )
        if self.width % self.heads:
            raise UserError(f"the width ({self.width}) is not a multiple of the number of heads ({self.heads})")

    @staticmethod
    def unpadded(vocab: int, context: int, layers: int, heads: int, width: int) -> Gpt2Shape:
        """The shape with the vocabulary padded as this project pads it."""
        return Gpt2Shape(vocab, context, layers, heads, width, -(-vocab // VOCAB_MULTIPLE) * VOCAB_MULTIPLE)

    @staticmethod
    def from_config(config: dict[str, Any]) -> Gpt2Shape:
        """The shape in a checkpoint's config dictionary."""
        keys = ("vocab", "context", "layers", "heads", "width", "padded-vocab")
        return Gpt2Shape(*(config[key] for key in keys))

    def config(self, weight_type: str) -> dict[str, Any]:
        """The checkpoint's config dictionary."""
        return {
            "vocab": self.vocab,
            "padded-vocab": self.padded_vocab,
            "context": self.context,
            "layers": self.layers,
            "heads": self.heads,
            "width": self.width,
            "weight-type": weight_type,
        }

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], bool]]:
        """(name, shape, stacked over layers) of each tensor in llm.c's order; matrices are (out, in)."""
        width, layers = self.width, self.layers
        yield "wte", (self.padded_vocab, width), False
        yield "wpe", (self.context, width), False
        per_layer = {
            "ln1-w": (width,),
            "ln1-b": (width,),
            "qkv-w": (3 * width, width),
            "qkv-b": (3 * width,),
            "proj-w": (width, width),
            "proj-b": (width,),
            "ln2-w": (width,),
            "ln2-b": (width,),
            "fc-w": (4 * width, width),
            "fc-b": (4 * width,),
            "out-w": (width, 4 * width),
            "out-b": (width,),
        }
        for name, shape in per_layer.items():
            yield name, (layers, *shape), True
        yield "lnf-w", (width,), False
        yield "lnf-b", (width,), False

    @property
    def count(self) -> int:
        """Elements of all tensors, padding included."""
        c, layers = self.width, self.layers
        return (self.padded_vocab + self.context + 2) * c + layers * (12 * c * c + 13 * c)
