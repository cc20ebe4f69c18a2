"""What a GPU's back end made of each kernel, and what a launch of it has to do at least.

AMD's assembly says in its metadata what a kernel needs.  PTX has no registers yet: where NVIDIA's ptxas is on PATH, it
is asked.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lispgpt.base import scratch
from lispgpt.passes.targets.binary import find_ptxas
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.plan.work import Amount, Rates, Work

COLUMNS = ("registers", "shared", "spills", "scratch")
AMD_FACTS = {
    "registers": (".vgpr_count",),
    "shared": (".group_segment_fixed_size",),
    "spills": (".sgpr_spill_count", ".vgpr_spill_count"),
    "scratch": (".private_segment_fixed_size",),
}
COPIES = re.compile(r"cp\.async\.c[ag]\.shared\.global[\w.:]* \[[^]]*\], \[[^]]*\], (\d+)")
LOADS = re.compile(r"\b(?:global_load_(?:b|dwordx?)(\d*)|ld\.global(?:\.nc)?(?:\.v(\d))?\.[a-z](\d+))")


@dataclass(frozen=True)
class KernelFacts:
    """What one kernel needs; None: not known here.

    registers: of a lane, vector registers on AMD.  shared: bytes of a block.  spills: AMD's vector and scalar registers
    (scalar ones that went to lanes of vector registers too), NVIDIA's bytes.  scratch: bytes of a lane.  widest_load:
    bytes of the widest load from global memory.
    """

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


def kernel_table(artifact: Artifact, assembly: str) -> str:
    """A row for each kernel, with its first launch's line, and lines for each entry, and for what is made of weights
    ahead of them: the sums over its launches, and what made them as many.

    shared: static and dynamic.  MB, Mflop: what a launch has to read and write at least, and its floating-point
    operations in millions; attention's where its rows are the last of the context, which is the most.  floor: the
    microseconds that these take at the rates of the part that the first line names.  Kernels that run generic, or in
    order by one thread, have a line that says why, and those that are written by tiles one that names the schedule.
    Products have one with all of their schedules, by modelled times, the least of which is taken where launches of the
    chip have been timed; the user's own, which are tried first, stand first.
    """
    facts, rates = kernel_facts(assembly), artifact.rates
    launches: dict[str, tuple[Launch, Entry]] = {}
    for entry in artifact.plan.every:
        for launch in entry.launches:
            launches.setdefault(launch.kernel, (launch, entry))
    rows = [_row(launch, facts.get(name), _amount(artifact, name, e), rates) for name, (launch, e) in launches.items()]
    rows = [("kernel", "grid", "block", *COLUMNS, "widest load", "MB", "Mflop", "floor us"), *rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["  ".join(map(_justify, row, widths, range(len(row)))) for row in rows]
    sums = [f"{entry.label}: {_sums(artifact, entry)}" for entry in artifact.plan.entries]
    if artifact.plan.making is not None:
        sums.append(f"made once of weights: {_sums(artifact, artifact.plan.making)}")
    sums += [f"{entry.label}: {remark}" for entry in artifact.plan.entries for remark in entry.remarks]
    lines += _general_lines(artifact)
    known = f"floors at {rates}" if rates else "no floors: the chip's rates are not known"
    return "\n".join(
        [f"{artifact.target}, products {artifact.precision}, attention at full context; {known}", *lines, *sums]
    )


def _general_lines(artifact: Artifact) -> list[str]:
    """A line for each kernel that no special schedule took, with what they said about it, for each that is written by
    tiles, and for each that was chosen for."""
    lines = []
    for name, facts in artifact.kernels.items():
        if "schedule" in facts:
            reasons = "; ".join(facts["refused"]) or "no special schedule is for its kind"
            lines.append(f"{name} runs {facts['schedule']}: {reasons}")
        if "tiles" in facts:
            lines.append(f"{name} is written by the schedule {facts['tiles']}")
        if "offers" in facts:
            lines.append(f"{name} could be by: {_offers(facts)}")
    return lines


def _offers(facts: Mapping[str, Any]) -> str:
    """Schedules, and the modelled time of each or why it leaves the kernel."""
    offers, written = facts["offers"], facts.get("tiles")
    takes = [offer for offer in offers if "refused" not in offer]
    own = any("own" in offer for offer in takes)
    taken = None if own else facts.get("chosen", written)
    said = [_offer(offer, taken) for offer in offers]
    if "tuned" in facts:
        said.append("chosen by times that lispgpt tune measured")
    if not own and "chosen" not in facts and takes:
        said.append("no launch of this chip has been timed, so that the first in the pipeline's order takes it")
    return "; ".join(said)


def _offer(offer: Mapping[str, Any], taken: str | None) -> str:
    name, own = offer["schedule"], "own" in offer
    if "refused" in offer:
        return f"{name}{' (yours)' if own else ''} leaves it: {offer['refused']}"
    time = f" {offer['us']:.1f} us" if "us" in offer else ""
    return f"{name}{time}{' (yours, tried first)' if own else ' (taken)' if name == taken else ''}"


def _justify(cell: str, width: int, column: int) -> str:
    return cell.ljust(width) if column < 3 else cell.rjust(width)


def _amount(artifact: Artifact, kernel: str, entry: Entry) -> Amount | None:
    work = Work.of(artifact.kernels[kernel])
    return None if work is None else work.at_most(entry)


def _row(launch: Launch, facts: KernelFacts | None, amount: Amount | None, rates: Rates | None) -> tuple[str, ...]:
    def cell(value: int | None, more: int = 0) -> str:
        return "-" if value is None else str(value + more)

    known = [
        cell(getattr(facts, column, None), launch.shared_bytes if column == "shared" else 0)
        for column in (*COLUMNS, "widest_load")
    ]
    return (launch.label, _extents(launch.grid), _extents(launch.block), *known, *_amount_cells(amount, rates))


def _amount_cells(amount: Amount | None, rates: Rates | None) -> tuple[str, str, str]:
    """Megabytes, millions of operations, and the floor in microseconds."""
    if amount is None:
        return "-", "-", "-"
    floor = f"{rates.floor(amount) * 1e6:.2f}" if rates else "-"
    return f"{amount.nbytes / 1e6:.2f}", f"{amount.operations / 1e6:.2f}", floor


def _sums(artifact: Artifact, entry: Entry) -> str:
    amounts = [a for launch in entry.launches if (a := _amount(artifact, launch.kernel, entry)) is not None]
    nbytes, operations = sum(a.nbytes for a in amounts), sum(a.operations for a in amounts)
    floor = f", floor {sum(map(artifact.rates.floor, amounts)) * 1e6:.1f} us" if artifact.rates else ""
    return f"{len(entry.launches)} launches, {nbytes / 1e6:.1f} MB, {operations / 1e6:.1f} Mflop{floor}"


def _extents(extents: tuple[int, int, int]) -> str:
    return "x".join(map(str, extents[: 3 if extents[2] > 1 else 2 if extents[1] > 1 else 1]))


def _amd_facts(assembly: str) -> dict[str, KernelFacts]:
    code, _, metadata = assembly.partition("amdhsa.kernels:")
    bodies = _bodies(code, re.compile(r"^(\w+):\s*(?:;.*)?$", re.MULTILINE))
    found = {}
    for part in re.split(r"^  - (?=\.)", metadata, flags=re.MULTILINE)[1:]:
        values = dict(re.findall(r"^\s*(\.\w+):\s*(\S+)\s*$", part, flags=re.MULTILINE))
        name = values.get(".name", "").strip("'\"")
        numbers = {fact: sum(int(values[key]) for key in keys) for fact, keys in AMD_FACTS.items()}
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
    widths = [0, *map(int, COPIES.findall(body))]
    for amd, count, bits in LOADS.findall(body):
        if bits:
            widths.append(int(count or 1) * int(bits) // 8)
        else:
            words = amd or "1"
            widths.append(int(words) // 8 if int(words) >= 32 else int(words) * 4)
    return max(widths)


def _ask_ptxas(assembly: str) -> dict[str, tuple[int, int, int]]:
    """(registers, bytes of spills, bytes of stack) by kernel; nothing where there is no ptxas."""
    ptxas = find_ptxas()
    chip = re.search(r"^\.target (\w+)", assembly, re.MULTILINE)
    if ptxas is None or chip is None:
        return {}
    with scratch.kept_to(), tempfile.TemporaryDirectory() as folder:
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
