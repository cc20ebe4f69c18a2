"""Ranks that are threads of this process, and steps for them."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.collectives.hub import Hub
from lispgpt.runtime.collectives.peers import Peers, Place
from lispgpt.runtime.plan.steps import ALL_GATHER, PAIRED, Argument, Collective

KINDS = {"f32": np.float32, "bf16": np.uint16, "i32": np.int32}


def together(count: int, work: Callable[[Peers], Any], patience: float = 60.0) -> list[Any]:
    """What each rank's work gives, or raises; a thread each."""
    pairs = [socket.socketpair() for _ in range(count)]
    hub = Hub([ours for ours, _ in pairs])
    found: list[Any] = [None] * count

    def run(rank: int) -> None:
        peers = Peers(Place(rank, count, rank, count), pairs[rank][1], patience)
        try:
            found[rank] = work(peers)
        except UserError as error:
            found[rank] = error
            peers.failed(error.message)
        peers.leave()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    hub.close()
    return found


def collective(operation: str, count: int, sizes: list[int], dtype: str) -> Collective:
    """Of buffers "0", "1", … that have these numbers of elements, or "0" with a part "0p", …"""
    item = np.dtype(KINDS[dtype]).itemsize
    arguments: list[Argument] = []
    for number, size in enumerate(sizes):
        whole, part = (Argument(f"{number}{p}", 0, item * n, "read") for p, n in (("", size), ("p", size // count)))
        if operation not in PAIRED:
            arguments.append(replace(whole, access="read_write"))
        else:
            source, target = (part, whole) if operation == ALL_GATHER else (whole, part)
            arguments += [source, replace(target, access="write")]
    return Collective(operation, count, (dtype,) * len(arguments), tuple(arguments))
