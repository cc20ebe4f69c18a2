"""What starts one process for each device says in the environment which of them this is."""

from __future__ import annotations

import click
import pytest

from lispgpt.cli.launched import launched
from lispgpt.runtime.collectives.peers import Place

MPICH = {"PMI_RANK": "3", "PMI_SIZE": "4", "MPI_LOCALRANKID": "1", "MPI_LOCALNRANKS": "2"}
OPEN_MPI = dict(
    zip([f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE")], "1212", strict=True)
)
TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
TORCHRUN |= {"MASTER_ADDR": "a", "MASTER_PORT": "7"}
SLURM = {"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURM_STEP_TASKS_PER_NODE": "2(x2)"}
STEP = {"SLURM_STEP_ID": "0"}


@pytest.mark.parametrize(
    "environment, place, address",
    [
        (MPICH, Place(3, 4, 1, 2, True), None),
        (OPEN_MPI, Place(1, 2, 1, 2, True), None),
        (OPEN_MPI | {"MASTER_ADDR": "b"}, Place(1, 2, 1, 2, True), ("b", 29500)),
        (TORCHRUN, Place(5, 8, 1, 4), ("a", 7)),
        (TORCHRUN | {"TORCHELASTIC_USE_AGENT_STORE": "True"}, Place(5, 8, 1, 4), ("a", 8)),
        (SLURM | STEP, Place(2, 4, 0, 2), ("127.0.0.1", 29500)),
        (SLURM | STEP | {"SLURM_NNODES": "2", "MASTER_ADDR": "c"}, Place(2, 4, 0, 2), ("c", 29500)),
    ],
)
def test_each_launcher_is_understood(
    environment: dict[str, str], place: Place, address: tuple[str, int] | None
) -> None:
    found = launched(environment | {"LISPGPT_SECRET": "s" * 16})
    assert found is not None and (found.place, found.address) == (place, address)


def test_a_process_alone_starts_others_itself() -> None:
    assert launched({}) is None
    assert launched(SLURM) is None, "the script of a job is no process of a step"
    assert launched(MPICH | {"PMI_RANK": "0", "PMI_SIZE": "1"}) is None


def test_what_cannot_be_understood_is_named() -> None:
    with pytest.raises(click.UsageError, match="RANK is 'one' in the environment"):
        launched(TORCHRUN | {"RANK": "one"})
    with pytest.raises(click.UsageError, match="set it to rank 0's"):
        launched(SLURM | STEP | {"SLURM_NNODES": "2"})
