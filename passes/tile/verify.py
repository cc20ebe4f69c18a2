"""Whether a tile program is safe, whatever order a chip runs its threads in: proved by executing its synchronisation.

For each role two agents, who stand for any two of its threads, go through the program and keep clocks of each other:
an access of one is ordered behind an access of the other where a barrier, or a ring's fills, waits and releases, say so
(the happens-before relation of Lamport 1978; FastTrack, Flanagan and Freund 2009).  A program is refused where

- a slot is read before all that was put or copied there is ordered ahead of the read;
- a slot is written before all that was read there is ordered ahead of the write, or while a copy into it is under way;
- an agent skips a phase of a ring: its fills, waits and releases have the numbers 0, 1, 2 and so on;
- agents do not meet at the same barrier, or wait for what nobody brings;
- a copy is under way when the program ends; or the types of an op do not fit (check_types.py).

What a turn of a loop does to slots depends on its number only modulo the slots and the phases of their barriers, so
long loops are run for a few turns of the rings, and shortened by the same number of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm
from typing import Any

from lispgpt.ir.diagnostics import form_of
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import constant_number, defining_op, integers, nested_operations, trip_count
from lispgpt.passes.targets import Cpu, Gpu
from lispgpt.passes.tile.check_types import Unsafe, check_types
from lispgpt.passes.tile.clocks import Access, Ring, Slot, Thread
from lispgpt.passes.tile.copies import ASYNC, BULK
from lispgpt.passes.tile.row_kernels import reductions_behind
from lispgpt.passes.tile.types import ring_tiles, shared_tile
from lispgpt.passes.tile.walk import Agent, Machine, Numbering, Step, Turn, program_ops, run_together

KEPT_TURNS = 24
"""Turns of a long loop that are run at least."""

ROW_TURNS = 3
"""Turns of a loop of a program of rows, where nothing depends on their number."""

TURNS_AROUND = 2
"""Turns of a loop around loops that share memory, whose numbers go on from one turn to the next."""

SEEN = (511, 0)
"""The last positions that rows are taken to see, where this is found by a running program: many tiles, and one."""

SHARING = ("tile.fill", "tile.wait", "tile.release", "tile.put", "tile.slot")
"""Ops by which a loop shares memory."""


def verify(kernel: ir.Operation, target: Gpu | Cpu) -> None:
    """Unsafe, at the op's place, where a kernel's tile program could go wrong on the chip."""
    block, bounded = kernel.regions[0].blocks[0], False
    program = [inner for op in program_ops(block) for inner in (op, *nested_operations(op))]
    for op in program:
        check_types(op, target)
        bounded |= op.name in ("tile.visible", "tile.reach")
    steps = Numbering().program(block)
    roles = [step for step in _everywhere(steps) if step.name == "tile.role"]
    if len(roles) > 1:
        raise Unsafe("tile.role: a program's threads have one division into roles")
    count = len(integers(roles[0].op.attributes["threads"])) if roles else 1
    for last in SEEN if bounded else SEEN[:1]:
        _execute(_Order(program, target, last), steps, count)


def _execute(order: _Order, steps: tuple[Step, ...], count: int) -> None:
    """count: of roles."""
    for role in range(count):
        order.agents += [Thread(order, role, len(order.agents) + i) for i in (0, 1)]
    for agent in order.agents:
        agent.clock = [0] * len(order.agents)
    if stuck := run_together([agent.run(steps) for agent in order.agents]):
        raise Unsafe(f"threads wait for each other: {'; '.join(dict.fromkeys(stuck))}")
    order.check_end()


def _everywhere(steps: tuple[Step, ...]) -> Iterator[Step]:
    for step in steps:
        yield step
        for _, body in step.bodies:
            yield from _everywhere(body)


class _Order(Machine):
    """Who has accessed which slot, and what orders it."""

    def __init__(self, program: list[ir.Operation], target: Gpu | Cpu, last: int) -> None:
        """program: its ops, and those in them."""
        self.last, self.stays = last, target.matrix is not None and target.matrix.result_as_left
        self.subgroup, self.meets = target.subgroup, False
        self.reduced: dict[int, dict[Any, tuple[int, ...]]] = {}
        self.of_rows = any(op.name == "tile.team" for op in program)
        self.agents: list[Thread] = []
        self.slots: dict[Any, Slot] = {}
        self.rings: dict[int, Ring] = {}
        self.meetings: dict[tuple[tuple[int, ...], int], dict[int, Any]] = {}
        self.passed: dict[tuple[int, tuple[int, ...]], int] = {}
        holders = [op for op in program if op.name in ("tile.shared", "tile.ring")]
        self.period = lcm(*(2 * _slots(op) for op in holders))
        loops = [op for op in program if op.name == "scf.for" and _shares(op) and not _is_around(op)]
        turns = [_numbers(op) * trip_count(op) for op in loops if not _goes_on(op)]
        self.left_out = max(0, (min(turns, default=0) - KEPT_TURNS) // self.period * self.period)

    def trips(self, step: Step, low: int, high: int, stride: int) -> range:
        """A loop without some whole turns of the rings: where one loop that shares memory is long, all of them are.
        What teams do to their rows is the same in every turn."""
        whole = range(low, high, stride)
        if self.of_rows:
            return whole[:ROW_TURNS]
        if _is_around(step.op):
            return whole[:TURNS_AROUND]
        each = _numbers(step.op)
        return whole[: len(whole) - self.left_out // each] if each * len(whole) > KEPT_TURNS else whole

    def other(self, agent: Agent, step: Step, values: list[Any]) -> list[None]:
        return [None] * len(step.results)

    view = zeros = operand = split = limit = mask = reduce = broadcast = ask = fetch = weights = other

    def team(self, agent: Thread, step: Step, values: list[Any]) -> list[int]:
        """Both agents are of one team."""
        self.meets |= ir.IntegerAttr(step.op.attributes["threads"]).value > self.subgroup
        return [0]

    def load(self, agent: Thread, step: Step, values: list[Any]) -> Turn | list[None]:
        """Of a row that is made of what its team's subgroups reduce together, by way of memory of the op's own, unless
        they have it from an op ahead, of this turn or from before the loop."""
        wanted = [(op, *values[1:3]) for op in reductions_behind(step.op.operands[0])] if self.meets else []
        known = self.reduced.setdefault(agent.number, {})
        new = [one for one in wanted if one not in known or known[one] != agent.turn[: len(known[one])]]
        known.update(dict.fromkeys(new, agent.turn))
        return self._by_way_of_memory(agent, step) if new else [None] * len(step.results)

    def keep(self, agent: Thread, step: Step, values: list[Any]) -> Turn:
        return self._by_way_of_memory(agent, step)

    def _by_way_of_memory(self, agent: Thread, step: Step) -> Turn:
        place = ("own", id(step))
        self._write(agent, step, place, self._instance(agent, step))
        yield from self.barrier(agent, step, [])
        self._read(agent, step, place)
        return [None] * len(step.results)

    def visible(self, agent: Thread, step: Step, values: list[Any]) -> list[int]:
        return [0, self.last, self.last]

    def reach(self, agent: Thread, step: Step, values: list[Any]) -> list[int]:
        return [0, self.last + 1]

    # ---- memory

    def shared(self, agent: Thread, step: Step, values: list[Any]) -> list[Any]:
        """Tiles are known by the number of the value that they are."""
        return list(step.results)

    def ring(self, agent: Thread, step: Step, values: list[Any]) -> list[Any]:
        """A ring is known by its number, and its tiles by that and their own."""
        ring = step.results[0]
        if ring not in self.rings:
            tiles = ring_tiles(step.op.results[0])
            how = ir.StringAttr(step.op.attributes["copies"]).value
            self.rings[ring] = Ring(how, tiles[0].slots, tuple((ring, i) for i in range(len(tiles))))
        return [ring]

    def slot(self, agent: Thread, step: Step, values: list[Any]) -> list[Any]:
        tile, number = values
        return [(tile, number % int(step.op.operands[0].type.shape[0]))]

    def put(self, agent: Thread, step: Step, values: list[Any]) -> None:
        self._write(agent, step, values[1], self._instance(agent, step))

    def mma(self, agent: Thread, step: Step, values: list[Any]) -> list[None]:
        """Where it is later, it reads its tiles until the next such is begun, or sums are settled."""
        tiles = [tile for tile in values[1:] if tile is not None]
        for tile in tiles:
            self._read(agent, step, tile)
        if "later" in step.op.attributes:
            agent.reading = tiles
        return [None]

    def settle(self, agent: Thread, step: Step, values: list[Any]) -> list[None]:
        agent.reading = []
        return [None]

    def store(self, agent: Thread, step: Step, values: list[Any]) -> Turn | list[None]:
        if agent.reading:
            raise _unsafe(step, "it takes sums that are still added to")
        return self.add_parts(agent, step, values) if "splits" in step.op.attributes else []

    def add_parts(self, agent: Thread, step: Step, values: list[Any]) -> Turn:
        """Memory that may be all tiles', between barriers of its own: what lay there is gone."""
        yield from self._by_role(agent, step)
        for place in list(self.slots):
            if place[0] != "own":
                self._write(agent, step, place, self._instance(agent, step))
        yield from self._by_role(agent, step)
        for place, slot in self.slots.items():
            slot.writes = slot.writes if place[0] == "own" else []
        return [None] * len(step.results)

    def over_members(self, agent: Thread, step: Step, values: list[Any]) -> Turn:
        """Memory of its own, which is written, and behind a barrier of its own read; what orders that ahead of the next
        write is the program's."""
        place = ("own", step.results[0])
        self._write(agent, step, place, self._instance(agent, step))
        yield from self._by_role(agent, step)
        self._read(agent, step, place)
        return [None]

    def as_operand(self, agent: Thread, step: Step, values: list[Any]) -> Turn | list[None]:
        """The same, where lanes hold other elements of operands than of results."""
        return [None] if self.stays else self.over_members(agent, step, values)

    def reduce_rows(self, agent: Thread, step: Step, values: list[Any]) -> Turn:
        """Its own memory, between barriers of its own."""
        if self.of_rows:
            found = self.load(agent, step, values)
            return [] if isinstance(found, list) else (yield from found)
        yield from self.barrier(agent, step, values)
        yield from self.barrier(agent, step, values)
        return []

    def role(self, agent: Thread, step: Step, values: list[Any]) -> list[int]:
        return [agent.role]

    def _instance(self, agent: Thread, step: Step) -> tuple[int, int]:
        """Which execution of an op this is: the same for both agents of a role."""
        key = ("instance", id(step))
        agent.turns[key] = agent.turns.get(key, 0) + 1
        return id(step), agent.turns[key]

    def _write(self, agent: Thread, step: Step, place: Any, instance: Any, copied: bool = False) -> None:
        slot = self.slots.setdefault(place, Slot())
        for access in (*slot.writes, *slot.reads):
            if access.instance != instance and access.agent != agent.number and not access.before(agent.clock):
                raise _unsafe(step, "it writes a slot that other threads may still read or write")
            if access.lands is None and access.instance != instance:
                raise _unsafe(step, "it writes a slot into which a copy is under way")
        slot.writes = [access for access in slot.writes if access.instance == instance or not self._by_all(access)]
        slot.reads = [access for access in slot.reads if not self._by_all(access)]
        time = agent.clock[agent.number] + 1
        slot.writes.append(Access(agent.number, time, instance, None if copied else 0, agent.groups))

    def _by_all(self, access: Access) -> bool:
        """Whether all know of it."""
        return all(access.before(agent.clock) for agent in self.agents if agent.number != access.agent)

    def _read(self, agent: Thread, step: Step, place: Any) -> None:
        slot = self.slots.setdefault(place, Slot())
        if not slot.writes:
            raise _unsafe(step, "it reads a slot to which nothing has been written")
        for access in slot.writes:
            known = access.lands is not None if access.agent == agent.number else access.before(agent.clock)
            if not known:
                raise _unsafe(step, "it reads a slot of which what was written there may not be there yet")
        if slot.past:
            raise _unsafe(step, "it reads what copies have brought from behind a view's end")
        slot.reads.append(Access(agent.number, agent.clock[agent.number] + 1, None))

    # ---- order

    def barrier(self, agent: Thread, step: Step, values: list[Any]) -> Turn:
        """Every thread of the block meets here, and knows of all that any of them has done."""
        return self._meet(agent, step, self.agents)

    def meet(self, agent: Thread, step: Step, values: list[Any]) -> Turn:
        return self._by_role(agent, step)

    def _by_role(self, agent: Thread, step: Step) -> Turn:
        """The same of a role's threads."""
        return self._meet(agent, step, self._role_of(agent))

    def _role_of(self, agent: Thread) -> list[Thread]:
        return [one for one in self.agents if one.role == agent.role]

    def _meet(self, agent: Thread, step: Step, who: list[Thread], learns: bool = True) -> Turn:
        group = tuple(one.number for one in who)
        number = self.passed.get((agent.number, group), 0)
        self.passed[agent.number, group] = number + 1
        here = self.meetings.setdefault((group, number), {})
        here[agent.number] = (id(step), agent.tick())
        while len(here) < len(who):
            yield f"barrier {number}"
        if len({step for step, _ in here.values()}) > 1:
            raise _unsafe(step, "threads meet at different barriers")
        for _, clock in here.values() if learns else ():
            agent.learn(clock)

    def fill(self, agent: Thread, step: Step, values: list[Any]) -> Turn:
        ring, member = self.rings[values[0]], ir.IntegerAttr(step.op.attributes["member"]).value
        number = self._in_turn(agent, step, values[-1], ("fill", member))
        if member and number >= agent.turns.get((("fill", member - 1), step.operands[0]), 0):
            raise _unsafe(step, "it fills members of a ring out of their order")
        if ring.how == BULK and member == 0:
            while number >= ring.slots and not self._free(ring, number - ring.slots):
                yield f"a slot for number {number} of a ring"
            for clock in ring.released.get(number - ring.slots, {}).values():
                agent.learn(clock)
        if ring.how == ASYNC or agent.first:
            place = ring.tiles[member], number % ring.slots
            self._write(agent, step, place, self._instance(agent, step), copied=ring.how == ASYNC)
            self.slots[place].past = ring.how == BULK and defining_op(step.op.operands[1]).name == "tile.limit"
        if member == len(ring.tiles) - 1:
            agent.groups += 1
            if ring.how == BULK and agent.first:
                ring.filled[number] = agent.tick()

    def _free(self, ring: Ring, number: int) -> bool:
        """Whether all threads of all roles that have read from a ring have released a number."""
        roles = {self.agents[reader].role for reader in ring.readers}
        wanted = {agent.number for agent in self.agents if agent.role in roles}
        return bool(wanted) and wanted <= set(ring.released.get(number, {}))

    def wait(self, agent: Thread, step: Step, values: list[Any]) -> Turn:
        ring = self.rings[values[0]]
        number = self._in_turn(agent, step, values[1], "wait")
        ring.readers.add(agent.number)
        if ring.how == BULK:
            while number not in ring.filled:
                yield f"number {number} of a ring to be filled"
            agent.learn(ring.filled[number])
        else:
            self._land(agent, ir.IntegerAttr(step.op.attributes["ahead"]).value)
        return [[(tile, number % ring.slots) for tile in ring.tiles]]

    def clear(self, agent: Thread, step: Step, values: list[Any]) -> Turn:
        """A part of a slot, which all of the role's threads write before any goes on; where there is none nobody waits,
        so that it orders nothing else."""
        instance, slot = self._instance(agent, step), self.slots.setdefault(values[0], Slot())
        before = list(slot.writes)
        self._write(agent, step, values[0], instance)
        slot.writes = [*before, slot.writes[-1]]
        yield from self._meet(agent, step, self._role_of(agent), learns=False)
        slot.writes, slot.past = [access for access in slot.writes if access.instance != instance], False

    def member(self, agent: Thread, step: Step, values: list[Any]) -> list[Any]:
        return [values[0][ir.IntegerAttr(step.op.attributes["member"]).value]]

    def drain(self, agent: Thread, step: Step, values: list[Any]) -> None:
        self._land(agent, 0)

    def _land(self, agent: Thread, ahead: int) -> None:
        """All of an agent's copies are there but the newest groups."""
        time = agent.clock[agent.number] + 1
        for slot in self.slots.values():
            for access in slot.writes:
                if access.agent == agent.number and access.lands is None and access.group < agent.groups - ahead:
                    access.lands = time

    def release(self, agent: Thread, step: Step, values: list[Any]) -> None:
        ring = self.rings[values[0]]
        number = self._in_turn(agent, step, values[1], "release")
        if number not in ring.filled:
            raise _unsafe(step, "it releases what has not been filled")
        if agent.turns.get(("wait", step.operands[0]), 0) <= number:
            raise _unsafe(step, "it releases what it has not waited for")
        if any((tile, number % ring.slots) in agent.reading for tile in ring.tiles):
            raise _unsafe(step, "it releases what is still read")
        ring.released.setdefault(number, {})[agent.number] = agent.tick()

    def _in_turn(self, agent: Thread, step: Step, number: int, what: Any) -> int:
        """The number, less what loops ahead have left out: numbers come one after the other."""
        key = (what, step.operands[0])
        following = agent.turns.get(key, 0)
        further = number - following
        if further and not (self.left_out and further > 0 and further % self.left_out == 0):
            raise _unsafe(step, f"it skips numbers of a ring: {following} comes next, and this is {number}")
        agent.turns[key] = following + 1
        return following

    def check_end(self) -> None:
        """Nothing is under way any more."""
        for slot in self.slots.values():
            if any(access.lands is None for access in slot.writes):
                raise Unsafe("a copy into shared memory is under way when the program ends")
        for ring in self.rings.values():
            unread = [n for n in ring.filled if ring.how == BULK and not self._free(ring, n)]
            if unread:
                raise Unsafe(
                    f"number {unread[0]} of a ring is filled, and not all who read it wait for it and release it"
                )


def _shares(op: ir.Operation) -> bool:
    """Whether a loop shares memory."""
    return any(inner.name in SHARING for inner in nested_operations(op))


def _is_around(op: ir.Operation) -> bool:
    """Whether a loop is one of loops that do."""
    return any(inner.name == "scf.for" and _shares(inner) for inner in nested_operations(op))


def _numbers(op: ir.Operation) -> int:
    """Of rings, that a turn of a loop waits for."""
    return max(1, sum(inner.name == "tile.wait" for inner in nested_operations(op)))


def _goes_on(op: ir.Operation) -> bool:
    """Whether a loop does what is left of another's turns: fewer than the slots are done ahead of it."""
    start, end, _ = (constant_number(value) for value in list(op.operands)[:3])
    return start is None and end is not None


def _slots(op: ir.Operation) -> int:
    """Of the tiles that an op makes."""
    return ring_tiles(op.results[0])[0].slots if op.name == "tile.ring" else shared_tile(op.results[0]).slots


def _unsafe(step: Step, says: str) -> Unsafe:
    return Unsafe(f"{step.name}: {says}", form_of(step.op.location))
