"""Compiles wide programs, runs them, and compares results with float64 and gradients with finite differences."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from compiled_models import compile_text, poison
from fuzz.execute import Data
from fuzz.wide.graph import Node, Noise, computed, off
from fuzz.wide.program import Wide

from lispgpt.runtime.arrays import readable
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

GRADIENT = {"cpu": 2e-4, "cuda": 2e-3, "rocm": 2e-3}
"""How far off a weight's gradient may be, beside its largest element: GPUs take products' F32 in pieces."""


def compile_program(program: Wide, target: str) -> Artifact:
    with tempfile.TemporaryDirectory() as folder:
        return compile_text(program.text, Path(folder), target=target)


def checkpoint(program: Wide) -> Data:
    """What a program's weights start with."""
    nodes = {n.name: n for n in program.leaves if n.kind in ("weight", "layers")}
    layers = frozenset(name for name, node in nodes.items() if node.kind == "layers")
    values, dtypes = ({name: getattr(node, fact) for name, node in nodes.items()} for fact in ("leaf", "dtype"))
    return Data(values, dtypes=dtypes, layers=layers)


def run(artifact: Artifact, device: Any, program: Wide) -> str:
    """What is wrong with a program's results, over two runs, with what it holds behind them, and with its gradients."""
    kind = artifact.target.partition(":")[0]
    wanted = program.right(0.0 if kind == "cpu" else 2.0**-14, 1 if program.by else 2)
    inputs = {n.name: _given(n) for n in program.leaves if n.kind == "input"}
    wrong = []
    with Session(artifact, device, checkpoint(program)) as session:  # type: ignore[arg-type]
        poison(session)
        declared = {buffer.name: buffer for buffer in artifact.plan.buffers}
        for number, (results, held) in enumerate(wanted):
            found = session.run("f", **inputs)
            for name, samples in results.items():
                wrong.append(difference(f"run {number}, {name}", found[name], samples))
            for node, samples in held.items():
                after = readable(session.read(node.name), declared[node.name].dtype)
                wrong.append(difference(f"{node.name} behind run {number}", after, samples))
        if program.by:
            wrong += slopes_off(program, found, GRADIENT[kind])
    return "\n".join(text for text in wrong if text)


def _given(node: Node) -> np.ndarray:
    assert node.leaf is not None
    return node.leaf.astype(np.int32 if node.dtype == "i32" else np.float32)


def difference(what: str, found: np.ndarray, samples: list[np.ndarray]) -> str:
    """How an array is off; "" where it is right."""
    right, bound = samples[0], off(samples)
    if found.shape != right.shape:
        return f"{what} has shape {found.shape}, and {right.shape} is wanted"
    bad = ~(np.abs(found.astype(np.float64) - right) <= bound)
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"{what}{list(place)} is {found[place]!r}, wanted {right[place]!r} within {bound[place]:.3g} "
        f"({int(bad.sum())} of {bad.size} are wrong)"
    )


def slopes_off(program: Wide, found: dict[str, np.ndarray], share: float) -> list[str]:
    """Gradients that are not as finite differences of the loss in float64 have them."""
    rng, wrong = np.random.default_rng([program.seed, 3]), []
    slopes = {n: finite_differences(program, n, rng) for n in program.by}
    largest = max((abs(s) for own in slopes.values() for s in own.values()), default=0.0)
    for node, own in slopes.items():
        given = found[f"g-{node.name}"]
        if given.shape != node.shape:
            wrong.append(f"g-{node.name} has shape {given.shape}, and {node.shape} is wanted")
            continue
        if not np.isfinite(given).all():
            wrong.append(f"g-{node.name} is not finite")
            continue
        scale = max(float(np.abs(given).max()), 1e-2 * largest, 1e-5)
        bad = [p for p, slope in own.items() if not abs(float(given[p]) - slope) <= share * scale]
        if bad:
            wrong.append(
                f"g-{node.name}{list(bad[0])} is {given[bad[0]]!r}, finite differences give {own[bad[0]]:.8g} "
                f"({len(bad)} of {len(own)} tried are wrong)"
            )
    return wrong


def finite_differences(
    program: Wide, node: Node, rng: np.random.Generator, most: int = 24
) -> dict[tuple[int, ...], float]:
    """The slopes of the loss along some of a leaf's elements; those where it has a kink are left out."""
    nodes, noise = program.used, Noise(smooth=True)
    leaf = node.leaf
    assert leaf is not None and program.loss is not None

    def loss(place: tuple[int, ...], step: float) -> float:
        moved = leaf.copy()
        moved[place] += step
        return float(computed(nodes, {node: moved}, noise)[program.loss])

    places = rng.permutation(leaf.size)[:most]
    here, slopes = loss((0,) * leaf.ndim, 0.0), {}
    for flat in places:
        place = tuple(int(i) for i in np.unravel_index(flat, leaf.shape))
        step = 1e-5
        up, down = loss(place, step) - here, here - loss(place, -step)
        if abs(up - down) <= 1e-3 * max(abs(up), abs(down)) + 1e-9:
            slopes[place] = (up + down) / (2 * step)
    return slopes
