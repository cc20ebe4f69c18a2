"""A folder of Hugging Face's read by a program's own names for what is in it.

The tensors' shapes are the file's; whether they are the program's is seen where they are loaded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lispgpt.base import config_json
from lispgpt.base.dtypes import BLOCK_DTYPES, DTYPES, FLOATS_OF_8_BITS, MIXED, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import MOST, FolderMap, Pattern
from lispgpt.runtime.checkpoints.base import Checkpoint, MappedCheckpoint, StoredTensor, TensorInfo
from lispgpt.runtime.checkpoints.safetensors_file import Stored
from lispgpt.runtime.checkpoints.scaled import is_read

NUMBER = re.compile(r"(?<=\.)[0-9]+(?=\.)")
INFINITE = {"__float__": "Infinity"}
"""How transformers writes what JSON has no word for."""
QUANTIZATION = "quantization_config"
OTHER_BLOCKS = "q8_0"
"""What blocks that no kernel reads become: exact to a 254th of the largest of 32 numbers."""


def read_settings(path: Path, data: Mapping[str, Any], names: FolderMap) -> dict[str, Any]:
    """The program's config values that config.json gives; UserError for a model that the program is not for.

    What a model of texts and images says of texts counts before what it says of both.
    """
    config_json.check(path, data, ["text_config"])
    texts = data.get("text_config")
    data = _with_scaling({**data, **(texts if isinstance(texts, Mapping) else {})})
    config_json.check(path, data, [key for setting in names.config.values() for key in setting.keys])
    for key, allowed in {**names.requires, QUANTIZATION: (None,)}.items():
        value = _at(data, key)
        if value is not None and value not in allowed and not (key == QUANTIZATION and is_read(value)):
            wanted = " or ".join("none" if a is None else repr(a) for a in allowed)
            said = repr(value) if len(repr(value)) < 100 else repr(value)[:80] + " …"
            raise UserError(f"{path}: {key} is {said}, and the program is for {wanted} alone")
    found: dict[str, Any] = {}
    for name, setting in names.config.items():
        value = next((v for v in (_at(data, key) for key in setting.keys) if v is not None), None)
        null = next((key for key in setting.keys if key in data), None)
        if value is None and null is not None:
            value = setting.null
        if value is None:
            if not setting.optional:
                how = f"{path} lacks {' or '.join(setting.keys)}" if null is None else f"{path}: {null} is null"
                raise UserError(f"{how}, by which the program sets {name}")
            continue
        for each in value if isinstance(value, list) else [value]:
            fine = isinstance(each, bool | str) or (isinstance(each, int | float) and math.isfinite(each))
            if not fine or (isinstance(each, int) and abs(each) >= MOST):
                raise UserError(f"{path}: {' or '.join(setting.keys)} is {str(value)[:60]}, by which {name} is set")
        found[name] = value
    return found


def _with_scaling(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings where `rope_scaling`, which folders had before `rope_parameters`, says what it says against those:
    all of them, or of positions of several kinds those of layers without a window."""
    scaling, parameters = data.get("rope_scaling"), data.get("rope_parameters")
    if not scaling or not isinstance(scaling, Mapping) or not isinstance(parameters, Mapping):
        return data
    full = parameters.get("full_attention")
    several = {**parameters, "full_attention": {**full, **scaling}} if isinstance(full, Mapping) else None
    return {**data, "rope_parameters": several}


def _at(data: Mapping[str, Any], key: str) -> Any:
    value: Any = data
    for part in key.split("."):
        if isinstance(value, list) and part == "length":
            value = len(value)
        elif isinstance(value, list):
            value = value[int(part)] if part.isdigit() and int(part) < len(value) else None
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
    return math.inf if value == INFINITE else value


def assemble(
    folder: Path, names: FolderMap, config: dict[str, Any], stored: Mapping[str, Stored], format: str = "huggingface"
) -> Checkpoint:
    """The checkpoint that these tensors are, by the program's names."""
    tensors: dict[str, StoredTensor] = {}
    used: set[str] = set()
    for name, (own, wanted) in pieces_of_weights(folder, names, config, stored, format).items():
        used.update(wanted)
        patterns, pieces = names.weights[name], [stored[p] for p in wanted]
        tensors[name] = _tensor(folder, name, patterns, pieces, own, name in names.some)
    endings = tuple(ending for ending in names.ignored if not ending.endswith("*"))
    beginnings = tuple(beginning[:-1] for beginning in names.ignored if beginning.endswith("*"))
    for name in stored:
        if name not in used and not name.endswith(endings) and not name.startswith(beginnings):
            raise UserError(f"{folder}: the program has no weight for tensor {name!r}")
    config = {**config, "weight-type": _weight_type(tensors.values())}
    if in_blocks := {name: kind for name, tensor in tensors.items() if (kind := _block_type(tensor))}:
        config["weight-types"] = in_blocks
    files = {id(entry.file): entry.file for entry in stored.values()}
    made = MappedCheckpoint(format, folder, config, files.values(), tensors)
    made.notice = _notice(folder, tensors, config)
    return made


