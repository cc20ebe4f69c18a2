"""What a GPU's back end made of each kernel: registers, shared memory, spills and scratch, the widest load.

AMD's assembly says all of it in its metadata.  PTX has no registers yet: where NVIDIA's ptxas is on PATH, it is asked.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from lispgpt.runtime.plan import Launch, Plan

COLUMNS = ("registers", "shared", "spills", "scratch")
AMD_FACTS = {
    "registers": ".vgpr_count",
    "shared": ".group_segment_fixed_size",
    "spills": ".vgpr_spill_count",
    "scratch": ".private_segment_fixed_size",
}
LOADS = re.compile(r"\b(?:global_load_(?:b|dwordx?)(\d*)|ld\.global(?:\.nc)?(?:\.v(\d))?\.[a-z](\d+))")


@dataclass(frozen=True)
class KernelFacts:
    """Registers of a lane; bytes of shared memory of a block; spilled registers or bytes; bytes of scratch of a lane;
    bytes of the widest load from global memory.  None: not known here."""

    registers: int | None
    shared: int | None
    spills: int | None
    scratch: int | None
    widest_load: int


def kernel_facts(assembly: str) -> dict[str, KernelFacts]:
    """Facts by kernel from the text of AMD's assembly or of PTX; empty for other text."""
    if ".amdgcn_target" in assembly:
        return _amd_facts(assembly)
    return _nvidia_facts(assembly) if ".visible .entry" in assembly else {}


def kernel_table(plan: Plan, assembly: str) -> str:
    """A row for each kernel of a plan.  MB: what all arguments of its first launch hold, at least its traffic."""
    facts = kernel_facts(assembly)
    launches: dict[str, Launch] = {}
    for entry in plan.entries:
        for launch in entry.launches:
            launches.setdefault(launch.kernel, launch)
    header = ("kernel", "grid", "block", *COLUMNS, "widest load", "MB")
    rows = [header, *(_row(name, launch, facts.get(name)) for name, launch in launches.items())]
    widths = [max(len(row[i]) for row in rows) for i in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)


def _row(name: str, launch: Launch, facts: KernelFacts | None) -> tuple[str, ...]:
    def cell(value: int | None) -> str:
        return "-" if value is None else str(value)

    known = [cell(getattr(facts, column)) if facts else "-" for column in COLUMNS]
    widest = cell(facts.widest_load) if facts else "-"
    megabytes = sum(argument.nbytes for argument in launch.arguments) / 1e6
    return (name, _extents(launch.grid), _extents(launch.block), *known, widest, f"{megabytes:.2f}")


def _extents(extents: tuple[int, int, int]) -> str:
    return "x".join(map(str, extents[: 3 if extents[2] > 1 else 2 if extents[1] > 1 else 1]))


def _amd_facts(assembly: str) -> dict[str, KernelFacts]:
    code, _, metadata = assembly.partition("amdhsa.kernels:")
    bodies = _bodies(code, re.compile(r"^(\w+):\s*(?:;.*)?$", re.MULTILINE))
    found = {}
    for part in re.split(r"^  - (?=\.)", metadata, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^\s*(\.\w+):\s*(\S+)\s*$", part, flags=re.MULTILINE))
        name = values.get(".name", "").strip("'\"")
        numbers = {fact: int(values[key]) for fact, key in AMD_FACTS.items()}
        found[name] = KernelFacts(**numbers, widest_load=_widest_load(bodies.get(name, "")))
    return found


def _nvidia_facts(assembly: str) -> dict[str, KernelFacts]:
    bodies = _bodies(assembly, re.compile(r"^\.visible \.entry (\w+)\(", re.MULTILINE))
    resources = _ask_ptxas(assembly)
    found = {}
    for name, body in bodies.items():
        shared = sum(int(size) for size in re.findall(r"\.shared [^\[;]*\[(\d+)\]", body))
        registers, spills, scratch = resources.get(name, (None, None, None))
        found[name] = KernelFacts(registers, shared, spills, scratch, _widest_load(body))
    return found


def _bodies(text: str, start: re.Pattern[str]) -> dict[str, str]:
    """The text from each start of a kernel to the next."""
    matches = list(start.finditer(text))
    ends = [m.start() for m in matches[1:]] + [len(text)]
    return {m.group(1): text[m.start() : end] for m, end in zip(matches, ends, strict=True)}


def _widest_load(body: str) -> int:
    widths = [0]
    for amd, count, bits in LOADS.findall(body):
        if bits:
            widths.append(int(count or 1) * int(bits) // 8)
        else:
            words = amd or "1"
            widths.append(int(words) // 8 if int(words) >= 32 else int(words) * 4)
    return max(widths)


def _ask_ptxas(assembly: str) -> dict[str, tuple[int, int, int]]:
    """(registers, bytes of spills, bytes of stack) by kernel; nothing where there is no ptxas."""
    ptxas = shutil.which("ptxas")
    chip = re.search(r"^\.target (\w+)", assembly, re.MULTILINE)
    if ptxas is None or chip is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernels.ptx"
        source.write_text(assembly)
        command = [ptxas, f"-arch={chip.group(1)}", "-v", str(source), "-o", str(Path(folder) / "kernels.cubin")]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
    found = {}
    for part in said.split("Compiling entry function '")[1:]:
        numbers = [
            re.search(rule, part)
            for rule in (r"Used (\d+) registers", r"(\d+) bytes spill stores", r"(\d+) bytes stack")
        ]
        if all(numbers):
            found[part.partition("'")[0]] = tuple(int(m.group(1)) for m in numbers if m)
    return found  # type: ignore[return-value]
