"""The loops around a kernel's thread function on a CPU: over blocks, threads, subgroups and barriers.

What a launcher and its thread function share is in `Launcher`; gpu_to_cpu.py says how the two fit together.
"""

from __future__ import annotations

from dataclasses import dataclass

RUNNING, AT_BARRIER, DONE = 0, 1, 2
"""A waiting thread's status byte: in a subgroup operation, at a barrier, returned."""

SLOT_BYTES = 16
"""What one thread can hand to another at once."""

SIZES = ("gx", "gy", "gz", "bx", "by", "bz")


@dataclass(frozen=True)
class Launcher:
    """A kernel on the CPU: @name for a range of blocks, and @name_thread with the arguments of thread_arguments.

    arguments and shared: the types of the kernel's arguments and of its workgroup memory.  waits: whether its threads
    are coroutines.  prints: whether they print, so that blocks have to run in order.
    """

    name: str
    arguments: tuple[str, ...]
    shared: tuple[str, ...]
    waits: bool
    prints: bool
    subgroup_size: int

    def thread_arguments(self) -> list[tuple[str, str]]:
        """(name, type) of each argument of the thread function, in order."""
        own = [(f"a{i}", t) for i, t in enumerate(self.arguments)] + [(f"s{i}", t) for i, t in enumerate(self.shared)]
        ids = [(n, "index") for n in ("idx", "idy", "idz", "tx", "ty", "tz", *SIZES)]
        wait = [("status", "memref<?xi8>"), ("turn", "memref<1xindex>"), ("slots", "!llvm.ptr")] if self.waits else []
        return [*own, *ids, ("dynamic", "memref<?xi8>"), *wait]


def launcher_text(kernel: Launcher) -> str:
    """The launcher, and the declaration of its thread function that lets the text be parsed on its own."""
    arguments = "".join(f", %a{i}: {t}" for i, t in enumerate(kernel.arguments))
    sizes = ", ".join(f"%{s}: index" for s in SIZES)
    shared = "\n".join(f"%s{i} = memref.alloc() {{alignment = 64}} : {t}" for i, t in enumerate(kernel.shared))
    freed = "\n".join(f"memref.dealloc %s{i} : {t}" for i, t in enumerate(kernel.shared))
    before, block, after = _waiting(kernel) if kernel.waits else ("", _straight(kernel), "")
    types = ", ".join(t for _, t in kernel.thread_arguments())
    marks = "" if kernel.prints else "parallel"
    return f"""
func.func @"{kernel.name}"(%from: index, %to: index, {sizes}, %bytes: i32{arguments}) attributes {{{marks}}} {{
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %bxy = arith.muli %bx, %by : index
  %threads = arith.muli %bxy, %bz : index
  %size = arith.index_cast %bytes : i32 to index
  %dynamic = memref.alloc(%size) {{alignment = 64}} : memref<?xi8>
  {shared}
  {before}
  scf.for %block = %from to %to step %c1 {{
    %idx = arith.remui %block, %gx : index
    %row = arith.divui %block, %gx : index
    %idy = arith.remui %row, %gy : index
    %idz = arith.divui %row, %gy : index
    {block}
  }}
  {after}
  {freed}
  memref.dealloc %dynamic : memref<?xi8>
  return
}}
func.func private @"{kernel.name}_thread"({types}){" -> !llvm.ptr" if kernel.waits else ""}
"""


def _call(kernel: Launcher) -> str:
    names = ", ".join(f"%{n}" for n, _ in kernel.thread_arguments())
    types = ", ".join(t for _, t in kernel.thread_arguments())
    result = "!llvm.ptr" if kernel.waits else "()"
    return f'func.call @"{kernel.name}_thread"({names}) : ({types}) -> {result}'


def _straight(kernel: Launcher) -> str:
    return f"""scf.for %tz = %c0 to %bz step %c1 {{
      scf.for %ty = %c0 to %by step %c1 {{
        scf.for %tx = %c0 to %bx step %c1 {{
          {_call(kernel)}
        }}
      }}
    }}"""


