"""What a matrix's blocks stand for, a vector of neighbours at a time, for kernels that widen it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_formats import EXCESS
from lispgpt.passes.kernels.block_weights import WHOLE, BlockWeights
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.tensor_map import strided
from lispgpt.passes.recognise.in_blocks import bytes_of_blocks, kind_of_blocks
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.copies import WORD, PackedOperand, seen_as
from lispgpt.passes.tile.lower.packed import PackedMemory, Runs


def block_numbers(tensor: ir.Value, reader: Reader, target: Gpu) -> Callable[[Sequence[Index], int], ir.Value] | None:
    """What gives `width` neighbours of a row of a tensor [rows, numbers] of numbers in blocks, in f32; None where it is
    none."""
    stored = bytes_of_blocks(tensor)
    if stored is None:
        return None
    kind = kind_of_blocks(tensor)
    blocks = BlockWeights(stored, kind)
    own = replace(PackedOperand(*seen_as(stored, [(), (0,), (1, 2)])), blocks=kind)
    has_words = strided(stored) is not None and own.along_k % WORD == 0

    def numbers(index: Sequence[Index], width: int) -> ir.Value:
        row, k = index
        if has_words:
            memory, runs = PackedMemory(own, reader, target), Runs(blocks, width, width)
            (words,) = memory.made(memory.loads(row, k, runs), k, runs)
        else:
            words = blocks.words(reader, row, k, width)
        if blocks.has_floats and target.widens_e4m3:
            return _by_instruction(blocks, words, k, target)
        return blocks.widened(words, k, target, WHOLE)

    return numbers


def _by_instruction(blocks: BlockWeights, words: Sequence[ir.Value], k: Index, target: Gpu) -> ir.Value:
    """The same of E4M3 numbers, which a chip has in F16."""
    numbers, head = words
    scale = b.binary("arith.mulf", blocks.scale(head, k)[0], b.constant(1 / EXCESS, b.f32()))
    found = b.extend(target.widened_e4m3(blocks.format.numbers(numbers, k)))
    return b.binary("arith.mulf", found, b.splat(scale, b.width_of(found)))
