"""Single instructions on the emulator: LLVM assembles each between loads of its operands and a store of its result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from lispgpt.ir.mlir import ir, new_context, passmanager
from lispgpt.passes.targets.binary import serialized_objects
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.machine import Machine
from lispgpt.runtime.devices.amd_emulator.memory import Memory

CASES = [("gfx942", 64), ("gfx950", 64), ("gfx1100", 32), ("gfx1100", 64), ("gfx1151", 32), ("gfx1201", 32),
         ("gfx1201", 64)]  # fmt: skip
"""(chip, lanes of a wave)."""
BLOCK, GROUPS, INPUTS, LANE_BYTES = 128, 2, 4, 16
THREADS = BLOCK * GROUPS
SHARED_WORDS = 512
WAIT = {"gfx9": "s_waitcnt 0", "gfx11": "s_waitcnt 0\ns_waitcnt_vscnt null, 0",
        "gfx12": "s_wait_loadcnt 0\ns_wait_storecnt 0\ns_wait_dscnt 0"}  # fmt: skip
TYPES = {1: "i32", 2: "vector<2xi32>", 4: "vector<4xi32>"}


@dataclass(frozen=True)
class Snippet:
    """text: assembly; $0 is the result, $1 and so on the operands, {wait} waits for memory.

    operands: a letter each. `v`: the next input, a word for each lane; `V`: the next two inputs; `0`: the next input,
    in the result's register beforehand; `m`: the address of memory in scalar registers; `d`: its descriptor; `o`: the
    lane's own offset into memory in bytes; `c`: its pair's, a place for two lanes; `l`: the lane's own LANE_BYTES of
    shared memory; `g`: one place in it for the workgroup; `s`: LANE_BYTES of its own private memory.  words: of the
    result, for each lane.
    """

    name: str
    text: str
    operands: str = "v"
    words: int = 1


@dataclass(frozen=True)
class Outcome:
    """result: [words, thread].  memory: the words of memory afterwards, LANE_BYTES for each thread."""

    result: np.ndarray
    memory: np.ndarray


def family(chip: str) -> str:
    return next(prefix for prefix in WAIT if chip.startswith(prefix))


def _kernel(snippet: Snippet, chip: str) -> str:
    lines, names, kinds, constraints, given = [], [], [], ["=&v"], 0

    def loaded() -> str:
        nonlocal given
        lines.append(f"%p{given} = llvm.getelementptr %in[%t, {given}] : "
                     f"(!llvm.ptr<1>, i32) -> !llvm.ptr<1>, !llvm.array<{INPUTS} x i32>")  # fmt: skip
        lines.append(f"%i{given} = llvm.load %p{given} : !llvm.ptr<1> -> i32")
        given += 1
        return f"%i{given - 1}"

    for letter in snippet.operands:
        if letter == "V":
            low, high = loaded(), loaded()
            lines.append(f"%a{given} = llvm.insertelement {low}, %none[%zero : i32] : vector<2xi32>")
            lines.append(f"%b{given} = llvm.insertelement {high}, %a{given}[%one : i32] : vector<2xi32>")
            names.append(f"%b{given}")
        else:
            fixed = {
                "m": "%mem",
                "d": "%described",
                "o": "%own",
                "c": "%pair",
                "l": "%mine",
                "g": "%ours",
                "s": "%private",
            }
            names.append(fixed.get(letter) or loaded())
        kinds.append({"V": "vector<2xi32>", "m": "!llvm.ptr<1>", "d": "vector<4xi32>"}.get(letter, "i32"))
        constraints.append("0" if letter == "0" else "s" if letter in "md" else "v")
    text = snippet.text.format(wait=WAIT[family(chip)]).replace('"', "\\22").replace("\n", "\\0A")
    result = TYPES[snippet.words]
    body = "\n".join(lines)
    return f"""
  llvm.func @{snippet.name}(%in: !llvm.ptr<1>, %out: !llvm.ptr<1>, %mem: !llvm.ptr<1>) attributes {{rocdl.kernel}} {{
    %zero = llvm.mlir.constant(0 : i32) : i32
    %one = llvm.mlir.constant(1 : i32) : i32
    %two = llvm.mlir.constant(2 : i32) : i32
    %three = llvm.mlir.constant(3 : i32) : i32
    %block = llvm.mlir.constant({BLOCK} : i32) : i32
    %bytes = llvm.mlir.constant({LANE_BYTES} : i32) : i32
    %limit = llvm.mlir.constant({THREADS * LANE_BYTES // 2} : i32) : i32
    %flags = llvm.mlir.constant({DESCRIPTOR_FLAGS[family(chip)]} : i32) : i32
    %none = llvm.mlir.poison : vector<2xi32>
    %nothing = llvm.mlir.poison : vector<4xi32>
    %x = rocdl.workitem.id.x : i32
    %w = rocdl.workgroup.id.x : i32
    %first = llvm.mul %w, %block : i32
    %t = llvm.add %first, %x : i32
    %own = llvm.mul %t, %bytes : i32
    %half = llvm.lshr %t, %one : i32
    %pair = llvm.mul %half, %bytes : i32
    %lds = llvm.mlir.addressof @lds : !llvm.ptr<3>
    %ours = llvm.ptrtoint %lds : !llvm.ptr<3> to i32
    %distance = llvm.mul %x, %bytes : i32
    %mine = llvm.add %ours, %distance : i32
    {PRIVATE if "s" in snippet.operands else ""}
    %address = llvm.ptrtoint %mem : !llvm.ptr<1> to i64
    %wide = llvm.bitcast %address : i64 to vector<2xi32>
    %lower = llvm.extractelement %wide[%zero : i32] : vector<2xi32>
    %upper = llvm.extractelement %wide[%one : i32] : vector<2xi32>
    %d0 = llvm.insertelement %lower, %nothing[%zero : i32] : vector<4xi32>
    %d1 = llvm.insertelement %upper, %d0[%one : i32] : vector<4xi32>
    %d2 = llvm.insertelement %limit, %d1[%two : i32] : vector<4xi32>
    %described = llvm.insertelement %flags, %d2[%three : i32] : vector<4xi32>
    {body}
    %r = llvm.inline_asm has_side_effects "{text}", "{",".join(constraints)}" {", ".join(names)}
      : ({", ".join(kinds)}) -> {result}
    %q = llvm.getelementptr %out[%t] : (!llvm.ptr<1>, i32) -> !llvm.ptr<1>, {result}
    llvm.store %r, %q : {result}, !llvm.ptr<1>
    llvm.return
  }}"""


PRIVATE = f"""%places = llvm.alloca %one x !llvm.array<{LANE_BYTES // 4} x i32> : (i32) -> !llvm.ptr<5>
    %private = llvm.ptrtoint %places : !llvm.ptr<5> to i32"""
DESCRIPTOR_FLAGS = {"gfx9": 0x00027000, "gfx11": 0x31014000, "gfx12": 0x31014000}
"""Of raw buffers of 32-bit words, with bounds that are checked."""


@cache
def assembled(snippets: tuple[Snippet, ...], chip: str, lanes: int) -> CodeObject:
    kernels = "\n".join(_kernel(snippet, chip) for snippet in snippets)
    text = f"""module attributes {{gpu.container_module}} {{ gpu.module @kernels {{
  llvm.mlir.global internal @lds() {{addr_space = 3 : i32, alignment = 16 : i64}} : !llvm.array<{SHARED_WORDS} x i32>
  {kernels} }} }}"""
    with new_context():
        module = ir.Module.parse(text)
        attach = f"rocdl-attach-target{{chip={chip} features=+wavefrontsize{lanes} O=3}}"
        passmanager.PassManager.parse(f"builtin.module({attach})").run(module.operation)
        return CodeObject(serialized_objects(module, "bin"), chip)


def run(
    snippets: Sequence[Snippet], name: str, chip: str, lanes: int, inputs: np.ndarray, memory: np.ndarray
) -> Outcome:
    """One of the snippets, on all threads.  inputs: words [input, thread]; memory: words, which stay as they are."""
    code, device = assembled(tuple(snippets), chip, lanes), Memory()
    given = np.zeros((THREADS, INPUTS), np.uint32)
    given[:, : inputs.shape[0]] = inputs.T
    words = next(snippet.words for snippet in snippets if snippet.name == name)
    result, after = np.full((THREADS, words), 0xFFFFFFFF, np.uint32), memory.copy()
    addresses = [device.add(data, what) for data, what in ((given, "inputs"), (result, "result"), (after, "memory"))]
    arguments = np.array(addresses, np.uint64).tobytes()
    Machine(code, device).launch(name, (GROUPS, 1, 1), (BLOCK, 1, 1), arguments)
    assert code.descriptor(name).lanes == lanes
    return Outcome(result.T.copy(), after)
