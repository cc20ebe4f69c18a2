"""Threads' clocks of each other, by what orders them, and accesses to shared memory at such times."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lispgpt.passes.tile.walk import Agent, Machine


class Thread(Agent):
    """One of the two agents of a role.  number: among all.  clock: how much of each agent's past it knows."""

    def __init__(self, machine: Machine, role: int, number: int) -> None:
        super().__init__(machine, role)
        self.number = number
        self.clock: list[int] = []
        self.groups = 0
        self.reading: list[Any] = []
        """Slots that instructions which are under way read."""
        self.turns: dict[tuple[Any, int], int] = {}

    @property
    def first(self) -> bool:
        return self.number % 2 == 0

    def learn(self, clock: list[int]) -> None:
        self.clock = [max(pair) for pair in zip(self.clock, clock, strict=True)]

    def tick(self) -> list[int]:
        """What others may learn that it has done; what it does from here on is later."""
        self.clock[self.number] += 1
        return list(self.clock)


@dataclass
class Access:
    """agent's access at its own time; instance: of the op, all of whose threads' accesses are to elements of their own.
    lands: of an asynchronous copy, the agent's time when it has been waited for; None while it is under way."""

    agent: int
    time: int
    instance: Any
    lands: int | None = 0
    group: int = 0

    def before(self, clock: list[int]) -> bool:
        return self.lands is not None and max(self.time, self.lands) <= clock[self.agent]


@dataclass
class Slot:
    """past: whether it may hold what lies behind a view's end."""

    writes: list[Access] = field(default_factory=list)
    reads: list[Access] = field(default_factory=list)
    past: bool = False


@dataclass
class Ring:
    """filled, released: the clocks that come with numbers' fills, and with their releases by each agent that reads."""

    how: str
    slots: int
    tiles: tuple[tuple[int, int], ...]
    filled: dict[int, list[int]] = field(default_factory=dict)
    released: dict[int, dict[int, list[int]]] = field(default_factory=dict)
    readers: set[int] = field(default_factory=set)
