"""Llama's sizes and the names and shapes of its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lispgpt.base.errors import UserError

_SIZES = ("vocab", "context", "layers", "heads", "kv_heads", "width", "hidden", "head_width")


@dataclass(frozen=True)
class LlamaShape:
    """A Llama's sizes; UserError when they cannot be a Llama's.

    Rotary frequencies are theta^(-2i/head_width); with a rope_factor other than 1 those that turn less than rope_low
    times in rope_original positions are divided by it, those that turn more than rope_high times are not, and in
    between a share of it (Llama 3.1's scaling; rope_original 0 divides all).
    """

    vocab: int
    context: int
    layers: int
    heads: int
    kv_heads: int
    width: int
    hidden: int
    head_width: int
    rope_theta: float = 10000.0
    epsilon: float = 1e-5
    tied_head: bool = False
    rope_factor: float = 1.0
    rope_low: float = 1.0
    rope_high: float = 4.0
    rope_original: int = 0

    def __post_init__(self) -> None:
        for name in _SIZES:
            if getattr(self, name) < 1:
                raise UserError(f"{_key(name)} is {getattr(self, name)}, which must be at least 1")
        if self.heads % self.kv_heads:
            raise UserError(f"heads ({self.heads}) is not a multiple of kv-heads ({self.kv_heads})")
        if self.head_width % 2:
            raise UserError(f"a head's width ({self.head_width}) is odd, and rotary positions turn pairs")
        if self.rope_high <= self.rope_low:
            raise UserError(f"rope-high ({self.rope_high}) is not above rope-low ({self.rope_low})")

    @staticmethod
    def from_config(config: dict[str, Any]) -> LlamaShape:
        """The shape in a checkpoint's config dictionary."""
        return LlamaShape(**{name: config[_key(name)] for name in LlamaShape.__dataclass_fields__})

    def config(self, weight_type: str) -> dict[str, Any]:
        """The checkpoint's config dictionary."""
        return {_key(name): getattr(self, name) for name in LlamaShape.__dataclass_fields__} | {
            "rope-type": "default" if self.rope_factor == 1.0 else "llama3" if self.rope_original else "linear",
            "weight-type": weight_type,
        }

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], bool]]:
        """(name, shape, stacked over layers) of each tensor; matrices are (out, in), and qkv-w holds the heads of the
        queries, the keys and the values."""
        width, layers = self.width, self.layers
        yield "wte", (self.vocab, width), False
        per_layer = {
            "norm1-w": (width,),
            "qkv-w": ((self.heads + 2 * self.kv_heads) * self.head_width, width),
            "proj-w": (width, self.heads * self.head_width),
            "norm2-w": (width,),
            "gate-w": (self.hidden, width),
            "up-w": (self.hidden, width),
            "down-w": (width, self.hidden),
        }
        for name, shape in per_layer.items():
            yield name, (layers, *shape), True
        yield "normf-w", (width,), False
        if not self.tied_head:
            yield "head-w", (self.vocab, width), False


def _key(name: str) -> str:
    """A field's name in config dictionaries and programs."""
    return name.replace("_", "-")
