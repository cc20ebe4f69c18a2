"""The artifact of a request, from the cache or from a child process in which it is compiled.

The child's memory goes with it, and a failed check inside MLIR ends it and not its parent.  Imports neither lark nor
MLIR itself.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from lispgpt.base.child import Reporter, compile_in_child
from lispgpt.base.errors import UserError
from lispgpt.base.host import cpu_signature
from lispgpt.base.reading import noting
from lispgpt.compiler.cache import Cache, cache_key
from lispgpt.compiler.readiness import call_ready, expects_more, has_compiler
from lispgpt.compiler.request import Observer, Request
from lispgpt.compiler.tuning import tuned
from lispgpt.runtime.devices.driver import is_used
from lispgpt.runtime.plan.artifact import Artifact

OBJECTS = 20_000
"""That a child which imports the compiler makes between two looks for garbage: nearly all of them stay."""


def artifact_of(request: Request, observer: Observer | None = None, cache: Cache | None = None) -> Artifact:
    """A model program compiled; UserError for whatever is wrong with it, and for a program that has a `main`."""
    observer = observer or Observer()
    if forks_at_once() or observer.watches:
        found = run_or_compile(request, observer, cache, None)
    else:
        request = _tuned(request, cache)
        found = _kept(request, observer, cache) or call_ready(_compile, request, cache)
    assert isinstance(found, Artifact)
    return found


def forks_well() -> bool:
    """Whether a fork of this process could do all that it has to: no other thread is here, and no driver was used."""
    return threading.active_count() == 1 and not is_used()


def forks_at_once() -> bool:
    """Whether a fork of this process does as well, and begins as early, as any other process that compiles."""
    return forks_well() and (has_compiler() or not expects_more())


def _kept(request: Request, observer: Observer, cache: Cache | None) -> Artifact | None:
    """The artifact of a request, or of a wider one, that the cache has; UserError where its program does not exist."""
    if not request.program.exists():
        raise UserError(f"there is no file {request.program}")
    if cache is None or observer.watches:
        return None
    found = (cache.find(_key(wide)) for wide in request.wider())
    return next((artifact for artifact in found if artifact is not None), None)


def _tuned(request: Request, cache: Cache | None) -> Request:
    return tuned(request, None if cache is None else cache.folder)


def _key(request: Request) -> str:
    depends = {**asdict(request), "program": "", "target": "", "room": None}
    return cache_key(request.program, request.target, cpu_signature(), depends)


def _compile(request: Request, cache: Cache | None) -> Artifact:
    """Compile a model program in this process, and keep what becomes of it."""
    from lispgpt.compiler.driver import compile_program, evaluate_request, is_program
    from lispgpt.ir.mlir import new_context

    with noting() as read, new_context():
        program = evaluate_request(request)
        if is_program(program):
            raise UserError(f"{request.program} is a program with a `main`: lispgpt run runs it")
        artifact = compile_program(program, request, Observer())
    _keep(request, artifact, read, cache)
    return artifact


def _keep(request: Request, artifact: Artifact, read: Mapping[Path, str], cache: Cache | None) -> None:
    if cache is not None:
        cache.keep(_key(request), artifact, read)


@dataclass(frozen=True)
class Counterpart:
    """What a device's kernels can be compared with, launch by launch (see counterpart.py).

    artifact: for the CPU.  elements: what each kernel's arguments hold, such as "f32", by the kernels' names.
    """

    artifact: Artifact
    elements: Mapping[str, Sequence[str]]


def counterpart_of(request: Request) -> Counterpart:
    """The kernels of a request's target for the CPU; UserError for whatever is wrong with the program or pipeline."""
    if not forks_at_once():
        return Counterpart(*call_ready(_counterpart, request))

    def work(reporter: Reporter) -> int:
        reporter.give(_counterpart(request))
        return 0

    return Counterpart(*compile_in_child(work).value)


def _counterpart(request: Request) -> tuple[Artifact, Mapping[str, Sequence[str]]]:
    from lispgpt.compiler.counterpart import compile_counterpart

    return compile_counterpart(request)


