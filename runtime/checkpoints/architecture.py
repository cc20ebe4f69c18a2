"""What an architecture in Hugging Face's folders is: which tensors config.json promises, and what they are called here.

A new one is one file `huggingface_NAME.py` in this folder; copy `huggingface_llama.py`.  It must offer

    NAME: str
        What people call it.
    MODEL_TYPES: tuple[str, ...]
        What config.json's model_type may say.
    PREFIX: str
        What tensors' names in files may begin with.
    IGNORED: tuple[str, ...]
        Endings of tensors' names that are no weights (masks and tables).
    HEAD: tuple[str, str]
        The head's name, and the name of the embedding that it must equal where `parts` does not list it.
    read_config(path: Path, data: dict) -> tuple[Shape, dict]
        The sizes in config.json, whose values `config_json` has checked, and what else goes into the checkpoint's
        config; UserError for settings that make it another architecture.
    shape_from(config: dict) -> Shape
        The sizes in a checkpoint's config dictionary; KeyError where it is another architecture's.
    config_json(shape: Shape, config: dict, dtype: str) -> dict
        What to write as config.json.
    parts(shape: Shape) -> Iterator[Part]
        Every stored tensor, in the order of the shape's tensors, layers and rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.base import Checkpoint


class Shape(Protocol):
    """A model's sizes."""

    @property
    def layers(self) -> int: ...

    def config(self, weight_type: str) -> dict[str, Any]:
        """A checkpoint's config dictionary."""

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], bool]]:
        """(name, shape, stacked over layers) of each tensor; matrices are (out, in)."""


def holds(shape_from: Callable[[dict[str, Any]], Shape], source: Checkpoint) -> bool:
    """Whether a checkpoint's tensors are those of an architecture at its config's sizes, and no others."""
    try:
        tensors = list(shape_from(source.config).tensors())
    except (KeyError, UserError):
        return False
    if {name for name, _, _ in tensors} != set(source.names()):
        return False
    return all(source.info(name).shape == extents for name, extents, _ in tensors)


@dataclass(frozen=True)
class Part:
    """A stored tensor: rows of one layer of the tensor `name` (or of the whole of it).

    shape: as (out, in).  transposed: the file holds (in, out).
    """

    name: str
    layer: int
    stored_name: str
    shape: tuple[int, ...]
    transposed: bool = False

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return self.shape[::-1] if self.transposed else self.shape


def require(path: Path, data: dict[str, Any], settings: dict[str, tuple[Any, ...]], what: str) -> None:
    """UserError where config.json gives a setting a value that is not among those listed for it."""
    for key, allowed in settings.items():
        if key in data and data[key] not in allowed:
            raise UserError(
                f"{path}: {key} is {data[key]!r}, and only {' or '.join(map(repr, allowed))} is {what} as known here"
            )


def integer(path: Path, data: dict[str, Any], what: str, *keys: str) -> int:
    """The first of the keys that config.json has, and not as null; UserError where it has none."""
    found: int | None = next((data[key] for key in keys if data.get(key) is not None), None)
    if found is None:
        raise UserError(f"{path} lacks {' or '.join(keys)}; is it the config.json of a {what}?")
    return found


def number(data: dict[str, Any], key: str, default: float) -> float:
    """A number of config.json, or the default where it does not say it or says null."""
    value = data.get(key)
    return default if value is None else float(value)
