"""Beginning a run: its folder gets a tokenizer, token shards, and a description of all that it is to be."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.json_files import COUNT, NAME, NAME_OR_NULL, OBJECT, SCALARS, Fields, Kind, is_scalar, is_text
from lispgpt.base.precisions import EXACT, PRECISIONS
from lispgpt.base.reading import is_there
from lispgpt.compiler.compiled import Declared, declared
from lispgpt.compiler.folders import is_model, open_weights, with_more
from lispgpt.compiler.own_config import replaced
from lispgpt.compiler.request import Request
from lispgpt.runtime import tokenizers
from lispgpt.runtime.checkpoints.gpt2 import VOCAB_MULTIPLE
from lispgpt.runtime.checkpoints.sealed import RUN, run_without_steps
from lispgpt.runtime.checkpoints.seeded import PRESETS
from lispgpt.runtime.gguf.header import is_gguf
from lispgpt.runtime.training.options import Options
from lispgpt.runtime.training.run_folder import TOKENS, RunFolder
from lispgpt.runtime.training.trainer import EVALUATE, entries_of_steps
from lispgpt.training.arrays import ArrayData, are_arrays
from lispgpt.training.data import Shards, copied, is_validation, sort_paths, train_tokenizer, vocabulary, write_shards
from lispgpt.training.fine_tuning import PROGRAM, write_program
from lispgpt.training.lora import Lora

VERSION = 1

CONFIG = Kind(
    "an object of flags, numbers, names and lists of them",
    lambda v: isinstance(v, dict) and all(all(map(is_scalar, i if isinstance(i, list) else [i])) for i in v.values()),
)
NAMES = Kind("a list of names", lambda v: isinstance(v, list) and all(map(is_text, v)))
FILE = Kind("the name of a file there, or null", lambda v: v is None or (is_text(v) and Path(v).name == v != ""))
FACTS = Fields(
    {
        "version": COUNT,
        "program": NAME,
        "settings": SCALARS,
        "header": CONFIG,
        "checkpoint": NAME_OR_NULL,
        "more_checkpoints": NAMES,
        "tokenizer": FILE,
        "target": NAME,
        "precision": Kind(" or ".join(PRECISIONS), lambda value: value in PRECISIONS),
        "options": OBJECT,
        "data": OBJECT,
        "lora": OBJECT,
    },
    frozenset({"precision", "lora", "more_checkpoints"}),
)
"""What run.json has."""

PADDED = "padded-vocab"
"""The vocabulary's size in memory, of programs that round it up."""


DOCUMENT = "document-token"
"""The token that begins a document, of programs that tell documents of a text apart."""


@dataclass(frozen=True)
class Beginning:
    """What a run begins with.

    data, validation: files and folders of text or of token shards, or arrays (see `arrays`).
    tokenizer: a file; vocab_size: of one to make of
    the data.  checkpoint: weights to go on from; more_checkpoints: others, of which the last that has a weight gives
    it.  preset: the sizes of a known model.  settings: values of the program's
    config.  fraction: of the tokens, to hold back where validation names no data.  lora: an adapter to train in place
    of the model's weights.  mask_documents: whether rows see those of their own document alone.
    """

    program: Path
    data: Sequence[Path] | Mapping[str, Any]
    validation: Sequence[Path] | Mapping[str, Any] = ()
    fraction: float = 0.05
    tokenizer: Path | None = None
    vocab_size: int | None = None
    checkpoint: Path | None = None
    more_checkpoints: Sequence[Path] = ()
    preset: str | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    target: str = "cpu"
    precision: str = EXACT
    lora: Lora | None = None
    mask_documents: bool = False