def _waiting(kernel: Launcher) -> tuple[str, str, str]:
    """What is set up before the blocks, done for each block, and taken down after them."""
    before = f"""%subgroup = arith.constant {kernel.subgroup_size} : index
  %running = arith.constant {RUNNING} : i8
  %at_barrier = arith.constant {AT_BARRIER} : i8
  %false = arith.constant false
  %groups = arith.ceildivui %threads, %subgroup : index
  %padded = arith.muli %groups, %subgroup : index
  %slot_bytes = arith.constant {3 * SLOT_BYTES} : index
  %exchange_bytes = arith.muli %padded, %slot_bytes : index
  %exchange = memref.alloc(%exchange_bytes) {{alignment = 64}} : memref<?xi8>
  %address = memref.extract_aligned_pointer_as_index %exchange : memref<?xi8> -> index
  %address64 = arith.index_cast %address : index to i64
  %slots = llvm.inttoptr %address64 : i64 to !llvm.ptr
  %status = memref.alloc(%threads) : memref<?xi8>
  %turn = memref.alloc() : memref<1xindex>
  %handles = memref.alloc(%threads) : memref<?xi64>"""
    after = """memref.dealloc %handles : memref<?xi64>
  memref.dealloc %turn : memref<1xindex>
  memref.dealloc %status : memref<?xi8>
  memref.dealloc %exchange : memref<?xi8>"""
    return before, _START.format(call=_call(kernel)) + _SUBGROUPS_UNTIL_DONE, after


_START = """memref.store %c0, %turn[%c0] : memref<1xindex>
    scf.for %t = %c0 to %threads step %c1 {{
      %tx = arith.remui %t, %bx : index
      %line = arith.divui %t, %bx : index
      %ty = arith.remui %line, %by : index
      %tz = arith.divui %line, %by : index
      memref.store %running, %status[%t] : memref<?xi8>
      %handle = {call}
      %address_of = llvm.ptrtoint %handle : !llvm.ptr to i64
      memref.store %address_of, %handles[%t] : memref<?xi64>
    }}"""

# A thread may not write its next value where a neighbour has yet to read the last one: `turn` alternates between two
# rows of slots.  Every thread's first value went to row 0, so a subgroup's first turn here is row 1.
_SUBGROUPS_UNTIL_DONE = """
    scf.while : () -> () {
      scf.for %first = %c0 to %threads step %subgroup {
        %last = arith.addi %first, %subgroup : index
        %end = arith.minui %last, %threads : index
        memref.store %c0, %turn[%c0] : memref<1xindex>
        scf.while : () -> () {
          %old = memref.load %turn[%c0] : memref<1xindex>
          %new = arith.subi %c1, %old : index
          memref.store %new, %turn[%c0] : memref<1xindex>
          %some = scf.for %t = %first to %end step %c1 iter_args(%any = %false) -> (i1) {
            %before = memref.load %status[%t] : memref<?xi8>
            %runs = arith.cmpi eq, %before, %running : i8
            scf.if %runs {
              %address_of = memref.load %handles[%t] : memref<?xi64>
              %handle = llvm.inttoptr %address_of : i64 to !llvm.ptr
              llvm.intr.coro.resume %handle : !llvm.ptr
            }
            %after = memref.load %status[%t] : memref<?xi8>
            %still = arith.cmpi eq, %after, %running : i8
            %or = arith.ori %any, %still : i1
            scf.yield %or : i1
          }
          scf.condition(%some)
        } do {
          scf.yield
        }
      }
      %more = scf.for %t = %c0 to %threads step %c1 iter_args(%any = %false) -> (i1) {
        %now = memref.load %status[%t] : memref<?xi8>
        %waits = arith.cmpi eq, %now, %at_barrier : i8
        scf.if %waits {
          memref.store %running, %status[%t] : memref<?xi8>
        }
        %or = arith.ori %any, %waits : i1
        scf.yield %or : i1
      }
      scf.condition(%more)
    } do {
      scf.yield
    }"""
