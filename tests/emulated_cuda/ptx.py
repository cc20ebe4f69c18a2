"""An entry of a PTX module: its parameters, shared memory and instructions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache


@dataclass(frozen=True)
class Instruction:
    """line: of the module's text, where it ends.  form: the program's, such as " (gpt2.lisp:28)", if the text says."""

    predicate: str
    negated: bool
    op: str
    operands: tuple[str, ...]
    line: int = 0
    form: str = ""


@dataclass(frozen=True)
class Constant:
    """Bytes of a module's global memory, which start at a multiple of align."""

    name: str
    align: int
    data: bytes


@dataclass(frozen=True)
class Kernel:
    """tables: the labels that a jump by a number chooses from."""

    parameters: tuple[str, ...]
    threads: int
    shared: dict[str, int]
    shared_bytes: int
    body: tuple[Instruction, ...]
    labels: dict[str, int]
    cluster: int = 1
    constants: tuple[Constant, ...] = ()
    tables: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


PLACES = re.compile(r"^\t\.loc\t(\d+) (\d+) .*$", re.MULTILINE)
FILES = re.compile(r'^\t\.file\t(\d+) "(?:.*/)?([^/"]*)"', re.MULTILINE)

TABLES = re.compile(r"(\w+):\s*\.branchtargets([^;]*);")


@lru_cache(256)
def parse(text: str, name: str) -> Kernel:
    """The entry `name` of a module's PTX."""
    match = re.search(rf"\.entry {name}\((.*?)\)(.*?)\n\{{\n(.*?)\n\}}", text, re.DOTALL)
    assert match is not None, name
    parameters = tuple(re.findall(r"(\w+)(?:\[128\])?[,\s]*$", match[1], re.MULTILINE))
    shared, size, body, labels = {}, 0, [], {}
    end, form, files = text.count("\n", 0, match.start(3)) + 1, "", dict(FILES.findall(text))
    for statement in re.sub(r"//.*", "", match[3]).split(";"):
        end += statement.count("\n")
        for file, line in PLACES.findall(statement):
            form = f" ({files[file]}:{line})"
        statement = PLACES.sub("", statement)
        *before, statement = re.split(r"(\$L\w+):\s*", statement.lstrip("{} \t\n").rstrip())
        labels |= {label: len(body) for label in before if label}
        if found := re.match(r"\.shared \.align (\d+) \.[a-z](\d+) ([\w$]+)(?:\[(\d+)\])?", statement):
            size = -(-size // int(found[1])) * int(found[1])
            shared[found[3]] = size
            size += int(found[2]) // 8 * int(found[4] or 1)
        elif found := re.match(r"(?:@(!?)(%?\w+)\s+)?([a-z][\w.:]*)\s*(.*)", statement, re.DOTALL):
            operands = tuple(o.strip() for o in re.findall(r"\[[^]]*\]|\{[^}]*\}|[^,\s{[][^,]*", found[4]))
            body.append(Instruction(found[2] or "", found[1] == "!", found[3], operands, end, form))
    size = -(-size // 16) * 16
    shared |= dict.fromkeys(re.findall(r"\.extern \.shared .*?([\w$]+)\[\]", text), size)
    threads = int(re.search(r"\.maxntid (\d+)", match[2])[1])  # type: ignore[index]
    cluster = re.search(r"\.reqnctapercluster (\d+)", match[2])
    size_of_cluster = int(cluster[1]) if cluster else 1
    tables = {table: tuple(re.findall(r"\$L\w+", of)) for table, of in TABLES.findall(match[3])}
    return Kernel(parameters, threads, shared, size, tuple(body), labels, size_of_cluster, _constants(text), tables)


def _constants(text: str) -> tuple[Constant, ...]:
    found = re.findall(r"\.global \.align (\d+) \.b8 ([\w$]+)\[\d+\] = \{([\d, ]*)\}", text)
    return tuple(Constant(name, int(align), bytes(map(int, data.split(",")))) for align, name, data in found)