def begin(folder: RunFolder, given: Beginning, options: Options, note: Callable[[str], None]) -> None:
    """Make everything that a run needs, its description last; UserError, and no run, for what does not fit.

    note: is told of sizes that the run has and the program has not."""
    if folder.stepped:
        raise UserError(f"{folder.path} has a run already: --resume goes on with it, or give another folder")
    model = given.program if is_model(given.program) else None
    _check_given(given, model)
    _check_place(folder, given)
    folder.forget_steps()
    if are_arrays(given.data):
        _begin_with_arrays(folder, given, model, options)
        return
    if model is not None:
        given = replace(given, program=write_program(folder.path, model, given.lora), checkpoint=model)
    first = Request(given.program, "cpu", given.settings, _known_sizes(given))
    own = declared(first)
    _check_entries(own, given, options)
    shards, texts = sort_paths([*given.data])
    more_shards, more_texts = sort_paths([*given.validation])
    made = _tokenizer(folder, given, texts)
    if made is None and (texts or more_texts):
        raise UserError("text needs a tokenizer: give --tokenizer FILE, or --vocab-size N to make one of the text")
    if given.mask_documents:
        given = replace(given, settings={**given.settings, DOCUMENT: _begins_documents(made)})
    header = _header(given, options, made)
    request = Request(given.program, "cpu", given.settings, header)
    found = own if request == first else declared(request)
    _tell_replaced(own, given, header, options, note)
    _check_preset(found, given, header)
    vocab = _check_fit(found, given, options, made)
    if texts:
        shards = write_shards(texts, _known(made), folder.path / TOKENS, "train")
    if more_texts:
        more_shards = write_shards(more_texts, _known(made), folder.path / TOKENS, "val")
    training = shards if more_shards else [path for path in shards if not is_validation(path)]
    held_out = [*more_shards, *(path for path in shards if path not in training)]
    data = Shards(_absolute(training), _absolute(held_out), given.fraction)
    data.check(vocab)
    _check_enough(data, options)
    folder.begin(_facts(given, options, header, made, data.to_json(folder.path.resolve())))


def _begin_with_arrays(folder: RunFolder, given: Beginning, model: Path | None, options: Options) -> None:
    """The same for arrays, which need no tokenizer and no vocabulary."""
    if model is not None:
        raise UserError(f"{model} is a model of texts: arrays are for a program whose `training` takes them")
    if given.tokenizer is not None or given.vocab_size is not None:
        raise UserError("arrays need no tokenizer: leave out --tokenizer and --vocab-size")
    if given.mask_documents:
        raise UserError("--mask-documents is for texts, and the data is arrays")
    header = {} if given.checkpoint is None else _config_of(given)
    found = declared(Request(given.program, "cpu", given.settings, header))
    _check_entries(found, given, options)
    data = ArrayData.of(given.data, given.validation, given.fraction, folder.path)
    data.sources(options.batch, options.seed)
    folder.begin(_facts(given, options, header, None, data.to_json(folder.path.resolve())))


def _facts(
    given: Beginning, options: Options, header: Mapping[str, Any], tokenizer: Path | None, data: Mapping[str, Any]
) -> dict[str, Any]:
    """What run.json has."""
    return {
        "version": VERSION,
        "program": str(given.program.resolve()),
        "settings": dict(given.settings),
        "header": dict(header),
        "checkpoint": None if given.checkpoint is None else str(given.checkpoint.resolve()),
        **({"more_checkpoints": [str(path.resolve()) for path in more]} if (more := given.more_checkpoints) else {}),
        "tokenizer": None if tokenizer is None else tokenizer.name,
        "target": given.target,
        "precision": given.precision,
        "options": asdict(options.resolved()),
        "data": dict(data),
        **({} if given.lora is None else {"lora": given.lora.to_json()}),
    }


