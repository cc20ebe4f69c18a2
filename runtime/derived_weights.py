"""What is computed of weights alone: when a session has to compute it.

A plan's `making` computes its buffers of kind "made", which its entries read.  It runs before the first of these, and
again where an entry that ran since, of another artifact perhaps, has written a weight that it reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lispgpt.runtime.plan.plan import Buffer, Entry


@dataclass
class _Maker:
    """A plan's `making`.  reads: weights.  makes: what it was loaded for.  stale: whether it has to run."""

    entry: Entry
    reads: frozenset[str]
    makes: frozenset[str]
    stale: bool = True


class DerivedWeights:
    """What has to be made in a session, and for which entries.  launch: runs a plan's `making`."""

    def __init__(self, launch: Callable[[Entry], None]) -> None:
        self._launch = launch
        self._makers: list[_Maker] = []
        self._around: dict[int, tuple[Entry, list[_Maker], list[_Maker]]] = {}

    @property
    def entries(self) -> list[Entry]:
        """What makes something that nothing else made before it was loaded."""
        return [maker.entry for maker in self._makers]

    def add(self, entry: Entry | None, declared: Mapping[str, Buffer]) -> None:
        """Take what makes buffers of one more plan, unless all of them, by the same names, are made already."""
        if entry is None:
            return
        arguments = [argument for step in entry.steps for argument in step.arguments]
        makes = frozenset(a.buffer for a in arguments if a.writes and declared[a.buffer].kind == "made")
        reads = frozenset(a.buffer for a in arguments if declared[a.buffer].kind == "weight")
        makes = makes.difference(*(maker.makes for maker in self._makers))
        if makes:
            self._makers.append(_Maker(entry, reads, makes))
            self._around.clear()

    def before(self, entry: Entry) -> None:
        """Have made what an entry reads, and note which weights it is about to write."""
        if not self._makers:
            return
        _, needed, spoiled = self._of(entry)
        for maker in needed:
            if maker.stale:
                self._launch(maker.entry)
                maker.stale = False
        for maker in spoiled:
            maker.stale = True

    def changed(self, name: str) -> None:
        """Hear that a buffer has other contents, which may be a weight's."""
        for maker in self._makers:
            maker.stale = maker.stale or name in maker.reads

    def _of(self, entry: Entry) -> tuple[Entry, list[_Maker], list[_Maker]]:
        """The entry itself, so that no other gets its number; what it needs made, and what is stale behind it."""
        found = self._around.get(id(entry))
        if found is None:
            arguments = [argument for step in entry.steps for argument in step.arguments]
            read = {argument.buffer for argument in arguments}
            written = {argument.buffer for argument in arguments if argument.writes}
            needed = [maker for maker in self._makers if maker.makes & read]
            found = entry, needed, [maker for maker in self._makers if maker.reads & written]
            self._around[id(entry)] = found
        return found
