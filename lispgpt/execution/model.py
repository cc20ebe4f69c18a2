"""A model on a device: its entries compiled as they are needed, and the text that it generates."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from lispgpt.base.dtypes import DECLARED_DTYPES as WRITTEN_DTYPES
from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import Declared, artifact_of
from lispgpt.compiler.request import Observer, Request
from lispgpt.execution.opening import device_for
from lispgpt.execution.shown import model_html
from lispgpt.runtime.arrays import as_array
from lispgpt.runtime.batch import Batch
from lispgpt.runtime.checkpoints import Checkpoint, TensorInfo
from lispgpt.runtime.checkpoints.none import NoWeights
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.decoding import (
    ALL_LOGITS,
    GREEDY,
    HIDDEN,
    PREFILL,
    VERIFY,
    can_decode,
    choice_of,
    intake_sizes,
    runs_on,
)
from lispgpt.runtime.devices import room
from lispgpt.runtime.drafting import DRAFTED, DraftModel
from lispgpt.runtime.every_position import every_row, pooled, rows_for
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.given_weights import Several, arrays_given, check_known, completed, said_of
from lispgpt.runtime.near_ties import NearTies
from lispgpt.runtime.options import MOST_TOGETHER, Choices, Options
from lispgpt.runtime.owning import Opening
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Buffer, Entry
from lispgpt.runtime.plan.room import check_room
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Continuation, Text, tokens_of
from lispgpt.runtime.tokenizers import Tokenizer
from lispgpt.runtime.training.snapshot import SessionWeights
from lispgpt.runtime.weights import read_weight


def _warn(text: str) -> None:
    warnings.warn(text, stacklevel=2)


NEEDS_WEIGHTS = (
    "this model needs weights: give --checkpoint FILE, in Python checkpoint= (lispgpt checkpoint make makes one)"
)


class Model:
    """A program or artifact with its weights, on a device; made by `load`.

    States live as long as the model: an entry finds what the entries before it left.  Threads may share a model: each
    call, and each piece of a text, has it alone.  device: the target that was asked for, which may be an emulated one
    of the artifact's chip.  trace: a kernel whose instructions an emulated GPU prints.  name: of the artifact, for
    messages.  peers: the processes beside this one, for entries that several devices share; engine: by what those work
    together, where it is not the usual.  program: what the artifact was compiled from, where more of it may be.
    declared: what the program says of itself, where that was asked.  weights: those that the caller gives, which win
    over the checkpoint's; what neither has begins as the program's :init says, which `tell` hears, and without
    a checkpoint as training does.  first_nan: whether entries run launch by launch,
    each op that computes by one of its own, up to the first that makes a NaN, which is then the error at its form.
    """

    def __init__(
        self,
        source: Request | Artifact,
        checkpoint: Checkpoint | None,
        tokenizer: Tokenizer | None = None,
        *,
        cache: Cache | None = None,
        observer: Observer | None = None,
        device: str = "",
        threads: int | None = None,
        check: bool = False,
        trace: str = "",
        name: str = "the artifact",
        peers: Peers | None = None,
        engine: str | None = None,
        program: Request | None = None,
        declared: Declared | None = None,
        first_nan: bool = False,
        weights: Checkpoint | None = None,
        tell: Callable[[str], None] | None = None,
    ) -> None:
        self._peers, self._engine = peers, engine
        request = source if isinstance(source, Request) else program
        self._request = request and replace(request, room=room(request.target), each_op=first_nan or request.each_op)
        self._artifact = source if isinstance(source, Artifact) else None
        self._checkpoint, self.tokenizer, self._cache, self._observer = checkpoint, tokenizer, cache, observer
        self._given, self._tell = weights, tell
        self._device, self._threads, self._check, self._trace = device, threads, check, trace
        self._declared, self._first_nan = declared, first_nan
        self._name = str(self._request.program) if self._request else name
        self._session: Session | None = None
        self._near_ties: NearTies | None = None
        self._opening = Opening()
        self.draft: Model | None = None

    def __enter__(self) -> Model:
        self._opening.closed = False
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._name} on {self._device or 'its target'}>"

    def _repr_html_(self) -> str:
        """What notebooks show; nothing is compiled for it."""
        about, loaded = self._artifact or self._declared, self._session.artifact if self._session else None
        return model_html(repr(self)[1:-1], about or loaded, self._checkpoint, loaded)

    def close(self) -> None:
        """Free the device's memory; the model can be used again within another `with`, and not otherwise."""
        with self._opening.closing(None if self._session is None else self._session.lock) as there:
            if there and self._session is not None:
                with self._session.alone():
                    self._session.close()
                self._session = self._near_ties = None
        if self.draft is not None:
            self.draft.close()

    def run(self, entry: str, /, **inputs: Any) -> dict[str, np.ndarray]:
        """Run an entry on its inputs; its results by name, as arrays of their types (bf16 as float32).

        Inputs are whatever numpy makes arrays of.  An entry of a program is compiled when it is first run on arrays of
        these shapes, which say its free dimensions.
        """
        if not isinstance(entry, str):
            raise UserError(f"an entry is called by its name, not {entry!r}")
        arrays = {name: as_array(value, name) for name, value in inputs.items()}
        shapes = {name: array.shape for name, array in arrays.items()}
        with self._opening:
            if self._request is not None and not (self._session and self._session.fits(entry, shapes)):
                self._add(replace(self._request, entries=(entry,), inputs={entry: shapes}))
        with self.session.alone():
            return self.session.run(entry, **arrays)

    def generate(self, prompt: str | Sequence[int] = "", **options: Unpack[Choices]) -> Text:
        """Text that goes on from a prompt, piece by piece as it comes; `.text` and `.tokens` have all of it so far.

        prompt: text, or ids of tokens; "" starts a new text.  options: see `Options`; what is not given is as in the
        program's `generate` form.
        """
        return self.text(self.prompt(prompt), self.options(**options))

    def generate_batch(
        self, prompts: Sequence[str | Sequence[int]], *, batch: int | None = None, **options: Unpack[Choices]
    ) -> list[Text]:
        """Whole texts that go on from several prompts of any lengths, generated together.

        batch: how many at once (by default all, up to 8; one with a look-up); where one ends, the next prompt takes its
        place.  Text number n is what `generate` gives for a seed that is larger by n.
        """
        if isinstance(prompts, str):
            raise UserError("`generate_batch` takes a list of prompts; `generate` takes one text")
        made = self.options(**options)
        texts = [self.text(self.prompt(prompt), made, number) for number, prompt in enumerate(prompts)]
        for _ in self.together(texts, batch or (1 if made.lookup or self.draft else min(len(texts), MOST_TOGETHER))):
            continue
        return texts

    def logits(self, tokens: str | Sequence[int], adapter: int = 0) -> np.ndarray:
        """What the model says of the token after each of these, f32 [tokens, vocabulary]; with one of the adapters that
        it was loaded with, from 1 on."""
        given = self._within(self.prompt(tokens), "logits")
        entry = self.entry(ALL_LOGITS, "logits of every position", batch=1, length=self._rows(given.size))
        if not entry.repeatable:
            entry = self.entry(ALL_LOGITS, "logits of every position", batch=1, length=given.size)
        with self.session.alone():
            return every_row(self.session, entry, "logits", given, adapter)[:, : int(self.artifact.config["vocab"])]

    def embedding(self, text: str | Sequence[int], pooling: str = "last", adapter: int = 0) -> np.ndarray:
        """What the model makes of a text, f32 [width] of length 1: what its head takes at the last position, or, with
        pooling "mean", at all on average.  UserError for no text, and for one that is longer than the context."""
        if pooling not in ("last", "mean"):
            raise UserError(f'pooling is "last" or "mean", not {pooling!r}')
        given = self._within(self.prompt(text), "embeddings")
        entry = self.entry(HIDDEN, "embeddings", batch=1, length=self._rows(given.size))
        if not entry.repeatable:
            entry = self.entry(HIDDEN, "embeddings", batch=1, length=1)
        with self.session.alone():
            return pooled(every_row(self.session, entry, "hidden", given, adapter), pooling)

    def _within(self, tokens: Sequence[int], what: str) -> np.ndarray:
        """Tokens of a text that fits into the context, i32 [n]; UserError for others."""
        given = np.array(tokens, np.int32)
        context, vocab = (int(self.artifact.config[name]) for name in ("context", "vocab"))
        if not 0 < given.size <= context or not 0 <= given.min() <= given.max() < vocab:
            raise UserError(f"{what} are of 1 to {context} tokens, each from 0 to {vocab - 1}")
        return given

    def _rows(self, count: int) -> int:
        return rows_for(count, int(self.artifact.config["context"]))

    @property
    def session(self) -> Session:
        """The session that entries run in; it has what the program's generation needs, where nothing was run before."""
        with self._opening:
            if self._session is None:
                made = self._artifact is not None or self._request is None
                self._add(None if made else replace(self._request, unsized=True))  # type: ignore[type-var]
            assert self._session is not None
            return self._session

    @property
    def artifact(self) -> Artifact:
        """What the session began with."""
        return self.session.artifact

    def compiled(
        self,
        entries: Sequence[str],
        sizes: Mapping[str, int],
        generating: bool = False,
        devices: int = 1,
        shares_states: bool = False,
        arrays: Mapping[str, Sequence[int]] | None = None,
    ) -> list[Artifact]:
        """Entries of a program, compiled for these sizes of their free dimensions, for `add`.

        arrays: instead, the shapes of what their inputs of such names are given.

        generating: also those that text is generated with.  devices: how many share the batch, and, with shares_states,
        the states.
        """
        assert self._request is not None
        shared = replace(self._request, devices=devices, shares_states=shares_states)
        said = {"sizes": [dict(sizes)]} if arrays is None else {"arrays": dict(arrays)}
        requests = [replace(shared, entries=tuple(entries), **said)]  # type: ignore[arg-type]
        requests += [replace(self._request, unsized=True)] if generating else []
        return [artifact_of(request, self._observer, self._cache) for request in requests]

    def add(self, artifacts: Sequence[Artifact]) -> None:
        """Load what was compiled into the session, which the first opens."""
        for artifact in artifacts:
            self._load(artifact)

    def entry(self, name: str, what: str, **sizes: int) -> Entry:
        """The entry of that name and these sizes, which is compiled where it is missing.  what: what needs it."""
        with self._opening:
            if not self._has(name, **sizes):
                if self._request is None:
                    shape = ",".join(f"{size}={number}" for size, number in sizes.items())
                    option = f"--batch {sizes['batch']}" if "positions" in sizes else f"--shape {shape}"
                    raise UserError(
                        f"{self._name} has no entry {name!r} of {shape}, which {what} want: compile it with {option}"
                    )
                self.add(self.compiled([name], sizes))
        return self.session.entry(name, **sizes)

    def _has(self, name: str, **sizes: int) -> bool:
        return any(entry.sizes == sizes for entry in self.session.entries(name))

    def _add(self, request: Request | None) -> None:
        if self._declared is not None and self._declared.weights and self._checkpoint is None and self._given is None:
            raise UserError(NEEDS_WEIGHTS)  # before anything is compiled
        artifact = self._artifact if request is None else artifact_of(request, self._observer, self._cache)
        assert artifact is not None
        self._load(artifact)

    def _load(self, artifact: Artifact) -> None:
        if self._session is not None:
            with self._session.alone():
                check_room(artifact.plan, self._session.device.room)
                self._session.add(artifact)
            return
        if artifact.weights:
            self._checkpoint = self._all_weights(artifact)
        given = (self._threads, self._check, self._trace), self._peers, self._engine
        device, engine = device_for(artifact, self._device, *given)
        self._session = Session(artifact, device, self._checkpoint or NoWeights(), engine)
        self._session.first_nan = self._first_nan

    def _all_weights(self, artifact: Artifact) -> Checkpoint:
        """The checkpoint with the weights that are given, and those that neither has as they begin."""
        found, given = self._checkpoint, self._given
        if found is None and given is None:
            raise UserError(NEEDS_WEIGHTS)
        if given is not None:
            check_known(given, artifact.weights)
            given.check_finite()
        whole = Several([part for part in (found, given) if part is not None])
        lacking = found if found is not None and given is None else whole
        made, missing = completed(lacking, artifact.weights, artifact.folder, everything=found is None)
        if missing and found is not None:
            parts = found.parts if isinstance(found, Several) else (found,)
            (self._tell or _warn)(said_of(missing, [str(part.path) for part in parts]))
        return made

    def weights(self) -> dict[str, np.ndarray]:
        """All weights of the program by their names, as they are by now: bf16 and blocks of few bits as float32."""
        held, found = self._weights_by_now(), {}
        for name in held.names():
            dtype = held.info(name).dtype
            kind = dtype if dtype in WRITTEN_DTYPES and dtype != "bf16" else "f32"
            found[name] = np.empty(held.info(name).shape, find_dtype(kind).numpy)
            with self.session.alone():
                held.read_into(name, found[name], kind)
        return found

    def set(self, weights: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Give weights other values, arrays by their names: `model.set({"in-w": array}, bias=0 * b)`."""
        given = arrays_given({**(weights or {}), **more})
        session = self.session
        check_known(given, session.artifact.weights)
        for name in given.names():
            declared = session.artifact.weights[name]
            read_weight(given, Buffer(name, "weight", tuple(declared["shape"]), declared["dtype"]))
        with session.alone():
            session.give(given)
            self._checkpoint = session.checkpoint

    def save(self, path: str | Path) -> None:
        """Write all weights as they are by now to a safetensors file, which loads as the program's checkpoint."""
        if Path(path).suffix != ".safetensors":
            raise UserError(f"{path} is no name of a .safetensors file, which weights are saved as")
        held, config = self._weights_by_now(), self.session.config
        blocks = next((n for n in held.names() if held.info(n).dtype not in WRITTEN_DTYPES), None)
        if blocks is not None:
            raise UserError(f"{blocks} is in blocks ({held.info(blocks).dtype}), which safetensors files do not have")
        header = [(name, held.info(name).shape, held.info(name).dtype) for name in held.names()]
        said = {name: value for name, value in config.items() if isinstance(value, (bool, int, float, str))}
        with self.session.alone():
            write_safetensors(Path(path), header, map(held.whole, held.names()), {"config": json.dumps(said)})

    def _weights_by_now(self) -> SessionWeights:
        session = self.session
        infos = {
            name: TensorInfo(tuple(facts["shape"]), facts["dtype"], bool(facts.get("stacked")))
            for name, facts in session.artifact.weights.items()
        }
        return SessionWeights(session, session.checkpoint, infos)

    def options(self, **given: Any) -> Options:
        """How text is generated: what is given, and beside it what the program's `generate` form says."""
        return Options.of(given, self._generation()["options"])

    def text(
        self,
        prompt: Sequence[int],
        options: Options,
        number: int = 0,
        adapter: int = 0,
        drafts: bool = True,
        alone: bool = True,
    ) -> Text:
        """What a new sequence makes of a prompt; number: among texts that draw alike, each by a seed of its own.
        adapter: which of those that the model was loaded with, from 1 on; 0 for none.  drafts: whether the draft model,
        if there is one, is asked for tokens.  alone: whether it may decode by itself, and not in a batch's steps only.
        """
        session, name = self._generating(), self._generation()["entry"]
        adjustment = options.adjustment(int(session.config.get("vocab") or 0))
        chosen = options.sampler(number), adjustment, options.logprobs
        if alone and (choice := choice_of(*chosen)) != GREEDY and self.chooses(choice, 1):
            self.entry(choice, "texts", batch=1, positions=1)
        drafter = self._drafter(options, chosen) if drafts else None
        if options.lookup:
            self.entry(VERIFY, "look-ups", batch=1, length=options.lookup + 1)
        with session.alone():
            more = None if self._request is None else self._taking_in
            self._near_ties = self._near_ties or NearTies(session, name, more)
            generator = Generator(session, name, *chosen, options.lookup, self._near_ties, drafter, DRAFTED, adapter)
        return Text(generator, prompt, Continuation(options.max_new_tokens, self.tokenizer, options.stops))

    def _drafter(self, options: Options, chosen: tuple[Any, ...]) -> DraftModel | None:
        """What drafts a new sequence's tokens, where another model does."""
        if self.draft is None:
            return None
        if options.lookup:
            raise UserError("a draft model and a look-up both draft: take one of them")
        self.entry(VERIFY if choice_of(*chosen) == GREEDY else ALL_LOGITS, "drafts", batch=1, length=DRAFTED + 1)
        session, name = self.draft._generating(), self.draft._generation()["entry"]
        with session.alone():
            generator = Generator(session, name)
        return DraftModel(generator, int(self.session.config["vocab"]))

    def _taking_in(self, positions: int) -> Entry:
        """What takes in so many positions of one sequence, compiled within `session.alone`: others may have `_opening`
        and wait for the session, so nobody waits for `_opening` here."""
        assert self._session is not None
        sizes = {"batch": 1, "positions": positions}
        self.add(self.compiled([PREFILL], sizes))
        return self._session.entry(PREFILL, **sizes)

    def together(self, texts: Sequence[Text], batch: int) -> Iterator[tuple[Text, str]]:
        """Each piece of these texts as it comes, and whose it is; `batch` of them are generated at once."""
        if batch < 2 or len(texts) < 2:
            for text in texts:
                yield from ((text, piece) for piece in text)
            return
        if texts[0].generator.drafts is not None:
            raise UserError("one text at a time is drafted: give --batch 1")
        session, choice = self._generating(), texts[0].generator.choice
        chooses = self.chooses(choice, batch)
        entry = self.entry(choice if chooses else GREEDY, "batches", batch=batch, positions=1)
        intake = self.intake(batch, texts[0].generator)
        with session.alone():
            yield from Batch(session, entry, chooses, intake).run(texts)

    def intake(self, batch: int, generator: Generator) -> Entry | None:
        """What takes in several prompts of a batch at once, where the device gains by it."""
        sizes = intake_sizes(batch, self.session.device.weight_rows)
        if sizes is None or not generator.repeatable or generator.context < sizes["positions"]:
            return None
        made = self._has(PREFILL, **sizes) or (self._request is not None and self.session.entries(PREFILL))
        return self.entry(PREFILL, "batches", **sizes) if made else None

    def chooses(self, choice: str, batch: int) -> bool:
        """Whether the device can choose tokens of a batch by the entry of that name; else the host has to."""
        if choice == GREEDY or self._has(choice, batch=batch, positions=1):
            return True
        return choice != "" and self._request is not None and any(map(runs_on, self.session.entries(GREEDY)))

    def prompt(self, prompt: str | Sequence[int]) -> list[int]:
        """The tokens of a prompt."""
        return tokens_of(prompt, self.tokenizer, self.session.config.get("vocab"), self.session.checkpoint.path)

    def _generation(self) -> Mapping[str, Any]:
        generate = self.artifact.generate
        if generate is None:
            names = ", ".join(dict.fromkeys(entry.name for entry in self.artifact.plan.entries))
            raise UserError(
                f"{self._name} has no `generate` form, so it gives no text: add (generate ENTRY), or run an entry with "
                f"--entry NAME (there is {names})"
            )
        return generate

    def _generating(self) -> Session:
        """The session with the entries that generation needs."""
        with self._opening:
            session, name = self.session, self._generation()["entry"]
            if self._request is not None and not can_decode(session, name):
                self._add(replace(self._request, unsized=True))
            return session
