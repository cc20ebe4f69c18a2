"""A step that is done again and again: the launches of a loop's rounds, each round's a little further on in memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

from lispgpt.runtime.plan.steps import LARGEST, Argument, Collective, Launch, text, whole

MOST_ROUNDS = 1 << 31


@dataclass(frozen=True)
class Loop:
    """steps: of the first round, launches and loops.  moves: for each step by how many bytes its arguments (of a loop,
    those of all launches in it) move from round to round.  arguments: what all rounds together read and write."""

    kind: ClassVar[str] = "loop"

    rounds: int
    arguments: tuple[Argument, ...]
    steps: tuple[Launch | Loop, ...]
    moves: tuple[tuple[int, ...], ...]

    @staticmethod
    def from_json(data: Mapping[str, Any], forms: Sequence[str] = ()) -> Loop:
        steps = tuple(
            (Loop if text(step["kind"]) == Loop.kind else Launch).from_json(step, forms) for step in data["steps"]
        )
        moves = tuple(tuple(map(_move, each)) for each in data["moves"])
        arguments = tuple(map(Argument.from_json, data["arguments"]))
        if len(moves) != len(steps) or any(len(m) != len(reached(s)) for s, m in zip(steps, moves, strict=True)):
            raise ValueError("a loop's moves are not those of its steps")
        return Loop(whole(data["rounds"]), arguments, steps, moves)

    @property
    def label(self) -> str:
        return f"{self.rounds} rounds of {', '.join(dict.fromkeys(leaf.kernel for leaf in leaves((self,))))}"

    def each(self, shift: Sequence[int] = ()) -> Iterator[Launch]:
        """The launches of all rounds in their order.  shift: of the arguments of all launches, in bytes."""
        for number in range(self.rounds):
            place = 0
            for step, moves in zip(self.steps, self.moves, strict=True):
                own = shift[place : place + len(moves)] or (0,) * len(moves)
                moved = [by + number * move for by, move in zip(own, moves, strict=True)]
                place += len(moves)
                if isinstance(step, Loop):
                    yield from step.each(moved)
                else:
                    yield _moved(step, moved)

    def ranges(self) -> Iterator[Argument]:
        """What each argument of each launch reaches in all rounds."""
        for step, moves in zip(self.steps, self.moves, strict=True):
            inner = step.ranges() if isinstance(step, Loop) else iter(step.arguments)
            for argument, move in zip(inner, moves, strict=True):
                far = (self.rounds - 1) * move
                yield replace(argument, offset=argument.offset + min(far, 0), nbytes=argument.nbytes + abs(far))

    def problem(self) -> str | None:
        """What is wrong with it beside its bounds and its launches, if anything is."""
        if not 0 < self.rounds <= MOST_ROUNDS:
            return "it has no rounds, or more than there can be"
        for part in self.ranges():
            held = [
                a for a in self.arguments if a.buffer == part.buffer and a.offset <= part.offset and part.end <= a.end
            ]
            if not any(a.writes or not part.writes for a in held):
                return f"its rounds reach bytes {part.offset}…{part.end} of {part.buffer!r}, which it does not say"
        return next((p for step in self.steps if isinstance(step, Loop) and (p := step.problem())), None)


def reached(step: Launch | Loop) -> list[Argument]:
    """The arguments of a launch, or of all launches in a loop."""
    if isinstance(step, Launch):
        return list(step.arguments)
    return [argument for inner in step.steps for argument in reached(inner)]


def leaves(steps: Sequence[Any]) -> Iterator[Launch]:
    """The launches among steps and in loops, those of a loop's first round alone."""
    for step in steps:
        if isinstance(step, Loop):
            yield from leaves(step.steps)
        elif isinstance(step, Launch):
            yield step


def launches(steps: Sequence[Any]) -> Iterator[Launch]:
    """The launches among steps, and those of all rounds of loops, in their order."""
    for step in steps:
        if isinstance(step, Loop):
            yield from step.each()
        elif isinstance(step, Launch):
            yield step


STEP_KINDS: dict[str, type[Launch] | type[Collective] | type[Loop]] = {
    kind.kind: kind for kind in (Launch, Collective, Loop)
}


def step_from_json(data: Mapping[str, Any], forms: Sequence[str] = ()) -> Launch | Collective | Loop:
    """A step of any kind; ValueError for a kind that is none.  forms: see `Launch.from_json`."""
    kind = STEP_KINDS.get(text(data["kind"]))
    if kind is None:
        raise ValueError(f"no step is a {data['kind']!r} here")
    return kind.from_json(data) if kind is Collective else kind.from_json(data, forms)  # type: ignore[call-arg]


def to_json(step: Any, forms: dict[str, int]) -> dict[str, Any]:
    """A step's JSON value; forms: the plan's by their numbers, which get those that are new."""
    fields = asdict(step) | {"kind": step.kind}
    if isinstance(step, Launch):
        fields["forms"] = [forms.setdefault(form, len(forms)) for form in step.forms]
    elif isinstance(step, Loop):
        fields["steps"] = [to_json(inner, forms) for inner in step.steps]
    return fields


def with_buffers(step: Any, names: Mapping[str, str], suffix: str) -> Any:
    """A step whose buffers have other names, and whose kernels have a suffix behind theirs."""
    found = replace(step, arguments=tuple(replace(a, buffer=names[a.buffer]) for a in step.arguments))
    if isinstance(found, Launch):
        return replace(found, kernel=found.kernel + suffix)
    if isinstance(found, Loop):
        return replace(found, steps=tuple(with_buffers(inner, names, suffix) for inner in found.steps))
    return found


def _moved(launch: Launch, by: Sequence[int]) -> Launch:
    moved = (replace(a, offset=a.offset + far) if far else a for a, far in zip(launch.arguments, by, strict=True))
    return replace(launch, arguments=tuple(moved))


def _move(value: Any) -> int:
    if type(value) is not int or abs(value) > LARGEST:
        raise TypeError(f"{value!r} should be a number of bytes")
    return value
