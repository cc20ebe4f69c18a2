"""GPU kernels that write rows of keys and values into a cache, a block for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import compress
from math import prod

from lispgpt.base.access import READ, READ_WRITE
from lispgpt.ir import build as b
from lispgpt.ir.access import access_of, set_access
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, operations, retype, symbol_of, unscheduled_kernels
from lispgpt.passes.kernels.attention import place_of_row, read_row
from lispgpt.passes.kernels.kernel import calls_of, coordinates, reschedule
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.model.kernel_work import divide_work
from lispgpt.passes.recognise.attention import Attention, attention_of
from lispgpt.passes.recognise.cache_writes import CacheWrite, is_cache_write
from lispgpt.passes.targets import Gpu, Target


def attentions(module: ir.Module, target: Gpu) -> Iterator[tuple[ir.Operation, Attention]]:
    """The attention kernels of several rows that no schedule has taken yet, whose caches others write by then."""
    for kernel in unscheduled_kernels(module, "attention"):
        attention = attention_of(kernel) if "tile" not in kernel.attributes else None
        if attention is not None and not attention.alone:
            yield kernel, split_off_writes(module, kernel, target) if attention.writes else attention


def split_off_writes(module: ir.Module, kernel: ir.Operation, target: Gpu) -> Attention:
    """Give an attention's cache writes a kernel of their own, called ahead of it with the operands that it uses; what
    is left reads the cache."""
    name = symbol_of(kernel) + "_write"
    with ir.InsertionPoint(kernel):
        copy = kernel.clone().operation
    copy.attributes["sym_name"] = ir.StringAttr.get(name)
    copy.attributes["kernel"] = ir.StringAttr.get("cache-write")
    divide_work(kernel, copy)
    whole = access_of(kernel)
    set_access(copy, [how if how == READ_WRITE else READ for how in whole])
    set_access(kernel, [READ if how == READ_WRITE else how for how in whole])
    scheduled = schedule_writes(copy, target)
    used = [not scheduled or any(True for _ in a.uses) for a in copy.regions[0].blocks[0].arguments]
    _keep_arguments(copy, used)
    for call in calls_of(module, kernel):
        with ir.InsertionPoint(call), call.location:
            b.call(name, list(compress(call.operands, used)))
    attention = attention_of(kernel)
    assert attention is not None
    _read_cache(kernel, attention)
    attention = attention_of(kernel)
    assert attention is not None
    return attention


def _read_cache(kernel: ir.Operation, attention: Attention) -> None:
    """Let an attention read the cache as it is, and write nothing to it."""
    for op in operations(kernel.regions[0].blocks[0]):
        if op.name == "bufferization.materialize_in_destination" and op.operands[0] in attention.updated:
            op.erase()
    for write in attention.writes:
        write.loop.results[0].replace_all_uses_with(write.loop.operands[3])
        write.loop.erase()


def _keep_arguments(kernel: ir.Operation, kept: Sequence[bool]) -> None:
    """Take away the arguments that nothing in a kernel uses: its calls would read what nobody has written yet."""
    set_access(kernel, list(compress(access_of(kernel), kept)))
    block = kernel.regions[0].blocks[0]
    for number in reversed(range(len(kept))):
        if not kept[number]:
            block.erase_argument(number)
    retype(kernel)


def schedule_writes(kernel: ir.Operation, target: Gpu) -> bool:
    """Schedule the loops of a kernel that are cache writes, a block of threads for each row; False, and nothing done,
    where they write something else than arguments."""
    writes = _placed_writes(kernel)
    if not writes:
        return False
    kinds: dict[tuple[tuple[int, ...], int], list[tuple[CacheWrite, ir.Value]]] = {}
    for write, buffer in writes:
        kinds.setdefault((write.shape, _width(write, target)), []).append((write, buffer))
    vectors = max(prod(shape) // width for shape, width in kinds)
    threads = min(target.max_threads, -(-vectors // target.subgroup) * target.subgroup)

    def emit() -> None:
        reader = Reader(target)
        target.dependency_passed_on()
        for (shape, width), same in kinds.items():
            for number in range(-(-prod(shape) // width // threads)):
                _write(same, reader, b.add(b.thread_id(), number * threads), width)

    return reschedule(kernel, [writes[0][0].rows], [threads], target, emit)


def schedule_writes_by_one(kernel: ir.Operation, target: Target) -> bool:
    """The same where a block is one thread."""
    writes = _placed_writes(kernel)
    if not writes:
        return False

    def emit() -> None:
        reader = Reader(target)
        for write, buffer in writes:
            width, shape = _width(write, target), write.shape

            def store(vector: Index, write: CacheWrite = write, buffer: ir.Value = buffer) -> None:
                with reader.scope():
                    index = coordinates(vector, write.shape)
                    value = read_row(write, reader, b.block_id(), index, _width(write, target))
                    place = place_of_row(write, reader, b.block_id(), index)
                    b.store(value, buffer, place, aligned=False)

            b.each(0, prod(shape), width, store)

    return reschedule(kernel, [writes[0][0].rows], [1], target, emit)


def _placed_writes(kernel: ir.Operation) -> list[tuple[CacheWrite, ir.Value]]:
    """A kernel's cache writes and the arguments that they go to; none where any goes elsewhere, or has other rows."""
    writes = [CacheWrite(op) for op in operations(kernel.regions[0].blocks[0]) if is_cache_write(op)]
    buffers = [_buffer(write.loop) for write in writes]
    known = [buffer for buffer in buffers if buffer is not None]
    stored = [buffer for tensor, buffer in outputs_of(kernel) if defining_op(tensor).name == "scf.for"]
    if len(known) < len(writes) or any(buffer not in known for buffer in stored):
        return []
    if len({write.rows for write in writes}) > 1 or any(not write.shape for write in writes):
        return []
    return list(zip(writes, known, strict=True))


def _buffer(op: ir.Operation) -> ir.Value | None:
    """The kernel's argument that a chain of cache writes goes to."""
    start = defining_op(op.operands[3])
    while start is not None and start.name == "scf.for":
        start = defining_op(start.operands[3])
    return start.operands[0] if start is not None and start.name == "bufferization.to_tensor" else None


def _width(write: CacheWrite, target: Target) -> int:
    """Numbers that a thread writes at once: neighbours in the cache as they are in the row."""
    return b.largest_width(write.shape[-1], 4, target.vector_bytes) if write.kept()[-1] else 1


def _write(writes: list[tuple[CacheWrite, ir.Value]], reader: Reader, vector: Index, width: int) -> None:
    shape = writes[0][0].shape

    def write() -> None:
        with reader.scope():
            index = coordinates(b.mul(vector, width), shape)
            for one, buffer in writes:
                value = read_row(one, reader, b.block_id(), index, width)
                b.store(value, buffer, place_of_row(one, reader, b.block_id(), index))

    b.if_then(b.less(vector, prod(shape) // width), write)
