"""What Python programs import: compile, load, generate, run.

    import lispgpt

    with lispgpt.load("gpt2_generate.lisp", "gpt2_124M_bf16.bin", target="auto") as model:
        for piece in model.generate("Once upon a time", max_new_tokens=50):
            print(piece, end="", flush=True)

    with lispgpt.load("classifier.lisp", "weights.safetensors") as model:
        scores = model.run("classify", x=images)["classify"]

Whatever the user can mend is raised as `lispgpt.UserError`.  Running an artifact imports neither MLIR nor lark.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.base.folders import cache_folder, trusted_keys
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import artifact_of
from lispgpt.compiler.folders import find_given
from lispgpt.compiler.present import compiled_target, matching_artifact, running_target
from lispgpt.compiler.request import Observer, Request, with_context
from lispgpt.compiler.trust import check_trusted, remember
from lispgpt.runtime import tokenizers
from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.checkpoints.none import NoWeights
from lispgpt.runtime.collectives import open_engine
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.devices import open_device
from lispgpt.runtime.devices.cpu import host_cores
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.samplers import Sampler, make_sampler
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Text
from lispgpt.runtime.tokenizers import Tokenizer


def compile(
    program: str | Path,
    *,
    target: str = "cpu",
    checkpoint: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    batch: int = 1,
    shapes: Sequence[Mapping[str, int]] = (),
    entries: Sequence[str] | None = None,
    pipeline: str | Path | None = None,
) -> Artifact:
    """Compile a model program for a target such as "cpu", "rocm:gfx1151" or "cuda:sm_90a"; `.save(path)` writes it.

    checkpoint: its header sets the program's config, and settings win over it.  batch: sequences decoded together,
    beside single ones.  shapes: sizes of entries' free dimensions, such as {"batch": 4, "length": 64}.  entries: which
    to compile; all by default.  pipeline: a file in place of the target's own.

    The user's cache folder notes that the artifact was made here, so that `load` trusts its file.
    """
    found = find_given(program, checkpoint)
    given = {"sizes": [dict(shape) for shape in shapes], "entries": entries}
    target = compiled_target(target)
    settings = with_context(settings or {}, found.config, target, _warn)
    artifact = artifact_of(Request(found.program, target, settings, found.config, _path(pipeline), batch, **given))  # type: ignore[arg-type]
    remember(cache_folder({}), artifact)
    return artifact


def load(
    program: str | Path,
    checkpoint: str | Path | None = None,
    *,
    target: str = "cpu",
    settings: Mapping[str, Any] | None = None,
    batch: int = 1,
    shapes: Sequence[Mapping[str, int]] = (),
    pipeline: str | Path | None = None,
    tokenizer: str | Path | None = None,
    threads: int | None = None,
    cache: str | Path | None = None,
    check: bool = False,
    trust: bool = False,
    keys: str | Path | None = None,
) -> Model:
    """A model to generate with and to run entries of; use it in a `with`, which frees the device's memory.

    program: a program's file, whose entries are compiled as they are needed, an artifact, or a Hugging Face folder of a
    model that a program of the package is for.  target: as for `compile`, or "auto", "rocm" or "cuda" for what is
    installed here; an artifact has its own.  tokenizer: a file; by default the one beside the checkpoint.  threads: of
    a CPU.  cache: a folder that keeps what was compiled; None keeps nothing.  check: hold every launch to what it says
    it reads and writes (on a CPU, slow).

    An artifact is code that runs with the caller's rights: UserError for one that was neither compiled here nor signed
    with a key of the caller's list, unless `trust` is true.  keys: that list, by default the user's own
    (~/.config/lispgpt/trusted-keys).
    """
    given = find_given(program, checkpoint)
    path = given.program
    source: Request | Artifact
    if given.artifact is not None:
        source = matching_artifact(path, given.artifact, given.checkpoint)
        if not trust:
            folders = [cache_folder({})] if cache is None else [cache_folder({}), Path(cache)]
            check_trusted(source, path, folders, trusted_keys({}) if keys is None else Path(keys))
    else:
        sizes = [dict(shape) for shape in shapes]
        chip = running_target(target)
        settings = with_context(settings or {}, given.config, chip, _warn)
        source = Request(path, chip, settings, given.config, _path(pipeline), batch, sizes)
    kept = None if cache is None else Cache(Path(cache))
    found = tokenizers.find(given.weights, tokenizer)
    return Model(source, given.checkpoint, found, cache=kept, device=target, threads=threads, check=check)


class Model:
    """A program or artifact with its weights, on a device; made by `load`.

    States live as long as the model: an entry finds what the entries before it left.  device: the target that was asked
    for, which may be an emulated one of the artifact's chip.  trace: a kernel whose instructions an emulated GPU
    prints.  name: of the artifact, for messages.  peers: the processes beside this one, for entries that several
    devices share; engine: by what those work together, where it is not the usual.
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
    ) -> None:
        self._peers, self._engine = peers, engine
        self._request = source if isinstance(source, Request) else None
        self._artifact = source if isinstance(source, Artifact) else None
        self._checkpoint, self.tokenizer = checkpoint, tokenizer
        self._cache, self._observer = cache, observer
        self._device, self._threads, self._check, self._trace = device, threads, check, trace
        self._name = str(self._request.program) if self._request else name
        self._session: Session | None = None

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the device's memory."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def run(self, entry: str, /, **inputs: Any) -> dict[str, np.ndarray]:
        """Run an entry on its inputs; its results by name, as float32 or int32 arrays.

        Inputs are whatever numpy makes arrays of.  An entry of a program is compiled when it is first run on arrays of
        these shapes, which say its free dimensions.
        """
        arrays = {name: np.asarray(value) for name, value in inputs.items()}
        shapes = {name: array.shape for name, array in arrays.items()}
        if self._request is not None and not (self._session and self._session.fits(entry, shapes)):
            self._add(replace(self._request, entries=(entry,), inputs={entry: shapes}))
        return self.session.run(entry, **arrays)

    def generate(
        self,
        prompt: str | Sequence[int] = "",
        *,
        max_new_tokens: int | None = None,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int | None = None,
        greedy: bool = False,
    ) -> Text:
        """Text that goes on from a prompt, piece by piece as it comes; `.tokens` has the ids.

        prompt: text, or ids of tokens; "" starts a new text.  Options that are not given are those of the program's
        `generate` form.
        """
        options = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed}
        generator = self.generator(self.sampler(greedy=greedy, **options))
        return self.text(generator, self.prompt(prompt), max_new_tokens)

    @property
    def session(self) -> Session:
        """The session that entries run in; it has what the program's generation needs, where nothing was run before."""
        if self._session is None:
            self._add(None if self._request is None else replace(self._request, unsized=True))
        assert self._session is not None
        return self._session

    @property
    def artifact(self) -> Artifact:
        """What the session began with."""
        return self.session.artifact

    def compiled(
        self, entries: Sequence[str], sizes: Mapping[str, int], generating: bool = False, devices: int = 1
    ) -> list[Artifact]:
        """Entries of a program, compiled for these sizes of their free dimensions, for `add`.

        generating: also those that text is generated with, before the device is opened: then no compiler has to be
        started beside a driver later on.  devices: how many share the batch.
        """
        assert self._request is not None
        requests = [replace(self._request, entries=tuple(entries), sizes=[dict(sizes)], devices=devices)]
        requests += [replace(self._request, unsized=True)] if generating else []
        return [artifact_of(request, self._observer, self._cache) for request in requests]

    def add(self, artifacts: Sequence[Artifact]) -> None:
        """Load what was compiled into the session, which the first opens."""
        for artifact in artifacts:
            self._load(artifact)

    def _add(self, request: Request | None) -> None:
        """Compile a request, where there is one, into the session."""
        artifact = self._artifact if request is None else artifact_of(request, self._observer, self._cache)
        assert artifact is not None
        self._load(artifact)

    def _load(self, artifact: Artifact) -> None:
        """Load what was compiled into the session, which the first opens."""
        if self._session is not None:
            self._session.add(artifact)
            return
        if artifact.weights and self._checkpoint is None:
            raise UserError(
                "this model needs weights: give --checkpoint FILE (or make one: lispgpt checkpoint make --help)"
            )
        target = self._device if self._device.startswith("emulated:") else artifact.target
        if compiled_target(target) != artifact.target:
            raise UserError(f"the artifact was compiled for {artifact.target}, which is not what {target} runs")
        if self._peers is None:
            device = open_device(target, self._threads, self._check, self._trace)
            self._session = Session(artifact, device, self._checkpoint or NoWeights())
            return
        place = self._peers.place
        threads = self._threads or max(1, host_cores() // place.neighbours)
        device = open_device(target, threads, self._check, self._trace, place.local)
        try:
            engine = open_engine(target, device, self._peers, self._engine)
        except BaseException:
            device.close()
            raise
        self._session = Session(artifact, device, self._checkpoint or NoWeights(), engine)

    def sampler(self, *, greedy: bool = False, **given: Any) -> Sampler | None:
        """What chooses tokens by these options, and by those of the program's form where they are None; None: the most
        probable."""
        defaults = self._generation()["options"]
        asked = any(given[name] is not None for name in ("temperature", "top_k", "top_p"))
        values = {k: defaults.get(k.replace("_", "-")) if v is None else v for k, v in given.items()}
        if greedy or (defaults.get("greedy") and not asked) or values["temperature"] == 0:
            return None
        return make_sampler(**values)

    def generator(self, sampler: Sampler | None) -> Generator:
        """One sequence, at its start."""
        return Generator(self._generating(), self._generation()["entry"], sampler)

    def text(self, generator: Generator, prompt: Sequence[int], max_new_tokens: int | None) -> Text:
        """What the generator makes of a prompt."""
        limit = self._generation()["options"].get("max-new-tokens", 64) if max_new_tokens is None else max_new_tokens
        return Text(generator, prompt, int(limit), self.tokenizer)

    def prompt(self, prompt: str | Sequence[int]) -> list[int]:
        """The tokens of a prompt."""
        if not isinstance(prompt, str):
            return [int(token) for token in prompt]
        if self.tokenizer is None:
            raise UserError(
                "no tokenizer was found beside the checkpoint: give --tokenizer FILE or --prompt-tokens"
                if prompt
                else "without a tokenizer that has an end-of-text token, give --prompt-tokens"
            )
        tokens = self.tokenizer.prompt(prompt)
        if not tokens:
            raise UserError("without a tokenizer that has an end-of-text token, give --prompt-tokens")
        return list(tokens)

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
        session, name = self.session, self._generation()["entry"]
        if self._request is not None and not Generator.can_run(session, name):
            self._add(replace(self._request, unsized=True))
        return session


def _warn(text: str) -> None:
    warnings.warn(f"{text} (settings={{'context': N}} changes it)", stacklevel=4)


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else Path(path)


__all__ = ["Artifact", "Model", "Text", "UserError", "compile", "load"]
