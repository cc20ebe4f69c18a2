"""The exchanger of a block of one sequence: the token to go on with, and what the block adds to the residual stream."""

from __future__ import annotations

from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import added, each, either, if_there, loop, when, word
from lispgpt.passes.decode_step.draw import Draw
from lispgpt.passes.decode_step.fixed_point_sums import part_of_sum
from lispgpt.passes.decode_step.largest_logit import Choice, choose, chosen_before, end, leave, publish, report
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import ATTENDED, RESIDUAL_STREAM, THREE_ROLES, TOKEN, TWO_ROLES
from lispgpt.passes.decode_step.sharing import Sharing
from lispgpt.passes.targets import ptx


class Exchanger:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    def emit(self) -> None:
        """All runs of the launch: each begins with the token that the one before has chosen.  One block leaves the last
        one's results."""
        launch = self.launch
        if launch.layout.draws:
            self._drawn(Draw(launch))
            return

        def run(number: Number, token: Number) -> list[Number]:
            def layered() -> list[Number]:
                next_ = either(number > 0, "r", lambda: [chosen_before(launch, number)], lambda: [token])[0]
                self._layers(next_)
                return [next_]

            def other() -> list[Number]:
                if launch.kept:
                    when((number > 0) & launch.reports, lambda: report(launch, number))
                return [token]

            (token,) = either(launch.layered, "r", layered, other)
            ptx.wait_at(RESIDUAL_STREAM, TWO_ROLES)
            publish(launch, launch.before + number + 1)
            return [token]

        loop(0, launch.times, [launch.token], run)
        when(launch.reports, lambda: end(launch, choose(launch, launch.before + launch.times), launch.times - 1))

    def _drawn(self, draw: Draw) -> None:
        """The same where every exchanger draws the token that its next run starts from."""
        launch = self.launch

        def run(number: Number, token: Number, _: Number, round_: Number) -> list[Number]:
            when(launch.layered, lambda: self._layers(token))
            draw.prepare(launch.position + number, round_)
            ptx.wait_at(RESIDUAL_STREAM, TWO_ROLES)
            result, round_ = draw.choose(round_)
            choice = Choice((result < 0).where(0, result), result, [])
            if launch.kept:
                when(launch.reports & (launch.lane == 0), lambda: leave(launch, choice, number))
            return [choice.token, result, round_]

        _, result, round_ = loop(0, launch.times, [launch.token, word(0), draw.round], run)

        def last() -> None:
            end(launch, Choice((result < 0).where(0, result), result, []), None)
            when(launch.lane == 0, lambda: b.store(round_.value, launch.exchange, [1]))

        when(launch.reports, last)

    def _layers(self, token: Number) -> None:
        """Tell the token to the subgroups that multiply, and add what they make of it."""
        launch, layout = self.launch, self.launch.layout
        when(launch.lane == 0, lambda: ptx.store_words(launch.place("tokens"), [token]))
        ptx.arrive_at(TOKEN, TWO_ROLES)

        def layer(_: Number) -> None:
            ptx.arrive_at(ATTENDED, THREE_ROLES)  # once the sums of the layer ahead are read
            self._add(0, layout.out_projection, "out_projection_sums")
            self._add(1, layout.down, "down_sums")

        each(0, layout.layers, layer)

    def _add(self, number: int, sharing: Sharing, sums: str) -> None:
        """A layer's first or second addition."""
        launch, layout = self.launch, self.launch.layout
        ptx.wait_at(RESIDUAL_STREAM, TWO_ROLES)
        for start in range(0, layout.columns, 32):
            column = launch.lane + start
            there = None if start + 32 <= layout.columns else column < layout.columns
            place = launch.place(sums) + column * 4
            own = added([ptx.load_reals(place + i * (4 * layout.sum_columns), 1)[0] for i in range(sharing.slices)])
            to = (launch.rank * layout.columns + column) * 8 + (layout.lines["sums"] + number * 8 * layout.width)
            if_there(there, partial(ptx.add, ptx.pointer(launch.exchange, to), part_of_sum(own)))
