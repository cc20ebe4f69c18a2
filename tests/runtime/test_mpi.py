"""Collectives by MPI, in processes that it starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent

RANK = """
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI
from collective_steps import KINDS, collective

from lispgpt.runtime.collectives.host import rounded, widened
from lispgpt.runtime.collectives.mpi import MpiTransport
from lispgpt.runtime.collectives.peers import Place
from lispgpt.runtime.plan.steps import REDUCE_SCATTER, REDUCING

world = MPI.COMM_WORLD
rank, count = world.rank, world.size
transport = MpiTransport(SimpleNamespace(place=Place(rank, count), check=lambda: None, patience=60))
given = np.random.default_rng(SEED).normal(size=(count, 4 * count)).astype(np.float32)
made = {"all_reduce": np.add, "reduce_scatter": np.add, "all_reduce_max": np.maximum, "all_reduce_min": np.minimum}
for operation in (*REDUCING, REDUCE_SCATTER):
    for dtype, kind in KINDS.items():
        every = rounded(given) if dtype == "bf16" else (given * 100).astype(kind)
        numbers = widened(every) if dtype == "bf16" else every
        wanted = made[operation].reduce(numbers, 0)
        wanted = rounded(wanted) if dtype == "bf16" else wanted
        own = every[rank].copy()
        target = own if operation in REDUCING else np.empty(4, kind)
        transport.run(collective(operation, count, [4 * count], dtype), (own, target, dtype))
        wanted = wanted if operation in REDUCING else wanted[4 * rank : 4 * rank + 4]
        np.testing.assert_array_equal(target, wanted, err_msg=f"{operation} {dtype}")
print("the same", flush=True)
"""


def test_two_processes_combine_arrays(tmp_path: Path, fresh_seed: int) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK.replace("SEED", str(fresh_seed)))
    words = [BIN / "mpiexec", "-n", "2", sys.executable, script]
    known = os.environ | {"PYTHONPATH": f"{TESTS.parent}:{TESTS}"}
    done = subprocess.run(list(map(str, words)), env=known, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stdout.count("the same") == 2, done.stderr
