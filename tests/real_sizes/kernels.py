"""Kernels at real sizes on the emulator of AMD's chips or the interpreter of PTX: some blocks, against float64."""

from __future__ import annotations

import hashlib
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from fuzz.mutated.interpret import Unknown
from real_sizes import memory
from real_sizes.chains import Chains, Results
from real_sizes.chips import Block, open_chip
from real_sizes.elements import Place, Tensor
from real_sizes.given import Given, Group, Kind, lower_parts
from real_sizes.models import Case
from real_sizes.reference import Kernel

from lispgpt.base.errors import UserError
from lispgpt.compiler.compiled import counterpart_of
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import kernel_functions, shape_of, symbol_of
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault, NotModelled
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.steps import Launch

ELEMENTS, ON_CPU = 12, 60
"""Of what a kernel's blocks have written, so many are compared; of a whole launch on the CPU more."""
TOLERANCE = {"exact": 1e-4, "fast": 3e-2}
"""Of the largest of the elements that are compared; sums of thousands of terms of either sign."""
SPLIT_OFF = "_write"
"""How the names of kernels end that do a part of the one behind them."""
HALF = 1.0 / 128
"""More of BF16 results."""


@dataclass
class Found:
    """What came of a kernel.  how: "right", "wrong", "no reference", "fault", "not modelled" or "too slow".  by: what
    it was compared with, "float64" or "cpu".  spills: bytes of scratch memory of a thread, None where nobody knows.
    took: seconds of this process.
    """

    case: str
    kernel: str
    key: str
    how: str
    detail: str = ""
    by: str = ""
    spills: int | None = None
    took: float = 0


def distinct(artifact: Artifact, text: str) -> Iterator[tuple[str, Group]]:
    """The launches of different kernels, with those of what was split off, and each with what makes it different."""
    bodies = _bodies(text)
    seen = set()
    for group in _groups(artifact):
        launch = group.main
        body = bodies.get(launch.kernel, launch.kernel)
        sizes = [a.nbytes for a in launch.arguments]
        facts = (artifact.target, artifact.precision, body, launch.grid, launch.block, sizes)
        key = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
        if key not in seen:
            seen.add(key)
            yield key, group


def _groups(artifact: Artifact) -> Iterator[Group]:
    for number, entry in enumerate(artifact.plan.entries):
        before: list[Launch] = []
        for launch in entry.launches:
            if launch.kernel.endswith(SPLIT_OFF):
                before.append(launch)
            else:
                yield Group(number, (*before, launch))
                before = []


