"""A model run for the page: the tensors of one sentence, op by op, and how long kernels take.

For the tensors every op that computes is a kernel of its own, on the CPU, which is launched alone: what it has written
is read then.  So attention's weights are there, which a fused kernel never keeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lispgpt.base.access import SCRATCH
from lispgpt.base.dtypes import DTYPES
from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import compile_program, evaluate_request
from lispgpt.compiler.request import Observer, Request
from lispgpt.execution.opening import device_for
from lispgpt.explore.places import Aliases, Places
from lispgpt.explore.recording import Recording
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import kernel_functions, symbol_of
from lispgpt.runtime.arrays import readable
from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.decoding import MOST_PROBABLE, SAMPLING
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.profile import profile_entry
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import tokens_of
from lispgpt.runtime.tokenizers import Tokenizer

CELLS, PLANES = 1024, 12
"""Of a picture at most: cells, and planes (such as heads) beside each other."""
PROBABLE = 10
LONGEST = 64
"""Tokens of a prompt."""
LEVELS = 254
NO_NUMBER = 255
"""What stands for a NaN or an infinity in a picture."""
MANY = 200
"""Launches of an entry that are measured alone."""
FLOATS = ("f32", "bf16", "f16")


@dataclass(frozen=True)
class Picture:
    """A tensor that a launch has written.

    location: the op's.  step: of the run.  again: how often its kernel has run before.  planes: of cells, each the mean
    of so many rows and columns (each), as levels from low to high; see NO_NUMBER.  cut: columns left out at the end,
    which have but zeros or are masked.  turned: whether planes are of the third dimension of four (heads) and rows of
    the second (tokens).
    """

    location: int
    kernel: str
    step: int
    again: int
    shape: tuple[int, ...]
    dtype: str
    low: float
    high: float
    mean: float
    each: tuple[int, int]
    cut: int
    turned: bool
    planes: np.ndarray


@dataclass
class Sentence:
    """tokens: (number, text) of a prompt.  probable: (number, text, probability) of those that may follow it, the most
    probable first.  pictures: of what each op made."""

    tokens: list[tuple[int, str]] = field(default_factory=list)
    probable: list[tuple[int, str, float]] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)


class _Kernels:
    """Of each kernel, while its arguments are in memory: their shapes, and where it is from.  tokens: of the prompt."""

    def __init__(self, places: Places, tokens: int) -> None:
        self.tokens = tokens
        self.shapes: dict[str, list[tuple[int, ...]]] = {}
        self.locations: dict[str, int] = {}
        self._aliases = Aliases({}, places)

    def watch(self, module: ir.Module, call: object, seconds: float) -> None:
        for kernel in kernel_functions(module):
            if "function_type" not in kernel.attributes:
                continue
            types = ir.FunctionType(ir.TypeAttr(kernel.attributes["function_type"]).value).inputs
            if all(isinstance(type_, ir.MemRefType) and type_.has_static_shape for type_ in types):
                self.shapes[symbol_of(kernel)] = [tuple(type_.shape) for type_ in types]
                self.locations[symbol_of(kernel)] = self._aliases.number(str(kernel.location)[4:-1])


def sentence(
    recording: Recording, prompt: str | Sequence[int], checkpoint: Checkpoint | None, tokenizer: Tokenizer | None
) -> Sentence:
    """Run a prompt through the entry that the program generates with; UserError where there is none."""
    artifact = recording.artifact
    if artifact is None or artifact.generate is None or checkpoint is None:
        raise UserError("--prompt is for programs that generate, with their --checkpoint")
    name = artifact.generate["entry"]
    tokens = tokens_of(prompt, tokenizer, artifact.config.get("vocab"))[:LONGEST]
    inputs = next(list(entry.inputs)[:2] for entry in artifact.plan.entries if "positions" in entry.sizes)
    given = dict(zip(inputs, ([tokens], [list(range(len(tokens)))]), strict=True))
    request = _one_by_one(recording.request, name, {key: (1, len(tokens)) for key in given})
    kernels = _Kernels(recording.places, len(tokens))
    with new_context():
        compiled = compile_program(evaluate_request(request), request, Observer(watch=kernels.watch))
    device, _ = device_for(compiled, "cpu", (None, False, ""), None, None)
    text = [(token, _told(tokenizer, token)) for token in tokens]
    with Session(compiled, device, checkpoint) as session:
        entry = session.entry(name)
        pictures = _pictures(session, entry, given, kernels)
        logits = session.result(entry, next(iter(entry.results))).reshape(-1)
    vocab = artifact.config.get("vocab", logits.size)
    return Sentence(text, _probable(logits[:vocab], tokenizer), pictures)


def _one_by_one(request: Request, entry: str, shapes: Mapping[str, Sequence[int]]) -> Request:
    alone = replace(request, target="cpu", pipeline=None, schedules=(), batch=1, sizes=(), arrays={}, each_op=True)
    return replace(alone, entries=(entry,), inputs={entry: shapes})


def _told(tokenizer: Tokenizer | None, token: int) -> str:
    return "" if tokenizer is None else tokenizer.decode([token])


def _probable(logits: np.ndarray, tokenizer: Tokenizer | None) -> list[tuple[int, str, float]]:
    odds = np.exp(logits.astype(np.float64) - logits.max())
    odds /= odds.sum()
    return [(int(i), _told(tokenizer, int(i)), float(odds[i])) for i in np.argsort(-odds)[:PROBABLE]]


def _pictures(session: Session, entry: Entry, inputs: Mapping[str, Any], kernels: _Kernels) -> list[Picture]:
    """Run an entry launch by launch."""
    session.put(entry, inputs)
    for name in session.held("state", [entry]):
        session.committed.whole(name)
    found, seen = [], dict[str, int]()
    for step, launch in enumerate(entry.launches):
        session.device.launch(session.prepare(replace(entry, steps=(launch,))))
        session.device.sync()
        again = seen.get(launch.kernel, 0)
        seen[launch.kernel] = again + 1
        found += _of_launch(session, launch, step, again, kernels)
    return found


def _of_launch(session: Session, launch: Launch, step: int, again: int, kernels: _Kernels) -> list[Picture]:
    elements = session.kernels[launch.kernel].get("elements", ())
    shapes = kernels.shapes.get(launch.kernel, ())
    found = []
    for argument, dtype, shape in zip(launch.arguments, elements, shapes, strict=False):
        if not argument.writes or argument.access == SCRATCH or dtype not in FLOATS or math.prod(shape) < 2:
            continue
        if session.declared(argument.buffer).kind == "state":
            continue
        array = np.empty(argument.nbytes // DTYPES[dtype].item_bytes, DTYPES[dtype].numpy)
        session.device.copy_out(session.buffers[argument.buffer], array, argument.offset)
        values = readable(array, dtype)
        if values.size == math.prod(shape):
            found.append(_picture(values.reshape(shape), launch.kernel, step, again, dtype, kernels))
    return found


def _picture(values: np.ndarray, kernel: str, step: int, again: int, dtype: str, kernels: _Kernels) -> Picture:
    shape, tokens = values.shape, kernels.tokens
    turned = len(shape) == 4 and shape[1] == tokens != shape[2] and tokens > 1
    values = values.swapaxes(1, 2) if turned else values
    planes = values.reshape(-1, *(values.shape[-2:] if len(shape) > 1 else (1, *shape)))[:PLANES].astype(np.float64)
    says = np.isfinite(planes) & (planes > -1e30)
    nonzero = (says & (planes != 0)).any(axis=(0, 1))
    columns = int(np.flatnonzero(nonzero)[-1]) + 1 if nonzero.any() else planes.shape[2]
    cut = planes.shape[2] - columns
    planes, says = planes[:, :, :columns], says[:, :, :columns]
    known = planes[says]
    low, high, mean = (float(f(known)) if known.size else 0.0 for f in (np.min, np.max, np.mean))
    each = _each(*planes.shape)
    cells = _means(np.where(says, planes, np.nan), *each)
    levels = np.nan_to_num((cells - low) / ((high - low) or 1.0) * LEVELS, nan=0.0)
    shown = np.where(np.isnan(cells), NO_NUMBER, np.clip(np.rint(levels), 0, LEVELS)).astype(np.uint8)
    return Picture(
        kernels.locations[kernel], kernel, step, again, shape, dtype, low, high, mean, each, cut, turned, shown
    )


def _each(planes: int, rows: int, columns: int) -> tuple[int, int]:
    """How many rows and columns a cell stands for, so that a picture has few enough."""
    each = [1, 1]
    while planes * math.ceil(rows / each[0]) * math.ceil(columns / each[1]) > CELLS:
        wider = columns / each[1] > 2 * rows / each[0]
        each[1 if wider or rows <= each[0] else 0] *= 2
    return each[0], each[1]


def _means(planes: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Means over blocks, of the numbers in them that are any."""
    more = ((0, 0), (0, -planes.shape[1] % rows), (0, -planes.shape[2] % columns))
    whole = np.pad(planes, more, constant_values=np.nan)
    blocks = whole.reshape(whole.shape[0], whole.shape[1] // rows, rows, whole.shape[2] // columns, columns)
    known = ~np.isnan(blocks)
    sums, counts = np.where(known, blocks, 0).sum((2, 4)), known.sum((2, 4))
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


@dataclass(frozen=True)
class Times:
    """Microseconds of a run of an entry: of a launch of each kernel, and of all at once.  launches: of each in the run
    that is `whole`, which is without the one that advances the inputs."""

    kernels: dict[str, float]
    launches: dict[str, int]
    whole: float


def times(artifact: Artifact, checkpoint: Checkpoint | None, target: str) -> list[Times]:
    """How long the kernels of each entry take where they run.  Inputs are zeros, or ones where they are fractions;
    positions are the first ones, and settings those of the most probable token."""
    if checkpoint is None:
        raise UserError("--profile runs the program: give its --checkpoint")
    device, _ = device_for(artifact, target, (None, False, ""), None, None)
    found = []
    with Session(artifact, device, checkpoint) as session:
        for entry in artifact.plan.entries:
            for name in session.held("state", [entry]):
                session.committed.whole(name)
            inputs = {name: _begin(session, place, name) for name, place in entry.inputs.items()}
            rows = [list(range(entry.sizes.get("positions", 1)))] * entry.sizes.get("batch", 1)
            profile = profile_entry(session, entry, rows, inputs, alone=len(entry.launches) > MANY)
            launches = {row.kernel: 0 if row.apart else row.launches for row in profile.rows}
            microseconds = {row.kernel: row.microseconds for row in profile.rows}
            found.append(Times(microseconds, launches, profile.microseconds))
    return found


def _begin(session: Session, place: str, name: str) -> np.ndarray:
    shape = session.shape(place)
    dtype = DTYPES[session.declared(place).dtype].numpy
    array = np.full(shape, 1 if np.issubdtype(dtype, np.floating) else 0, dtype)
    if name == "positions" and array.ndim == 2:
        array[:] = np.arange(shape[1])
    if name == SAMPLING:
        array[:] = MOST_PROBABLE.settings(0)
    return array
