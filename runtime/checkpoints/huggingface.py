"""Hugging Face's folders: config.json beside model.safetensors, whole or in shards.

Tensors are named per layer, with or without a prefix; as they are read, layers are stacked and matrices turned to
(out, in).  What the tensors are is the architecture's (see `architecture`), which config.json's model_type names.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import re
import shutil
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base import config_json
from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.folder_map import FolderMap
from lispgpt.base.json_files import read_json
from lispgpt.base.reading import is_there
from lispgpt.runtime.checkpoints.adapter import Adapter
from lispgpt.runtime.checkpoints.architecture import Part, Shape, holds
from lispgpt.runtime.checkpoints.base import Checkpoint, MappedCheckpoint, StoredTensor, TensorInfo
from lispgpt.runtime.checkpoints.mapped_folder import QUANTIZATION, assemble, check_readable, read_settings
from lispgpt.runtime.checkpoints.nibbles import METHOD, method_of
from lispgpt.runtime.checkpoints.numbers import CHUNK
from lispgpt.runtime.checkpoints.safetensors_file import Stored, has_config, read_safetensors, write_safetensors
from lispgpt.runtime.checkpoints.scaled import with_scales

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"


PART, MOST_PARTS = re.compile(r"model-([0-9]{5})-of-([0-9]{5})\.safetensors"), 1000
GUESSING = "num_nextn_predict_layers"
"""How many layers behind the model's own there are that guess at tokens after the next one, which nothing here runs."""


