"""Machine code says which lines of the program it is of: a CPU's to gdb, and PTX and AMD's code objects."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from compiled_models import compile_model
from elftools.elf.elffile import ELFFile

from lispgpt.base.elf import elf_files
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.passes.targets.ptx_text import lines_alone
from lispgpt.runtime.plan.artifact import Artifact

PROGRAM = Path(__file__).resolve().parent.parent / "examples" / "gpt2.lisp"
SIZES = {"layers": 1, "heads": 2, "width": 64, "vocab": 50, "context": 8}
RUNS = """
import numpy as np, sys
from pathlib import Path
from lispgpt.runtime.checkpoints.none import NoWeights
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import load_artifact
from lispgpt.runtime.session import Session

class Zeros(NoWeights):
    def view(self, name):
        facts = artifact.weights[name]
        return np.zeros(facts["shape"], {"bf16": np.uint16, "f32": np.float32}[facts["dtype"]])
    def names(self):
        return list(artifact.weights)
    def info(self, name):
        from lispgpt.runtime.checkpoints.base import TensorInfo
        return TensorInfo(tuple(artifact.weights[name]["shape"]), artifact.weights[name]["dtype"])
    def check_finite(self, names=None):
        pass

artifact = load_artifact(Path(sys.argv[1]))
with Session(artifact, CpuDevice(1), Zeros()) as session:
    runs, tokens = map(int, sys.argv[2:])
    for _ in range(runs):
        session.run("logits", [[3] * tokens], [list(range(tokens))])
"""


def line_of(text: str) -> int:
    """The program's first line with a text, from 1 on."""
    return next(number for number, line in enumerate(PROGRAM.read_text().splitlines(), 1) if text in line)


@pytest.fixture(scope="module")
def on_cpu() -> Artifact:
    return compile_model(PROGRAM, entries=("logits",), sizes=[{"batch": 1, "positions": 1}], **SIZES)


def lines_in(code: bytes) -> Iterator[tuple[str, int]]:
    """(file, line) of each row of the line tables of some ELF files."""
    for piece in elf_files(code):
        elf = ELFFile(io.BytesIO(piece))
        if not elf.has_dwarf_info():
            continue
        for unit in elf.get_dwarf_info().iter_CUs():
            table = elf.get_dwarf_info().line_program_for_CU(unit)
            names = [entry.name.decode() for entry in table["file_entry"]]
            first = 0 if table["version"] >= 5 else 1
            states = (entry.state for entry in table.get_entries() if entry.state is not None)
            yield from ((names[state.file - first], state.line) for state in states if state.line)


def wanted() -> set[tuple[str, int]]:
    return {(PROGRAM.name, line_of(text)) for text in ("(attention qkv", "(linear hidden (out-w", "(activate (linear")}


def test_a_cpus_code_is_of_the_programs_lines(on_cpu: Artifact) -> None:
    found = set(lines_in(on_cpu.code))
    assert wanted() <= found, sorted(found)
    assert {file for file, _ in found} == {PROGRAM.name}


def test_lines_cost_a_cpus_artifact_little(on_cpu: Artifact) -> None:
    (piece,) = elf_files(on_cpu.code)
    sections = ELFFile(io.BytesIO(piece)).iter_sections()
    own = sum(section["sh_size"] for section in sections if section.name.startswith(".debug"))
    assert 0 < own < 0.05 * (len(on_cpu.code) + len(on_cpu.manifest()))  # of a model this small; 3 % of GPT-2's


@pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")
def test_gdb_stops_at_a_line_of_the_program(on_cpu: Artifact, tmp_path: Path) -> None:
    on_cpu.save(tmp_path / "a.lgpt")
    (tmp_path / "run.py").write_text(RUNS)
    place = f"{PROGRAM.name}:{line_of('(attention qkv')}"
    orders = ["set debuginfod enabled off", "set breakpoint pending on", f"break {place}", "run", "info line", "bt 1"]
    words = [word for order in orders for word in ("-ex", order)]
    command = ["gdb", "-batch", "-nx", *words, "--args", sys.executable, "run.py", "a.lgpt", "1", "1"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert re.search(rf"hit Breakpoint 1.*, attention\S* \(.*\) at .*{place}", done.stdout), done.stdout + done.stderr
    assert "(attention qkv" in done.stdout.partition("hit Breakpoint")[2]


def _perf_works() -> bool:
    perf = shutil.which("perf")
    command = [perf or "", "stat", "-e", "cpu-clock", "true"]
    return perf is not None and subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not _perf_works(), reason="perf is not installed, or not allowed to count")