def chosen(kernels: Mapping[str, Group], few: int, seed: int) -> list[str]:
    """A few of the keys, drawn by a seed: half of them of different kinds, the commonest first, the others of any."""
    random = np.random.default_rng(seed)
    drawn = [list(kernels)[n] for n in random.permutation(len(kernels))]
    kinds: dict[str, list[str]] = {}
    for key in drawn:
        kinds.setdefault(kind_of(kernels[key].main.kernel), []).append(key)
    common = sorted(kinds.values(), key=len, reverse=True)
    first = [keys[0] for keys in common[: -(-few // 2)]]
    return [*first, *(key for key in drawn if key not in first)][:few]


def kind_of(kernel: str) -> str:
    """What a kernel does, from its name: without its sizes and what tells it from others of the same."""
    return re.sub(r"\d*$", "", re.sub(r"_\d+(x\d+)*(?=_|$)", "", kernel))


def _bodies(text: str) -> dict[str, str]:
    """Functions of a module's text by their name, without it."""
    found = {}
    for part in re.split(r"\n(?=  func\.func )", text):
        if match := re.match(r"  func\.func private @(\w+)", part):
            found[match[1]] = part.replace(f"@{match[1]}(", "@(")
    return found


class TooSlow(Exception):
    """An execution that takes longer than it is given."""


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TooSlow after so many seconds of this process's time; never where it is 0."""

    def end(*_: Any) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Artifacts:
    """A compiled case whose kernels are run.  seed: of arguments and of the elements that are looked at.  seconds: that
    a kernel may take, 0 for any."""

    def __init__(self, case: Case, folder: Path, seed: int, seconds: float = 0) -> None:
        self.case, self.folder, self.seed, self.seconds = case, folder, seed, seconds
        self.artifact, self.text = case.compiled(folder)
        self.chip = open_chip(self.artifact)
        self.context = new_context()
        self._chains: Chains | None = None
        with self.context:
            self.module = ir.Module.parse(self.text[self.text.index("\n") :])
            self.functions = {symbol_of(f): f for f in kernel_functions(self.module)}

    @property
    def spilled(self) -> dict[str, int]:
        """Bytes of scratch memory of a thread by kernel, of those that have any, as far as is known."""
        return {name: found for name in self.artifact.kernels if (found := self.chip.scratch(name))}

    def has_reference(self, group: Group) -> bool:
        """Whether what a kernel computes is known without the CPU's."""
        return group.main.kernel in self.functions

    def cheapest_first(self, keys: Sequence[str], kernels: Mapping[str, Group]) -> list[str]:
        """Keys of kernels by the bytes that a block has to itself, those behind that are compared with the CPU's, for
        which the model is compiled once more."""

        def cost(key: str) -> tuple[bool, float]:
            launch = kernels[key].main
            blocks = 1 if self.case.target.startswith("cpu") else prod(launch.grid)
            return not self.has_reference(kernels[key]), sum(a.nbytes for a in launch.arguments) / blocks

        return sorted(keys, key=cost)

    def run(self, key: str, group: Group) -> Found:
        """Execute some blocks of a kernel, and compare what they write."""
        start = time.process_time()
        scratch = [self.chip.scratch(launch.kernel) for launch in group.launches]
        found = Found(str(self.case), group.main.kernel, key, "right", spills=max(scratch, key=lambda n: n or 0))
        random = np.random.default_rng([self.seed, int(key, 16) & 0xFFFFFFFF])
        try:
            with limited(self.seconds), self.context, np.errstate(all="ignore"):
                self._compare(group, random, found)
        except Unknown as error:
            found.how, found.detail = "no reference", str(error)
        except KernelFault as error:
            found.how, found.detail = "fault", str(error)
        except NotModelled as error:
            found.how, found.detail = "not modelled", str(error)
        except TooSlow:
            found.how, found.detail = "too slow", f"more than {self.seconds} s {found.detail}".strip()
        found.took = round(time.process_time() - start, 2)
        return found

    def _compare(self, group: Group, random: np.random.Generator, found: Found) -> None:
        """With numbers of either sign, or, where those make none, such as roots of sums of squares, without signs."""
        seed, count = int(random.integers(1 << 62)), 0
        most = ON_CPU if self.case.target.startswith("cpu") else ELEMENTS
        for signed in (True, False):
            kinds, given, right = self._right(group, seed, signed, found)
            found.detail = "of execution"
            stored = self._execute(group, given, random)
            count, finite, found.detail = 0, True, "of comparison"
            for number, at in right.items():
                array, dtype = given.arrays[number], kinds[number][1]
                whole = _whole(stored[number], array.itemsize)
                places = [np.unravel_index(place, array.shape) for place in _some(whole, most, random)]
                if not places:
                    continue
                wanted = np.array([float(at(each)) for each in places])
                got = np.array([float(memory.number(array[each], dtype)) for each in places])
                known = np.isfinite(wanted)
                finite, count = finite and bool(known.all()), count + int(known.sum())
                if (bad := self._off(dtype, got[known], wanted[known])) is not None:
                    where = [int(p) for p in places[np.flatnonzero(known)[bad]]]
                    found.how = "wrong"
                    found.detail = (
                        f"argument {number} at {where}: {got[known][bad]:.8g} is not {wanted[known][bad]:.8g}"
                    )
                    return
            if finite:
                break
        found.detail = f"{count} elements"
        if not count:
            raise Unknown("no number is known of what it writes")

    def _execute(self, group: Group, given: Given, random: np.random.Generator) -> list[np.ndarray]:
        """Run some blocks of a group's kernel behind all of what was split off it.  Which bytes of each of its
        arguments have been stored."""
        stored = [np.broadcast_to(np.bool_(False), region.nbytes) for region in given.regions]
        for number, launch in enumerate(group.launches):
            blocks = blocks_of(launch.grid, random) if launch is group.main else list(np.ndindex(*launch.grid))
            marks = self.chip.run(launch, given.arena, given.places(number), blocks, random)
            for (region, start), mark in zip(given.starts[number], marks, strict=True):
                stored[region] = _marked(stored[region], start, mark)
        return stored

    def _right(self, group: Group, seed: int, signed: bool, found: Found) -> tuple[list[Kind], Given, Results]:
        """(what a group's arguments are, drawn, and what they should hold afterwards)."""
        function = self.functions.get(group.main.kernel)
        if function is not None and len(function.regions[0].blocks[0].arguments) <= len(group.main.arguments):
            kinds = [(shape_of(a), str(a.type.element_type)) for a in function.regions[0].blocks[0].arguments]
            with suppress(Unknown):
                lower = lower_parts(function)
                results = Kernel(function, Given(group, kinds, seed, signed, lower).arrays).results
                found.by = "float64"
                return (
                    kinds,
                    Given(group, kinds, seed, signed, lower),
                    {n: partial(_of_tensor, t) for n, t in results.items()},
                )
        found.by = "cpu"
        if self._chains is None:
            try:
                self._chains = Chains(counterpart_of(self.case.request(self.folder)), self.functions)
            except UserError as error:
                raise Unknown(f"no counterpart: {error.message}") from error
        return self._chains.right(group, seed)

    def _off(self, dtype: str, got: np.ndarray, right: np.ndarray) -> int | None:
        """Which of some elements is the furthest off, if any is wrong."""
        allowed = TOLERANCE[self.case.precision] + HALF * (dtype == "bf16")
        off = np.abs(got - right) / max(np.abs(right).max(initial=0), 1e-30)
        off[got == right] = 0
        return None if (off <= allowed).all() else int(np.argmax(np.where(np.isnan(off), np.inf, off)))


def _of_tensor(tensor: Tensor, place: Place) -> Any:
    return tensor.at(tuple(np.asarray(part) for part in place))


def blocks_of(grid: Block, random: np.random.Generator) -> list[Block]:
    """The first, the last, the last along each dimension, and one between."""
    last = [n - 1 for n in grid]
    edges = [tuple(n if a == axis else 0 for a, n in enumerate(last)) for axis in range(3)]
    found = [(0, 0, 0), tuple(int(random.integers(n)) for n in grid), tuple(last), *edges]
    return list(dict.fromkeys(found))  # type: ignore[arg-type]


def _marked(stored: np.ndarray, start: int, mark: np.ndarray) -> np.ndarray:
    """Bytes that have been stored, with more of them.  What is one truth for all bytes, as of whole launches, has a
    stride of 0 and stays so: arrays of gigabytes have marks that take nothing."""
    if not mark.strides[0] and not mark[0]:
        return stored
    if mark.size == stored.size and not stored.strides[0] and not stored[0]:
        return mark
    stored = stored if stored.strides[0] else stored.copy()
    stored[start : start + mark.size] |= mark
    return stored


def _whole(stored: np.ndarray, itemsize: int) -> Sequence[int]:
    """The elements of which all bytes have been stored."""
    if not stored.strides[0]:
        return range(stored.size // itemsize if stored[0] else 0)
    ones = int.from_bytes(b"\1" * itemsize, "little")
    return np.flatnonzero(stored.view(f"u{itemsize}") == ones)  # type: ignore[return-value]


def _some(whole: Sequence[int], most: int, random: np.random.Generator) -> list[int]:
    """The first and the last of some elements by number, and a few between."""
    if len(whole) <= most:
        return [int(each) for each in whole]
    chosen = np.sort(random.choice(len(whole), most - 2, replace=False))
    return [int(whole[n]) for n in (0, *chosen.tolist(), len(whole) - 1)]