def recognises(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return any((path / name).exists() for name in (CONFIG, WEIGHTS, INDEX)) and not has_config(path)
    return path.suffix == ".safetensors" and _is_known(path.parent / CONFIG)


def _is_known(config: Path) -> bool:
    """Whether a file beside weights says that they are of an architecture known here, or is damaged."""
    if not is_there(config):
        return False
    try:
        kind = model_type(config.parent)
    except UserError:
        return True
    return any(kind in module.MODEL_TYPES for module in _architectures())


def model_type(path: Path) -> str:
    """What a folder's config.json says it holds."""
    kind: str | None = config_json.read_setting(path / CONFIG, "model_type")
    return kind or "gpt2"


def open_checkpoint(path: Path, names: FolderMap | None = None, adapter: Adapter | None = None) -> Checkpoint:
    """Map a folder's weights after checking names, shapes and offsets against config.json.

    names: what the program to be run calls them; without it, those of the architectures known here.  adapter: added to
    weights that a program names.
    """
    folder = path if path.is_dir() else path.parent
    data = read_json(folder / CONFIG)
    config_json.check(folder / CONFIG, data, config_json.EVERYWHERE if names is None else [GUESSING])
    if names is not None:
        config = read_settings(folder / CONFIG, data, names)
        file, quantization = None if path.is_dir() else path, data.get(QUANTIZATION)
        stored = _read_weights(folder, file, names.prefix, method_of(quantization) == METHOD)
        stored = with_scales(folder, stored, quantization)
        if adapter is not None:
            stored = adapter.merged(stored, partial(without_prefix, names.prefix))
        return assemble(
            folder, names, config, _without_guessing(stored, config.get("layers", 1), data.get(GUESSING) or 0)
        )
    architecture = _architecture(folder / CONFIG, data)
    try:
        shape, more = architecture.read_config(folder / CONFIG, data)
    except UserError as error:
        known = error.message.startswith(str(folder))
        raise error if known else UserError(f"{folder / CONFIG}: {error.message}") from error
    stored = _read_weights(folder, None if path.is_dir() else path, (architecture.PREFIX,))
    tensors = _assemble(folder, architecture, shape, stored)
    weight_type = "bf16" if tensors["wte"].info.dtype == "bf16" else "f32"
    files = {id(entry.file): entry.file for entry in stored.values()}
    checkpoint = MappedCheckpoint("huggingface", folder, shape.config(weight_type) | more, files.values(), tensors)
    if architecture.HEAD[0] not in {part.stored_name for part in architecture.parts(shape)}:
        _check_tied(folder, stored, *architecture.HEAD)
    return checkpoint


def export(folder: Path, source: Checkpoint) -> None:
    """Write config.json and model.safetensors where the checkpoint is of an architecture known here, all of it."""
    if any(holds(module.shape_from, source) for module in _architectures()):
        write(folder, source, None)


def write(path: Path, source: Checkpoint, dtype: str | None) -> None:
    """Write a checkpoint, without the vocabulary's padding, as config.json and model.safetensors.

    dtype: None gives each tensor its own.
    """
    if path.exists() and not path.is_dir():
        raise UserError(f"{path} is a file; a Hugging Face checkpoint is a folder")
    architecture, shape = _architecture_of(source)
    parts = list(architecture.parts(shape))
    kinds = {part.name: dtype or source.info(part.name).dtype for part in parts}
    header = [(part.stored_name, part.stored_shape, kinds[part.name]) for part in parts]
    shapes = {name: extents[1:] if stacked else extents for name, extents, stacked in shape.tensors()}

    def contents() -> Iterator[np.ndarray]:
        for (name, layer), group in groupby(parts, key=lambda part: (part.name, part.layer)):
            array = np.empty(shapes[name], find_dtype(kinds[name]).numpy)
            source.read_layer_into(name, layer, array, kinds[name])
            start = 0
            for part in group:
                rows = array[start : start + part.shape[0]]
                start += part.shape[0]
                yield np.ascontiguousarray(rows.T) if part.transposed else rows

    write_safetensors(path / WEIGHTS, header, contents())
    (path / INDEX).unlink(missing_ok=True)
    stored_type = {"bf16": "bfloat16", "f32": "float32"}[dtype or source.config["weight-type"]]
    text = json.dumps(architecture.config_json(shape, source.config, stored_type), indent=2)
    with replacing(path / CONFIG) as file:
        file.write(text.encode() + b"\n")


def _architectures() -> list[Any]:
    """The modules of this folder that describe an architecture."""
    package = __name__.rpartition(".")[0]
    names = [entry.name for entry in pkgutil.iter_modules([str(Path(__file__).parent)])]
    return [importlib.import_module(f"{package}.{name}") for name in names if name.startswith("huggingface_")]


def _architecture(path: Path, data: dict[str, Any]) -> Any:
    """The architecture that config.json names; a folder that does not say is GPT-2's, as its first ones did not."""
    kind = data.get("model_type") or "gpt2"
    found = next((module for module in _architectures() if kind in module.MODEL_TYPES), None)
    if found is None:
        known = ", ".join(name for module in _architectures() for name in module.MODEL_TYPES)
        raise UserError(f"{path}: model_type is {kind!r}, and those known here are {known}")
    return found


def _architecture_of(source: Checkpoint) -> tuple[Any, Any]:
    """The architecture whose sizes a checkpoint's config holds, and those sizes."""
    for module in _architectures():
        try:
            shape = module.shape_from(source.config)
        except KeyError:
            continue
        if {name for name, _, _ in shape.tensors()} <= set(source.names()):
            return module, shape
    raise UserError(f"{source.path} is of no architecture that Hugging Face's format is written for here")


def _read_weights(
    folder: Path, file: Path | None, prefixes: Sequence[str], integers: bool = False
) -> dict[str, Stored]:
    """All tensors of the folder by their names without the first of the prefixes that they have."""
    return {name: tensor for name, (_, tensor) in read_named(folder, file, prefixes, integers).items()}


def read_named(
    folder: Path, file: Path | None, prefixes: Sequence[str], integers: bool = False
) -> dict[str, tuple[str, Stored]]:
    """The same, each with its whole name; integers: see `read_safetensors`."""
    if file is None and not (folder / WEIGHTS).exists() and is_there(folder / INDEX):
        index = read_json(folder / INDEX)
        places = index.get("weight_map")
        if not isinstance(places, dict) or not all(isinstance(v, str) and Path(v).name == v for v in places.values()):
            raise UserError(f"{folder / INDEX}: weight_map must name a file in the folder for each tensor")
        files = [folder / name for name in sorted(set(places.values()))]
    else:
        files = [file or folder / WEIGHTS]
        if file is None and not files[0].exists():
            files = _parts(folder) or files
    found: dict[str, tuple[str, Stored]] = {}
    for path in files:
        for full_name, tensor in read_safetensors(path, integers).items():
            name = without_prefix(prefixes, full_name)
            if name in found:
                raise UserError(f"{path}: tensor {name!r} is there twice")
            found[name] = full_name, tensor
    return found


def without_prefix(prefixes: Sequence[str], name: str) -> str:
    """A tensor's name without the first of the prefixes that it has."""
    return name.removeprefix(next(filter(name.startswith, prefixes), ""))


def merge(folder: Path, adapter: Adapter, prefixes: Sequence[str], out: Path) -> None:
    """Write a folder of the same tensors and types with an adapter added, and what else describes the model.

    prefixes: of tensors' names, which some have and others not.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"{out} is there already: a merged model is written to a new folder")
    read = read_named(folder, None, prefixes)
    merged = adapter.merged({name: tensor for name, (_, tensor) in read.items()}, partial(without_prefix, prefixes))
    merged = {read[name][0]: tensor for name, tensor in merged.items()}
    for full, tensor in merged.items():
        check_readable(folder, full, tensor)
    header = [(full, tensor.shape, tensor.dtype) for full, tensor in merged.items()]
    out.mkdir(parents=True, exist_ok=True)
    write_safetensors(out / WEIGHTS, header, (np.ascontiguousarray(tensor.array) for tensor in merged.values()))
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in (".json", ".jinja", ".txt", ".model") and path.name != INDEX:
            shutil.copyfile(path, out / path.name)


def _parts(folder: Path) -> list[Path]:
    """The files of weights that number each other where no index names them; UserError where one is missing."""
    found = {match[1]: match for path in folder.iterdir() if (match := PART.fullmatch(path.name))}
    counts = {match[2] for match in found.values()}
    if len(counts) > 1:
        raise UserError(f"{folder}: {INDEX} is missing, and there are parts of several models' weights")
    names = [f"model-{n + 1:05}-of-{count}.safetensors" for count in counts for n in range(min(int(count), MOST_PARTS))]
    missing = next((name for name in names if not is_there(folder / name)), None)
    if missing is not None:
        raise UserError(f"{folder / missing} is missing, which is a part of the model: copy or download it, too")
    return [folder / name for name in names]


def _without_guessing(stored: dict[str, Stored], layers: int, more: int) -> dict[str, Stored]:
    """Tensors but for those of so many layers behind the model's own."""
    further = tuple(f"layers.{layers + n}." for n in range(min(more, layers)))
    return {name: tensor for name, tensor in stored.items() if not name.startswith(further)} if further else stored


def _assemble(folder: Path, architecture: Any, shape: Shape, stored: dict[str, Stored]) -> dict[str, StoredTensor]:
    pieces: dict[str, list[Stored]] = {}
    transposed: dict[str, bool] = {}
    expected = {architecture.HEAD[0]}
    for part in architecture.parts(shape):
        pieces.setdefault(part.name, []).append(_piece(folder, part, shape, stored))
        transposed[part.name] = part.transposed
        expected.add(part.stored_name)
    for name in stored:
        if name not in expected and not name.endswith(architecture.IGNORED):
            what = f"no part of the {architecture.NAME} that config.json describes"
            raise UserError(f"{folder}: tensor {name!r} is {what}")
    tensors = {}
    for name, extents, stacked in shape.tensors():
        dtypes = {piece.dtype for piece in pieces[name]}
        if len(dtypes) > 1:
            raise UserError(f"{folder}: the layers' {name!r} have different types: {', '.join(sorted(dtypes))}")
        info = TensorInfo(extents, dtypes.pop(), stacked)
        tensors[name] = StoredTensor(info, tuple(piece.array for piece in pieces[name]), transposed[name])
    return tensors


def _piece(folder: Path, part: Part, shape: Shape, stored: dict[str, Stored]) -> Stored:
    if part.stored_name not in stored:
        raise UserError(f"{folder}: tensor {part.stored_name!r} is missing; config.json asks for {shape.layers} layers")
    found, wanted = stored[part.stored_name], part.stored_shape
    check_readable(folder, part.stored_name, found)
    if found.array.shape != wanted:
        has = f"tensor {part.stored_name!r} has shape {found.array.shape}"
        raise UserError(f"{folder}: {has}, where config.json's sizes need {wanted}")
    return found


def _check_tied(folder: Path, stored: dict[str, Stored], head_name: str, embedding_name: str) -> None:
    """A head of its own would be silently lost, so it must equal the embedding."""
    if head_name not in stored:
        return
    head, embedding = stored[head_name], stored[embedding_name]
    same = head.dtype == embedding.dtype and head.array.shape == embedding.array.shape
    if same:
        ours, theirs = (tensor.array.reshape(-1) for tensor in (embedding, head))
        steps = range(0, ours.size, CHUNK)
        same = all(np.array_equal(ours[i : i + CHUNK], theirs[i : i + CHUNK]) for i in steps)
        embedding.file.release(embedding.array)
        head.file.release(head.array)
    if not same:
        raise UserError(
            f"{folder}: {head_name!r} differs from {embedding_name!r}, and the head is tied to the embedding"
        )
