"""What passes make of each function: its first lines, and how each pass that changes it goes on from there.

A step goes through the lines before a pass: KEEP leaves some as they are, DROP takes some out, ADD puts new ones there,
CHANGE puts new ones in place of as many, whose values are the same ones.  So values have one name through all passes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lispgpt.explore.aligned import aligned
from lispgpt.explore.printed import END, HOLE, Line

KEEP, DROP, ADD, CHANGE = range(4)


@dataclass(frozen=True, slots=True)
class Written:
    """A line that a step puts somewhere.  values: in the order of the line's holes, the number of the definition that
    each stands for, counted through the version from its first line.  known: how many of them stand before the line."""

    text: str
    location: int
    values: tuple[int, ...]
    known: int


@dataclass(frozen=True)
class Step:
    """What the pass of this number does (0: what the first pass is given).  runs: (what, how many lines).  written: the
    lines of ADD and CHANGE, in order.  gone: whether the function is no more."""

    number: int
    runs: tuple[tuple[int, int], ...]
    written: tuple[Written, ...]
    gone: bool = False

    @property
    def changes(self) -> int:
        """Lines that are other ones than before."""
        return sum(count for what, count in self.runs if what != KEEP)


@dataclass
class History:
    """steps: of each function, by its name.  changed: by a pass's number, the lines that it changes.  now: the lines of
    each function that is left."""

    steps: dict[str, list[Step]] = field(default_factory=dict)
    changed: dict[int, int] = field(default_factory=dict)
    now: dict[str, tuple[Line, ...]] = field(default_factory=dict)

    def add(self, number: int, functions: Mapping[str, tuple[Line, ...]]) -> None:
        """What the pass of this number has left."""
        for name, lines in functions.items():
            before = self.now.get(name, ())
            if before is not lines and before != lines:
                self._keep(name, _step(number, before, lines))
        for name in [name for name in self.now if name not in functions]:
            self._keep(name, Step(number, ((DROP, len(self.now[name])),), (), gone=True))
        self.now = dict(functions)

    def _keep(self, name: str, step: Step) -> None:
        self.steps.setdefault(name, []).append(step)
        self.changed[step.number] = self.changed.get(step.number, 0) + step.changes


def _step(number: int, before: Sequence[Line], after: Sequence[Line]) -> Step:
    """How to make the lines after a pass of those before it."""
    same = aligned([(line.text, line.location) for line in before], [(line.text, line.location) for line in after])
    matches = _with_alike(before, after, same)
    kept = _kept(before, after, matches)
    values = _values(after)
    runs: list[tuple[int, int]] = []
    written: list[Written] = []

    def run(what: int, count: int) -> None:
        if runs and runs[-1][0] == what:
            runs[-1] = (what, runs[-1][1] + count)
        elif count:
            runs.append((what, count))

    def write(what: int, start: int, end: int) -> None:
        run(what, end - start)
        written.extend(Written(after[i].text, after[i].location, *values[i]) for i in range(start, end))

    a = b = 0
    for i, j in [*matches, (len(before), len(after))]:
        run(DROP, i - a)
        write(ADD, b, j)
        if j < len(after):
            if (i, j) in kept:
                run(KEEP, 1)
            else:
                write(CHANGE, j, j + 1)
        a, b = i + 1, j + 1
    return Step(number, tuple(runs), tuple(written))


def _with_alike(
    before: Sequence[Line], after: Sequence[Line], same: Sequence[tuple[int, int]]
) -> list[tuple[int, int]]:
    """The pairs of lines that are the same, and between them of those that make the same kinds of values for the same
    form: one op in place of another."""
    found: list[tuple[int, int]] = []
    a = b = 0
    for i, j in [*same, (len(before), len(after))]:
        if a < i and b < j:
            ours, theirs = [_kind(line) for line in before[a:i]], [_kind(line) for line in after[b:j]]
            found += ((a + x, b + y) for x, y in aligned(ours, theirs))
        found.append((i, j))
        a, b = i + 1, j + 1
    return found[:-1]


def _kind(line: Line) -> tuple[object, ...]:
    """What two lines have in common of which one stands for the other: the form, and the types of what they define."""
    if END not in line.text:
        return (line.text, line.location, False)
    return (line.text.count(END), line.text.rpartition(" : ")[2], line.location)


def _kept(before: Sequence[Line], after: Sequence[Line], matches: Sequence[tuple[int, int]]) -> set[tuple[int, int]]:
    """The pairs in which nothing is another, the values that they use included."""
    same: dict[str, str] = {}
    kept = set()
    for i, j in matches:
        ours, theirs = before[i], after[j]
        defined = list(zip(_defined(ours), _defined(theirs), strict=True)) if _both_define(ours, theirs) else []
        same.update(defined)
        alike = ours.text == theirs.text and ours.location == theirs.location
        if alike and all(same.get(x) == y for x, y in zip(ours.names, theirs.names, strict=True)):
            kept.add((i, j))
    return kept


def _both_define(ours: Line, theirs: Line) -> bool:
    return ours.text.count(END) == theirs.text.count(END)


def _defined(line: Line) -> list[str]:
    """The names of the values that a line defines."""
    marks = line.text.split(HOLE)[1:]
    return [name for mark, name in zip(marks, line.names, strict=True) if END in mark]


def _values(lines: Sequence[Line]) -> list[tuple[tuple[int, ...], int]]:
    """Of each line, the numbers of the definitions that its values are, and how many of these stand before it."""
    numbers: dict[str, int] = {}
    found = []
    for line in lines:
        known = len(numbers)
        found.append((tuple(numbers.setdefault(name, len(numbers)) for name in line.names), known))
    return found
