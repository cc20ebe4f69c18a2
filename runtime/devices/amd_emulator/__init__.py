"""An emulator of AMD GPUs: a code object's instructions, one at a time, over all lanes of many waves by numpy.

`code_object` loads, `decode` cuts into instructions by the tables in PyPI's tinygrad, `translate` turns AMD's
pseudocode (strings of the same package) into numpy once per kind of instruction, `machine` runs the waves of a grid,
and `hazards`, `memory` and `races` find what a GPU would let pass: registers that nothing set or whose load was
not waited for, addresses outside of every buffer, and waves that race.
"""
