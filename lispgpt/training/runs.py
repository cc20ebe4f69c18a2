"""`lispgpt.train`: begin a run of training steps or go on with one; `lispgpt train` is this from the command line."""

from __future__ import annotations

import math
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from lispgpt.api import Model, running_target
from lispgpt.base.errors import UserError
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import Declared, declared
from lispgpt.compiler.request import Request
from lispgpt.runtime import checkpoints, tokenizers
from lispgpt.runtime.checkpoints import Checkpoint, TensorInfo
from lispgpt.runtime.data.batches import Batches
from lispgpt.runtime.training.initial import InitialWeights
from lispgpt.runtime.training.loop import Loop, Outcome, Unwatched, Watcher
from lispgpt.runtime.training.options import Options
from lispgpt.runtime.training.run_folder import RunFolder
from lispgpt.runtime.training.snapshot import SessionWeights, open_snapshot, read_states
from lispgpt.runtime.training.trainer import EVALUATE, Trainer, entries_of_steps
from lispgpt.training.data import Shards
from lispgpt.training.prepare import VERSION, Beginning, begin

FIXED = {"batch", "length", "accumulate", "lr", "min_lr", "warmup", "clip", "weight_decay", "beta1", "beta2", "seed"}
"""Options that a run keeps: with others it would not be the same run."""

SAMPLE_SEED = 1


@dataclass(frozen=True)
class Machine:
    """Where a run trains: target, where it is not the one that it was begun with; threads of a CPU; a folder that keeps
    what was compiled."""

    target: str | None = None
    threads: int | None = None
    cache: Path | None = None


def train(
    program: str | Path | None = None,
    *,
    run: str | Path,
    data: Sequence[str | Path] = (),
    resume: bool = False,
    val_data: Sequence[str | Path] = (),
    val_fraction: float = 0.05,
    tokenizer: str | Path | None = None,
    vocab_size: int | None = None,
    checkpoint: str | Path | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    target: str | None = None,
    threads: int | None = None,
    cache: str | Path | None = None,
    watcher: Watcher | None = None,
    profile: Callable[[Trainer], None] | None = None,
    **options: Any,
) -> Outcome:
    """Train a program on data, with all that is needed to go on in the folder `run`; or go on there (`resume`).

        lispgpt.train("gpt2_train.lisp", run="runs/small", data=["text.txt"], vocab_size=2000, steps=500, lr=1e-3,
                      settings={"layers": 2, "heads": 4, "width": 128})
        lispgpt.train(run="runs/small", resume=True)

    data: files and folders of text, or of token shards.  tokenizer: a file; vocab_size: of one to make of the data.
    checkpoint: weights to begin with; preset: the sizes of a known model; settings: values of the program's config.
    options: the fields of `Options`, such as steps, batch, length, lr and seed.  watcher: is told how it goes.
    profile: is called with the trainer after the last step.  A run that is interrupted (Ctrl-C) keeps a checkpoint.
    One that goes on takes a program where its own has moved, and options that leave its steps as they are.  UserError
    for whatever does not fit, and where the training diverges.
    """
    unknown = next((name for name in options if name not in {field.name for field in fields(Options)}), None)
    if unknown is not None:
        raise TypeError(f"train() has no option {unknown!r}; there are {', '.join(f.name for f in fields(Options))}")
    given = None
    if not resume:
        if program is None:
            raise UserError("there is no program to train, and no run to go on with: give one, or resume=True")
        given = Beginning(
            Path(program),
            [Path(path) for path in data],
            [Path(path) for path in val_data],
            val_fraction,
            None if tokenizer is None else Path(tokenizer),
            vocab_size,
            None if checkpoint is None else Path(checkpoint),
            preset,
            settings or {},
            target or "cpu",
        )
    elif not Path(run).is_dir():
        raise UserError(f"there is no run at {run}")
    machine = Machine(target, threads, None if cache is None else Path(cache))
    with RunFolder(Path(run)) as folder:
        if given is not None:
            begin(folder, given, Options(**options))
            options = {}
        elif program is not None:
            folder.begin(folder.facts() | {"program": str(Path(program).resolve())})
        return _go_on(folder, options, machine, watcher or Unwatched(), profile)


