"""The schedules that a compilation chooses from: the library's and the user's files, as functions for the passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.observer import Observer
from lispgpt.ir.mlir import ir
from lispgpt.language.core.values import Closure
from lispgpt.language.forms.schedules import Kind, ScheduleForm, call, word
from lispgpt.language.reader.forms import show
from lispgpt.language.schedules import KERNELS, read_schedules
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.tensor_map import strided
from lispgpt.passes.library import NO_SCHEDULES, Library, Schedule
from lispgpt.passes.pipeline import Pipeline, Runner
from lispgpt.passes.targets import Target
from lispgpt.passes.tile.boxes import Box
from lispgpt.passes.tile.build import Builder
from lispgpt.passes.tile.lower.staged_operand import single_loads
from lispgpt.passes.tile.row_reductions import row_reductions
from lispgpt.passes.tile.types import SUBGROUP, WARPGROUP, RegisterTile, SharedTile

CHOOSES, COMPARES = "choose-tiles", "choose"
"""The passes that are given schedules."""


def runner_for(
    target: Target, files: Sequence[Path] = (), own: Sequence[ScheduleForm] = (), observer: Observer | None = None
) -> Runner:
    """What runs pipelines with the schedules that their passes may want: the library's where a pass uses any, those of
    the files, and ahead of them the model's own."""
    return Runner(target, observer or Observer(), library=partial(_library, target, files, own))


def check_chooses(pipeline: Pipeline, files: Sequence[Path]) -> None:
    """UserError where files hold schedules and no pass of a pipeline would choose among them."""
    if files and all(call.name != CHOOSES for call in pipeline.calls):
        raise UserError(f"pipeline {pipeline.name} has no {CHOOSES} pass, which would choose among schedules")


def _library(target: Target, files: Sequence[Path], own: Sequence[ScheduleForm], pipeline: Pipeline) -> Library:
    """Needs an active ir.Context."""
    calls = [call for call in pipeline.calls if call.name in (CHOOSES, COMPARES)]
    if not calls:
        return NO_SCHEDULES
    used = any(call.name == COMPARES or dict(call.options).get("use") for call in calls)
    common = [one for path in sorted(KERNELS.glob("*.lisp")) for one in _read(path, target)] if used else []
    mine = [*map(_schedule, own), *(one for path in files for one in _read(path, target))]
    return Library(tuple(mine), tuple(common))


def _read(path: Path, target: Target) -> list[Schedule]:
    found = read_schedules(path, WORDS, target.capabilities())
    if not found:
        raise UserError(f"{path} has no (schedule …)")
    return list(map(_schedule, found))


def _schedule(form: ScheduleForm) -> Schedule:
    evaluator = form.evaluator

    def takes(builder: Builder) -> str | None:
        with ir.InsertionPoint(evaluator.builder.module.body), ir.Location.unknown():
            answer = call(evaluator, form.takes, builder)
        if not isinstance(answer, bool):
            evaluator.site.fail("`:takes` is true or false", form.asks)
        return None if answer else f"it takes kernels of which {show(form.asks)}"

    return Schedule(form.name, takes, partial(call, evaluator, form.body))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_index(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, ir.Value) and isinstance(value.type, ir.IndexType))


def _all(count: int, holds: Any) -> Any:
    return lambda value: isinstance(value, tuple) and len(value) == count and all(map(holds, value))


KERNEL = Kind(lambda v: isinstance(v, Builder), "the kernel that the schedule is given")
NUMBER = Kind(_is_number, "a positive whole number that is known while compiling")
OPERAND = Kind(lambda v: isinstance(v, Operand), "an operand, such as (tile.left kernel)")
SIZES = Kind(_all(2, _is_number), "[rows columns]")
PLACE = Kind(_all(3, _is_index), "[batch row column]")
FUNCTION = Kind(lambda v: isinstance(v, Closure), "a function")
REGISTERS = Kind(lambda v: isinstance(v, ir.Value) and RegisterTile.of(v.type) is not None, "a register tile")
SHARED = Kind(lambda v: isinstance(v, ir.Value) and SharedTile.of(v.type) is not None, "a shared tile")
UNIT = Kind(lambda v: v in (SUBGROUP, WARPGROUP), f'"{SUBGROUP}" or "{WARPGROUP}"')