def _check_given(given: Beginning, model: Path | None) -> None:
    """model: the program, where it is a model by itself."""
    for option in ("checkpoint", "preset", "vocab_size"):
        if model is not None and getattr(given, option) is not None:
            said = f"--{option.replace('_', '-')}"
            raise UserError(f"{model} is a model with weights and a tokenizer of its own: {said} is for programs")
    if model is None and given.lora is not None:
        raise UserError(f"--lora trains an adapter of a model's folder, and {given.program} is none")
    if model is None and is_there(given.program / RUN):
        raise UserError(
            f"{given.program} is a run's folder: `lispgpt train --run {given.program} --resume` goes on with it, and "
            f"PROGRAM --checkpoint {given.program} begins anew from its weights"
        )
    if model is None and (without := run_without_steps(given.program)):
        raise UserError(without)
    if model is None and given.program.is_dir():
        raise UserError(
            f"{given.program} is a folder without config.json: give a model's folder, or a program to train"
        )
    if model is None and not given.program.is_file():
        raise UserError(f"there is no file {given.program}")
    if not given.data:
        raise UserError("there is nothing to train on: give --data PATH")
    if given.tokenizer is not None and given.vocab_size is not None:
        raise UserError("give --tokenizer FILE or --vocab-size N, not both")
    if given.checkpoint is not None and given.preset is not None:
        raise UserError("give --checkpoint START or --preset P, not both: a checkpoint has its own sizes")
    if given.preset is not None and given.preset not in PRESETS:
        raise UserError(f"no preset {given.preset!r}; there are {', '.join(PRESETS)}")
    if not 0 <= given.fraction < 1:
        raise UserError(f"--val-fraction is {given.fraction}, which must be from 0 to below 1")


def _check_place(folder: RunFolder, given: Beginning) -> None:
    """UserError where the run would write over files of a folder that no run has made."""
    if folder.known:
        return
    source = given.tokenizer and given.tokenizer.resolve()
    own = (folder.path / TOKENS, folder.path / RUN, folder.path / PROGRAM)
    for path in (*sorted(folder.path.glob("tokenizer.*")), *own):
        if os.path.lexists(path) and path.resolve() != source:
            raise UserError(f"{path} is there already, and no run has made it: give --run a folder of its own")


def _tokenizer(folder: RunFolder, given: Beginning, texts: Sequence[Path]) -> Path | None:
    """Put the run's tokenizer into its folder; where it is, or None where there is none."""
    if given.vocab_size is not None:
        if not texts:
            raise UserError("--vocab-size makes a tokenizer of text, and the data is token shards")
        path = folder.path / "tokenizer.json"
        train_tokenizer(texts, given.vocab_size, path)
        return path
    source = given.tokenizer
    if source is None and given.checkpoint is not None:
        source = tokenizers.beside(given.checkpoint)
    elif source is not None and source.is_dir():
        source = tokenizers.beside(source)
    if source is None:
        return None
    if source.name in ("vocab.json", "merges.txt"):
        raise UserError(f"{source} is one of a pair of files: give a tokenizer.json")
    if not source.is_file():
        raise UserError(f"there is no tokenizer at {source}")
    if is_gguf(source):
        path, text = folder.path / "tokenizer.json", tokenizers.open(source).to_json()
        if text is None:
            raise UserError(f"{source} has a tokenizer that cannot be written as tokenizer.json: give --tokenizer FILE")
        with replacing(path) as file:
            file.write(text.encode())
        return path
    path = folder.path / f"tokenizer{source.suffix}"
    copied(source, path)
    return path


def _known_sizes(given: Beginning) -> dict[str, Any]:
    """Config values of a checkpoint or a preset, which no data change."""
    if given.checkpoint is not None:
        return _config_of(given)
    return {} if given.preset is None else _preset(given.preset)


def _preset(name: str) -> dict[str, Any]:
    return {each: size for each, size in PRESETS[name].config("f32").items() if each != "weight-type"}


def _begins_documents(tokenizer: Path | None) -> int:
    """The token that stands ahead of each document (see `encoded`); UserError where none is known."""
    if tokenizer is None:
        raise UserError(f"--mask-documents needs a tokenizer: give --tokenizer FILE, or --set {DOCUMENT}=TOKEN")
    token = tokenizers.open(tokenizer).end_of_text
    if token is None:
        raise UserError(f"{tokenizer} has no token that ends a text, which --mask-documents goes by")
    return token


