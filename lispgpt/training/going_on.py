"""Going on with a run: from what its folder says to the loop of its steps."""

from __future__ import annotations

import hashlib
import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.precisions import EXACT
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import Declared, declared
from lispgpt.compiler.folders import is_folder, names_in, open_weights, with_more
from lispgpt.compiler.present import running_target
from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model
from lispgpt.runtime import tokenizers
from lispgpt.runtime.checkpoints import Checkpoint, TensorInfo
from lispgpt.runtime.checkpoints.adapter_folder import AdapterFolder
from lispgpt.runtime.checkpoints.initial import InitialWeights
from lispgpt.runtime.checkpoints.like_folder import LikeFolder
from lispgpt.runtime.checkpoints.sealed import RUN, sealed_facts
from lispgpt.runtime.checkpoints.several_adapters import A, B
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.data.batches import Batches, Stream
from lispgpt.runtime.data.iterated import Iterated
from lispgpt.runtime.data.rows import Rows
from lispgpt.runtime.given_weights import Several, completed, said_of
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session
from lispgpt.runtime.training.loop import Loop, Outcome, Watcher
from lispgpt.runtime.training.options import Options, spelled
from lispgpt.runtime.training.run_folder import RunFolder
from lispgpt.runtime.training.snapshot import SessionWeights, open_snapshot, read_states
from lispgpt.runtime.training.trainer import EVALUATE, BatchesOf, Trainer, entries_of_steps
from lispgpt.training.arrays import ArrayData
from lispgpt.training.data import Shards
from lispgpt.training.fine_tuning import PROGRAM
from lispgpt.training.lora import Lora
from lispgpt.training.prepare import FACTS, VERSION

FIXED = {"batch", "length", "accumulate", "lr", "min_lr", "warmup", "clip", "weight_decay", "beta1", "beta2", "seed"}
"""Options that a run keeps: with others it would not be the same run."""

SAMPLE_SEED = 1


@dataclass(frozen=True)
class Machine:
    """Where a run trains: target, where it is not the one that it was begun with; threads of a CPU; a folder that keeps
    what was compiled; how many devices, by which engine of collectives they work together, and whether each keeps only
    its part of the states.  first_nan: see `Model`.  quick: see `Request`."""

    target: str | None = None
    threads: int | None = None
    cache: Path | None = None
    devices: int = 1
    engine: str | None = None
    shares_states: bool = False
    first_nan: bool = False
    quick: bool = False


