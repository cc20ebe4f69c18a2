"""Attention of a launch of several sequences: rank r of a cluster has sequence r, with all of the cluster's heads.

The subgroups that multiply attend to earlier positions; two others have the row's own key and value.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import each, if_there, when
from lispgpt.passes.decode_step.attention import PastRows
from lispgpt.passes.decode_step.batch_launch import PARTS, THREADS, BatchLaunch
from lispgpt.passes.decode_step.batch_layout import NEW_ROW_SUBGROUPS, SUMMER
from lispgpt.passes.decode_step.keep_clocked import keep_clocked
from lispgpt.passes.decode_step.launch import attention_of_layer
from lispgpt.passes.decode_step.new_row import NewRow
from lispgpt.passes.decode_step.sharing import SUBGROUPS
from lispgpt.passes.decode_step.softmax_merge import join_parts, pairs_of
from lispgpt.passes.targets import ptx


class TextAttention:
    """The block's sequence's, of a layer, by the subgroups that multiply."""

    def __init__(self, stack: ExitStack, launch: BatchLaunch, run: Number, layer: Number) -> None:
        self.launch, self.position = launch, launch.position_at(run)
        made, normed = attention_of_layer(stack, launch, layer)
        self.past = PastRows(launch, made, normed, self.position, sequence=launch.sequence)
        self.rows: list[tuple[list[Number], list[Number]]] = []

    def load_early(self) -> None:
        """What comes to registers ahead of the residual stream."""
        self.rows = self.past.load(range(self.past.early))

    def load(self) -> None:
        """All that does at once."""
        self.rows += self.past.load(range(self.past.early, self.past.turns))

    def publish(self, parity: Number) -> None:
        """Its heads' results to all ranks, once queries are there."""

        def publish() -> None:
            self.launch.await_ranks("own", 4 * self.launch.layout.head_rows, parity)
            self.past.attend(self.rows)
            ptx.wait_at(PARTS, THREADS + 32 * NEW_ROW_SUBGROUPS)
            each_ = self.launch.layout.each
            for first in range(0, each_, SUBGROUPS):
                one = partial(self._publish, self.launch.subgroup + first)
                one() if each_ - first >= SUBGROUPS else when(self.launch.subgroup < each_ - first, one)

        if_there(self.launch.has_sequence, publish)

    def _publish(self, head: Number) -> None:
        """One head's result."""
        launch, layout = self.launch, self.launch.layout
        at, there = pairs_of(launch)
        _, total, *numbers = join_parts(launch, self.position, None, head, at)
        whole = Number(b.intrinsic(launch.target.intrinsics["reciprocal"], [total.value], b.f32()))
        for i, (number, inside) in enumerate(zip(at, there, strict=True)):
            pair = [n * whole for n in numbers[2 * i : 2 * i + 2]]
            place = ((launch.sequence * layout.each + head) * layout.depth + (number & -4)) * 4
            quad = launch.of_neighbours(pair, 2)
            if_there(inside, partial(launch.send, "attended", [(place, quad)], 2))


class OwnRows:
    """The subgroups that have the sequence's own key and value of each layer."""

    def __init__(self, launch: BatchLaunch) -> None:
        self.launch = launch

    def emit(self) -> None:
        """All runs of the launch."""

        def run(number: Number) -> None:
            self.launch.wait_for_tokens()
            if_there(self.launch.has_sequence, lambda: each(0, self.launch.layout.layers, partial(self._layer, number)))

        each(0, self.launch.times, run)

    def _layer(self, run: Number, layer: Number) -> None:
        launch = self.launch.again()
        with ExitStack() as stack:
            made, normed = attention_of_layer(stack, launch, layer)
            own = NewRow(launch, made, normed, launch.position_at(run), launch.sequence)
            self._await_own(launch.at_layer(run, layer))
            each(launch.subgroup - (SUMMER + 1), launch.layout.kv, own.attend, NEW_ROW_SUBGROUPS)
        ptx.arrive_at(PARTS, THREADS + 32 * NEW_ROW_SUBGROUPS)

    def _await_own(self, parity: Number) -> None:
        """Wait for the rows.  Where each rank has a sequence the last subgroup, which has least to do, keeps matrix
        units clocked meanwhile; of 2 sequences it makes no difference."""
        barrier, rest = self.launch.barrier("own"), self.launch.target.matrix_rest // 2
        if self.launch.has_sequence is not None:
            ptx.wait(barrier, parity)
            return
        last = self.launch.subgroup == SUMMER + NEW_ROW_SUBGROUPS
        b.either(last.value, lambda: keep_clocked(barrier, parity, rest), lambda: ptx.wait(barrier, parity))
