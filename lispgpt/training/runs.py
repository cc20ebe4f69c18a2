"""`lispgpt.train`: begin a run of training steps or go on with one; `lispgpt train` is this from the command line."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError, at_the_call
from lispgpt.base.precisions import EXACT
from lispgpt.base.reading import named
from lispgpt.compiler.cache import folder_for
from lispgpt.runtime.checkpoints import hub
from lispgpt.runtime.collectives.peers import PATIENCE, Peers
from lispgpt.runtime.training.loop import Outcome, Unwatched, Watcher
from lispgpt.runtime.training.options import Options
from lispgpt.runtime.training.run_folder import RunFolder
from lispgpt.runtime.training.trainer import Trainer
from lispgpt.training.data import paths_of
from lispgpt.training.devices import on_devices
from lispgpt.training.going_on import Machine, Run
from lispgpt.training.lora import Lora
from lispgpt.training.prepare import Beginning, begin


@at_the_call
def train(
    program: str | Path | None = None,
    *,
    run: str | Path,
    data: str | Path | Sequence[str | Path] | Mapping[str, Any] = (),
    resume: bool = False,
    val_data: str | Path | Sequence[str | Path] | Mapping[str, Any] = (),
    val_fraction: float = 0.05,
    tokenizer: str | Path | None = None,
    vocab_size: int | None = None,
    checkpoint: str | Path | Sequence[str | Path] | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    target: str | None = None,
    precision: str = EXACT,
    lora: str | None = None,
    mask_documents: bool = False,
    threads: int | None = None,
    cache: str | Path | bool | None = True,
    devices: int = 1,
    engine: str | None = None,
    shard_optimizer: bool = False,
    patience: float = PATIENCE,
    first_nan: bool = False,
    quick: bool = False,
    peers: Peers | None = None,
    watcher: Watcher | None = None,
    profile: Callable[[Trainer], None] | None = None,
    **options: Any,
) -> Outcome:
    """Train a program on data, with all that is needed to go on in the folder `run`; or go on there (`resume`).

        lispgpt.train("gpt2_train.lisp", run="runs/small", data=["text.txt"], vocab_size=2000, steps=500, lr=1e-3,
                      settings={"layers": 2, "heads": 4, "width": 128})
        lispgpt.train(run="runs/small", resume=True)

    program: a program's file; or a Hugging Face folder or a GGUF file of floats, which is fine-tuned: the program for
    it is trained, from its weights, and a folder's checkpoints are folders like it.
    data: files and folders of text, or of token shards, one or several; or arrays by the names of the inputs of what is
    trained, of as many rows each: a dict, an .npz file, or "script.py:function", which yields dicts, each a batch.
    tokenizer: a file; vocab_size: of one to make
    of the data.  checkpoint: weights to begin with, or several, of which the
    last that has a weight gives it; preset: the sizes of a known model; settings: values of the
    program's config.  lora: an adapter of a folder to train in place of its weights, "rank=16,targets=q_proj+v_proj";
    checkpoints are folders in PEFT's format.  mask_documents: whether the rows of a sequence that is parts of several
    documents see those of their own alone.  precision: as for `lispgpt.compile`; of new runs.  cache: as for
    `lispgpt.load`.
    options: the fields of `Options`, such as steps, batch, length, lr and seed.  watcher: is told how it goes;
    in notebooks, after `%load_ext lispgpt`, there is a bar by default.
    devices: how many of this machine share the batch, each in a process of its own; the run is the same with any
    number.  engine: by what they work together (local, mpi, nccl, rccl), where it is not the usual.  shard_optimizer:
    whether each keeps its part of the optimizer's states alone.  patience: seconds that one waits for the others.
    peers: instead, the processes that somebody else has started for devices.
    first_nan: whether steps run op by op, up to the first that makes a NaN, which is the error at its form; slow, and
    of one device.  quick: as for `lispgpt.load`.
    profile: is called with the trainer after the last step.  A run that is interrupted (Ctrl-C) keeps a checkpoint.
    One that goes on takes a program where its own has moved, and options that leave its steps as they are.  UserError
    for whatever does not fit, and where the training diverges.
    """
    unknown = next((name for name in options if name not in {field.name for field in fields(Options)}), None)
    count = devices if peers is None else peers.place.size
    if count > 1 and profile is not None:
        raise UserError("--profile times the kernels of one device, and this run has several: give --devices 1")
    if count > 1 and first_nan:
        raise UserError("--first-nan looks at the memory of one device, and this run has several: give --devices 1")
    if unknown is not None:
        raise TypeError(f"train() has no option {unknown!r}; there are {', '.join(f.name for f in fields(Options))}")
    given = None
    if not resume:
        if program is None:
            raise UserError("there is no program to train, and no run to go on with: give one, or resume=True")
        checkpoints = paths_of(() if checkpoint is None else checkpoint, "checkpoint")
        given = Beginning(
            hub.local(program),
            data if isinstance(data, Mapping) else paths_of(data),
            val_data if isinstance(val_data, Mapping) else paths_of(val_data),
            val_fraction,
            None if tokenizer is None else named(tokenizer),
            vocab_size,
            checkpoints[0] if checkpoints else None,
            checkpoints[1:],
            preset,
            settings or {},
            target or "cpu",
            precision,
            None if lora is None else Lora.parsed(lora),
            mask_documents,
        )
    elif not named(run).is_dir():
        raise UserError(f"there is no run at {run}")
    machine = Machine(target, threads, folder_for(cache), count, engine, shard_optimizer, first_nan, quick)
    told = watcher or _WATCHING[-1]()
    leads = peers is None or peers.place.rank == 0
    if peers is not None:
        peers.agree("in what they were given", _asked(given, resume, options))
        if not leads:
            peers.gather("begun", None, math.inf)  # rank 0 may have much text to encode
    with RunFolder(named(run), leads) as folder:
        if leads and given is not None:
            begin(folder, given, Options(**options), told.note)
        elif leads and program is not None:
            folder.begin(folder.facts() | {"program": str(Path(program).resolve())})
        changes = {} if given is not None else options
        found = Run.read(folder, changes, machine, told.note if leads else Unwatched().note)
        if peers is not None and leads:
            peers.gather("begun", None)
        if resume and found.done >= found.options.steps:
            if leads:
                told.note(f"the run has {found.done} steps already, of {found.options.steps}: --steps N for more")
            if profile is None:
                return Outcome(found.done, False, None, None)
        artifacts = found.compiled(told)
        if peers is not None or devices == 1:
            return found.go(artifacts, told, profile, peers)

        def work(peers: Peers, tell: Callable[[Any], None]) -> Outcome:
            return found.go(artifacts, Telling(tell), None, peers)

        outcome: Outcome = on_devices(devices, work, lambda heard: getattr(told, heard[0])(*heard[1]), patience)
        return outcome


_WATCHING: list[Callable[[], Watcher]] = [Unwatched]


def watch_with(watcher: Callable[[], Watcher]) -> None:
    """Have runs that nobody gives a watcher told of by such a one."""
    _WATCHING[:] = [watcher]


def _asked(given: Beginning | None, resume: bool, options: Mapping[str, Any]) -> dict[str, Any]:
    """What a process was asked to do, by what a user calls it; where its files lie is not part of it."""
    asked: dict[str, Any] = {"resume": resume, "options": repr(sorted(options.items()))}
    if given is not None:
        asked |= {name: repr(value) for name, value in asdict(given).items()}
        asked["program"] = given.program.name
    return asked


class Telling:
    """A watcher in another process, which hands on what it is told: (the method's name, what it was given)."""

    def __init__(self, tell: Callable[[Any], None]) -> None:
        self._tell = tell

    def begin(self, facts: Mapping[str, Any]) -> None:
        self._tell(("begin", (dict(facts),)))

    def stepped(self, record: Mapping[str, Any]) -> None:
        self._tell(("stepped", (dict(record),)))

    def sampled(self, step: int, text: str) -> None:
        self._tell(("sampled", (step, text)))

    def saved(self, step: int, path: Path) -> None:
        self._tell(("saved", (step, path)))

    def note(self, text: str) -> None:
        self._tell(("note", (text,)))


__all__ = ["Options", "Outcome", "Watcher", "train"]
