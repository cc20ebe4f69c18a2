"""The programs of examples/research at a small and a middle size, on numbers of seeds of their own, and what PyTorch
says of their losses and gradients at the small one (see tools/bench_research.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
RECORDED = Path(__file__).parent / "references" / "research.json"
Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Size:
    """settings: of the program's config.  inputs: the shapes of arrays of floats, and (end, shape) of whole numbers."""

    settings: dict[str, int]
    inputs: dict[str, Any] = field(default_factory=dict)

    def given(self, name: str) -> Arrays:
        """A program's inputs."""
        rng = np.random.default_rng(crc32(name.encode()))
        made: Arrays = {}
        for key, shape in self.inputs.items():
            if isinstance(shape[-1], tuple):
                made[key] = rng.integers(0, shape[0], shape[1]).astype(np.int32)
            else:
                made[key] = rng.standard_normal(shape).astype(np.float32)
        if "mask" in made:  # where at least the first token is one
            made["mask"][:, 0] = 1
        if name == "bert":
            made["targets"] = np.where(made["targets"] % 4 == 0, made["targets"], -1).astype(np.int32)
        return made


def text(vocab: int, *shape: int) -> tuple[int, tuple[int, ...]]:
    return vocab, shape


PROGRAMS: dict[str, tuple[Size, Size]] = {
    "bert": (
        Size(
            {"layers": 2, "heads": 2},
            {"tokens": text(64, 2, 8), "mask": text(2, 2, 8), "targets": text(64, 2, 8)},
        ),
        Size(
            {"vocab": 8192, "context": 128, "layers": 4, "heads": 4, "width": 256},
            {"tokens": text(8192, 8, 128), "mask": text(2, 8, 128), "targets": text(8192, 8, 128)},
        ),
    ),
    "vit": (
        Size({"size": 16, "square": 4, "layers": 2, "heads": 2}, {"images": (2, 16, 16, 3), "labels": text(10, 2)}),
        Size(
            {"size": 32, "square": 4, "layers": 4, "heads": 4, "width": 192},
            {"images": (16, 32, 32, 3), "labels": text(10, 16)},
        ),
    ),
    "resnet": (
        Size({"blocks": 2}, {"images": (2, 8, 8, 3), "labels": text(10, 2)}),
        Size({"size": 32, "channels": 32, "blocks": 3}, {"images": (16, 32, 32, 3), "labels": text(10, 16)}),
    ),
    "unet": (
        Size({"groups": 2}, {"images": (2, 8, 8, 1), "noise": (2, 8, 8, 1), "t": (2,)}),
        Size(
            {"size": 32, "channels": 32, "groups": 8},
            {"images": (8, 32, 32, 1), "noise": (8, 32, 32, 1), "t": (8,)},
        ),
    ),
    "lstm": (
        Size({"width": 8}, {"x": (6, 3, 4), "labels": text(5, 3)}),
        Size({"inputs": 64, "width": 256}, {"x": (64, 32, 64), "labels": text(5, 32)}),
    ),
    "gru": (
        Size({"width": 8}, {"x": (6, 3, 4), "labels": text(5, 3)}),
        Size({"inputs": 64, "width": 256}, {"x": (64, 32, 64), "labels": text(5, 32)}),
    ),
    "t5": (
        Size(
            {"layers": 2, "heads": 2},
            {"source": text(48, 2, 9), "mask": text(2, 2, 9), "tokens": text(48, 2, 11), "targets": text(48, 2, 11)},
        ),
        Size(
            {"vocab": 4096, "heads": 4, "width": 256, "hidden": 1024, "classes": 32, "farthest": 128},
            {
                "source": text(4096, 8, 64),
                "mask": text(2, 8, 64),
                "tokens": text(4096, 8, 64),
                "targets": text(4096, 8, 64),
            },
        ),
    ),
    "whisper": (
        Size(
            {"layers": 2, "heads": 2},
            {"sound": (2, 12, 6), "tokens": text(48, 2, 5), "targets": text(48, 2, 5)},
        ),
        Size(
            {"vocab": 4096, "mels": 80, "frames": 200, "context": 64, "heads": 4, "width": 192},
            {"sound": (4, 200, 80), "tokens": text(4096, 4, 64), "targets": text(4096, 4, 64)},
        ),
    ),
    "ssd": (
        Size({"heads": 2, "chunk": 4}, {"x": (3, 12, 4), "labels": text(5, 3)}),
        Size(
            {"inputs": 64, "heads": 4, "width": 128, "states": 32, "chunk": 32},
            {"x": (8, 256, 64), "labels": text(5, 8)},
        ),
    ),
    "translate": (
        Size(
            {"heads": 2},
            {"source": text(48, 2, 6), "mask": text(2, 2, 6), "tokens": text(48, 2, 5), "targets": text(48, 2, 5)},
        ),
        Size(
            {"vocab": 4096, "context": 64, "heads": 4, "width": 256},
            {
                "source": text(4096, 8, 64),
                "mask": text(2, 8, 64),
                "tokens": text(4096, 8, 64),
                "targets": text(4096, 8, 64),
            },
        ),
    ),
    "preference": (
        Size({"heads": 2}, {"chosen": text(48, 2, 6), "rejected": text(48, 2, 6)}),
        Size(
            {"vocab": 4096, "heads": 4, "width": 256, "rank": 8},
            {"chosen": text(4096, 4, 64), "rejected": text(4096, 4, 64)},
        ),
    ),
    "muon": (
        Size({}, {"words": text(12, 9), "labels": text(5, 9)}),
        Size({"vocab": 4096, "width": 256, "classes": 64}, {"words": text(4096, 512), "labels": text(64, 512)}),
    ),
    "ppo": (
        Size({}, {"seen": (8, 6), "action": text(4, 8), "before": (8,), "advantage": (8,), "returns": (8,)}),
        Size(
            {"observed": 64, "width": 256, "actions": 16},
            {"seen": (256, 64), "action": text(16, 256), "before": (256,), "advantage": (256,), "returns": (256,)},
        ),
    ),
    "rwkv7": (
        Size({"heads": 2}, {"x": (6, 3, 4), "labels": text(5, 3)}),
        Size({"inputs": 64, "heads": 4, "width": 128}, {"x": (64, 8, 64), "labels": text(5, 8)}),
    ),
    "solver": (
        Size({}, {"x": (5, 4), "wanted": (5, 4)}),
        Size({"inputs": 64, "width": 256, "steps": 16}, {"x": (128, 64), "wanted": (128, 64)}),
    ),
    "fused": (
        Size({"classes": 40}, {"x": (7, 6), "labels": text(40, 7)}),
        Size({"inputs": 256, "classes": 4096}, {"x": (256, 256), "labels": text(4096, 256)}),
    ),
    "mixture": (
        Size({}, {"x": (12, 6), "labels": text(5, 12)}),
        Size(
            {"inputs": 128, "width": 256, "experts": 8, "capacity": 80},
            {"x": (512, 128), "labels": text(5, 512)},
        ),
    ),
}

