"""Kernels at real sizes on the emulator of AMD's chips: some blocks of each, against float64."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from fuzz.mutated.interpret import Unknown
from real_sizes import memory
from real_sizes.elements import Tensor
from real_sizes.models import Case
from real_sizes.reference import Kernel

from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import callee_of, kernel_functions, operations, shape_of, symbol_of
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault, NotModelled
from lispgpt.runtime.devices.amd_emulator.global_memory import Argument
from lispgpt.runtime.devices.amd_emulator.machine import Machine
from lispgpt.runtime.devices.amd_emulator.memory import Memory
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.steps import Launch

ELEMENTS = 12
"""Of what a kernel's blocks have written, so many are compared."""
TOLERANCE = {"exact": 1e-4, "fast": 3e-2}
"""Of the largest of the elements that are compared; sums of thousands of terms of either sign."""
HALF = 1.0 / 128
"""More of BF16 results."""


@dataclass
class Found:
    """What came of a kernel.  how: "right", "wrong", "no reference", "fault" or "not modelled".  spills: bytes of
    scratch memory of a thread."""

    case: str
    kernel: str
    key: str
    how: str
    detail: str = ""
    spills: int = 0


def distinct(artifact: Artifact, text: str) -> Iterator[tuple[str, Launch]]:
    """The launches of different kernels, each with what makes it different."""
    bodies = _bodies(text)
    seen = set()
    for launch in [launch for entry in artifact.plan.entries for launch in entry.launches]:
        body = bodies.get(launch.kernel, launch.kernel)
        facts = (artifact.target, body, launch.grid, launch.block, [a.nbytes for a in launch.arguments])
        key = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
        if key not in seen:
            seen.add(key)
            yield key, launch


def _bodies(text: str) -> dict[str, str]:
    """Functions of a module's text by their name, without it."""
    found = {}
    for part in re.split(r"\n(?=  func\.func )", text):
        if match := re.match(r"  func\.func private @(\w+)", part):
            found[match[1]] = part.replace(f"@{match[1]}(", "@(")
    return found


class Artifacts:
    """A compiled case whose kernels are run.  seed: of arguments and of the elements that are looked at."""

    def __init__(self, case: Case, folder: Path, seed: int) -> None:
        self.case, self.seed = case, seed
        self.artifact, self.text = case.compiled(folder)
        self.code = CodeObject(self.artifact.code, case.target.partition(":")[2])
        self.context = new_context()
        with self.context:
            module = ir.Module.parse(self.text[self.text.index("\n") :])
            self.module, self.functions = module, {symbol_of(f): f for f in kernel_functions(module)}
            self.callers = {callee_of(op): f for f in self.functions.values()
                            for op in operations(f.regions[0].blocks[0]) if op.name == "func.call"}  # fmt: skip

    def run(self, key: str, launch: Launch) -> Found:
        """Execute some blocks of a kernel, and compare what they write."""
        found = Found(str(self.case), launch.kernel, key, "right")
        found.spills = self.code.descriptor(launch.kernel).private_bytes
        random = np.random.default_rng([self.seed, int(key, 16) & 0xFFFFFFFF])
        name = launch.kernel
        function = self.functions.get(name) or self.callers.get(name.rstrip("0123456789"))
        try:
            if function is None or len(function.regions[0].blocks[0].arguments) != len(launch.arguments):
                raise Unknown("another kernel has been made of it; not executed")
            with self.context, np.errstate(all="ignore"):
                found.how, found.detail = self._compared(function, launch, random)
        except Unknown as error:
            found.how, found.detail = "no reference", str(error)
        except KernelFault as error:
            found.how, found.detail = "fault", str(error)
        except NotModelled as error:
            found.how, found.detail = "not modelled", str(error)
        return found

    def _compared(self, function: ir.Operation, launch: Launch, random: np.random.Generator) -> tuple[str, str]:
        kinds = [(shape_of(a), str(a.type.element_type)) for a in function.regions[0].blocks[0].arguments]
        arrays = [self._argument(random, kind, a.reads) for kind, a in zip(kinds, launch.arguments, strict=True)]
        before = {n: a.copy() if launch.arguments[n].writes else a for n, a in enumerate(arrays)}
        machine = Machine(self.code, Memory())
        addresses = [machine.memory.add(array, f"argument {n}") for n, array in enumerate(arrays)]
        touches = [Argument(at, a) for at, a in zip(addresses, launch.arguments, strict=True)]
        machine.launch(launch.kernel, launch.grid, launch.block, np.array(addresses, np.uint64).tobytes(),
                       launch.shared_bytes, blocks_of(launch.grid, random), touches)  # fmt: skip
        worst, count = "", 0
        for number, tensor in Kernel(function, before).results.items():
            places = _written(machine, addresses[number], arrays[number], random)
            if places:
                count += len(places)
                worst = worst or self._off(number, tensor, arrays[number], kinds[number], places)
        return ("wrong", worst) if worst else ("right", f"{count} elements")

    def _off(self, number: int, tensor: Tensor, array: np.ndarray, kind: tuple[Any, str], places: list[int]) -> str:
        """What an argument has wrong at some of its elements, "" where it is right."""
        at = [np.unravel_index(place, kind[0]) for place in places]
        right = np.array([float(tensor.at(tuple(np.asarray(p) for p in each))) for each in at])
        got = np.array([float(_number(array[each], kind[1])) for each in at])
        allowed = TOLERANCE[self.case.precision] + HALF * (kind[1] == "bf16")
        off = np.abs(got - right) / max(np.abs(right).max(), 1e-30)
        if (off <= allowed).all():
            return ""
        bad = int(np.argmax(np.where(np.isnan(off), np.inf, off)))
        return f"argument {number} at {[int(p) for p in at[bad]]}: {got[bad]:.8g} is not {right[bad]:.8g}"

    def _argument(self, random: np.random.Generator, kind: tuple[Any, str], reads: bool) -> np.ndarray:
        shape, dtype = kind
        if reads:
            return memory.argument(random, tuple(shape), dtype)
        whole = np.full(prod(shape) * np.dtype(memory.DTYPES[dtype]).itemsize, 0xFF, np.uint8)
        return whole.view(memory.DTYPES[dtype]).reshape(shape)


def _number(bits: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return (np.asarray(bits, np.uint32) << np.uint32(16)).view(np.float32)
    return np.asarray(bits)


def blocks_of(grid: tuple[int, int, int], random: np.random.Generator) -> list[tuple[int, int, int]]:
    """The first, the last and one between."""
    found = [(0, 0, 0), tuple(int(random.integers(n)) for n in grid), tuple(n - 1 for n in grid)]
    return list(dict.fromkeys(found))  # type: ignore[arg-type]


def _written(machine: Machine, address: int, array: np.ndarray, random: np.random.Generator) -> list[int]:
    """Elements, by number, that the launch has written whole."""
    watched = machine.watched
    assert watched is not None
    number = watched.piece(address, address + array.nbytes)
    if number < 0 or not watched.written[number]:
        return []
    start = int(watched.first[number]) + (address - int(watched.starts[number])) // watched.grain
    marks = watched.shadow.written[start : start + array.nbytes // watched.grain] > 0
    if array.itemsize >= watched.grain:
        marks = marks.reshape(array.size, -1).all(axis=1)
    else:
        marks = marks.repeat(watched.grain // array.itemsize)
    written = np.flatnonzero(marks)
    if written.size > ELEMENTS:
        chosen = random.choice(written.size, ELEMENTS - 2, replace=False)
        written = np.concatenate([written[:1], written[np.sort(chosen)], written[-1:]])
    return written.tolist()  # type: ignore[no-any-return]