@dataclass(frozen=True)
class Run:
    """A run as its folder describes it, to be gone on with on a machine.

    facts: of run.json.  last: the newest checkpoint that is whole.  history: the records of the steps up to it.
    """

    folder: RunFolder
    machine: Machine
    facts: Mapping[str, Any]
    options: Options
    last: Path | None
    done: int
    history: list[dict[str, Any]]
    request: Request
    found: Declared
    training: Stream | Rows | Iterated
    validation: Stream | Rows | Iterated | None

    @staticmethod
    def read(folder: RunFolder, changes: Mapping[str, Any], machine: Machine, say: Callable[[str], None]) -> Run:
        """What a folder says; changes: options that are others from here on.

        say: is told what is amiss.  UserError where the run cannot be gone on with.
        """
        facts = described(folder)
        if facts["tokenizer"] is not None and not (folder.path / facts["tokenizer"]).is_file():
            raise UserError(f"{folder.path} is damaged: its tokenizer, {facts['tokenizer']}, is missing")
        options = changed(Options.from_json(facts["options"]), changes)
        program, target = Path(facts["program"]), running_target(machine.target or facts["target"])
        if not program.is_file():
            raise UserError(f"there is no file {program}, which the run trains: name the program, where it is")
        given = {"precision": facts.get("precision", EXACT), "quick": machine.quick}
        request = Request(program, target, facts["settings"], facts["header"], **given)
        found = declared(request)
        training, validation = _sources(facts["data"], folder.path, options)
        if options.eval_every and (validation is None or EVALUATE not in found.entries):
            say(_why_none(found, training))
            validation = None
        last = folder.last_good(say)
        if changes and folder.leads:
            folder.begin(facts | {"options": asdict(options)})
        done = 0 if last is None else last[0]
        history, kept = folder.forget_after(done), None if last is None else last[1]
        evaluated = validation if options.eval_every else None
        return Run(folder, machine, facts, options, kept, done, history, request, found, training, evaluated)

    def compiled(self, watcher: Watcher) -> list[Artifact]:
        """What the steps of the run need on each of its devices."""
        options, devices = self.options, self.machine.devices
        if options.batch % devices:
            raise UserError(f"--batch is {options.batch}, which {devices} devices cannot share alike")
        told = self.last is None and self.facts["checkpoint"] is not None and "lora" not in self.facts
        if told and (missing := self._given()[1]):
            watcher.note(said_of(missing, [self.facts["checkpoint"], *self.facts.get("more_checkpoints", ())]))
        watcher.note(f"compiling {self.request.program} for {self.request.target}")
        names = [*entries_of_steps(options.accumulate), *([EVALUATE] if self.validation is not None else [])]
        shapes = _shapes(self.training, options.batch)
        with self._model(self._beginning(), None) as model:
            shared = (devices, self.machine.shares_states)
            return model.compiled(names, options.sizes, options.sample_every > 0, *shared, arrays=shapes)

    def go(
        self,
        artifacts: Sequence[Artifact],
        watcher: Watcher,
        profile: Callable[[Trainer], None] | None,
        peers: Peers | None = None,
    ) -> Outcome:
        """Take the steps that are left; profile: is called with the trainer behind the last.

        peers: the processes that take them with this one.
        """
        options, beginning = self.options, self._beginning()
        rank, world = (0, 1) if peers is None else (peers.place.rank, peers.place.size)
        with self._model(beginning, peers) as model:
            model.add(artifacts)
            batches = _batches(self.training, options, rank, world)
            trainer = Trainer(model.session, options, batches, rank, world)
            if self.last is not None:
                read_states(self.last, model.session, trainer.entries, trainer.wholes)
            if peers is not None:
                peers.agree("before the first step", self._facts(artifacts))
            if rank == 0:
                watcher.begin(self._about(trainer, batches))
            outcome = self._loop(model, trainer, beginning, watcher, peers)
            if profile is not None and not outcome.interrupted and peers is None:
                profile(trainer)
            return outcome

    def _model(self, beginning: Checkpoint, peers: Peers | None) -> Model:
        machine, samples = self.machine, self.options.sample_every > 0
        cache, device = None if machine.cache is None else Cache(machine.cache), machine.target or self.facts["target"]
        tokenizer = tokenizers.open(self._tokenizer) if samples and self._tokenizer is not None else None
        given: dict[str, Any] = {
            "cache": cache,
            "device": device,
            "threads": machine.threads,
            "peers": peers,
            "engine": machine.engine,
            "first_nan": machine.first_nan,
        }
        return Model(self.request, beginning, tokenizer, **given)

    def _facts(self, artifacts: Sequence[Artifact]) -> dict[str, Any]:
        """What has to be the same in all processes of the run, by what a user calls it."""
        code = hashlib.sha256()
        for artifact in artifacts:
            code.update(artifact.code)
        return {
            "step": self.done,
            "program": code.hexdigest(),
            "plan": hashlib.sha256(repr([artifact.plan for artifact in artifacts]).encode()).hexdigest(),
            "options": repr(self.options),
            "data": repr(self.facts["data"]),
            "checkpoint": [self.done, None if self.last is None else sealed_facts(self.last)["files"]],
        }

    def _loop(
        self, model: Model, trainer: Trainer, beginning: Checkpoint, watcher: Watcher, peers: Peers | None
    ) -> Outcome:
        with stopping() as stop:
            return Loop(
                trainer,
                self.folder,
                SessionWeights(model.session, beginning, self._infos()),
                watcher,
                validation=self.validation,
                sample=(lambda: sample(model, self.options)) if self.options.sample_every else None,
                stop=stop,
                done=self.done,
                history=self.history,
                files=() if self._tokenizer is None else (self._tokenizer,),
                like=self._like(),
                peers=peers,
            ).run()

    def _like(self) -> LikeFolder | AdapterFolder | None:
        """How checkpoints are written for others, where the run's program fine-tunes a model's folder."""
        model = self.facts["checkpoint"]
        if "lora" in self.facts:
            return Lora.from_json(self.facts["lora"]).folder(Path(model))
        if model is None or self.request.program.name != PROGRAM or not is_folder(model):
            return None
        names = names_in(self.request.program)
        assert names is not None
        return LikeFolder(Path(model), names)

    @property
    def _tokenizer(self) -> Path | None:
        name = self.facts["tokenizer"]
        return None if name is None else self.folder.path / name

    def _beginning(self) -> Checkpoint:
        """The weights of the last step that was kept, or of step 0."""
        if self.last is not None:
            kept = open_snapshot(self.last)
            return Several([self._given()[0], kept]) if "lora" in self.facts else kept
        if self.facts["checkpoint"] is not None:
            return self._given()[0]
        return InitialWeights(self.found.config, self.found.weights, self.found.initial, self.options.seed)

    def _given(self) -> tuple[Checkpoint, list[str]]:
        """The weights that the run was given, with those that they lack as they begin, and the names of these."""
        program = self.facts["program"]
        first = open_weights(self.facts["checkpoint"], program)
        opened = with_more(first, self.facts.get("more_checkpoints", ()), program)
        assert opened is not None
        names = names_in(self.request.program)
        return completed(opened, self.found.weight_facts(), names, seed=self.options.seed)

    @property
    def _trained(self) -> list[tuple[str, tuple[int, ...], str, bool]]:
        """The weights that checkpoints have: all, or those of the adapter that is trained."""
        every = "lora" not in self.facts
        return [weight for weight in self.found.weights if every or weight[0].endswith((A, B))]

    def _infos(self) -> dict[str, TensorInfo]:
        return {name: TensorInfo(shape, dtype, stacked) for name, shape, dtype, stacked in self._trained}

    def _about(self, trainer: Trainer, batches: BatchesOf) -> dict[str, Any]:
        """What `Watcher.begin` is told."""
        return {
            "device": _named(trainer.session, self.machine.devices),
            "parameters": sum(math.prod(info.shape) for info in self._infos().values()),
            "steps": self.options.steps,
            "done": self.done,
            "amount": trainer.amount,
            "unit": trainer.unit,
            "windows": batches.windows,
            "floor_s": trainer.floor_seconds(),
        }


