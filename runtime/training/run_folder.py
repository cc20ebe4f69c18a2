"""The folder of a run: what it was begun with, what each step measured, and its checkpoints.

run.json             what to go on with: written last, when all that it names is there
tokenizer.json       where one is known
tokens/*.bin         token shards, where the run made them of texts
metrics.jsonl        a line for each step
metrics.earlier.jsonl   of a run in the same folder that ended before its first checkpoint
checkpoints/step-N   sealed folders (see `sealed`); what is damaged is set aside there, as step-N.damaged
latest               a link to the newest of them
lock                 held while a process trains here
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from lispgpt.base.errors import UserError
from lispgpt.base.files import open_own, replacing
from lispgpt.base.json_files import is_whole, json_value, read_json
from lispgpt.base.reading import read_text
from lispgpt.runtime.checkpoints.sealed import (
    ASIDE,
    LATEST,
    LOCK,
    RUN,
    UNFINISHED,
    Damaged,
    discard,
    sealed_facts,
    sealing,
    set_aside,
)

METRICS, CHECKPOINTS, TOKENS = "metrics.jsonl", "checkpoints", "tokens"
EARLIER = "metrics.earlier.jsonl"
STEP = re.compile(r"step-(\d{8})")
PATIENCE = 3.0
"""Seconds for another process to let go of the folder."""


class RunFolder:
    """A run's folder, held against other processes until it is closed.

    leads: whether this process is the run's first, or only one: others look at the folder and leave it as it is.
    known: whether a process has trained here before.
    """

    def __init__(self, path: Path, leads: bool = True) -> None:
        self.path, self.leads = path, leads
        self._metrics: BinaryIO | None = None
        self._lock: BinaryIO | None = None
        if not leads:
            return
        try:
            path.mkdir(parents=True, exist_ok=True)
            self.known = os.path.lexists(path / LOCK)
            self._lock = open_own(path / LOCK)
            if not _lock(self._lock):
                self._lock.close()
                raise UserError(f"another process is training in {path}")
        except OSError as error:
            raise UserError(f"cannot train in {path}: {_why(path / LOCK, error)}") from error
        for name in (CHECKPOINTS, TOKENS):
            if (path / name).is_symlink():
                raise UserError(
                    f"cannot train in {path}: {name} there is a link, and what is written there might be lost"
                )
        for left in (path / CHECKPOINTS).glob(f"{UNFINISHED}*"):
            shutil.rmtree(left, ignore_errors=True)

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        for file in (self._metrics, self._lock):
            if file is not None:
                file.close()

    @property
    def begun(self) -> bool:
        """Whether a run was begun here."""
        return (self.path / RUN).exists()

    @property
    def stepped(self) -> bool:
        """Whether steps of it were kept."""
        return bool(self._checkpoints() or self._set_aside())

    def forget_steps(self) -> None:
        """Put away what was measured by a run that ended before it kept anything, as `metrics.earlier.jsonl`."""
        metrics = self.path / METRICS
        if metrics.exists() and metrics.stat().st_size > 0:
            metrics.replace(self.path / EARLIER)

    def begin(self, facts: Mapping[str, Any]) -> None:
        """Keep what the run is; from here on it can be gone on with."""
        with replacing(self.path / RUN) as file:
            file.write(json.dumps(dict(facts), indent=1).encode() + b"\n")

    def facts(self) -> dict[str, Any]:
        """What `begin` kept; UserError where there is no run."""
        if not self.begun:
            raise UserError(f"{self.path} has no run to go on with (no {RUN})")
        return read_json(self.path / RUN)

    def last_good(self, say: Callable[[str], None]) -> tuple[int, Path, dict[str, Any]] | None:
        """The step, folder and facts of the newest checkpoint that is whole; those that are not are set aside.

        say: is told of each that is damaged.  UserError where one cannot be read, and where there were checkpoints and
        none is whole: what a run has learned is not thrown away unasked.
        """
        for step, path in reversed(self._checkpoints()):
            try:
                found = sealed_facts(path)
                if found.get("step") != step:
                    raise Damaged(f"{path} is damaged: it says that it is of step {found.get('step')}")
            except Damaged as error:
                kept = f"it is kept as {set_aside(path).name}" if self.leads else "it is left as it is"
                say(f"{error.message}; {kept}, and the checkpoint before it is looked at")
                continue
            if self.leads:
                self._point_to(path)
            return step, path, found
        if os.path.lexists(self.path / LATEST) or self._set_aside():
            raise UserError(
                f"{self.path} had checkpoints, and none of them is whole: put one back to go on from it, or remove "
                f"{CHECKPOINTS} and {LATEST} there to begin with step 0"
            )
        return None

    def save(self, step: int, facts: Mapping[str, Any], write: Callable[[Path], None], keep: int) -> Path:
        """Write a checkpoint by a function of its folder, and remove all but the newest `keep`."""
        path = self.path / CHECKPOINTS / f"step-{step:08}"
        with sealing(path, {"step": step, **facts}) as folder:
            write(folder)
        self._point_to(path)
        for _, old in self._checkpoints()[:-keep]:
            with suppress(OSError):
                discard(old)
        return path

    def record(self, values: Mapping[str, Any]) -> None:
        """Add a line to the metrics."""
        try:
            if self._metrics is None:
                self._metrics = open_own(self.path / METRICS, append=True)
            self._metrics.write(json.dumps(dict(values)).encode() + b"\n")
        except OSError as error:
            raise UserError(f"cannot write {self.path / METRICS}: {_why(self.path / METRICS, error)}") from error

    def forget_after(self, step: int) -> list[dict[str, Any]]:
        """The metrics up to a step; those of later ones, and a line that was cut short, go away."""
        kept = [record for record in read_metrics(self.path) if record["step"] <= step]
        if not self.leads:
            return kept
        with replacing(self.path / METRICS) as file:
            file.write("".join(json.dumps(record) + "\n" for record in kept).encode())
        return kept

    def _checkpoints(self) -> list[tuple[int, Path]]:
        folder = self.path / CHECKPOINTS
        found = [(int(match[1]), path) for path in folder.glob("*") if (match := STEP.fullmatch(path.name))]
        return sorted(found)

    def _set_aside(self) -> list[Path]:
        return sorted((self.path / CHECKPOINTS).glob(f"step-*{ASIDE}*"))

    def _point_to(self, path: Path) -> None:
        """Make `latest` a link to a checkpoint, at once."""
        made = self.path / f".{LATEST}.{secrets.token_hex(8)}"
        try:
            made.symlink_to(Path(CHECKPOINTS) / path.name)
            try:
                made.replace(self.path / LATEST)
            finally:
                made.unlink(missing_ok=True)
        except OSError as error:
            raise UserError(f"cannot write {self.path / LATEST}: {error.strerror or error}") from error


def _why(path: Path, error: OSError) -> str:
    """Why a file of the folder is not to be had."""
    return f"{path.name} there is a link" if path.is_symlink() else error.strerror or str(error)


def _lock(file: BinaryIO) -> bool:
    """Hold a file alone; False where another process does, and goes on to: children of one that was killed take a
    moment to end."""
    last = time.monotonic() + PATIENCE
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > last:
                return False
            time.sleep(0.05)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics, by steps; what is no whole line is left out."""
    try:
        there = (path / METRICS).exists()
    except OSError as error:
        raise UserError(f"cannot read {path / METRICS}: {error}") from error
    records = []
    for line in read_text(path / METRICS).splitlines() if there else []:
        with suppress(UserError):
            record = json_value(path / METRICS, line)
            if isinstance(record, dict) and is_whole(record.get("step")):
                records.append(record)
    return records