@dataclass(frozen=True)
class Declared:
    """What a model program says of itself.

    weights: (name, shape, dtype, whether the first dimension counts layers).  initial: what the weights that say it
    begin with, as ("normal", 0.02).  entries: their names.  generates: whether it has a `generate` form.
    """

    config: dict[str, Any]
    weights: list[tuple[str, tuple[int, ...], str, bool]]
    initial: dict[str, tuple[str, float]]
    entries: tuple[str, ...]
    generates: bool

    def weight_facts(self) -> dict[str, dict[str, Any]]:
        """The weights as an artifact has them."""
        begins = {name: {"init": list(initial)} for name, initial in self.initial.items()}
        return {
            name: {"shape": list(shape), "dtype": dtype, "stacked": stacked, **begins.get(name, {})}
            for name, shape, dtype, stacked in self.weights
        }


def declared(request: Request, trial: bool = False) -> Declared:
    """A model program evaluated without its entries; UserError for whatever is wrong with it.

    trial: evaluate its own entries, too, where that can be, and hold it to be a model.
    """
    if not forks_at_once():
        fresh: Declared = call_ready(_declared, request, trial)
        return fresh

    def work(reporter: Reporter) -> int:
        reporter.give(_declared(request, trial))
        return 0

    found: Declared = compile_in_child(work).value
    return found


def checked(request: Request, cache: Cache | None) -> Declared | None:
    """What a model program says of itself; UserError where it is wrong.  None where all that its generation needs was
    compiled before."""
    if _kept(replace(_tuned(request, cache), unsized=True), Observer(), cache) is not None:
        return None
    return declared(request, trial=True)


def _declared(request: Request, trial: bool) -> Declared:
    from lispgpt.compiler.evaluation import check_has_entries, evaluate_request, is_program
    from lispgpt.ir.mlir import new_context

    with new_context():
        program = evaluate_request(replace(request, entries=()), trial)
        if trial and is_program(program):
            raise UserError(f"{request.program} is a program with a `main`: lispgpt run runs it")
        if trial:
            check_has_entries(program, request)
        weights = [(w.name, w.shape, w.dtype, w.stacked) for w in program.weights]
        initial = {w.name: w.initial for w in program.weights if w.initial is not None}
        generates = program.generate is not None
        return Declared(program.config, weights, initial, program.entries, generates)  # type: ignore[arg-type]


def run_or_compile(
    request: Request,
    observer: Observer,
    cache: Cache | None,
    arguments: Sequence[str] | None,
    meanwhile: Callable[[], None] | None = None,
    emulated: bool = False,
    of_models: str = "",
) -> Artifact | int:
    """The artifact of a model program; a program with a `main` is run with these arguments, and gives its exit code.

    arguments: None refuses such programs.  cache: None compiles anew.  meanwhile: see `compile_in_child`.
    emulated: whether there is but an emulated GPU, which runs models alone.  of_models: an option that was given and
    that such programs have no use for.
    """
    request = _tuned(request, cache)
    found = _kept(request, observer, cache)
    if found is not None:
        return found

    def work(reporter: Reporter) -> int:
        gc.set_threshold(OBJECTS)
        from lispgpt.compiler.driver import compile_program, evaluate_request, is_program, job_of
        from lispgpt.ir.mlir import new_context, without_op_classes

        without_op_classes()
        with noting() as read, new_context():
            with observer.timing("evaluate"):
                program = evaluate_request(request)
            if is_program(program):
                if arguments is None:
                    raise UserError(f"{request.program} is a program with a `main`: lispgpt run runs it")
                if of_models:
                    raise UserError(f"{of_models} is for models, and {request.program} is a program with a `main`")
                if emulated:
                    raise UserError(
                        f"{request.program} is a program with a `main`, and emulated GPUs run models alone: "
                        "--target cpu runs its kernels too"
                    )
                from lispgpt.programs.launch import run

                return run(job_of(program, request, observer), arguments)
            artifact = compile_program(program, request, observer)
        _keep(request, artifact, read, cache)
        reporter.give(artifact)
        return 0

    outcome = compile_in_child(work, meanwhile)
    return outcome.code if outcome.value is None else outcome.value
