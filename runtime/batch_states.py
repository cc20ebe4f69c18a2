"""Where one sequence's state lies in the state of a batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.base import Pieces
from lispgpt.runtime.own_adapters import is_own_adapter
from lispgpt.runtime.plan.plan import Buffer, Entry
from lispgpt.runtime.session import Session


def settle(session: Session, source: Entry, batch: Entry, place: int, positions: int, number: int = 0) -> None:
    """Copy the states of a sequence, that of an entry for one or one of several, to a place in those of a batch.

    positions: how many are in use.  number: of the sequence in its entry.  UserError for a state that sequences share.
    """
    for found, name, pieces in _moves(session, source, batch, place, positions, number):
        session.copy(found, name, pieces)


def unsettle(session: Session, target: Entry, batch: Entry, place: int, positions: int) -> None:
    """Copy the first positions of what is in a place of a batch back to the states of an entry for one sequence."""
    for found, name, each in _moves(session, target, batch, place, positions, 0):
        back = Pieces(each.nbytes, each.target, each.source, each.count, each.target_step, each.source_step)
        session.copy(name, found, back)


def keeps_positions(session: Session, entry: Entry) -> bool:
    """Whether what an entry's states say of a position stays as it is when later ones are taken in."""
    context = session.config.get("context")
    held = [name for name in session.held("state", [entry]) if not is_own_adapter(name)]
    return entry.repeatable and all(session.shape(name).count(context) == 1 for name in held)


def _moves(
    session: Session, single: Entry, batch: Entry, place: int, positions: int, number: int
) -> Iterator[tuple[str, str, Pieces]]:
    """Names of a state of one sequence and of the batch's own, and what to copy from the first to the second: nothing
    where the batch is of one sequence, whose states these are."""
    if batch.sizes["batch"] == 1:
        return
    own = {name.partition("@")[0]: name for name in session.held("state", [single])}
    context = session.config.get("context")
    for name in session.held("state", [batch]):
        found = own.get(name.partition("@")[0])
        if found is not None:
            buffers = session.declared(found), session.declared(name)
            cost = (
                0 if session.committed.grows(name) else session.device.copy_cost
            )  # of what has no memory nothing is copied
            for pieces in pieces_of(*buffers, place, positions, context, cost, number):
                yield found, name, pieces


def pieces_of(
    source: Buffer, batch: Buffer, place: int, positions: int, context: Any, copy_cost: int, number: int = 0
) -> Iterator[Pieces]:
    """All that a sequence has of a state.

    place: of the sequence in the batch; number: among those of the source.  positions: how many of the context are in
    use; the rest of a dimension of that length is left out where copying more pieces is no slower.  copy_cost: bytes
    that take as long as starting a copy.  UserError for what sequences share.
    """
    axes = [axis for axis, size in enumerate(batch.shape) if size != source.shape[axis]]
    if len(axes) != 1:
        raise UserError(f"the sequences of a batch share the state {source.name!r}, so they run one at a time")
    layers, inner = math.prod(batch.shape[: axes[0]]), batch.shape[axes[0] + 1 :]
    counts = source.shape[axes[0]], batch.shape[axes[0]]
    nbytes = source.nbytes // (layers * counts[0])
    if inner.count(context) == 1 and positions < context:
        rows = math.prod(inner[: inner.index(context)])
        if layers * nbytes * (context - positions) // context > (layers - 1) * copy_cost:
            each = nbytes // rows
            for layer in range(layers):
                first = (layer * counts[0] + number) * nbytes, (layer * counts[1] + place) * nbytes
                yield Pieces(each * positions // context, *first, rows, each, each)
            return
    yield Pieces(nbytes, number * nbytes, place * nbytes, layers, counts[0] * nbytes, counts[1] * nbytes)
