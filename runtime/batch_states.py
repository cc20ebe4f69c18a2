"""Where one sequence's state lies in the state of a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.plan import Buffer, Entry
from lispgpt.runtime.session import Session


def settle(session: Session, source: Entry, batch: Entry, place: int, positions: int, number: int = 0) -> None:
    """Copy the states of a sequence, that of an entry for one or one of several, to a place in those of a batch.

    positions: how many are in use.  number: of the sequence in its entry.  UserError for a state that sequences share.
    """
    own = {name.partition("@")[0]: name for name in session.held("state", [source])}
    context = session.config.get("context")
    for name in session.held("state", [batch]):
        found = own.get(name.partition("@")[0])
        if found is not None:
            buffers = session.declared(found), session.declared(name)
            cost = (
                0 if session.reached.grows(name) else session.device.copy_cost
            )  # of what has no memory nothing is copied
            for piece in pieces_of(*buffers, place, positions, context, cost, number):
                session.copy(found, name, *piece)


def pieces_of(
    source: Buffer, batch: Buffer, place: int, positions: int, context: Any, copy_cost: int, number: int = 0
) -> Iterator[tuple[int, int, int]]:
    """(bytes, where they begin in the source, where in the batch's state) of all that a sequence has of a state.

    place: of the sequence in the batch; number: among those of the source.  positions: how many of the context are in
    use; the rest of a dimension of that length is left out where copying more pieces is no slower.  copy_cost: bytes
    that take as long as starting a copy.  UserError for what sequences share.
    """
    axes = [axis for axis, size in enumerate(batch.shape) if size != source.shape[axis]]
    if len(axes) != 1:
        raise UserError(f"the sequences of a batch share the state {source.name!r}, so they run one at a time")
    layers, inner = math.prod(batch.shape[: axes[0]]), batch.shape[axes[0] + 1 :]
    several = source.shape[axes[0]]
    nbytes = source.nbytes // (layers * several)
    rows, used = 1, nbytes
    if inner.count(context) == 1 and positions < context:
        found = math.prod(inner[: inner.index(context)])
        if (context - positions) * nbytes // context > (found - 1) * copy_cost:
            rows, used = found, nbytes // found * positions // context
    for layer in range(layers):
        for row in range(rows):
            start = row * (nbytes // rows)
            places = layer * several + number, layer * batch.shape[axes[0]] + place
            yield used, places[0] * nbytes + start, places[1] * nbytes + start
