"""What Python programs import: compile, load, and the `Model` that loading gives.

    import lispgpt

    with lispgpt.load("gpt2_generate.lisp", "gpt2_124M_bf16.bin", target="auto") as model:
        for piece in model.generate("Once upon a time", max_new_tokens=50):
            print(piece, end="", flush=True)
        texts = [text.text for text in model.generate_batch(["Once", "Twice upon a time"], greedy=True)]
        scores = model.logits("Once upon")[-1]

    with lispgpt.load("classifier.lisp", "weights.safetensors") as model:
        scores = model.run("classify", x=images)["classify"]

Whatever the user can mend is raised as `lispgpt.UserError`.  Running an artifact imports neither MLIR nor lark.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError, at_the_call
from lispgpt.base.folders import own_cache_folder, trusted_keys
from lispgpt.base.precisions import EXACT, PRECISIONS
from lispgpt.base.reading import named
from lispgpt.compiler.cache import Cache, folder_for
from lispgpt.compiler.compiled import Declared, artifact_of, checked
from lispgpt.compiler.folders import find_given
from lispgpt.compiler.present import compiled_target, matching_artifact, running_target
from lispgpt.compiler.readiness import expect_more
from lispgpt.compiler.request import Request
from lispgpt.compiler.trust import check_trusted, remember
from lispgpt.execution.model import Model
from lispgpt.runtime import tokenizers
from lispgpt.runtime.given_weights import arrays_given
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.text import Text

MOST_SIZE = 1 << 16
"""Of a dimension that may have any size up to one."""


@at_the_call
def compile(
    program: str | Path,
    *,
    target: str = "cpu",
    checkpoint: str | Path | None = None,
    settings: Mapping[str, Any] | None = None,
    context: int | None = None,
    batch: int = 1,
    shapes: Sequence[Mapping[str, int]] = (),
    up_to: Mapping[str, int] | None = None,
    entries: Sequence[str] | None = None,
    pipeline: str | Path | None = None,
    schedules: str | Path | Sequence[str | Path] = (),
    precision: str = EXACT,
    quick: bool = False,
) -> Artifact:
    """Compile a model program for a target such as "cpu", "rocm:gfx1151" or "cuda:sm_90a"; `.save(path)` writes it.

    checkpoint: its header sets the program's config, and settings win over it.  context: positions to make code and
    memory for, if not the checkpoint's.  batch: sequences decoded together, beside single ones.  shapes: sizes of
    entries' free dimensions, such as {"batch": 4, "length": 64}; up_to: see `load`.  entries: which to compile; all by
    default.  pipeline: a file in place of the target's own.  schedules: a file, or several, with schedules of your own
    for a GPU's kernels, tried before the compiler's.  precision: "fast" has products with weights of 16 bits or fewer
    read activations in BF16, those of many rows weights in blocks, too, and tanh may be the chip's own (within 2^-11);
    GPUs' matrix instructions otherwise read activations in two BF16 parts, for errors up to 1.3e-5 of the sum of
    magnitudes.
    quick: see `load`.

    The user's cache folder notes that the artifact was made here, so that `load` trusts its file.
    """
    found = find_given(program, checkpoint)
    if isinstance(entries, str) or (entries is not None and not entries):
        raise UserError(f"entries is a list of entries' names, or None for all, not {entries!r}")
    given: dict[str, Any] = {
        "sizes": _shapes(shapes),
        "up_to": _up_to(up_to),
        "entries": entries,
        "precision": _precision(precision),
        "quick": quick,
        "schedules": _schedules(schedules),
    }
    target, settings = compiled_target(target), _settings(settings, context)
    more = (_path(pipeline), _batch(batch))
    artifact = artifact_of(Request(found.program, target, settings, found.config, *more, **given))
    remember(own_cache_folder(), artifact)
    return artifact


@at_the_call
def load(
    program: str | Path,
    checkpoint: str | Path | Sequence[str | Path] | None = None,
    *,
    weights: Mapping[str, Any] | None = None,
    target: str = "cpu",
    settings: Mapping[str, Any] | None = None,
    context: int | None = None,
    batch: int = 1,
    shapes: Sequence[Mapping[str, int]] = (),
    up_to: Mapping[str, int] | None = None,
    pipeline: str | Path | None = None,
    schedules: str | Path | Sequence[str | Path] = (),
    precision: str = EXACT,
    quick: bool = False,
    tokenizer: str | Path | None = None,
    adapter: str | Path | None = None,
    adapters: Sequence[str | Path] = (),
    draft: str | Path | None = None,
    threads: int | None = None,
    cache: str | Path | bool | None = True,
    check: bool = False,
    first_nan: bool = False,
    trust: bool = False,
    keys: str | Path | None = None,
) -> Model:
    """A model to generate with and to run entries of; use it in a `with`, which frees the device's memory.

    program: a program's file, whose entries are compiled as they are needed, an artifact, or a Hugging Face folder of a
    model that a program of the package is for.  checkpoint: a path, or several, of which the last that has a weight
    gives it.  weights: arrays by weights' names, which win over those.  A weight that neither has begins as the
    program's `:init` says, with a warning, and without any checkpoint as training begins: `weights={}` begins so with
    all.  target: as for `compile`, or "auto", "rocm" or "cuda" for what is installed here; precision, schedules: as for
    `compile`; an artifact has its own of these.  quick: compile in less time (a third or so), without vectors, tiles
    and LLVM's optimisation, to code that is 2 to 50 times slower, for programs tried on few numbers; code that is kept
    and fast is taken as it is.  up_to: free dimensions of entries, such as {"batch": 64}, each of which may have any
    size up to that: entries are compiled once, when they are first run, for all of these sizes; an entry that cannot be
    is an error at its form.  context: positions to make memory for.  tokenizer: a file; by default the one beside
    the checkpoint.  adapter: a LoRA's folder in PEFT's format, which is added to a Hugging Face folder's weights;
    adapters: such folders that are loaded beside the weights, where each text has its own (`Model.text`).  draft: a
    smaller model of the same tokens, a program, artifact or folder alone, which drafts tokens for this one to check:
    the same tokens, in less time.  threads: of a CPU.  cache: a folder that keeps what was compiled; by default the
    command's (LISPGPT_CACHE, else ~/.cache/lispgpt), and None keeps nothing.  check: hold every launch to what it says
    it reads and writes (on a CPU, slow).  first_nan: compile each op as a kernel of its own, look at what each makes,
    and raise UserError at the form that the first NaN comes from (slow).

    UserError where the program is wrong: its forms are evaluated, and each of its own entries once whose sizes are
    known, unless that was compiled before.

    An artifact is code that runs with the caller's rights: UserError for one that was neither compiled here nor signed
    with a key of the caller's list, unless `trust` is true.  keys: that list, by default the user's own
    (~/.config/lispgpt/trusted-keys).
    """
    paths = _paths(checkpoint)
    given = find_given(program, paths, adapter, adapters)
    for notice in given.notices(_settings(settings, context)):
        warnings.warn(notice, stacklevel=3)
    path, folder = given.program, folder_for(cache)
    kept = None if folder is None else Cache(folder)
    source: Request | Artifact
    about: Declared | None = None
    if given.artifact is not None:
        source = matching_artifact(path, given.artifact, given.checkpoint)
        if _precision(precision) not in (EXACT, source.precision):
            raise UserError(f"{path} was compiled with precision {source.precision!r}")
        if _schedules(schedules):
            raise UserError(f"schedules are for programs: {path} is compiled")
        if not trust:
            folders = [own_cache_folder(), *([folder] if folder else [])]
            check_trusted(source, path, folders, trusted_keys({}) if keys is None else named(keys))
    else:
        sizes = _shapes(shapes)
        chip = running_target(target)
        settings, rounding = _settings(settings, context), _precision(precision)
        more = (_path(pipeline), _batch(batch), sizes)
        how: dict[str, Any] = {"precision": rounding, "each_op": first_nan, "more": given.more, "quick": quick}
        how |= {"schedules": _schedules(schedules), "up_to": _up_to(up_to)}
        source = Request(path, chip, settings, given.config, *more, **how)
        expect_more()
        about = checked(source, kept)
    found = tokenizers.find(given.weights, tokenizer)
    chosen: dict[str, Any] = {
        "cache": kept,
        "device": target,
        "threads": threads,
        "check": check,
        "first_nan": first_nan,
        "weights": None if weights is None else arrays_given(weights),
    }
    made = Model(source, given.checkpoint, found, declared=about, **chosen)
    if draft is not None:
        made.draft = load(draft, target=target, threads=threads, cache=cache, trust=trust, keys=keys)
    return made


def _settings(given: Mapping[str, Any] | None, context: int | None) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise UserError(f"settings are values of the program's config by their names, not {given!r}")
    return {**(given or {}), **({} if context is None else {"context": context})}


def _shapes(given: Sequence[Mapping[str, int]]) -> list[dict[str, int]]:
    """Sizes of entries' free dimensions, each a whole number from 0 on."""
    listed = isinstance(given, Sequence) and all(isinstance(shape, Mapping) for shape in given)
    if not listed or any(type(size) is not int or size < 0 for shape in given for size in shape.values()):
        raise UserError(f'shapes are sizes from 0 on by their names, as [{{"batch": 4}}], not {given!r}')
    return [dict(shape) for shape in given]


