"""The names of ops, as far as the MLIR distribution lists them in text."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from lispgpt.ir.mlir import ir


@cache
def listed_ops() -> tuple[str, ...]:
    """Names of ops of the dialects whose Python classes come with the bindings; most others can be used as well."""
    found: set[str] = set()
    for path in (Path(ir.__file__ or "").parent / "dialects").glob("_*_ops_gen.py"):
        found.update(re.findall(r'OPERATION_NAME = "([\w.]+)"', path.read_text(encoding="utf-8")))
    return tuple(sorted(found))