def pieces_of_weights(
    folder: Path,
    names: FolderMap,
    config: Mapping[str, Any],
    stored: Mapping[str, Stored],
    format: str = "huggingface",
) -> dict[str, tuple[list[int], list[str]]]:
    """For each of the program's weights that is there, the layers that have a part of it, and the tensors that it is,
    one layer after the other; UserError where some of them are missing."""
    layers = config.get("layers", 1)
    config_json.check_one(folder, "the number of layers", layers, "num_hidden_layers")
    counts = Counter(around for name in stored for around in _around_numbers(name))
    said = "config.json" if format == "huggingface" else "its metadata"
    found = {}
    for name, patterns in names.weights.items():
        pieces = [_pieces_of(patterns, layer, counts) for layer in range(layers if _is_stacked(patterns) else 1)]
        own = [n for n, each in enumerate(pieces) if name not in names.some or not stored.keys().isdisjoint(each)]
        wanted = [piece for layer in own for piece in pieces[layer]]
        missing = [piece for piece in wanted if piece not in stored]
        if missing and len(missing) < len(wanted):
            raise UserError(f"{folder}: tensor {missing[0]!r} is missing; {said} asks for {layers} layers")
        for piece in () if missing else wanted:
            check_readable(folder, piece, stored[piece])
        if wanted and not missing:
            found[name] = own, wanted
    return found


def check_readable(folder: Path, name: str, tensor: Stored) -> None:
    """UserError for a tensor of a type whose numbers are not known here."""
    if tensor.dtype not in DTYPES:
        known = ", ".join(dtype.safetensors for dtype in DTYPES.values() if dtype.smallest_nonfinite is not None)
        raise UserError(f"{folder}: tensor {name!r} is of type {tensor.dtype}, which is not read here; {known} are")


def _notice(path: Path, tensors: Mapping[str, StoredTensor], config: Mapping[str, Any]) -> str:
    """What is said of weights in blocks that no kernel reads as they are."""
    kept: Mapping[str, str] = config.get("weight-types", {})
    changed: dict[str, list[str]] = {}
    for name, tensor in tensors.items():
        kinds = {kind for kind in tensor.kinds if find_dtype(kind).block > 1}
        if kinds and kinds != {kept.get(name)} and not kinds <= set(MIXED.get(kept.get(name, ""), ())):
            changed.setdefault(kept.get(name, "f32"), []).append(f"{name} ({', '.join(sorted(kinds))})")
    return "; ".join(f"{path}: loaded as {kind}: {', '.join(names)}" for kind, names in changed.items())


def _is_stacked(patterns: Sequence[Pattern]) -> bool:
    return any("*" in pattern.name for pattern in patterns)


def _around_numbers(name: str) -> Iterator[tuple[str, str]]:
    """What stands before and behind each number between the dots of a name."""
    for match in NUMBER.finditer(name):
        yield name[: match.start()], name[match.end() :]


def _pieces_of(patterns: Sequence[Pattern], layer: int, counts: Mapping[tuple[str, str], int]) -> list[str]:
    """The tensors that a layer's part of a weight consists of, in order; counts: how many names there are for what
    stands around a number."""
    found = []
    for pattern in patterns:
        start, star, end = pattern.name.replace("*", str(layer), 1).partition("*")
        several = [f"{start}{i}{end}" for i in range(max(1, counts.get((start, end), 0)))]
        found += several if star else [start]
    return found


def _tensor(
    folder: Path, name: str, patterns: Sequence[Pattern], pieces: Sequence[Stored], own: Sequence[int], some: bool
) -> StoredTensor:
    """A weight of one layer after the other, from its pieces in order.

    own: the layers that have a part of it.  some: whether others may have none.
    """
    layers = len(own) if _is_stacked(patterns) else 0
    turned, dtype = patterns[0].transposed, pieces[0].dtype
    shapes = [piece.shape[::-1] if turned else piece.shape for piece in pieces]
    each = len(pieces) // (layers or 1)
    rows = sum(shape[0] for shape in shapes[:each])
    alike = all(shape[1:] == shapes[0][1:] for shape in shapes)
    same = all(sum(s[0] for s in shapes[i : i + each]) == rows for i in range(0, len(pieces), each))
    kinds = {piece.dtype for piece in pieces}
    mixed = len(kinds) > 1 and any(find_dtype(kind).block > 1 or kind in FLOATS_OF_8_BITS for kind in kinds)
    if not alike or not same or (len(kinds) > 1 and not mixed) or len({piece.added for piece in pieces}) > 1:
        raise UserError(f"{folder}: the tensors that are {name!r} differ in shape or type")
    several = each // len(patterns) if patterns[0].name.count("*") > 1 else 1
    padded = -(-rows // patterns[0].multiple) * patterns[0].multiple
    extents = (several, padded // several, *shapes[0][1:]) if several > 1 else (padded, *shapes[0][1:])
    shape = (layers, *extents) if layers else extents
    info = TensorInfo(shape, "f32" if mixed else dtype, bool(layers), tuple(own) if some else None)
    each_dtype = tuple(piece.dtype for piece in pieces)
    scales = tuple(piece.scales for piece in pieces)
    return StoredTensor(info, tuple(piece.array for piece in pieces), turned, pieces[0].added, each_dtype, scales)


def _block_type(tensor: StoredTensor) -> str | None:
    """The blocks that a matrix is kept in: its own where kernels read those, or those that have all numbers of the
    several ones, or "q8_0"; None where it has none."""
    if tensor.is_in_fp8:
        return "fp8"
    kinds = set(tensor.kinds)
    if not any(find_dtype(kind).block > 1 for kind in kinds) or tensor.added:
        return None
    (kind, *others) = kinds
    if kind in BLOCK_DTYPES and not others:
        return kind
    if mixed := next((kind for kind in MIXED if tensor.is_mixed_in(kind)), None):
        return mixed
    return OTHER_BLOCKS if tensor.info.shape[-1] % find_dtype(OTHER_BLOCKS).block == 0 else None


def _weight_type(tensors: Iterable[StoredTensor]) -> str:
    """What the matrices are in: "bf16", or "f32" for whatever else is read as that."""
    matrices = (t.info.dtype for t in tensors if len(t.info.shape) > (2 if t.info.stacked else 1))
    return "bf16" if next(matrices, "f32") == "bf16" else "f32"