def _box(operand: Operand, at: tuple[Any, Any, Any], sizes: tuple[int, int]) -> Box:
    return Box.of(operand, at, *sizes)


def _copies(kernel: Builder, columns: int) -> str:
    return kernel.copies([Box.of(operand, (0, 0, 0), 1, columns) for operand in (kernel.left, kernel.right)])


def _bytes(kernel: Builder, rows: int, columns: int, inner: int, slots: int) -> int:
    boxes = [Box.of(x, (0, 0, 0), n, inner) for x, n in ((kernel.left, rows), (kernel.right, columns))]
    return kernel.shared_bytes(boxes, slots)


def _resident(kernel: Builder, blocks: int) -> None:
    kernel.launch.residency = blocks


_WORDS: dict[str, tuple[tuple[Kind, ...], Callable[..., Any]]] = {
    "rows": ((KERNEL,), lambda kernel: kernel.product.rows),
    "columns": ((KERNEL,), lambda kernel: kernel.product.columns),
    "inner": ((KERNEL,), lambda kernel: kernel.product.inner),
    "batches": ((KERNEL,), lambda kernel: kernel.product.batches),
    "left": ((KERNEL,), lambda kernel: kernel.left),
    "right": ((KERNEL,), lambda kernel: kernel.right),
    "reduces?": ((OPERAND,), lambda operand: operand.reduces()),
    "copies": ((KERNEL, NUMBER), _copies),
    "parts": ((KERNEL, OPERAND), lambda kernel, operand: kernel.parts_of(operand)),
    "room": ((KERNEL,), lambda kernel: kernel.room),
    "bytes": ((KERNEL, NUMBER, NUMBER, NUMBER, NUMBER), _bytes),
    "single-loads": ((OPERAND, NUMBER, NUMBER, NUMBER), single_loads),
    "transposed": ((KERNEL,), lambda kernel: kernel.transposed),
    "packed": ((KERNEL,), lambda kernel: replace(kernel, packs=True)),
    "block": ((OPERAND,), lambda operand: find_dtype(getattr(operand, "blocks", "") or "bf16").block),
    "memory?": ((OPERAND,), lambda operand: strided(operand.tensor) is not None),
    "brought?": ((OPERAND,), lambda operand: not operand.reduces() or row_reductions(operand) is not None),
    "instruction": ((KERNEL,), lambda kernel: kernel.instruction),
    "nanoseconds": ((KERNEL, SIZES, NUMBER, NUMBER), lambda kernel, sizes, *how: kernel.nanoseconds(*sizes, *how)),
    "resident": ((KERNEL, NUMBER), _resident),
    "task": ((KERNEL, SIZES), lambda kernel, sizes: kernel.task(*sizes)),
    "box": ((OPERAND, PLACE, SIZES), _box),
    "sums": ((KERNEL, SIZES, NUMBER, SIZES, UNIT), lambda kernel, sizes, *how: kernel.sums(*sizes, *how)),
    "mma": ((KERNEL, REGISTERS, SHARED, SHARED), lambda kernel, *tiles: kernel.mma(*tiles)),
    "add-parts": ((KERNEL, REGISTERS), lambda kernel, sums: kernel.add_parts(sums)),
    "store": ((KERNEL, REGISTERS, PLACE), lambda kernel, sums, at: kernel.store(sums, at)),
    "pipeline": ((KERNEL, NUMBER, NUMBER, *[FUNCTION] * 4), lambda kernel, *how: kernel.pipeline(*how)),
}
WORDS = {f"tile.{name}": word(f"tile.{name}", kinds, does) for name, (kinds, does) in _WORDS.items()}
"""What schedules are written with, beside the language itself; see lispgpt/passes/tile/build.py."""
