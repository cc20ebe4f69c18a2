"""What a program declares of a model, and what is known while one of its entries is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from lispgpt.base.folder_map import FolderMap, Gguf
from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.values import State, Variable, Weight
from lispgpt.language.reader.forms import Form, Symbol

BATCH, POSITIONS = "batch", "positions"
"""The free dimensions of inputs that are names alone: rows of i32, `positions` of each of `batch` sequences."""


@dataclass(frozen=True, eq=False)
class Input:
    """An input of an entry.  sizes: the forms of its dimensions; None where it is a name alone."""

    name: Symbol
    sizes: tuple[Form, ...] | None
    dtype: str


@dataclass(eq=False)
class Entry:
    """An entry point: evaluated once for each choice of its free dimensions that it is compiled for.

    dimensions: their names, in the order in which inputs name them.  shapes: the choices that its form gives, which
    need not fix all of them; None where it gives none.  allowed: whether a default choice, as sizes in the order of the
    dimensions, is one that it is to be compiled for.  calls: those in which its form was met, outermost first: what was
    called, and by which form.
    """

    name: str
    inputs: tuple[Input, ...]
    dimensions: tuple[str, ...]
    shapes: tuple[dict[str, int], ...] | None
    body: tuple[Form, ...]
    environment: Environment
    form: Form
    allowed: Callable[[list[int]], bool] | None = None
    calls: tuple[tuple[str, Form], ...] = ()

    @property
    def takes_rows(self) -> bool:
        """Whether some input is a name alone."""
        return any(declared.sizes is None for declared in self.inputs)


@dataclass(frozen=True, eq=False)
class Generation:
    """`(generate entry {options})`"""

    entry: str
    options: dict[str, int | float | bool]
    form: Form


Place: TypeAlias = tuple[Any, ...]
"""Offsets in a state, or sizes, of which None is one that the part does not have."""
Written: TypeAlias = tuple[Place, Place, ir.Value]


def _apart(part: Written, offsets: Place, sizes: Place) -> bool:
    """Whether two parts of a state, each of single places along some of its dimensions, have nothing in common."""
    single = zip(part[0], part[1], offsets, sizes, strict=True)
    return any(a != b for a, one, b, other in single if one is None and other is None)


@dataclass(eq=False)
class WholeTexts:
    """What holds where whole texts are looked at, as a loss does: rows are those of `texts` of `length` positions each.

    positions: where each row stands in its text.  states: what was written into parts of states, which are zeros at a
    text's beginning, in order; it is forgotten with the texts.  random: what `dropout` draws from, None where nothing
    is to be dropped.  starts: where each row's document begins, i32 [texts length]; None where a text is one document.
    drawn: how many have drawn so far.
    """

    texts: int
    length: int
    positions: ir.Value
    random: Any
    starts: ir.Value | None = None
    states: dict[str, tuple[Written, ...]] = field(default_factory=dict)
    drawn: int = 0

    def written(self, state: str, offsets: Place, sizes: Place) -> list[Written]:
        """What was written into a part of a state, or into some of it."""
        found: list[Written] = []
        for part in self.states.get(state, ()):
            if not _apart(part, offsets, sizes):
                found = [part] if part[:2] == (offsets, sizes) else [*found, part]
        return found

    def write(self, state: str, offsets: Place, sizes: Place, value: ir.Value) -> None:
        """Have a part of a state hold a value from here on."""
        self.states[state] = (*self.states.get(state, ()), (offsets, sizes, value))


@dataclass(eq=False)
class Building:
    """The entry that is being built.

    sizes: of its free dimensions.  positions: its input of that name, one number for each row.  inputs: by name.
    accumulates: whether it has changed a state or weight by more than writing rows at their positions.  placed,
    written: states that it has written in that way, and in another.  minds_padding:
    whether it has asked which rows are real.  every_position: whether what a model says of a sequence's last position
    is wanted of all.  whole: the whole texts that are looked at, if any are.  multiplied: what the newest product with
    a weight takes.  adapted: the weights of which a product was adapted.  any_size: whether what is built for a size
    is to be the same ops for others.  loops: the bodies of scans that are being built, innermost last, each with the
    states that it carries.
    """

    entry: Entry
    sizes: dict[str, int]
    positions: ir.Value | None = None
    inputs: dict[str, Variable] = field(default_factory=dict)
    accumulates: bool = False
    placed: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    minds_padding: bool = False
    every_position: bool = False
    whole: WholeTexts | None = None
    multiplied: Any = None
    adapted: set[str] = field(default_factory=set)
    any_size: bool = False
    loops: list[tuple[ir.Block, tuple[State, ...]]] = field(default_factory=list)

    @contextmanager
    def as_it_was(self, before: Building) -> Iterator[None]:
        """Have rows stand where they stood when `before` was a copy of this (`copied`)."""
        now = self.positions, self.sizes, self.every_position, self.whole
        self.positions, self.sizes, self.every_position = before.positions, before.sizes, before.every_position
        self.whole = before.copied().whole
        try:
            yield
        finally:
            self.positions, self.sizes, self.every_position, self.whole = now

    def copied(self) -> Building:
        """This as it is now, whatever is read, written or drawn later."""
        whole = None if self.whole is None else replace(self.whole, states=dict(self.whole.states))
        return replace(self, whole=whole)


@dataclass(eq=False)
class Model:
    """overrides win over the checkpoint's config, which wins over the program's own.  devices: how many share the
    batch.  adapted: of weights by their names, what is made of products with them (see `adapting`).  norms: the weights
    that norms multiply by."""

    overrides: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    weights: dict[str, Weight] = field(default_factory=dict)
    states: dict[str, State] = field(default_factory=dict)
    entries: dict[str, Entry] = field(default_factory=dict)
    generation: Generation | None = None
    building: Building | None = None
    folder: FolderMap | None = None
    gguf: Gguf | None = None
    devices: int = 1
    adapted: dict[str, list[Any]] = field(default_factory=dict)
    norms: set[str] = field(default_factory=set)

    def growing(self) -> dict[str, int]:
        """The states that the entry being built writes at its rows' positions only, each with the dimension of the
        config's `context`, where that is one."""
        assert self.building is not None
        found, context = {}, self.config.get("context")
        for name in sorted(self.building.placed - self.building.written):
            sizes = self.dimensions(self.states[name])
            if sizes.count(context) == 1:
                found[name] = sizes.index(context)
        return found

    def dimensions(self, state: State) -> tuple[int | str, ...]:
        """A state's sizes, free dimensions by their names.

        Where no state of the program names its batch and entries take rows of sequences, each state that they do
        not share has one for every sequence: behind its first dimension, or as the first where it has one only.
        """
        named = any(BATCH in other.shape for other in self.states.values())
        if state.shared or named or not any(entry.takes_rows for entry in self.entries.values()):
            return state.shape
        first = 1 if len(state.shape) > 1 else 0
        return (*state.shape[:first], BATCH, *state.shape[first:])
