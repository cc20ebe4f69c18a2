"""CPUs: native objects for the host, or for a level such as x86-64-v3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from lispgpt.passes.targets.base import Target


@dataclass(frozen=True)
class Cpu(Target):
    """chip: "" for the host, else an LLVM CPU name."""

    kind: ClassVar[str] = "cpu"
