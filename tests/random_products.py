"""Random products of every layout: programs of one `contract` each, their operands, and the results in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from compiled_models import rounded_to_bf16

KINDS = "brck"
"""First letters of indices: of the batch, of rows, of columns and of sums."""


@dataclass(frozen=True)
class RandomProduct:
    """The names of the indices of left, right and result, their sizes, and the operands' dtypes.

    bias: whether a tensor of the result's shape is added, so that something follows the product.
    """

    left: tuple[str, ...]
    right: tuple[str, ...]
    result: tuple[str, ...]
    sizes: dict[str, int]
    dtypes: tuple[str, str]
    bias: bool

    def extent(self, kind: str) -> int:
        """Of all indices of a kind."""
        return math.prod(size for name, size in self.sizes.items() if name.startswith(kind))

    def program(self) -> str:
        def names(indices: tuple[str, ...]) -> str:
            return "[" + " ".join(indices) + "]"

        def shape(indices: tuple[str, ...]) -> str:
            return "[" + " ".join(str(self.sizes[i]) for i in indices) + "]"

        product = f"(contract {names(self.result)} x {names(self.left)} w {names(self.right)})"
        return (
            "(require nn)(config context 1)"
            f"(weights (x {shape(self.left)} {self.dtypes[0]}) (w {shape(self.right)} {self.dtypes[1]})"
            f"{f' (bias {shape(self.result)})' if self.bias else ''})"
            f"(entry out [tokens positions] {f'(+ {product} bias)' if self.bias else f'(* {product} 1.0)'})"
        )

    def write(self, folder: Path) -> Path:
        path = folder / "product.lisp"
        path.write_text(self.program())
        return path

    def values(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """f32 arrays by the weights' names; those of bf16 weights have a bf16's bits."""
        found = {}
        groups = {"x": (self.left, self.dtypes[0]), "w": (self.right, self.dtypes[1])}
        groups |= {"bias": (self.result, "f32")} if self.bias else {}
        for name, (indices, dtype) in groups.items():
            values = rng.standard_normal([self.sizes[i] for i in indices], np.float32)
            found[name] = rounded_to_bf16(values) if dtype == "bf16" else values
        return found

    def size(self, values: dict[str, np.ndarray]) -> float:
        """The norm that the result has, or would have if its terms did not cancel out."""
        squares = self.expected({name: array.astype(np.float64) ** 2 for name, array in values.items()})
        return max(float(np.linalg.norm(self.expected(values))), float(squares.sum()) ** 0.5)

    def expected(self, values: dict[str, np.ndarray]) -> np.ndarray:
        letters = {name: chr(ord("a") + number) for number, name in enumerate(self.sizes)}
        left, right, result = ("".join(letters[i] for i in group) for group in (self.left, self.right, self.result))
        exact = {name: array.astype(np.float64) for name, array in values.items()}
        product = np.einsum(f"{left},{right}->{result}", exact["x"], exact["w"])
        return product + exact["bias"] if self.bias else product


def random_product(rng: np.random.Generator, largest: dict[str, int], unit: int = 1) -> RandomProduct:
    """Of up to two indices of each kind in a random order; `largest`: the most that a kind's sizes multiply to.

    unit: what the sizes of the indices are multiples of, but for those of the batch.
    """
    sizes: dict[str, int] = {}
    groups: dict[str, list[str]] = {}
    for kind in KINDS:
        count = int(rng.integers(0 if kind != "k" else 1, 3))
        groups[kind] = [f"{kind}{i}" for i in range(count)]
        room = largest[kind]
        for name in groups[kind]:
            step = 1 if kind == "b" else unit
            most = max(1, room // step if name.endswith(str(count - 1)) else min(3, room // step))
            sizes[name] = step * int(rng.integers(1, most + 1))
            room = max(1, room // sizes[name])

    def ordered(kinds: str) -> tuple[str, ...]:
        names = [name for kind in kinds for name in groups[kind]]
        return tuple(str(name) for name in rng.permutation(names)) if names else ()

    left, right, result = ordered("brk"), ordered("bck"), ordered("brc")
    dtypes = tuple(str(d) for d in rng.choice(["f32", "bf16"], 2))
    used = {name: size for name, size in sizes.items() if name in left + right}
    return RandomProduct(left, right, result, used, (dtypes[0], dtypes[1]), bool(rng.integers(2)) and len(result) > 0)
