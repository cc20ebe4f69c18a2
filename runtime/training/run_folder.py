"""The folder of a run: what it was begun with, what each step measured, and its checkpoints.

run.json             what to go on with: written last, when all that it names is there
tokenizer.json       where one is known
tokens/*.bin         token shards, where the run made them of texts
metrics.jsonl        a line for each step
checkpoints/step-N   sealed folders (see `sealed`)
latest               a link to the newest of them
lock                 held while a process trains here
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import Any, TextIO

from lispgpt.base.errors import UserError
from lispgpt.base.files import read_json, replacing
from lispgpt.base.reading import read_text
from lispgpt.runtime.checkpoints.sealed import LATEST, UNFINISHED, discard, sealed_facts, sealing

RUN, METRICS, CHECKPOINTS, LOCK, TOKENS = "run.json", "metrics.jsonl", "checkpoints", "lock", "tokens"
STEP = re.compile(r"step-(\d{8})")
PATIENCE = 3.0
"""Seconds for another process to let go of the folder."""


class RunFolder:
    """A run's folder, held against other processes until it is closed.

    leads: whether this process is the run's first, or only one: others look at the folder and leave it as it is.
    """

    def __init__(self, path: Path, leads: bool = True) -> None:
        self.path, self.leads = path, leads
        self._metrics: RawIOBase | None = None
        self._lock: TextIO | None = None
        if not leads:
            return
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = (path / LOCK).open("w")
            if not _lock(self._lock):
                self._lock.close()
                raise UserError(f"another process is training in {path}")
        except OSError as error:
            raise UserError(f"cannot train in {path}: {error.strerror or error}") from error
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
        """Whether steps of it were taken."""
        metrics = self.path / METRICS
        return bool(self._checkpoints()) or (metrics.exists() and metrics.stat().st_size > 0)

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
        """The step, folder and facts of the newest checkpoint that is whole; those that are not go away.

        say: is told of each that is damaged.
        """
        for step, path in reversed(self._checkpoints()):
            try:
                found = sealed_facts(path)
                if found.get("step") == step:
                    if self.leads:
                        self._point_to(path)
                    return step, path, found
                say(f"{path} is damaged: it says that it is of step {found.get('step')}")
            except UserError as error:
                say(f"{error.message}; going on from the checkpoint before it")
            if self.leads:
                discard(path)
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
                self._metrics = (self.path / METRICS).open("ab", buffering=0)
            self._metrics.write(json.dumps(dict(values)).encode() + b"\n")
        except OSError as error:
            raise UserError(f"cannot write {self.path / METRICS}: {error.strerror or error}") from error

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

    def _point_to(self, path: Path) -> None:
        """Make `latest` a link to a checkpoint, at once."""
        made = self.path / f".{LATEST}.{os.getpid()}"
        with suppress(FileNotFoundError):
            made.unlink()
        made.symlink_to(Path(CHECKPOINTS) / path.name)
        made.replace(self.path / LATEST)


def _lock(file: TextIO) -> bool:
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
        with suppress(ValueError):
            record = json.loads(line)
            if isinstance(record, dict) and type(record.get("step")) is int:
                records.append(record)
    return records
