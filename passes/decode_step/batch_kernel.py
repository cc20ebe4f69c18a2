"""The kernel of a launch of several sequences: what its subgroups do."""

from __future__ import annotations

from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import each, when
from lispgpt.passes.decode_step.batch_attention import OwnRows
from lispgpt.passes.decode_step.batch_launch import BatchLaunch
from lispgpt.passes.decode_step.batch_layers import BatchLayers
from lispgpt.passes.decode_step.batch_layout import STEP_BYTES, SUMMER
from lispgpt.passes.decode_step.batch_sums import Summer
from lispgpt.passes.decode_step.kernel import StepKernel, clear, input_of
from lispgpt.passes.decode_step.launch import Launch
from lispgpt.passes.decode_step.layout import WEIGHT_COPIER
from lispgpt.passes.decode_step.sharing import SUBGROUPS
from lispgpt.passes.decode_step.weight_ring import WeightCopier
from lispgpt.passes.targets import ptx
from lispgpt.passes.targets.tensor_copies import TENSOR_COPIES

MORE_REGISTERS, FEW_REGISTERS = 144, 80
"""Of threads of the subgroups that multiply, and of all others: together what all threads start with."""


class BatchKernel(StepKernel):
    launches = BatchLaunch

    def _clear(self, launch: Launch, thread: Number) -> None:
        """Zeros where operands have no part; and the sequences' tokens and positions where all of the block's subgroups
        read them."""
        layout, chain = self.layout, self.chain
        sizes = {"x": max(layout.width, layout.hidden), "attended_parts": layout.attended}
        for name, count in sizes.items():
            place = launch.place(name)
            each(thread, STEP_BYTES // 4 * (count // 16), partial(clear, place), layout.threads)

        def copy() -> None:
            for name, buffer in {"tokens": chain.tokens, "positions": chain.positions}.items():
                number = input_of(launch.memories[buffer], layout.sequences, thread.index())
                ptx.store_words(launch.place(name) + thread * 4, [number])

        when(thread < layout.sequences, copy)

    def _roles(self, launch: Launch) -> None:
        assert isinstance(launch, BatchLaunch)

        def multiply() -> None:
            TENSOR_COPIES.registers(MORE_REGISTERS, more=True)
            BatchLayers(launch).emit()

        def others() -> None:
            TENSOR_COPIES.registers(FEW_REGISTERS, more=False)
            when((launch.subgroup == WEIGHT_COPIER) & (launch.lane == 0), WeightCopier(launch).emit)
            when((launch.subgroup == SUMMER) & launch.layered, lambda: Summer(launch).emit())
            when((launch.subgroup > SUMMER) & launch.layered, lambda: OwnRows(launch).emit())

        b.either((launch.subgroup < SUBGROUPS).value, multiply, others)