def _named(session: Session, devices: int) -> str:
    """The devices, for people."""
    engine = "" if session.engine is None else f", together by {session.engine.name}"
    return f"{devices} of " * (devices > 1) + session.device.name + engine


def asked_by_steps(path: Path) -> dict[str, Any]:
    """What the steps of the run in a folder want of a `Request` for its program: entries, for which shapes, how
    precise, for which target; UserError where that cannot be found out."""
    facts = described(RunFolder(path, leads=False))
    options = Options.from_json(facts["options"])
    training, validation = _sources(facts["data"], path, options)
    shapes, evaluated = _shapes(training, options.batch), options.eval_every and validation is not None
    sizes: dict[str, Any] = {"sizes": [options.sizes]} if shapes is None else {"arrays": shapes}
    entries = (*entries_of_steps(options.accumulate), *([EVALUATE] if evaluated else []))
    return {"target": facts["target"], "precision": facts.get("precision", EXACT), "entries": entries, **sizes}


def described(folder: RunFolder) -> dict[str, Any]:
    """What a folder says of its run; UserError where it is of another lispgpt, or no longer what was written."""
    facts = folder.facts()
    if facts.get("version") != VERSION:
        raise UserError(f"{folder.path} was begun by another lispgpt, and cannot be gone on with")
    FACTS.check(folder.path / RUN, facts)
    return facts


def changed(options: Options, changes: Mapping[str, Any]) -> Options:
    """The options of a run that is gone on with; UserError where its steps would be others."""
    for name, value in changes.items():
        if name in FIXED and value != getattr(options, name):
            raise UserError(f"{spelled(name)} belongs to a new run: this one has {getattr(options, name)}")
    return replace(options, **changes)


def sample(model: Model, options: Options) -> str:
    """Text that the model writes by now, drawn by a seed that is always the same."""
    prompt: Any = options.sample
    if not prompt and (model.tokenizer is None or not model.tokenizer.prompt("")):
        prompt = [0]
    text = model.generate(prompt, max_new_tokens=options.sample_tokens, seed=SAMPLE_SEED)
    return options.sample + "".join(text)


@contextmanager
def stopping() -> Iterator[Callable[[], bool]]:
    """Whether this process was asked to end (SIGINT, SIGTERM) since; it does not end by itself meanwhile."""
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked.is_set
        return
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: asked.set()) for number in numbers]
    try:
        yield asked.is_set
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _sources(data: Any, folder: Path, options: Options) -> tuple[Any, Any]:
    """What a run trains on and validates with."""
    if isinstance(data, Mapping) and "arrays" in data:
        return ArrayData.from_json(data, folder).sources(options.batch, options.seed)
    return Shards.from_json(data, folder).streams(options.length)


def _batches(training: Stream | Rows | Iterated, options: Options, rank: int, world: int) -> BatchesOf:
    if isinstance(training, Stream):
        return Batches(training, options.batch // world, options.length, options.seed, rank, world)
    if isinstance(training, Rows):
        return training.batches(options.batch // world, options.seed, rank, world)
    return training.batches(rank, world)


def _shapes(training: Stream | Rows | Iterated, batch: int) -> dict[str, tuple[int, ...]] | None:
    """Of what the entries' inputs are given, where it is arrays."""
    if isinstance(training, Stream):
        return None
    return training.shapes(batch) if isinstance(training, Rows) else training.shapes()


def _why_none(found: Declared, training: Stream | Rows | Iterated) -> str:
    """Why nothing is validated."""
    if EVALUATE not in found.entries:
        return f"the program has no entry {EVALUATE!r}, so there is no validation"
    if isinstance(training, Iterated):
        return "a function's batches are not held back, so there is no validation (--val-data)"
    if isinstance(training, Rows):
        return (
            "what is held back of the rows is less than a batch, so there is no validation (--val-fraction, --val-data)"
        )
    return (
        "what is held back of the data is less than a sequence, so there is no validation (--val-fraction, --val-data)"
    )
