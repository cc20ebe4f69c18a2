"""A text's own warp, where a sharded launch has several: it finishes the text's sums and exchanges its stream by turns.

Both roles wait for each other in a text, so that a warp with both loses nothing but loads ahead; all texts' warps do
the same beside each other.
"""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, either, loop, when, word
from lispgpt.passes.plan.sharded_choice import choose, end, tell
from lispgpt.passes.plan.sharded_exchange import Exchanger
from lispgpt.passes.plan.sharded_finish import Finisher
from lispgpt.passes.plan.sharded_launch import Launch
from lispgpt.passes.plan.sharded_layout import FOLLOWER, STREAM


class Follower:
    def __init__(self, launch: Launch) -> None:
        self.launch, self.text = launch, launch.warp - FOLLOWER
        self.finisher, self.exchanger = Finisher(launch, self.text), Exchanger(launch, self.text)

    def emit(self) -> None:
        """With the last run's results by the first block."""
        launch, layout = self.launch, self.launch.layout

        def run(number: Word, token: Word) -> list[Word]:
            def layered() -> list[Word]:
                now = either(number > 0, "r", lambda: [self.exchanger.chosen(number)], lambda: [token])[0]
                self._layers(number, now)
                return [now]

            def other() -> list[Word]:
                self.exchanger.final(number)
                return [token]

            (token,) = either(launch.layered, "r", layered, other)
            last = launch.layered.where(launch.exchanged(number, word(2 * layout.layers)), number & 1)
            self.finisher.statistics(last)
            c.meet(STREAM, layout.two_roles)
            tell(launch, launch.before + number + 1, self.text)
            return [token]

        loop(0, launch.times, [self._token()], run)

        def last() -> None:
            end(launch, choose(launch, launch.before + launch.times, self.text), launch.times - 1, self.text)

        when(launch.block == 0, last)

    def _token(self) -> Word:
        launch = self.launch
        type_ = ir.MemRefType.get([launch.layout.texts], b.i32())
        view = b.emit("memref.view", [launch.memories[launch.chain.tokens], b.as_value(0)], [type_])
        return word(b.load(view, [self.text.index()], 1))

    def _layers(self, run: Word, token: Word) -> None:
        finisher, exchanger = self.finisher, self.exchanger

        def layer(number: Word, *stream: Word) -> list[Word]:
            finisher.attend(run, number)
            now = exchanger.first(run, number, list(stream))
            finisher.hidden(run, number)
            return exchanger.second(run, number, now)

        begun = exchanger.begin(run, token)
        finisher.make_ahead(run)
        loop(0, self.launch.layout.layers, begun, layer)
