"""`lispgpt.evaluate`: how well a model predicts a text."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError, at_the_call
from lispgpt.base.precisions import EXACT
from lispgpt.compiler.cache import Cache, folder_for
from lispgpt.compiler.compiled import declared
from lispgpt.compiler.folders import find_given
from lispgpt.compiler.present import running_target
from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model
from lispgpt.runtime import tokenizers
from lispgpt.runtime.collectives.peers import PATIENCE, Peers
from lispgpt.runtime.decoding import SCORE
from lispgpt.runtime.text import check_tokenizer
from lispgpt.runtime.training.scoring import score
from lispgpt.runtime.training.trainer import EVALUATE, Evaluation
from lispgpt.runtime.training.trainer import evaluate as evaluate_session
from lispgpt.training.data import in_memory, paths_of
from lispgpt.training.devices import on_devices

LENGTH = 1024
"""Tokens of a sequence where nobody says it, at most."""


@at_the_call
def evaluate(
    program: str | Path,
    checkpoint: str | Path | None,
    data: str | Path | Sequence[str | Path],
    *,
    tokenizer: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    batch: int = 1,
    length: int | None = None,
    most: int | None = None,
    target: str = "cpu",
    precision: str = EXACT,
    threads: int | None = None,
    cache: str | Path | bool | None = True,
    devices: int = 1,
    engine: str | None = None,
    patience: float = PATIENCE,
    peers: Peers | None = None,
) -> Evaluation:
    """How well a model predicts texts or token shards: its loss, perplexity and accuracy.

    program: a program's file, or a Hugging Face folder of a model that a program of the package is for, which needs no
    checkpoint beside it.  It is measured by its `evaluate` entry, or else by the logits that its `generate` form is
    about.  data: one path or several.  Texts are cut into sequences of `length` tokens (the model's context, up to
    1024), of which `batch` are run at once, and `most` batches at most.  Each token but the first of all is predicted
    once, from those before it in its sequence.  UserError where the program has neither, or the data does not fit the
    model.
    precision: as for `lispgpt.compile`; cache: as for `lispgpt.load`.  devices, engine, patience, peers: as for
    `lispgpt.train`; several share each batch, which the logits alone are not for.
    """
    given = find_given(program, checkpoint)
    if given.artifact is not None or given.checkpoint is None:
        raise UserError("evaluating wants a program and a checkpoint, or a Hugging Face folder")
    for notice in given.notices(settings or {}):
        warnings.warn(notice, stacklevel=3)
    opened, chip = given.checkpoint, running_target(target)
    request = Request(given.program, chip, settings or {}, given.config, precision=precision)
    found = declared(request)
    entry = next((name for name in (EVALUATE, SCORE) if name in found.entries), None)
    if entry is None:
        raise UserError(
            f"{given.program} has no entry {EVALUATE!r}, which `(training loss)` makes, and no `generate` form"
        )
    vocab, context = found.config.get("vocab"), found.config.get("context")
    if length is not None and (type(length) is not int or length < 1):
        raise UserError(f"--length is {length!r}, which must be a whole number from 1")
    length = length or min(LENGTH, context if isinstance(context, int) else LENGTH)
    if isinstance(context, int) and length > context:
        raise UserError(f"--length is {length}, and the model has {context} positions (its context)")
    opened_tokenizer = tokenizers.find(given.weights, tokenizer)
    check_tokenizer(opened_tokenizer, vocab)
    stream = in_memory(paths_of(data), opened_tokenizer)
    largest = stream.largest()
    if isinstance(vocab, int) and largest >= vocab:
        raise UserError(f"the data has the token {largest}, and the model's vocabulary has {vocab}")
    folder = folder_for(cache)
    kept = None if folder is None else Cache(folder)
    count = devices if peers is None else peers.place.size
    if batch % count:
        raise UserError(f"--batch is {batch}, which {count} devices cannot share alike")
    if count > 1 and entry != EVALUATE:
        raise UserError(
            f"{given.program} has no entry {EVALUATE!r}, which several devices evaluate by: give --devices 1"
        )
    chosen: dict[str, Any] = {"cache": kept, "device": target, "threads": threads, "engine": engine}
    with Model(request, opened, **chosen) as model:
        artifacts = model.compiled([entry], {"batch": batch, "length": length}, devices=count)

    def work(peers: Peers | None, _: Any = None) -> Evaluation:
        part = () if peers is None else (peers.place.rank, peers.place.size)
        with Model(request, opened, peers=peers, **chosen) as model:
            model.add(artifacts)
            if entry == EVALUATE:
                return evaluate_session(model.session, stream, batch, length, most, *part)
            return score(model.session, stream, batch, length, most)

    if peers is not None or count == 1:
        return work(peers)
    shared: Evaluation = on_devices(count, work, lambda _: None, patience)
    return shared
