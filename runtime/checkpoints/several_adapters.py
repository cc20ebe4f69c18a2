"""Several adapters beside one model's weights: stacks of their A and B, of which each sequence takes its own's.

What a program is told of them is `several-adapters` of the language's library (lora.lisp).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lispgpt.base.dtypes import FLOATS_OF_8_BITS, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.base.json_files import read_json
from lispgpt.runtime.checkpoints.adapter import Adapter, Pair
from lispgpt.runtime.checkpoints.base import MappedCheckpoint, StoredTensor, TensorInfo
from lispgpt.runtime.checkpoints.huggingface import CONFIG, read_named, without_prefix
from lispgpt.runtime.checkpoints.mapped_folder import pieces_of_weights, read_settings

A, B = ".lora-a", ".lora-b"
"""What the names of an adapter's halves end with in programs."""
SUFFIX = ".weight"


@dataclass(frozen=True)
class Place:
    """Where a module's weight lies in a program's: a number of rows of a layer's part, from the first on.

    modules: its names in the folder, without a prefix, one for each layer.  turned: whether the folder has it (in,
    out).  stacked, layers: as `TensorInfo` says them of the weight.
    """

    weight: str
    first: int
    rows: int
    columns: int
    modules: tuple[str, ...]
    turned: bool
    stacked: bool
    layers: tuple[int, ...] | None

    @property
    def name(self) -> str:
        """What its A and B begin with."""
        return f"{self.weight}.{self.first}"

    @property
    def lisp(self) -> str:
        """As `low-rank` and `several-adapters` are told of it."""
        return f'["{self.weight}" {self.first} {self.rows}]'


def places_of(folder: Path, names: FolderMap) -> list[Place]:
    """The matrices of a folder that adapters can change beside them, in the order of the program's map."""
    config = read_settings(folder / CONFIG, read_json(folder / CONFIG), names)
    stored = {name: tensor for name, (_, tensor) in read_named(folder, None, names.prefix).items()}
    found = []
    for weight, (own, pieces) in pieces_of_weights(folder, names, config, stored).items():
        patterns, first = names.weights[weight], 0
        stacked = any("*" in pattern.name for pattern in patterns)
        layers = tuple(own) if weight in names.some else None
        each = len(pieces) // len(own)
        for number in range(each if each == len(patterns) else 0):
            modules = pieces[number::each]
            tensor = stored[modules[0]]
            if len(tensor.shape) != 2 or not modules[0].endswith(SUFFIX):
                continue
            rows, columns = tensor.shape[::-1] if patterns[0].transposed else tensor.shape
            floats = find_dtype(tensor.dtype).block == 1 and tensor.dtype not in FLOATS_OF_8_BITS
            if floats and tensor.scales is None:
                place = (weight, first, rows, columns, tuple(modules), patterns[0].transposed, stacked, layers)
                found.append(Place(*place))
            first += rows
    return found


@dataclass(frozen=True)
class SeveralAdapters:
    """Adapters that are there together.  rank: the largest of theirs.  places: where one of them adds something."""

    adapters: Sequence[Adapter]
    rank: int
    places: Sequence[Place]
    pairs: Sequence[Mapping[str, Pair]]

    @staticmethod
    def of(folder: Path, names: FolderMap, adapters: Sequence[Adapter]) -> SeveralAdapters:
        """Those of a folder's model; UserError for one that changes more than products with matrices."""
        places = places_of(folder, names)
        known = {module: place for place in places for module in place.modules}
        pairs = [{without_prefix(names.prefix, name): pair for name, pair in each.pairs.items()} for each in adapters]
        for adapter, own in zip(adapters, pairs, strict=True):
            strange = next(iter(adapter.whole), None) or next((name for name in own if name not in known), None)
            if strange is not None:
                advice = "`lispgpt checkpoint convert --merge` makes a model of it"
                raise UserError(f"{adapter.path} changes {strange}, which is no product's matrix alone: {advice}")
            for name, pair in own.items():
                _check(adapter, name, pair, known[name])
        used = [place for place in places if any(module in own for module in place.modules for own in pairs)]
        rank = max((len(pair.a) for own in pairs for pair in own.values()), default=1)
        return SeveralAdapters(adapters, rank, used, pairs)

    @property
    def program(self) -> str:
        """What is added to the model's program."""
        places = " ".join(place.lisp for place in self.places)
        return f"(require lora)\n(several-adapters {len(self.adapters) + 1} {self.rank} [{places}])\n"

    def beside(self, base: MappedCheckpoint) -> MappedCheckpoint:
        """A model's weights with the adapters' beside them; number 0 is none."""
        more: dict[str, StoredTensor] = {}
        for place in self.places:
            halves = zip((A, B), self._halves(place), strict=True)
            for suffix, array in halves:
                stored = array if place.stacked else array[0]
                info = TensorInfo(stored.shape, "f32", place.stacked, place.layers)
                more[place.name + suffix] = StoredTensor(info, (stored,))
        return base.with_more(more)

    def _halves(self, place: Place) -> tuple[np.ndarray, np.ndarray]:
        """A and B times its scale, f32 [layers adapters rank in] and [layers adapters rows rank]."""
        count, layers = len(self.adapters) + 1, len(place.modules)
        a = np.zeros((layers, count, self.rank, place.columns), np.float32)
        b = np.zeros((layers, count, place.rows, self.rank), np.float32)
        for number, own in enumerate(self.pairs, 1):
            for layer, module in enumerate(place.modules):
                if pair := own.get(module):
                    a[layer, number, : len(pair.a)] = pair.a
                    b[layer, number, :, : len(pair.a)] = pair.b * np.float32(pair.scale)
        return a, b


def _check(adapter: Adapter, name: str, pair: Pair, place: Place) -> None:
    given, wanted = (len(pair.b), pair.a.shape[1]), (place.rows, place.columns)
    if given != wanted or pair.turned != place.turned:
        said = [" by ".join(map(str, shape[:: -1 if turned else 1])) for shape, turned in
                ((given, pair.turned), (wanted, place.turned))]  # fmt: skip
        raise UserError(f"{adapter.path}: {name} adds {said[0]} to what is {said[1]}")


def open_beside(
    base: MappedCheckpoint, folder: Path, names: FolderMap, adapters: Sequence[Adapter]
) -> tuple[MappedCheckpoint, str]:
    """A folder's weights with several adapters beside them, and what its program is told of them."""
    several = SeveralAdapters.of(folder, names, adapters)
    return several.beside(base), several.program


__all__ = ["A", "B", "Place", "SeveralAdapters", "open_beside", "places_of"]
