"""What schedules are made of, and what is made of them: functions for the passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.language.core.environment import Environment
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import Builtin, Closure, Special
from lispgpt.language.forms.schedules import Kind, ScheduleForm, call, word
from lispgpt.language.reader.forms import Form, List, Value, head_name, show
from lispgpt.language.schedules import read_schedules
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.tensor_map import strided
from lispgpt.passes.library import Schedule
from lispgpt.passes.targets import Target
from lispgpt.passes.tile.boxes import Box
from lispgpt.passes.tile.build import Builder
from lispgpt.passes.tile.build_attention import AttentionBuilder
from lispgpt.passes.tile.build_gradients import GradientsBuilder
from lispgpt.passes.tile.build_rows import RowsBuilder, RowTensor
from lispgpt.passes.tile.build_scores import ScoreBuilder
from lispgpt.passes.tile.copies import is_direct, whole_words
from lispgpt.passes.tile.lower.staged_operand import single_loads
from lispgpt.passes.tile.maps import FUNCTIONS, mapped, over_members, reduced
from lispgpt.passes.tile.row_reductions import row_reductions
from lispgpt.passes.tile.types import OPERANDS, SUBGROUP, WARPGROUP, RegisterTile, SharedTile
from lispgpt.passes.tile.warpgroup_tiling import warpgroup_tiling

MOST_OF_A_CLAUSE = 120
"""Characters of a clause that are shown."""


def schedules_of(path: Path, target: Target) -> list[Schedule]:
    """The schedules of a file; needs an active ir.Context."""
    return list(map(schedule_of, read_schedules(path, WORDS, target.block_capabilities())))


def schedule_of(form: ScheduleForm) -> Schedule:
    """What passes are given of a form."""
    evaluator, false = form.evaluator, list[Form]()
    asks = replace(form.takes, body=(_noting(form.asks, false),))

    def takes(builder: Builder) -> str | None:
        false.clear()
        with ir.InsertionPoint(evaluator.builder.module.body), ir.Location.unknown():
            answer = call(evaluator, asks, *_given(form, builder))
        if not isinstance(answer, bool):
            evaluator.site.fail("`:takes` is true or false", form.asks)
        return None if answer else f"{show((*false, form.asks)[0], MOST_OF_A_CLAUSE)} is false"

    def write(builder: Builder) -> None:
        call(evaluator, form.body, *_given(form, builder))

    return Schedule(form.name, takes, write, form.of, form.products)


def _given(form: ScheduleForm, builder: Builder) -> list[Builder]:
    """What a schedule's functions are called with: each of a kernel's products."""
    return builder.products if form.of == "product" else [builder]


def _noting(asks: Form, false: list[Form]) -> Form:
    """A condition whose first false clause is put first in a list, or the innermost where that has clauses itself."""
    items = asks.items if isinstance(asks, List) else ()
    if head_name(asks) == "and":
        return List(asks.span, (items[0], *(_noted(clause, false) for clause in items[1:])))
    if head_name(asks) == "let" and len(items) == 3:
        return List(asks.span, (*items[:2], _noting(items[-1], false)))
    return asks


def _noted(clause: Form, false: list[Form]) -> Form:
    asks = _noting(clause, false)

    def run(evaluator: Evaluator, form: Form, environment: Environment) -> Any:
        value = evaluator.evaluate(asks, environment)
        if value is False:
            false.append(clause)
        return value

    return List(clause.span, (Value(clause.span, Special("and", run)),))


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_index(value: Any) -> bool:
    return isinstance(value, int) or (isinstance(value, ir.Value) and isinstance(value.type, ir.IndexType))


def _all(count: int, holds: Any) -> Any:
    return lambda value: isinstance(value, tuple) and len(value) == count and all(map(holds, value))


def _is_multiplied(type_: ir.Type) -> bool:
    """Whether a type is of a tile that matrix instructions take."""
    registers = RegisterTile.of(type_)
    return SharedTile.of(type_) is not None or (registers is not None and registers.layout in OPERANDS)


KERNEL = Kind(lambda v: isinstance(v, (Builder, RowsBuilder)), "the kernel that the schedule is given")
PRODUCT = Kind(lambda v: isinstance(v, Builder) and not isinstance(v, ScoreBuilder), "a product's kernel")
PRODUCTS = Kind(
    lambda v: isinstance(v, tuple) and v != () and all(map(PRODUCT.holds, v)), "a list of a kernel's products"
)
ROWS = Kind(lambda v: isinstance(v, RowsBuilder), "a kernel of rows")
ROW_TENSOR = Kind(lambda v: isinstance(v, RowTensor), "a result, or what else a kernel of rows has rows of")
TRUTH = Kind(lambda v: isinstance(v, bool), "true or false")
SCORES = Kind(lambda v: isinstance(v, ScoreBuilder), "a kernel of an attention, or of its gradients")
GRADIENTS = Kind(lambda v: isinstance(v, GradientsBuilder), "a kernel of an attention's gradients")
ATTENTION = Kind(lambda v: isinstance(v, AttentionBuilder), "an attention's kernel")
NUMBER = Kind(_is_number, "a positive whole number that is known while compiling")
OPERAND = Kind(lambda v: isinstance(v, Operand), "an operand, such as (tile.left kernel)")
SIZES = Kind(_all(2, _is_number), "[rows columns]")
PLACE = Kind(_all(3, _is_index), "[batch row column]")
FUNCTION = Kind(lambda v: isinstance(v, Closure), "a function")
REGISTERS = Kind(lambda v: isinstance(v, ir.Value) and RegisterTile.of(v.type) is not None, "a register tile")
TILES = Kind(lambda v: isinstance(v, tuple) and all(map(REGISTERS.holds, v)), "a list of register tiles")
SUMS = Kind(lambda v: REGISTERS.holds(v) or (v != () and TILES.holds(v)), "sums, or a list with those of each product")
SHARED = Kind(lambda v: isinstance(v, ir.Value) and SharedTile.of(v.type) is not None, "a shared tile")
MULTIPLIED = Kind(lambda v: isinstance(v, ir.Value) and _is_multiplied(v.type), "a tile that a pipeline brought")
QUERIES = Kind(lambda v: REGISTERS.holds(v) or SHARED.holds(v), "queries, of (tile.query-registers …)")
BOX = Kind(lambda v: isinstance(v, Box), "a box, of (tile.box …)")
OPERAND_LETTER = Kind(lambda v: v in OPERANDS, '"a" or "b"')
INDEX = Kind(_is_index, "an index")
COUNT = Kind(lambda v: v == 0 or _is_number(v), "a whole number that is known while compiling")
REAL = Kind(lambda v: isinstance(v, (int, float)) and not isinstance(v, bool), "a number that is known while compiling")
TWO = Kind(_all(2, _is_index), "[batch row]")
COLUMNS = Kind(lambda v: isinstance(v, tuple) and all(map(_is_index, v)), "a list of columns")
ELEMENTS = Kind(lambda v: isinstance(v, tuple) and any(map(REGISTERS.holds, v)), "a list with a register tile")
FUNCTION_NAME = Kind(lambda v: v in FUNCTIONS, f"one of {' '.join(FUNCTIONS)}")
UNIT = Kind(lambda v: v in (SUBGROUP, WARPGROUP), f'"{SUBGROUP}" or "{WARPGROUP}"')


def _box(operand: Operand, at: tuple[Any, Any, Any], sizes: tuple[int, int]) -> Box:
    return Box.of(operand, at, *sizes)


def _copies(kernel: Builder, columns: int) -> str:
    return kernel.copies([Box.of(operand, (0, 0, 0), 1, columns) for operand, _ in kernel.sides(1, 1)])


def _bytes(kernel: Builder, rows: int, columns: int, inner: int, slots: int) -> int:
    return kernel.shared_bytes([Box.of(x, (0, 0, 0), n, inner) for x, n in kernel.sides(rows, columns)], slots)


def _alike(products: Sequence[Builder]) -> bool:
    """Whether products have their right operand in common, and left ones that are alike in type and in memory."""
    facts = {
        (x.left.dtype, whole_words(x.left), is_direct(x.left), strided(x.left.tensor) is not None) for x in products
    }
    return len({x.right.tensor for x in products}) == 1 == len(facts)


def _once(function: Callable[[], Any]) -> Builtin:
    kept = cache(function)
    return Builtin("tile.once", lambda evaluator, form: kept(), 0, 0)


def _resident(kernel: Builder, blocks: int) -> None:
    kernel.launch.residency = blocks


_WORDS: dict[str, tuple[tuple[Kind, ...], Callable[..., Any]]] = {
    "rows": ((PRODUCT,), lambda kernel: kernel.product.rows),
    "columns": ((PRODUCT,), lambda kernel: kernel.product.columns),
    "inner": ((PRODUCT,), lambda kernel: kernel.product.inner),
    "batches": ((PRODUCT,), lambda kernel: kernel.product.batches),
    "products": ((PRODUCT,), lambda kernel: len(kernel.products)),
    "alike?": ((PRODUCTS,), _alike),
    "left": ((PRODUCT,), lambda kernel: kernel.left),
    "right": ((PRODUCT,), lambda kernel: kernel.right),
    "reduces?": ((OPERAND,), lambda operand: operand.reduces()),
    "copies": ((PRODUCT, NUMBER), _copies),
    "parts": ((KERNEL, OPERAND), lambda kernel, operand: kernel.parts_of(operand)),
    "room": ((KERNEL,), lambda kernel: kernel.room),
    "bytes": ((PRODUCT, NUMBER, NUMBER, NUMBER, NUMBER), _bytes),
    "single-loads": ((OPERAND, NUMBER, NUMBER, NUMBER), single_loads),
    "transposed": ((PRODUCT,), lambda kernel: kernel.transposed),
    "short-right": ((PRODUCT,), lambda kernel: kernel.short_right),
    "packed": ((KERNEL,), lambda kernel: replace(kernel, packs=True)),
    "block": ((OPERAND,), whole_words),
    "memory?": ((OPERAND,), lambda operand: strided(operand.tensor) is not None),
    "brought?": ((OPERAND,), lambda operand: not operand.reduces() or row_reductions(operand) is not None),
    "instruction": ((KERNEL,), lambda kernel: kernel.instruction),
    "nanoseconds": ((PRODUCT, SIZES, NUMBER, NUMBER), lambda kernel, sizes, *how: kernel.nanoseconds(*sizes, *how)),
    "fastest": ((PRODUCT, FUNCTION, FUNCTION), lambda kernel, tilings, time: kernel.fastest(tilings, time)),
    "direct?": ((OPERAND,), is_direct),
    "direct-nanoseconds": (
        (PRODUCT, SIZES, SIZES, NUMBER, NUMBER),
        lambda kernel, sizes, k, *how: kernel.direct_nanoseconds(*sizes, *k, *how),
    ),
    "registers?": (
        (PRODUCT, SIZES, SIZES, NUMBER, NUMBER),
        lambda kernel, sizes, k, *how: kernel.has_registers(*sizes, *k, *how),
    ),
    "direct-words": ((PRODUCT, SIZES, NUMBER), lambda kernel, sizes, k: kernel.direct_words(*sizes, k)),
    "resident": ((KERNEL, NUMBER), _resident),
    "task": ((PRODUCT, SIZES), lambda kernel, sizes: kernel.task(*sizes)),
    "warpgroup-tiling": ((PRODUCT,), warpgroup_tiling),
    "tasks": (
        (PRODUCT, SIZES, SIZES, UNIT, FUNCTION),
        lambda kernel, sizes, *how: kernel.tasks(*sizes, *how),
    ),
    "box": ((OPERAND, PLACE, SIZES), _box),
    "sums": ((PRODUCT, SIZES, NUMBER, SIZES, UNIT), lambda kernel, sizes, *how: kernel.sums(*sizes, *how)),
    "direct": ((BOX, OPERAND_LETTER), lambda box, letter: replace(box, direct=letter)),
    "mma": ((KERNEL, REGISTERS, MULTIPLIED, MULTIPLIED), lambda kernel, *tiles: kernel.mma(*tiles)),
    "add-parts": ((KERNEL, REGISTERS), lambda kernel, sums: kernel.add_parts(sums)),
    "store": ((PRODUCT, SUMS, PLACE), lambda kernel, sums, at: kernel.store(sums, at)),
    "pipeline": ((KERNEL, NUMBER, NUMBER, *[FUNCTION] * 4), lambda kernel, *how: kernel.pipeline(*how)),
}

_ATTENTION: dict[str, tuple[tuple[Kind, ...], Callable[..., Any]]] = {
    "queries": ((ATTENTION,), lambda a: a.rows.rows),
    "heads": ((ATTENTION,), lambda a: a.rows.batches),
    "positions": ((ATTENTION,), lambda a: a.rows.attention.context),
    "depth": ((ATTENTION,), lambda a: a.rows.attention.depth),
    "width": ((ATTENTION,), lambda a: a.rows.attention.width),
    "factor": ((ATTENTION,), lambda a: a.factor),
    "operand-parts": (
        (ATTENTION,),
        lambda a: (a.operand_parts(a.attention.queries), a.operand_parts(a.attention.keys)),
    ),
    "divides?": ((ATTENTION,), lambda a: a.divides),
    "by-warpgroups": ((SCORES, TRUTH), lambda a, copiers: a.by_warpgroups(copiers)),
    "wide?": ((SCORES,), lambda a: a.is_wide),
    "keys?": ((ATTENTION, NUMBER), lambda a, keys: a.takes_keys(keys)),
    "pieces?": ((ATTENTION, NUMBER), lambda a, keys: a.in_pieces(keys)),
    "block-bytes": ((ATTENTION, *[NUMBER] * 2, COUNT, NUMBER), lambda a, *how: a.block_bytes(*how)),
    "shape-nanoseconds": ((ATTENTION, *[NUMBER] * 4), lambda a, *how: a.shape_nanoseconds(*how)),
    "query-words": ((ATTENTION,), lambda a: a.query_words),
    "key-bytes": ((ATTENTION,), lambda a: a.key_bytes),
    "query-rows": ((SCORES, NUMBER), lambda a, rows: a.row_task(rows)),
    "visible": ((ATTENTION, *[INDEX] * 2, NUMBER), lambda a, *where: a.visible(*where)),
    "query-registers": ((ATTENTION, *[INDEX] * 2, NUMBER), lambda a, *where: a.query_registers(*where)),
    "shares-queries": ((ATTENTION,), lambda a: replace(a, shares_queries=True)),
    "makes-room?": ((SCORES,), lambda a: a.target.makes_room),
    "query-patches": ((ATTENTION, *[INDEX] * 2, NUMBER), lambda a, *where: a.query_patches(*where)),
    "query-lines": ((ATTENTION, REGISTERS), lambda a, patches: a.query_lines(patches)),
    "keys": ((ATTENTION, *[INDEX] * 2, NUMBER, INDEX), lambda a, *where: a.keys_box(*where)),
    "values": ((ATTENTION, *[INDEX] * 2, NUMBER, INDEX), lambda a, *where: a.values_box(*where)),
    "row-numbers": ((ATTENTION, REAL, SIZES), lambda a, value, sizes: a.numbers(value, *sizes[::-1], shares=False)),
    "row-shares": ((ATTENTION, REAL, SIZES), lambda a, value, sizes: a.numbers(value, *sizes[::-1], shares=True)),
    "weighed": ((SCORES, SIZES, NUMBER), lambda a, sizes, members: a.empty_sums(*sizes, members)),
    "scores": ((SCORES, QUERIES, SHARED, NUMBER), lambda a, *how: a.scores(*how)),
    "mask": ((ATTENTION, REGISTERS, PLACE, INDEX, INDEX), lambda a, *how: a.mask(*how)),
    "weigh": ((SCORES, REGISTERS, REGISTERS, SHARED), lambda a, *how: a.weigh(*how)),
    "map": ((FUNCTION_NAME, ELEMENTS), mapped),
    "reduce": ((FUNCTION_NAME, REGISTERS), lambda name, x: reduced(name, x, shares=False)),
    "reduce-lanes": ((FUNCTION_NAME, REGISTERS), lambda name, x: reduced(name, x, shares=True)),
    "over-members": ((FUNCTION_NAME, REGISTERS), over_members),
    "store-rows": ((ATTENTION, REGISTERS, TWO), lambda a, *how: a.store_rows(*how)),
    "once": ((FUNCTION,), _once),
    "walk": ((KERNEL, COUNT, INDEX, *[FUNCTION] * 4), lambda kernel, *how: kernel.walk(*how)),
}
_GRADIENTS: dict[str, tuple[tuple[Kind, ...], Callable[..., Any]]] = {
    "whole?": ((GRADIENTS,), lambda g: g.divides),
    "vectors?": ((GRADIENTS, NUMBER), lambda g, count: g.takes(count)),
    "copied?": ((GRADIENTS,), lambda g: g.in_pieces),
    "result-rows": ((GRADIENTS,), lambda g: g.rows.rows),
    "summed-over": ((GRADIENTS,), lambda g: g.rows.along),
    "rounds": ((GRADIENTS,), lambda g: g.rows.walk.rounds),
    "depths": ((GRADIENTS,), lambda g: tuple(one.other.depth for one in g.rows.sums.sums)),
    "own-words": ((GRADIENTS,), lambda g: g.own_words),
    "vector-bytes": ((GRADIENTS, NUMBER, NUMBER, COUNT), lambda g, *how: g.block_bytes(*how)),
    "scored": ((GRADIENTS,), lambda g: g.scored),
    "weighed-tiles": ((GRADIENTS,), lambda g: g.weighed),
    "reach": ((GRADIENTS, *[INDEX] * 2, NUMBER), lambda g, *where: g.reach(*where)),
    "own": ((GRADIENTS, COUNT, *[INDEX] * 2, NUMBER), lambda g, *where: g.own_rows(*where)),
    "beside": ((GRADIENTS, *[INDEX] * 3, NUMBER), lambda g, *where: tuple(g.boxes(*where))),
    "nothing": ((GRADIENTS, NUMBER), lambda g, rows: g.nothing(rows)),
    "weights": ((GRADIENTS, TILES, TWO, INDEX, INDEX), lambda g, *how: g.weights(*how)),
    "store-parts": ((GRADIENTS, TILES, TWO), lambda g, *how: g.store_sums(*how)),
}
_ROWS: dict[str, tuple[tuple[Kind, ...], Callable[..., Any]]] = {
    "row-count": ((ROWS,), lambda r: r.rows.count),
    "longest-row": ((ROWS,), lambda r: r.rows.longest),
    "narrowest": ((ROWS,), lambda r: r.rows.narrowest),
    "widest": ((ROWS,), lambda r: r.rows.widest),
    "in-blocks?": ((ROWS,), lambda r: bool(r.rows.widened)),
    "row-reduces?": ((ROWS,), lambda r: r.rows.reduces),
    "repeated": ((ROWS, NUMBER), lambda r, blocks: r.repeated(blocks)),
    "vector": ((ROWS, NUMBER, NUMBER), lambda r, columns, size: r.vector(columns, size)),
    "vectors": ((ROWS, ROW_TENSOR), lambda r, x: r.vectors(x)),
    "row-results": ((ROWS,), lambda r: tuple(r.results)),
    "row-task": ((ROWS, *[NUMBER] * 4), lambda r, *how: r.row_task(*how)),
    "keep": ((ROWS, ROW_TENSOR, TWO), lambda r, *how: r.keep(*how)),
    "ask": ((ROWS, ROW_TENSOR, TWO), lambda r, x, at: r.ask(x, at, early=False)),
    "ask-early": ((ROWS, ROW_TENSOR, TWO), lambda r, x, at: r.ask(x, at, early=True)),
    "over-row": ((ROWS, ROW_TENSOR, TWO, COUNT, FUNCTION), lambda r, *how: r.over_row(*how)),
    "numbers": ((ROWS, ROW_TENSOR, TWO, COLUMNS), lambda r, *how: r.numbers(*how)),
    "store-numbers": ((ROWS, ELEMENTS, ROW_TENSOR, TWO, COLUMNS), lambda r, *how: r.store(*how)),
    "shares": ((ROWS,), lambda r: r.rows.sums[0].shares if r.rows.sums else 0),
    "share-rows": ((ROWS,), lambda r: r.rows.sums[0].each if r.rows.sums else 0),
    "share-task": ((ROWS, *[NUMBER] * 2), lambda r, *how: r.share_task(*how)),
    "same-rows": ((ROWS,), lambda r: tuple(r.constants)),
    "summed": ((ROWS,), lambda r: tuple(r.summed)),
    "sum-rows": ((ROWS, NUMBER, NUMBER, FUNCTION), lambda r, *how: r.turns(*how)),
    "add-rows": ((ROWS, ELEMENTS, TWO), lambda r, *how: r.added(*how)),
    "barrier": ((ROWS,), lambda r: b.barrier()),
    "store-sums": ((ROWS, ELEMENTS, TWO), lambda r, *how: r.store_sums(*how)),
}
WORDS = {
    f"tile.{name}": word(f"tile.{name}", kinds, does)
    for name, (kinds, does) in {**_WORDS, **_ATTENTION, **_GRADIENTS, **_ROWS}.items()
}
"""What schedules are written with, beside the language itself; see lispgpt/passes/tile/build.py."""
