"""Matrix instructions: WMMA on RDNA and MFMA on CDNA, over all waves at once.

Which lane holds what, for D[m, n] = Σ A[m, k] · B[n, k] + C[m, n] with tiles of 16 (or 32) rows and columns:

    RDNA 3    A, B: lane l has row l % 16 and all 16 of k      C, D: register r has row 2r + l / 16, column l % 16
    RDNA 4    A, B: row l % 16, k from 8 · (l / 16)            C, D: register r has row r + 8 · (l / 16), column l % 16
    CDNA      A, B: row l % m, k from run · (l / m)            C, D: register r has row 8 · (64 / m / 2) · (r / 4) + …
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np

from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.operands import Step
from lispgpt.runtime.devices.amd_emulator.waves import FIRST_ACCUMULATOR, FIRST_VECTOR, Waves, constant

SHAPE = re.compile(r"V_(?:WMMA|MFMA)_F32_(\d+)X(\d+)X(\d+)_?(BF16|F16|F32)(?:_1K)?$")
ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4}


def product(step: Step, family: str, lanes: int) -> None:
    """Set the run function of a matrix instruction."""
    instruction = step.instruction
    shape = SHAPE.match(instruction.name)
    if shape is None or int(shape[1]) != int(shape[2]):
        raise NotModelled(instruction.name)
    size, depth, kind = int(shape[1]), int(shape[3]), shape[4]
    matrix_fma = instruction.format == "VOP3P_MFMA"
    changed = ("cbsz", "abid", "blgp") if matrix_fma else ("neg", "neg_hi")
    if any(instruction.get(name) for name in changed):
        raise NotModelled(f"{instruction.name} with permuted or negated operands")
    whole_rows = family == "rdna3"
    run = depth if whole_rows else depth * size // lanes
    lane = np.arange(lanes)
    groups = 1 if whole_rows else lanes // size
    rows = _result_rows(family, size, lanes)
    acc = instruction.get("acc") if matrix_fma else 0
    places = [instruction["src0"] + 256 * (acc & 1), instruction["src1"] + 256 * (acc >> 1)]
    registers = run * ELEMENT_BYTES[kind] // 4
    for place in places:
        step.reading(place, registers)
    accumulator = instruction["src2"], instruction["vdst"]
    if matrix_fma and instruction["acc_cd"]:
        accumulator = accumulator[0] + (256 if accumulator[0] >= FIRST_VECTOR else 0), accumulator[1] + 256
    initial = constant(accumulator[0])
    if initial is None:
        step.reading(accumulator[0], len(rows))
    step.writing(accumulator[1], len(rows))
    step.every_lane = True

    def gather(waves: Waves, place: int) -> np.ndarray:
        """[wave, row, k]."""
        raw = waves.v[_index(place) : _index(place) + registers, waves.at]  # [register, wave, lane]
        values = _numbers(raw.transpose(1, 2, 0), kind)  # [wave, lane, run]
        if whole_rows:
            return values[:, :size]
        return values.reshape(waves.count, groups, size, run).transpose(0, 2, 1, 3).reshape(waves.count, size, depth)

    def run_it(waves: Waves) -> None:
        if not matrix_fma and not waves.full:
            raise NotModelled(f"{instruction.name} with lanes that are off")
        a, b = gather(waves, places[0]), gather(waves, places[1])
        total = a @ b.transpose(0, 2, 1)
        for register, row in enumerate(rows):
            if initial is None:
                before = waves.vector(_index(accumulator[0]) + register).view(np.float32)
            else:
                before = np.asarray(np.uint32(initial)).view(np.float32)
            value = (total[:, row, lane % size] + before).astype(np.float32)
            waves.set_vector(_index(accumulator[1]) + register, value.view(np.uint32), _every(waves))

    step.run = run_it


def _every(waves: Waves) -> np.ndarray:
    return np.ones((waves.count, waves.lanes), bool)


def _index(place: int) -> int:
    return place - FIRST_VECTOR


def _result_rows(family: str, size: int, lanes: int) -> list[np.ndarray]:
    """For each register of C and D, the row that each lane holds."""
    group, count = np.arange(lanes) // size, size * size // lanes
    if family == "rdna3":
        return [lanes // size * r + group for r in range(count)]
    if family == "rdna4":
        return [r + count * group for r in range(count)]
    blocks = lanes // size
    return [4 * blocks * (r // 4) + 4 * group + r % 4 for r in range(count)]


def _numbers(raw: np.ndarray, kind: str) -> np.ndarray:
    """Float64 numbers of words whose last dimension counts registers."""
    words = np.ascontiguousarray(raw)
    if kind == "F32":
        return words.view(np.float32).astype(np.float64)
    if kind == "F16":
        return words.view(np.float16).astype(np.float64)
    return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)


def copy_accumulator(step: Step) -> Callable[[Waves], None] | None:
    """v_accvgpr_read and v_accvgpr_write: moves between vector and accumulation registers; None for anything else."""
    name, instruction = step.instruction.name, step.instruction
    if name not in (
        "V_ACCVGPR_READ_B32",
        "V_ACCVGPR_WRITE_B32",
        "V_ACCVGPR_READ",
        "V_ACCVGPR_WRITE",
        "V_ACCVGPR_MOV_B32",
    ):
        return None
    from_accumulator, to_accumulator = "WRITE" not in name, "READ" not in name
    origin, target = instruction["src0"], instruction["vdst"]
    number = constant(origin)
    if from_accumulator and FIRST_VECTOR <= origin < FIRST_ACCUMULATOR:
        origin += 256
    if to_accumulator and target < FIRST_ACCUMULATOR:
        target += 256
    if number is None:
        step.reading(origin, 1)
    step.writing(target, 1)

    def run(waves: Waves) -> None:
        if number is not None:
            value: np.ndarray = np.asarray(np.uint32(number))
        elif origin < FIRST_VECTOR:
            value = waves.scalar(origin)[:, None]
        else:
            value = waves.vector(_index(origin))
        waves.set_vector(_index(target), value)

    return run
