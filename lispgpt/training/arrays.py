"""Arrays that a run is trained on: of a file, of a function that yields them, or that a caller hands over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.json_files import Fields, Kind, is_text, is_whole
from lispgpt.runtime.data.iterated import Iterated, is_script
from lispgpt.runtime.data.rows import Rows, read_rows
from lispgpt.training.data import SHARE

GIVEN = "arrays.npz"
"""In a run's folder, where a caller handed them over."""


def _is_place(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and is_text(value[0]) and is_whole(value[1], -1, 1 << 62)


_PLACE = Kind("a file and its size, or a script's function and -1", _is_place)
_PLACE_OR_NULL = Kind(_PLACE.what, lambda value: value is None or _is_place(value))
FACTS = Fields({"arrays": _PLACE, "validation": _PLACE_OR_NULL, "fraction": SHARE})
"""What a run keeps of its arrays."""


def are_arrays(data: Any) -> bool:
    """Whether data is arrays, and no text."""
    if isinstance(data, Mapping):
        return True
    paths = data if isinstance(data, Sequence) and not isinstance(data, str) else [data]
    return any(is_script(path) or Path(path).suffix == ".npz" for path in paths)


@dataclass(frozen=True)
class ArrayData:
    """training, validation: an .npz file or `script.py:function`.  fraction: of a file's rows, at their end, that are
    held back where nothing is given to validate with."""

    training: str
    validation: str | None
    fraction: float

    @staticmethod
    def of(training: Any, validation: Any, fraction: float, folder: Path) -> ArrayData:
        """What a caller gives; arrays themselves are written to the run's folder."""
        first, second = _one(training, "data", folder / GIVEN), None
        if not isinstance(validation, Sequence) or validation:
            second = _one(validation, "val_data", folder / f"val-{GIVEN}")
        return ArrayData(first, second, fraction)

    def sources(self, batch: int, seed: int) -> tuple[Rows | Iterated, Rows | Iterated | None]:
        """What to train on, and what to validate with: None where that would be less than a batch."""
        first = _opened(self.training, batch, seed)
        if self.validation is not None:
            return first, _opened(self.validation, batch, seed)
        if isinstance(first, Iterated):
            return first, None
        held = int(first.count * self.fraction)
        if held < batch or first.count - held < batch:
            return first, None
        return first.part(0, first.count - held), first.part(first.count - held, first.count)

    def to_json(self, folder: Path) -> dict[str, Any]:
        """Where they lie, and their sizes; those in the run's folder from there on, so that it can be moved."""

        def place(name: str | None) -> list[Any] | None:
            if name is None or is_script(name):
                return None if name is None else [name, -1]
            path = Path(name)
            own = path.relative_to(folder) if path.is_relative_to(folder) else path
            return [str(own), path.stat().st_size]

        return {"arrays": place(self.training), "validation": place(self.validation), "fraction": self.fraction}

    @staticmethod
    def from_json(data: Any, folder: Path) -> ArrayData:
        """UserError where files are no longer what they were."""
        FACTS.check(f"{folder}'s arrays", data)

        def place(facts: list[Any] | None) -> str | None:
            if facts is None or facts[1] < 0:
                return None if facts is None else str(facts[0])
            path = folder / facts[0]
            if not path.is_file() or path.stat().st_size != facts[1]:
                raise UserError(f"{path}, which the run is trained on, is gone or has changed")
            return str(path)

        training = place(data["arrays"])
        assert training is not None
        return ArrayData(training, place(data["validation"]), data["fraction"])


def _opened(name: str, batch: int, seed: int) -> Rows | Iterated:
    return Iterated(name, batch, seed) if is_script(name) else read_rows(Path(name))


def _one(given: Any, what: str, path: Path) -> str:
    """Where arrays lie; written there where they are given themselves."""
    if isinstance(given, Mapping):
        arrays = {str(name): np.asarray(value) for name, value in given.items()}
        odd = next((name for name, array in arrays.items() if array.dtype.kind not in "fiub"), None)
        if odd is not None:
            raise UserError(f"{what} has {odd} of {arrays[odd].dtype}, and arrays to train on are of numbers")
        Rows(arrays, what)
        with replacing(path) as file:
            np.savez(file, allow_pickle=False, **arrays)
        return str(path.resolve())
    paths = [given] if isinstance(given, (str, Path)) else list(given)
    if len(paths) != 1:
        raise UserError(f"{what} is one .npz file or one script.py:function, and {len(paths)} are given")
    place = str(paths[0])
    if is_script(place):
        script, _, function = place.rpartition(":")
        return f"{Path(script).resolve()}:{function}"
    if not Path(place).is_file():
        raise UserError(f"there is no file {place}")
    return str(Path(place).resolve())
