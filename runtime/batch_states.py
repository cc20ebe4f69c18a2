"""Where one sequence's state lies in the state of a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.plan import Buffer, Entry
from lispgpt.runtime.session import Session


def settle(session: Session, single: Entry, batch: Entry, sequence: int, positions: int) -> None:
    """Copy the states of an entry for one sequence to a place in those of one for several.

    positions: how many are in use.  UserError for a state that sequences share.
    """
    own = {name.partition("@")[0]: name for name in session.held("state", [single])}
    context = session.config.get("context")
    for name in session.held("state", [batch]):
        source = own.get(name.partition("@")[0])
        if source is not None:
            buffers = session.declared(source), session.declared(name)
            cost = (
                0 if session.reached.grows(name) else session.device.copy_cost
            )  # of what has no memory nothing is copied
            for piece in pieces_of(*buffers, sequence, positions, context, cost):
                session.copy(source, name, *piece)


def pieces_of(
    single: Buffer, batch: Buffer, sequence: int, positions: int, context: Any, copy_cost: int
) -> Iterator[tuple[int, int, int]]:
    """(bytes, where they begin in the state of one, where in that of several) of all that a sequence has of a state.

    positions: how many of the context are in use; the rest of a dimension of that length is left out where copying more
    pieces is no slower.  copy_cost: bytes that take as long as starting a copy.  UserError for what sequences share.
    """
    axes = [axis for axis, size in enumerate(batch.shape) if size != single.shape[axis]]
    if len(axes) != 1:
        raise UserError(f"the sequences of a batch share the state {single.name!r}, so they run one at a time")
    layers, inner = math.prod(batch.shape[: axes[0]]), batch.shape[axes[0] + 1 :]
    nbytes = single.nbytes // layers
    rows, used = 1, nbytes
    if inner.count(context) == 1 and positions < context:
        found = math.prod(inner[: inner.index(context)])
        if (context - positions) * nbytes // context > (found - 1) * copy_cost:
            rows, used = found, nbytes // found * positions // context
    for layer in range(layers):
        for row in range(rows):
            start = row * (nbytes // rows)
            yield used, layer * nbytes + start, (layer * batch.shape[axes[0]] + sequence) * nbytes + start