ENTRIES: dict[str, tuple[str, Size, Size]] = {
    "beam": (
        "search",
        Size({}, {"first-word": text(12, 3)}),
        Size({"vocab": 4096, "width": 256, "beams": 4, "steps": 16}, {"first-word": text(4096, 8)}),
    ),
    "guidance": (
        "sample",
        Size({}, {"noise": (5, 2), "class": text(4, 5)}),
        Size({"size": 64, "width": 256, "classes": 16, "steps": 32}, {"noise": (64, 64), "class": text(16, 64)}),
    ),
    "sequences": (
        "ops",
        Size({}, {"x": (2, 9), "ids": text(8, 2, 9)}),
        Size({"classes": 1024, "kept": 8}, {"x": (64, 1024), "ids": text(1024, 64, 1024)}),
    ),
}
"""Programs that do not learn, and the entry that is run."""

GROUPS: dict[str, tuple[str, ...]] = {
    "BERT with a masked loss": ("bert",),
    "a vision transformer": ("vit",),
    "a residual convolutional net with batch norm": ("resnet",),
    "a U-Net's diffusion step": ("unet",),
    "T5 and Whisper": ("t5", "whisper"),
    "LSTM and GRU": ("lstm", "gru"),
    "LoRA and preference losses": ("preference",),
    "Muon and Lion": ("muon",),
    "PPO": ("ppo",),
    "a solver": ("solver",),
    "57 sequence and integer ops": ("sequences",),
    "experts with capacity": ("mixture",),
    "beam search and guidance": ("beam", "guidance"),
    "SSD": ("ssd",),
    "RWKV-7 and the delta rule": ("rwkv7",),
    "a fused kernel by hand": ("fused",),
}


def path_of(name: str) -> Path:
    return ROOT / "examples" / "research" / f"{name}.lisp"


def drawn_weights(name: str, shapes: Mapping[str, Any]) -> Arrays:
    """Weights about 0 for matrices and about 1 for vectors, loud enough that a wrong one is heard."""
    rng = np.random.default_rng(crc32(name.encode()) + 1)
    made = {}
    for key, shape in sorted(shapes.items()):
        values = rng.standard_normal(shape)
        size = 0.3 if len(shape) < 2 else 1 / np.sqrt(max(np.prod(shape[1:], dtype=int), 1))
        made[key] = (size * values + (len(shape) < 2)).astype(np.float32)
    return made


def recorded() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(RECORDED.read_text())
    return found
