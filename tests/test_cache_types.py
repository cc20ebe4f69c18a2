"""Every model's keys and values in BF16 or F16, by `--set cache-type=`: half the memory, and nearly the same logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import recorded_folders
import seeded

import lispgpt
from lispgpt.compiler.folders import programs

FOLDERS = {folder.name: folder for folder in recorded_folders.folders()}


def keeps(name: str) -> bool:
    """Whether a folder's program has a cache, and not the states of a recurrence alone."""
    text = programs()[FOLDERS[name].config["model_type"]].read_text()
    return any(state in text for state in ("(kv [", "(latents ["))


CACHED = [name for name in FOLDERS if keeps(name)]


def steps(path: Path, tokens: list[int], cache: str) -> tuple[np.ndarray, int]:
    """The logits of decode steps, one after the other, and the bytes of the cache."""
    with lispgpt.load(path, settings={"cache-type": cache}) as model:
        entry = model.entry("decode-greedy", "this", batch=1, positions=1)
        found = [
            model.session.run(entry.name, tokens=[[token]], positions=[[place]])["logits"].copy()
            for place, token in enumerate(tokens)
        ]
        buffers = model.session.artifact.plan.buffers
        states = [b for b in buffers if b.kind == "state" and b.name.rpartition("/")[2] in ("kv", "latents")]
        assert {b.dtype for b in states} == {cache}, states
        return np.concatenate(found), sum(b.nbytes for b in states)


def check(name: str, folder: Path) -> None:
    path = FOLDERS[name].write(folder / name)
    tokens = FOLDERS[name].cases[0].prompt[:6]
    exact, whole = steps(path, tokens, "f32")
    for kind, most in (("bf16", 0.06), ("f16", 0.0075)):
        found, half = steps(path, tokens, kind)
        assert half * 2 == whole
        np.testing.assert_allclose(found, exact, rtol=0, atol=most * np.abs(exact).max(), err_msg=f"{name} {kind}")
        assert not np.array_equal(found, exact), f"{name} rounds nothing to {kind}"


@pytest.mark.slow
@pytest.mark.parametrize("name", CACHED)
def test_a_cache_of_16_bits(name: str, tmp_path: Path) -> None:
    check(name, tmp_path)


def test_a_cache_of_16_bits_of_one(tmp_path: Path) -> None:
    """Another each time."""
    check(str(seeded.rng().choice(CACHED)), tmp_path)
