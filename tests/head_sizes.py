"""Programs that attend with heads of given sizes, random inputs for them, and the results in float64."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import seeded
from emulated_cuda.test_attention import as_float, as_stored, attention

HEADS, GROUPS, SEEN = 2, 1, 9

ENTRY = """
(weights (q{name} [{context} {width}]) (k{name} [{context} {depth}]) (v{name} [{context} {depth}]))
(state (kv{name} [1 2 1 context {depth}] {cache}))
(entry out{name} [tokens positions]
  (let [rows (dim tokens 0)
        heads-of (fn [x count] (reshape (slice x [0 0] [rows (dim x 1)]) [rows count {depth}]))]
    (attend (heads-of q{name} 2) (heads-of k{name} 1) (heads-of v{name} 1) (kv{name} 0))))
"""


@dataclass(frozen=True)
class HeadSize:
    """Two heads of that size share one head of a cache of f32 or bf16."""

    depth: int
    cache: str

    @property
    def name(self) -> str:
        return f"{self.depth}-{self.cache}"


def write_program(path: Path, sizes: list[HeadSize], context: int) -> Path:
    """With an entry out… for each head size."""
    entries = [
        ENTRY.format(name=s.name, depth=s.depth, cache=s.cache, context=context, width=HEADS * s.depth) for s in sizes
    ]
    path.write_text(f"(require nn)(config context {context})" + "".join(entries))
    return path


def random_inputs(
    sizes: list[HeadSize], context: int, rows: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Inputs, weights and states by name, and the result of each entry [rows heads depth].

    The rows follow SEEN others; past these the cache holds NaN.
    """
    positions = np.arange(SEEN, SEEN + rows, dtype=np.int32)
    values, expected = {"tokens": np.zeros(rows, np.int32), "positions": positions}, {}
    for size in sizes:
        random = seeded.rng()
        q = random.standard_normal((context, HEADS, size.depth), np.float32)
        k, v = random.standard_normal((2, context, GROUPS, size.depth), np.float32)
        kv = np.full((1, 2, GROUPS, context, size.depth), np.nan, np.float32)
        kv[0, :, :, :SEEN] = random.standard_normal((2, GROUPS, SEEN, size.depth), np.float32)
        stored = as_stored(kv, size.cache)
        after = as_float(stored).copy()
        after[0, :, :, positions] = as_float(as_stored(np.stack([k, v])[:, :rows], size.cache)).transpose(1, 0, 2, 3)
        values |= {key + size.name: value for key, value in {"q": q, "k": k, "v": v, "kv": stored}.items()}
        expected[f"out{size.name}"] = attention(q[:rows], after[0, 0], after[0, 1], positions, context)
    return values, expected


def assert_near(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    """Products of f32 from two bf16 parts each are exact to 16 bits."""
    error = np.linalg.norm(found.reshape(expected.shape) - expected) / np.linalg.norm(expected)
    assert error <= 3e-5, f"{name}: {error}"
