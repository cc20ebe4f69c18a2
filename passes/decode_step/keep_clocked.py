"""Matrix units that are kept clocked while a block waits.

A core's matrix units that have had no instruction for a while go to sleep, and the core's clock is slow while they wake
up.  Measured on an H200, whose clock is 1.98 GHz: behind 1,170 clocks without one they sleep, and the next instruction
costs 0.26 us; a core whose units are clocked has 1.80 GHz.  So where products are less than 5,000 clocks apart a
subgroup that waits anyway gives them something to do in between.  A token of GPT-2 of 124M by one launch: 1.67 GHz
without.
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import again, either, real, word
from lispgpt.passes.targets import ptx


def keep_clocked(barrier: Number, parity: Number, rest: int) -> None:
    """By a subgroup that is in no hurry: wait until the phase of that parity is over.  The next one may not end before
    the subgroup has seen that: it would wait for the one behind.  rest: nanoseconds that it sleeps between two
    instructions, or up to twice as many; 0: the chip's units do not sleep."""
    if not rest:
        ptx.wait(barrier, parity)
        return

    def multiply(sums: Sequence[Number]) -> list[Number]:
        none = word(0)
        found = ptx.multiply([none] * 4, [none] * 2, sums)
        ptx.sleep(rest)
        return found

    def turn(*sums: Number) -> tuple[Number, list[Number]]:
        late = ptx.over_lanes("max", ptx.lasts(barrier, parity)) != 0
        found = either(late, "ffff", lambda: multiply(sums), lambda: list(sums))
        return late | (found[0] != 0.0), found  # zeros, which somebody has to read: else it is left out

    again([real(0.0)] * 4, turn)
