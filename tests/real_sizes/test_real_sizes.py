"""Kernels at the sizes of known models, some blocks of each, against float64; all by `run.py`, or with --slow."""

from __future__ import annotations

from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import seeded
from emulated_amd.mutants import moved_store, mutated, sites
from real_sizes import memory
from real_sizes.kernels import Artifacts, distinct
from real_sizes.models import ENTRIES, WEIGHTS, Case, sizes
from real_sizes.run import TARGETS

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject

QUICK = (Case("smollm2-135m", "rocm:gfx942", "one"), Case("qwen2.5-0.5b", "rocm:gfx1151", "one"))
BAD = ("wrong", "fault", "not modelled")


def check(case: Case, folder: Path) -> None:
    seed = seeded.fresh_seed()
    made = Artifacts(case, folder, seed)
    found = [made.run(key, launch) for key, launch in distinct(made.artifact, made.text)]
    assert [each for each in found if each.how in BAD] == [], f"seed {seed}"
    assert any(each.how == "right" for each in found), found


@pytest.mark.parametrize("case", QUICK, ids=str)
def test_kernels_are_right(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model", sizes())
@pytest.mark.parametrize("target", TARGETS)
def test_all_kernels_are_right(target: str, model: str, tmp_path: Path) -> None:
    for entry, weights, precision in product(ENTRIES, WEIGHTS, ("exact", "fast")):
        with suppress(UserError):  # blocks that do not divide the rows
            check(Case(model, target, entry, weights, precision), tmp_path)


def test_a_fault_is_seen(tmp_path: Path) -> None:
    """Of a store that is moved by an element, in every product."""
    made = Artifacts(QUICK[0], tmp_path, seeded.fresh_seed())
    products = {launch.kernel: (key, launch) for key, launch in distinct(made.artifact, made.text)
                if launch.kernel.startswith("contraction")}  # fmt: skip
    name = sorted(products)[int(seeded.rng().integers(len(products)))]
    site = sites(made.artifact, name, "store one further")[0]
    assert moved_store(site.instruction) == site.words
    made.code = CodeObject(mutated(made.artifact, site), made.code.chip)
    assert made.run(*products[name]).how in BAD, name


def test_large_memory_takes_little() -> None:
    array = memory.argument(np.random.default_rng(seeded.fresh_seed()), (1 << 17, 4096), "bf16")
    elements = memory.PERIOD // 2
    assert array.nbytes == 1 << 30 and array[5, 7] == array.reshape(-1)[5 * 4096 + 7 + 3 * elements]
    assert (array[0] != array[1]).any()