def _go_on(
    folder: RunFolder,
    changes: dict[str, Any],
    machine: Machine,
    watcher: Watcher,
    profile: Callable[[Trainer], None] | None,
) -> Outcome:
    facts = folder.facts()
    if facts.get("version") != VERSION:
        raise UserError(f"{folder.path} was begun by another lispgpt, and cannot be gone on with")
    options = changed(Options.from_json(facts["options"]), changes)
    if changes:
        folder.begin(facts | {"options": asdict(options)})
    last = folder.last_good(watcher.note)
    done = 0 if last is None else last[0]
    history = folder.forget_after(done)
    if not Path(facts["program"]).is_file():
        raise UserError(f"there is no file {facts['program']}, which the run trains: name the program, where it is")
    request = Request(
        Path(facts["program"]), running_target(machine.target or facts["target"]), facts["settings"], facts["header"]
    )
    found = declared(request)
    beginning = _beginning(facts, found, options) if last is None else open_snapshot(last[1])
    tokenizer = None if facts["tokenizer"] is None else folder.path / facts["tokenizer"]
    training, validation = Shards.from_json(facts["data"], folder.path).streams(options.length)
    opened = None if tokenizer is None or not options.sample_every else tokenizers.open(tokenizer)
    cache = None if machine.cache is None else Cache(machine.cache)
    validates = EVALUATE in found.entries and validation is not None and options.eval_every > 0
    if options.eval_every and not validates:
        watcher.note(_why_none(found))
    with Model(
        request, beginning, opened, cache=cache, device=machine.target or facts["target"], threads=machine.threads
    ) as model:
        names = [*entries_of_steps(options.accumulate), *([EVALUATE] if validates else [])]
        watcher.note(f"compiling {request.program} for {request.target}")
        model.add(names, {"batch": options.batch, "length": options.length}, generating=options.sample_every > 0)
        batches = Batches(training, options.batch, options.length, options.seed)
        trainer = Trainer(model.session, options, batches)
        if last is not None:
            read_states(last[1], model.session, trainer.entries)
        infos = {name: TensorInfo(shape, dtype, stacked) for name, shape, dtype, stacked in found.weights}
        with stopping() as stop:
            loop = Loop(
                trainer,
                folder,
                SessionWeights(model.session, beginning, infos),
                watcher,
                validation=validation if validates else None,
                sample=(lambda: sample(model, options)) if options.sample_every else None,
                stop=stop,
                done=done,
                history=history,
                files=() if tokenizer is None else (tokenizer,),
            )
            watcher.begin(_about(trainer, batches, infos, done))
            outcome = loop.run()
        if profile is not None and not outcome.interrupted:
            profile(trainer)
        return outcome


def changed(options: Options, changes: Mapping[str, Any]) -> Options:
    """The options of a run that is gone on with; UserError where its steps would be others."""
    for name, value in changes.items():
        if name in FIXED and value != getattr(options, name):
            raise UserError(f"--{name.replace('_', '-')} belongs to a new run: this one has {getattr(options, name)}")
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


def _why_none(found: Declared) -> str:
    """Why nothing is validated."""
    if EVALUATE not in found.entries:
        return f"the program has no entry {EVALUATE!r}, so there is no validation"
    return (
        "what is held back of the data is less than a sequence, so there is no validation (--val-fraction, --val-data)"
    )


def _beginning(facts: Mapping[str, Any], found: Declared, options: Options) -> Checkpoint:
    """The weights of step 0."""
    if facts["checkpoint"] is not None:
        return checkpoints.open(facts["checkpoint"])
    return InitialWeights(found.config, found.weights, found.initial, options.seed)


def _about(trainer: Trainer, batches: Batches, infos: Mapping[str, TensorInfo], done: int) -> dict[str, Any]:
    return {
        "device": trainer.session.device.name,
        "parameters": sum(math.prod(info.shape) for info in infos.values()),
        "steps": trainer.options.steps,
        "done": done,
        "tokens": trainer.options.tokens,
        "windows": batches.windows,
        "floor_s": trainer.floor_seconds(),
    }


__all__ = ["Options", "Outcome", "Watcher", "train"]