def _header(given: Beginning, options: Options, tokenizer: Path | None) -> dict[str, Any]:
    """Config values from a checkpoint or a preset; else those that the data and the options suggest."""
    if given.checkpoint is not None:
        return _config_of(given)
    if given.preset is not None:
        header = _preset(given.preset)
    else:
        header = {"context": options.length}
        if tokenizer is not None:
            size = vocabulary(tokenizer)
            header |= {"vocab": size, PADDED: -(-size // VOCAB_MULTIPLE) * VOCAB_MULTIPLE}
    if "vocab" in given.settings:
        header.pop(PADDED, None)  # it follows from the vocabulary that is asked for
    return header


def _config_of(given: Beginning) -> dict[str, Any]:
    """What the checkpoints that a run begins with say of its program's config."""
    assert given.checkpoint is not None
    opened = with_more(open_weights(given.checkpoint, given.program), given.more_checkpoints, given.program)
    return {} if opened is None else dict(opened.config)


def _tell_replaced(
    own: Declared, given: Beginning, header: Mapping[str, Any], options: Options, note: Callable[[str], None]
) -> None:
    """Say which sizes of the program give way to those of the data and the options."""
    if given.checkpoint is not None and not is_model(given.checkpoint):
        if said := replaced(given.program, header, given.settings):
            note(said)
        return
    if given.checkpoint is not None or given.preset is not None:
        return
    for name, reason in (("context", f"--length {options.length}"), ("vocab", "the tokenizer")):
        old, new = own.config.get(name), header.get(name)
        if type(old) is type(new) is int and old != new and name not in given.settings:
            kept = f" (--set {name}={old} keeps that)" if old > new else ""
            note(f"the run's {name} is {new}, by {reason}, and not the program's {old}{kept}")


def _check_preset(found: Declared, given: Beginning, header: Mapping[str, Any]) -> None:
    """UserError where the sizes of a preset are those of another kind of model."""
    strange = [name for name in header if name not in found.config and name != PADDED]
    if given.preset is not None and strange:
        raise UserError(
            f"--preset {given.preset} is of another kind of model: {given.program} has no config value {strange[0]}"
        )


def _check_entries(found: Declared, given: Beginning, options: Options) -> None:
    """UserError where the program cannot be trained so."""
    for name in entries_of_steps(options.accumulate):
        if name not in found.entries:
            known = f"it has {', '.join(found.entries)}" if found.entries else "it has no entry"
            raise UserError(
                f"{given.program} cannot be trained: add (require training) and (training {_trained(found)}), which "
                f"make the entry {name!r} ({known})"
            )
    if EVALUATE not in found.entries and given.validation:
        raise UserError(f"{given.program} has no entry {EVALUATE!r} to validate with")
    if options.sample_every and not found.generates:
        raise UserError(f"{given.program} has no `generate` form, which --sample-every needs; add (generate ENTRY)")


def _trained(found: Declared) -> str:
    """What such a program would be trained by: the entry that it generates with, else a loss."""
    return found.entries[0] if found.generates and found.entries else "loss"


def _check_fit(found: Declared, given: Beginning, options: Options, tokenizer: Path | None) -> int:
    """The model's vocabulary; UserError where the program cannot be trained so, or its sizes do not fit the data's."""
    _check_entries(found, given, options)
    vocab, context = found.config.get("vocab"), found.config.get("context")
    if not isinstance(vocab, int):
        raise UserError("to be trained, a program's config has to say its vocab: (config vocab N)")
    if tokenizer is not None and (size := vocabulary(tokenizer)) > vocab:
        more = "" if given.checkpoint is not None else f": --set vocab={size} makes that as large"
        less = f", --vocab-size {vocab} the tokenizer as small" if more and given.vocab_size is not None else ""
        raise UserError(f"the tokenizer has {size} tokens, and the model's vocabulary {vocab}{more}{less}")
    if isinstance(context, int) and options.length > context:
        raise UserError(f"--length is {options.length}, and the model has {context} positions (its context)")
    return vocab


def _check_enough(data: Shards, options: Options) -> None:
    """UserError where there is not one window to train on."""
    stream, _ = data.streams(options.length)
    if stream.count <= options.length:
        raise UserError(
            f"the data has {stream.count} tokens to train on, and --length {options.length} needs {options.length + 1}"
        )


def _absolute(paths: Sequence[Path]) -> tuple[Path, ...]:
    return tuple(path.resolve() for path in itertools.chain(paths))


def _known(tokenizer: Path | None) -> Path:
    assert tokenizer is not None
    return tokenizer
