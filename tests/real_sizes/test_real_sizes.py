"""Kernels at the sizes of known models, against float64: a few; all by `run.py`, or with --slow."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import seeded
from emulated_amd.mutants import moved_store, mutated, sites
from real_sizes import memory
from real_sizes.chips import Amd
from real_sizes.kernels import Artifacts, Found, distinct
from real_sizes.models import ENTRIES, WEIGHTS, Case, sizes
from real_sizes.run import PRECISIONS, TARGETS
from real_sizes.table import BAD, table

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject

SMALL = Case("smollm2-135m", "rocm:gfx942", "two")
FEW, SECONDS = 4, 4.0
"""How many kernels of a drawn case are executed, and how long each at most."""


def check(case: Case, folder: Path, most: int = 0, seconds: float = 0) -> None:
    """Execute kernels of a case, or a few of them that are drawn."""
    seed, random = seeded.fresh_seed(), seeded.rng()
    made = Artifacts(case, folder, seed, seconds)
    kernels = list(distinct(made.artifact, made.text))
    chosen = random.permutation(len(kernels))[: most or None]
    found = [made.run(*kernels[number]) for number in chosen]
    assert [each for each in found if each.how in BAD] == [], f"again: {case.command} --seed {seed}"
    assert most or any(each.how == "right" for each in found), found


@pytest.mark.parametrize("kind", ["rocm", "cuda", "cpu"])
def test_a_few_kernels_are_right(kind: str, tmp_path: Path) -> None:
    """Of a model, a chip, an entry, weights and a precision that are drawn anew each time."""
    rng, known = seeded.rng(), (list(sizes()), [t for t in TARGETS if t.startswith(kind)], ENTRIES, WEIGHTS, PRECISIONS)
    while True:
        case = Case(*(str(rng.choice(list(each))) for each in known))
        if case.is_one:
            with suppress(UserError):  # blocks that do not divide the rows
                return check(case, tmp_path, FEW, SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("model", sizes())
@pytest.mark.parametrize("target", TARGETS)
def test_all_kernels_are_right(target: str, model: str, tmp_path: Path) -> None:
    for entry, weights, precision in product(ENTRIES, WEIGHTS, PRECISIONS):
        case = Case(model, target, entry, weights, precision)
        if case.is_one:
            with suppress(UserError):
                check(case, tmp_path)


def test_a_fault_is_seen(tmp_path: Path) -> None:
    """Of a store that is moved by an element, in a product."""
    made = Artifacts(SMALL, tmp_path, seeded.fresh_seed())
    products = {group.main.kernel: (key, group) for key, group in distinct(made.artifact, made.text)
                if group.main.kernel.startswith("contraction")}  # fmt: skip
    name = sorted(products)[int(seeded.rng().integers(len(products)))]
    site = sites(made.artifact, name, "store one further")[0]
    assert moved_store(site.instruction) == site.words
    assert isinstance(made.chip, Amd)
    made.chip.code = CodeObject(mutated(made.artifact, site), made.chip.code.chip)
    assert made.run(*products[name]).how in BAD, name


def test_large_memory_takes_little() -> None:
    arena = memory.Arena([1 << 30, 8])
    array = arena.fill(0, np.random.default_rng(seeded.fresh_seed()), ((1 << 17, 4096), "bf16"), True)
    elements = memory.PERIOD // 2
    assert array.nbytes == 1 << 30 and array[5, 7] == array.reshape(-1)[5 * 4096 + 7 + 3 * elements]
    assert (array[0] != array[1]).any()
    array[5, 7] += 1
    assert array[5, 7] == array.reshape(-1)[5 * 4096 + 7 + 3 * elements] + 1


def test_the_table() -> None:
    case = "gpt2-xl rocm:gfx942 two bf16 exact"
    known = [Found(case, "a", "1", "right", by="float64", spills=0), Found(case, "b", "2", "right", by="cpu", spills=8),
             Found(case, "c", "3", "wrong", "3 is not 4", "float64", 0), Found(case, "", "", "done")]  # fmt: skip
    said = table([vars(each) for each in known]).splitlines()
    assert said[2] == "| rocm:gfx942 | 1 | 3 | 1 | 1 | 1 | 0 | 0 | 0 | 1 |"
    assert said[4:] == [f"- {case}: c: wrong: 3 is not 4", f"- {case}: b: 8 bytes of a thread are in memory"]
