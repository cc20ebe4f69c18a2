"""What a kind of hostile files is given to make one of."""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.hostile.mutations import changed_bytes, changed_json, written_json

Words = list[Any]


@dataclass(frozen=True)
class Case:
    """rng: what it draws from.  good: the folder of good files.  place: where the hostile ones go."""

    rng: random.Random
    good: Path
    place: Path

    def copy(self, name: str) -> Path:
        """A good file or folder, to be changed."""
        path = self.place / name
        if (self.good / name).is_dir():
            shutil.copytree(self.good / name, path, symlinks=True)
        else:
            shutil.copy(self.good / name, path)
        return path

    def change_json(self, path: Path) -> None:
        path.write_bytes(written_json(changed_json(json.loads(path.read_text()), self.rng), self.rng))

    def change_bytes(self, path: Path, head: int = 4096) -> None:
        path.write_bytes(changed_bytes(path.read_bytes(), self.rng, head))

    def mostly(self, chance: float = 0.92) -> bool:
        return self.rng.random() < chance
