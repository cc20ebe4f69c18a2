"""What a clustered launch's attention reads that is made ahead of the layers, and where it lies in a block's memory."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lispgpt.ir.structure import shape_of
from lispgpt.passes.decode_step.chain import Chain
from lispgpt.passes.kernels.refusal import Refused


@dataclass(frozen=True)
class HoistedShapes:
    """shapes: of F32, by attention's argument; of several sequences each block has its own's."""

    shapes: dict[int, tuple[int, ...]]

    @staticmethod
    def of(chain: Chain) -> HoistedShapes:
        """Refused where it is of several sequences, and not of each."""
        found: dict[int, tuple[int, ...]] = {}
        for ahead in chain.hoisted:
            arguments = ahead.kernel.regions[0].blocks[0].arguments
            found |= {theirs: shape_of(arguments[mine]) for mine, theirs in ahead.results.items()}
        if chain.sequences == 1:
            return HoistedShapes(found)
        if any(shape[0] != chain.sequences for shape in found.values()):
            raise Refused("what a kernel ahead of the layers makes is not of each sequence")
        return HoistedShapes({argument: (1, *shape[1:]) for argument, shape in found.items()})

    @property
    def nbytes(self) -> int:
        return 4 * sum(prod(shape) for shape in self.shapes.values())

    def place(self, argument: int) -> int:
        """Bytes from the start of what is made ahead."""
        return 4 * sum(prod(shape) for number, shape in self.shapes.items() if number < argument)
