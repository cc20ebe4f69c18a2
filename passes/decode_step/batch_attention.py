"""Attention of a launch of several texts: rank r of a cluster has text r, with all of the cluster's heads.

The warps that multiply attend to earlier positions; two others have the row's own key and value.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial

from lispgpt.ir import build as b
from lispgpt.passes.decode_step import cluster as c
from lispgpt.passes.decode_step.attention import Earlier
from lispgpt.passes.decode_step.batch_launch import PARTS, THREADS, TextsLaunch
from lispgpt.passes.decode_step.batch_layout import OWN_WARPS, SUMMER
from lispgpt.passes.decode_step.keep_clocked import wait_awake
from lispgpt.passes.decode_step.launch import Copied, copied
from lispgpt.passes.decode_step.new_row import Own
from lispgpt.passes.decode_step.scalars import Word, each, if_there, when
from lispgpt.passes.decode_step.sharing import WARPS
from lispgpt.passes.decode_step.softmax_merge import join_parts, pairs_of


def _read(stack: ExitStack, launch: TextsLaunch, layer: Word) -> tuple[Copied, list[Copied]]:
    """A layer's attention, and what norms its heads' rows."""
    chain = launch.chain
    made = stack.enter_context(copied(launch, chain.attention, chain.attended, layer))
    norms = [copied(launch, one.kernel, one.arguments, layer) for one in chain.head_norms]
    return made, [stack.enter_context(one) for one in norms]


class TextAttention:
    """The block's text's, of a layer, by the warps that multiply."""

    def __init__(self, stack: ExitStack, launch: TextsLaunch, run: Word, layer: Word) -> None:
        self.launch, self.position = launch, launch.position_at(run)
        made, normed = _read(stack, launch, layer)
        self.earlier = Earlier(launch, made, normed, self.position, text=launch.text)
        self.rows: list[tuple[list[Word], list[Word]]] = []

    def load_early(self) -> None:
        """What comes to registers ahead of the stream."""
        self.rows = self.earlier.load(range(self.earlier.early))

    def load(self) -> None:
        """All that does at once."""
        self.rows += self.earlier.load(range(self.earlier.early, self.earlier.turns))

    def tell(self, parity: Word) -> None:
        """Its heads' results to all ranks, once queries are there."""

        def tell() -> None:
            self.launch.await_ranks("own", 4 * self.launch.layout.head_rows, parity)
            self.earlier.attend(self.rows)
            c.meet(PARTS, THREADS + 32 * OWN_WARPS)
            each_ = self.launch.layout.each
            for first in range(0, each_, WARPS):
                one = partial(self._tell, self.launch.warp + first)
                one() if each_ - first >= WARPS else when(self.launch.warp < each_ - first, one)

        if_there(self.launch.has_text, tell)

    def _tell(self, head: Word) -> None:
        """One head's result."""
        launch, layout = self.launch, self.launch.layout
        at, there = pairs_of(launch)
        _, total, *numbers = join_parts(launch, self.position, None, head, at)
        whole = Word(b.intrinsic(launch.target.intrinsics["reciprocal"], [total.value], b.f32()))
        for i, (number, inside) in enumerate(zip(at, there, strict=True)):
            pair = [n * whole for n in numbers[2 * i : 2 * i + 2]]
            place = ((launch.text * layout.each + head) * layout.depth + (number & -4)) * 4
            quad = launch.of_neighbours(pair, 2)
            if_there(inside, partial(launch.send, "attended", [(place, quad)], 2))


class OwnRows:
    """The warps that have the text's own key and value of each layer."""

    def __init__(self, launch: TextsLaunch) -> None:
        self.launch = launch

    def emit(self) -> None:
        """All runs of the launch."""

        def run(number: Word) -> None:
            self.launch.meet_tokens()
            if_there(self.launch.has_text, lambda: each(0, self.launch.layout.layers, partial(self._layer, number)))

        each(0, self.launch.times, run)

    def _layer(self, run: Word, layer: Word) -> None:
        launch = self.launch.again()
        with ExitStack() as stack:
            made, normed = _read(stack, launch, layer)
            own = Own(launch, made, normed, launch.position_at(run), launch.text)
            self._await_own(launch.at_layer(run, layer))
            each(launch.warp - (SUMMER + 1), launch.layout.kv, own.attend, OWN_WARPS)
        c.pass_by(PARTS, THREADS + 32 * OWN_WARPS)

    def _await_own(self, parity: Word) -> None:
        """Wait for the rows.  Where each rank has a text the last warp, which has least to do, keeps matrix units awake
        meanwhile; of 2 texts it makes no difference."""
        barrier, rest = self.launch.barrier("own"), self.launch.target.matrix_rest // 2
        if self.launch.has_text is not None:
            c.wait(barrier, parity)
            return
        last = self.launch.warp == SUMMER + OWN_WARPS
        b.either(last.value, lambda: wait_awake(barrier, parity, rest), lambda: c.wait(barrier, parity))
