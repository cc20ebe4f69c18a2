"""Matrix instructions: WMMA on RDNA and MFMA on CDNA, over all waves at once.

Which lane holds what, for D[m, n] = Σ A[m, k] · B[n, k] + C[m, n] with tiles of 16 (or 32) rows and columns:

    RDNA 3    A, B: lane l has row l % 16 and all 16 of k      C, D: register r has row 2r + l / 16, column l % 16
    RDNA 4    A, B: row l % 16, k from 8 · (l / 16)            C, D: register r has row r + 8 · (l / 16), column l % 16
    CDNA      A, B: row l % m, k from run · (l / m)            C, D: register r has row 8 · (64 / m / 2) · (r / 4) + …
"""

from __future__ import annotations

import re

import numpy as np

from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.operands import Step
from lispgpt.runtime.devices.amd_emulator.waves import FIRST_VECTOR, Waves, constant

SHAPE = re.compile(r"V_(?:WMMA|MFMA)_F32_(\d+)X\1X(\d+)_?(BF16|F16|F32)(?:_1K)?$")
ELEMENT_BYTES = {"BF16": 2, "F16": 2, "F32": 4}


def product(step: Step) -> None:
    """Set the run function of a matrix instruction."""
    i, lanes = step.instruction, step.lanes
    shape = SHAPE.match(i.name)
    if shape is None or any(i.get(name) for name in ("cbsz", "abid", "blgp", "neg", "neg_hi")):
        raise NotModelled(f"{i.name} of this kind")
    size, depth, kind = int(shape[1]), int(shape[2]), shape[3]
    parts = 1 if i.family == "rdna3" else lanes // size  # lanes that share a row of A
    rows = _result_rows(i.family, size, lanes)
    registers = depth // parts * ELEMENT_BYTES[kind] // 4
    before, after = i["src2"], i["vdst"] - FIRST_VECTOR
    initial, first = constant(before), before - FIRST_VECTOR
    for place, count in ((i["src0"], registers), (i["src1"], registers), (before, len(rows))):
        if place != before or initial is None:
            step.reading(place, count)
    step.writing(i["vdst"], len(rows))
    step.every_lane = True

    def gather(waves: Waves, place: int) -> np.ndarray:
        """[wave, row, k]."""
        first = place - FIRST_VECTOR
        raw = waves.v[first : first + registers, waves.at]  # [register, wave, lane]
        values = _numbers(raw.transpose(1, 2, 0), kind)[:, : parts * size]  # [wave, lane, k of it]
        parted = values.reshape(waves.count, parts, size, depth // parts)
        return parted.transpose(0, 2, 1, 3).reshape(waves.count, size, depth)

    def run(waves: Waves) -> None:
        if i.family != "cdna" and not waves.full:
            raise NotModelled(f"{i.name} with lanes that are off")
        total = gather(waves, i["src0"]) @ gather(waves, i["src1"]).transpose(0, 2, 1)
        start = np.uint32(initial) if initial is not None else waves.v[first : first + len(rows), waves.at]
        value = total[:, rows, np.arange(lanes) % size].transpose(1, 0, 2) + np.asarray(start).view(np.float32)
        waves.v[after : after + len(rows), waves.at] = value.astype(np.float32).view(np.uint32)

    step.run = run


def _result_rows(family: str, size: int, lanes: int) -> np.ndarray:
    """The row that each lane holds of each register of C and D [register, lane]."""
    group, r, groups = np.arange(lanes) // size, np.arange(size * size // lanes)[:, None], lanes // size
    if family == "rdna3":
        return groups * r + group
    return r + len(r) * group if family == "rdna4" else 4 * groups * (r // 4) + 4 * group + r % 4


def _numbers(raw: np.ndarray, kind: str) -> np.ndarray:
    """Float64 numbers of words whose last dimension counts registers."""
    words = np.ascontiguousarray(raw)
    if kind == "BF16":
        return (words.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return words.view(np.float32 if kind == "F32" else np.float16).astype(np.float64)
