"""What a command learns from those who start one process for each device: torchrun, mpirun and srun say it in the
environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import click

from lispgpt.base.folders import settings_folder, user_secret
from lispgpt.runtime.collectives.joining import Launched
from lispgpt.runtime.collectives.peers import Place

TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
OPEN_MPI = tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
MPICH = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
SLURM = ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE")
PORT = 29500
"""Where rank 0 waits unless MASTER_PORT says otherwise."""

SHORTEST = 16
"""Letters of a secret."""


def launched(environment: Mapping[str, str]) -> Launched | None:
    """Which of how many processes this is; None where it is the only one, and starts others itself."""
    for names, by_mpi in ((TORCHRUN, False), (OPEN_MPI, True), (MPICH, True), (SLURM, False)):
        if names is SLURM and "SLURM_STEP_ID" not in environment:
            continue
        if names[0] in environment and names[1] in environment:
            rank, size = (_number(environment, name) for name in names[:2])
            local = _number(environment, names[2]) if names[2] in environment else rank
            found = re.match(r"\d+", environment.get(names[3], ""))
            neighbours = int(found[0]) if found else size
            if size < 2:
                return None
            address = _address(environment, by_mpi)
            known = b"" if address is None else _secret(environment)
            return Launched(Place(rank, size, local, neighbours, by_mpi), address, known)
    return None


def _address(environment: Mapping[str, str], by_mpi: bool) -> tuple[str, int] | None:
    """Where rank 0 is to be met."""
    host = environment.get("MASTER_ADDR")
    if host is None and by_mpi:
        return None
    port = _number(environment, "MASTER_PORT") if "MASTER_PORT" in environment else PORT
    if environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        port += 1  # torchrun itself listens at the other
    if host is None and environment.get("SLURM_NNODES", "1") != "1":
        raise click.UsageError(
            "on several machines srun's processes find each other by MASTER_ADDR: set it to rank 0's"
        )
    return host or "127.0.0.1", port


def _secret(environment: Mapping[str, str]) -> bytes:
    """What processes of this user know: LISPGPT_SECRET, else what a file among the user's settings holds, which the
    first of them makes."""
    said = environment.get("LISPGPT_SECRET")
    if said is not None:
        if len(said) < SHORTEST:
            raise click.UsageError(f"LISPGPT_SECRET is shorter than {SHORTEST} letters")
        return said.encode(errors="surrogateescape")
    return user_secret(settings_folder(environment) / "secret")


def _number(environment: Mapping[str, str], name: str) -> int:
    text = environment[name]
    if not text.isdigit():
        raise click.UsageError(f"{name} is {text!r} in the environment, which should be a number")
    return int(text)


def options(command: Any) -> Any:
    """Add the options of commands that several devices share."""
    names = click.Choice(["local", "mpi", "nccl", "rccl"])
    for option in reversed(
        [
            click.option("--devices", type=click.IntRange(1), help="Share the batch among so many of this machine."),
            click.option("--engine", type=names, help="By what they work together (default: by the target)."),
            click.option(
                "--patience", type=click.FloatRange(1), help="Seconds to wait for each other.  [default: 300]"
            ),
        ]
    ):
        command = option(command)
    return command