def _up_to(given: Mapping[str, int] | None) -> dict[str, int]:
    good = given is None or (
        isinstance(given, Mapping)
        and all(isinstance(name, str) and type(size) is int and 0 < size <= MOST_SIZE for name, size in given.items())
    )
    if not good:
        raise UserError(f"up_to is sizes by dimensions' names, from 1 to {MOST_SIZE}, not {given!r}")
    return dict(given or {})


def _paths(given: str | Path | Sequence[str | Path] | None) -> list[str | Path]:
    return [] if given is None else _listed(given, "checkpoint is a path or a list of paths", least=1)


def _schedules(given: str | Path | Sequence[str | Path]) -> list[Path]:
    return list(map(named, _listed(given, "schedules is a file, or a list of files")))


def _listed(given: str | Path | Sequence[str | Path], says: str, least: int = 0) -> list[str | Path]:
    """A path, or several; UserError, which begins with what they are, for anything else."""
    listed = [given] if isinstance(given, (str, Path)) else given
    if not isinstance(listed, Sequence) or len(listed) < least or not all(isinstance(x, (str, Path)) for x in listed):
        raise UserError(f"{says}, not {given!r}")
    return list(listed)


def _precision(name: str) -> str:
    if name not in PRECISIONS:
        raise UserError(f"precision is {' or '.join(PRECISIONS)}, not {name!r}")
    return name


def _batch(count: int) -> int:
    if type(count) is not int or count < 1:
        raise UserError(f"batch is a number of sequences, from 1 on, not {count!r}")
    return count


def _path(path: str | Path | None) -> Path | None:
    return None if path is None else named(path)


__all__ = ["Artifact", "Model", "Text", "UserError", "compile", "load"]