def test_perfs_samples_are_of_the_programs_lines(tmp_path: Path) -> None:
    """Of the samples in an artifact's code, each has a line; by line they add up to all of them."""
    sizes = [{"batch": 1, "positions": 32}]
    artifact = compile_model(PROGRAM, entries=("logits",), sizes=sizes, **(SIZES | {"width": 256, "context": 32}))
    artifact.save(tmp_path / "a.lgpt")
    (tmp_path / "run.py").write_text(RUNS)
    record = ["perf", "record", "-e", "cpu-clock", "-F", "4000", "-o", "perf.data", sys.executable, "run.py"]
    subprocess.run([*record, "a.lgpt", "600", "32"], cwd=tmp_path, capture_output=True, timeout=120, check=True)
    script = ["perf", "script", "-i", "perf.data", "--show-mmap-events", "-F", "comm,tid,event,ip,dso"]
    said = subprocess.run(script, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True).stdout
    mapped = r"PERF_RECORD_MMAP2 .*\[(0x\w+)\((0x\w+)\) @ (\w+) .* r-xp (\S+\.so)$"
    places = [(int(m[1], 16), int(m[2], 16), int(m[3], 16), m[4]) for m in re.finditer(mapped, said, re.MULTILINE)]
    counts: Counter[int] = Counter()
    addresses = [int(m[1], 16) for m in re.finditer(r"cpu-clock\S*:\s+([0-9a-f]+) \(", said)]
    table, load = _line_table(artifact.code)
    (own,) = {name for *_, name in places if Path(name).name.startswith("tmp")}
    for address in addresses:
        for start, size, offset, name in places:
            if name == own and start <= address < start + size:
                counts[_line_at(table, address - start + offset + load)] += 1
    whole = sum(counts.values())
    assert whole > 100, f"{whole} of {len(addresses)} samples are in kernels"
    shares = {line: count / whole for line, count in counts.items()}
    assert abs(sum(shares.values()) - 1) < 1e-9
    assert sum(share for line, share in shares.items() if line) > 0.97, shares
    busiest = PROGRAM.read_text().splitlines()[max(shares, key=shares.__getitem__) - 1]
    assert re.search("linear|matmul|attention|layer-norm", busiest), (busiest, shares)


def _line_table(code: bytes) -> tuple[list[tuple[int, int]], int]:
    """(address, line) of each row of an object's line table, in order; what addresses are above offsets in the file."""
    (piece,) = elf_files(code)
    elf = ELFFile(io.BytesIO(piece))
    rows = []
    for unit in elf.get_dwarf_info().iter_CUs():
        entries = elf.get_dwarf_info().line_program_for_CU(unit).get_entries()
        states = [entry.state for entry in entries if entry.state is not None]
        rows += [(state.address, 0 if state.end_sequence else state.line) for state in states]
    (part,) = [p for p in elf.iter_segments() if p["p_type"] == "PT_LOAD" and p["p_flags"] & 1]
    return sorted(rows), part["p_vaddr"] - part["p_offset"]


def _line_at(table: list[tuple[int, int]], address: int) -> int:
    """0 for what is of no line."""
    row = bisect_right(table, (address, 1 << 30)) - 1
    return table[row][1] if row >= 0 else 0


@pytest.mark.parametrize("target", ["cuda:sm_90a", "rocm:gfx1151"])
def test_a_gpus_code_is_of_the_programs_lines(target: str) -> None:
    sizes = ({"batch": 1, "positions": 1},)
    artifact = compile_request(Request(PROGRAM, target, SIZES, entries=("logits",), sizes=sizes), Observer())[0]
    if target.startswith("rocm"):
        assert wanted() <= set(lines_in(artifact.code))
        return
    text = artifact.code.decode()
    files = dict(re.findall(r'^\t\.file\t(\d+) "(.*)"$', text, re.MULTILINE))
    rows = re.findall(r"^\t\.loc\t(\d+) (\d+) ", text, re.MULTILINE)
    found = {(Path(files[file]).name, int(line)) for file, line in rows}
    assert wanted() <= found, sorted(found)
    assert sum(map(len, re.findall(r"^\t\.(?:loc|file).*", text, re.MULTILINE))) < 0.01 * len(text)
    for artifact_object in artifact.objects:
        assert b"nv_debug_ptx_txt" not in artifact_object


def test_ptx_says_each_line_once_where_it_changes() -> None:
    text = (
        "{\n$L__func_begin0:\n\t.loc\t1 3 5\n\n\tadd;\n$L__tmp0:\n\t.loc\t1 0 5\n\tadd;\n\t.loc\t1 3 7\n\tadd;\n"
        "\t.loc\t2 4 1, function_name $L__info_string0, inlined_at 1 3 5\n$L__BB0_1:\n\tbra $L__BB0_1;\n}\n"
        '{\n\t.loc\t2 4 1\n\tret;\n}\n\t.file\t1 "a.lisp"\n\t.section\t.debug_str\n\t{\n.b8 1\n\t}\n'
    )
    assert lines_alone(text) == (
        "{\n\t.loc\t1 3 5\n\n\tadd;\n\tadd;\n\tadd;\n\t.loc\t2 4 1\n$L__BB0_1:\n\tbra $L__BB0_1;\n}\n"
        '{\n\t.loc\t2 4 1\n\tret;\n}\n\t.file\t1 "a.lisp"\n'
    )
