"""What a clustered launch's attention reads that is made ahead of the layers, by a block's own threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import prod

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.decode_step.launch import Copied, Launch, copied
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.targets import ptx


def make_hoisted(
    launch: Launch, position: Number, row: Index | None, spread: Callable[[int, Callable[[Number], None]], None]
) -> None:
    """row: of several sequences, this one's.  spread: (count, body) calls body(number) of so many numbers, each by one
    thread."""
    for ahead in launch.chain.hoisted:
        with copied(launch, ahead.kernel, ahead.arguments, 0) as made:
            for argument, series in ahead.arguments.items():
                if series.buffer == launch.chain.tokens:
                    raise Refused("what a kernel ahead of the layers makes depends on the token")
                if series.buffer == launch.chain.positions:
                    made.hold(argument, position.value)
            for tensor, memory in outputs_of(made.op):
                argument = ahead.results[ir.BlockArgument(memory).arg_number]
                shape = launch.layout.hoisted[argument]
                start = launch.place("ahead") + launch.layout.hoisted_at[argument]
                spread(prod(shape), partial(_leave, made, tensor, shape, start, row))


def _leave(
    made: Copied, tensor: ir.Value, shape: tuple[int, ...], start: Number, row: Index | None, number: Number
) -> None:
    index, rest = [], number
    for extent in shape[:0:-1]:
        index.append((rest % extent).index())
        rest = rest // extent
    with made.reader.scope():
        value = Number(made.reader.read(tensor, [rest.index() if row is None else row, *index[::-1]]))
    ptx.store_words(start + number * 4, [value])
