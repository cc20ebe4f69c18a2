"""Every model's keys and values in fewer bits, by `--set cache-type=`: less memory, and nearly the same logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import recorded_folders
import seeded

import lispgpt
from lispgpt.base.dtypes import row_bytes
from lispgpt.compiler.folders import programs

FOLDERS = {folder.name: folder for folder in recorded_folders.folders()}


def keeps(name: str) -> bool:
    """Whether a folder's program has a cache, and not the states of a recurrence alone."""
    text = programs()[FOLDERS[name].config["model_type"]].read_text()
    return any(state in text for state in ("(kv [", "(latents ["))


CACHED = [name for name in FOLDERS if keeps(name)]


def steps(path: Path, tokens: list[int], cache: str) -> tuple[np.ndarray, int, int]:
    """The logits of decode steps, one after the other, the bytes of the cache, and how many numbers a row of it has."""
    with lispgpt.load(path, settings={"cache-type": cache}) as model:
        entry = model.entry("decode-greedy", "this", batch=1, positions=1)
        found = [
            model.session.run(entry.name, tokens=[[token]], positions=[[place]])["logits"].copy()
            for place, token in enumerate(tokens)
        ]
        buffers = model.session.artifact.plan.buffers
        states = [b for b in buffers if b.kind == "state" and b.name.rpartition("/")[2] in ("kv", "latents")]
        declared = [model.artifact.states[b.name.rpartition("/")[2]] for b in states]
        assert {facts["dtype"] for facts in declared} == {cache}, states
        (row,) = {facts["shape"][-1] for facts in declared}
        return np.concatenate(found), sum(b.nbytes for b in states), row


def check(name: str, folder: Path) -> None:
    path = FOLDERS[name].write(folder / name)
    tokens = FOLDERS[name].cases[0].prompt[:6]
    exact, whole, row = steps(path, tokens, "f32")
    for kind, bits, most in (("bf16", 16, 0.06), ("f16", 16, 0.0075), ("fp8", 8, 0.5)):
        found, fewer, _ = steps(path, tokens, kind)
        rows = whole // (4 * row)
        assert fewer == rows * row_bytes(kind, row) if bits == 8 else fewer * 2 == whole
        np.testing.assert_allclose(found, exact, rtol=0, atol=most * np.abs(exact).max(), err_msg=f"{name} {kind}")
        assert not np.array_equal(found, exact), f"{name} rounds nothing to {kind}"


@pytest.mark.slow
@pytest.mark.parametrize("name", CACHED)
def test_a_cache_of_fewer_bits(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


def test_a_cache_of_fewer_bits_of_one(tmp_path: Path) -> None:
    """Another each time."""
    check(str(seeded.rng().choice(CACHED)), tmp_path)
