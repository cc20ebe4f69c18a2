"""Schedules that `lispgpt tune` has measured to be fastest, kept beside the cache, a file for each target.

A file is used by whatever compiles for its target with that cache, as long as schedules and the passes around them are
as they were when it was written; another is ignored, with a warning.  Imports neither lark nor MLIR.
"""

from __future__ import annotations

import functools
import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.folders import check_private, make_private
from lispgpt.base.json_files import read_json
from lispgpt.compiler.cache import PACKAGE
from lispgpt.compiler.request import Request

SOURCES = ("passes/**/*.py", "lib/kernels/*.lisp")
"""What decides which code a schedule's name stands for."""


@dataclass(frozen=True)
class Measured:
    """Microseconds of a kernel by each of its schedules; device: where, by its own name."""

    schedules: Mapping[str, float]
    device: str

    @property
    def fastest(self) -> str:
        return min(self.schedules, key=lambda name: self.schedules[name])


@functools.cache
def version() -> str:
    """A hash of the schedules' texts, and of the passes that make code of them."""
    digest = hashlib.sha256()
    for pattern in SOURCES:
        for path in sorted(PACKAGE.glob(pattern)):
            digest.update(f"{path.relative_to(PACKAGE)}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def tuning_file(folder: Path, target: str) -> Path:
    """Where a cache's folder has what was measured for a target."""
    return folder / f"tuned-{target.replace(':', '-')}.json"


def tuned(request: Request, folder: Path | None) -> Request:
    """A request with the schedules that were measured to be fastest, where a cache's folder has any for its target.

    UserError where others could have put them there.
    """
    if folder is None or request.tuned or request.quick:
        return request
    kernels = read_tuning(tuning_file(folder, request.target), request.target)
    return replace(request, tuned={identity: found.fastest for identity, found in kernels.items()})


def read_tuning(path: Path, target: str) -> dict[str, Measured]:
    """What a file has by kernels' identities; nothing, with a warning, where it is of another target or version."""
    if not path.exists():
        return {}
    check_private(path.parent)
    try:
        said = read_json(path)
        problem = _problem(said, target)
        kernels = {} if problem else {name: Measured(**facts) for name, facts in said["kernels"].items()}
        if any(not found.schedules for found in kernels.values()):
            raise ValueError
    except (OSError, ValueError, AttributeError, KeyError, TypeError, UserError):
        problem, kernels = "it is damaged", {}
    if problem:
        print(f"warning: {path} is ignored: {problem}; lispgpt tune writes it anew", file=sys.stderr)
    return kernels


def _problem(said: Mapping[str, Any], target: str) -> str:
    if said["target"] != target:
        return f"it was measured on {said['target']}, not on {target}"
    return "" if said["version"] == version() else "it was measured with other schedules than these"


def keep_tuning(folder: Path, target: str, found: Mapping[str, Measured]) -> Path:
    """Add what was measured of kernels to the file of a target, which has it then; UserError where that cannot be."""
    path = tuning_file(folder, target)
    kernels = {name: vars(one) for name, one in {**read_tuning(path, target), **found}.items()}
    text = json.dumps({"target": target, "version": version(), "kernels": kernels}, indent=1)
    try:
        make_private(folder)
        with replacing(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    return path
