"""What a run of training steps is told beside its program and its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.json_files import NAME, is_number, is_whole

LARGEST = (1 << 31) - 1
"""Of whole numbers."""


@dataclass(frozen=True)
class Options:
    """batch: sequences of a micro-batch, each of `length` tokens; a step adds up the gradients of `accumulate` of them.

    lr: the peak, reached after `warmup` steps and falling to min_lr at the last.  clip: the gradient's largest norm.
    seed: of initial weights, the data's order, and what the program draws.  eval_every, sample_every, checkpoint_every:
    steps between; 0 for never, but the last step is evaluated and kept unless eval_every is 0.  eval_batches: of
    validation data at most.  sample: what samples go on from, and sample_tokens how far.  keep: how many checkpoints.
    None: as `resolved` says.
    """

    steps: int = 1000
    batch: int = 8
    length: int = 128
    accumulate: int = 1
    lr: float = 6e-4
    min_lr: float | None = None
    warmup: int | None = None
    clip: float = 1.0
    weight_decay: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.95
    seed: int = 0
    eval_every: int = 250
    eval_batches: int = 20
    sample_every: int = 0
    sample: str = ""
    sample_tokens: int = 64
    checkpoint_every: int = 500
    keep: int = 3

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            whole = "int" in str(field.type)
            if value is None and "None" in str(field.type):
                continue
            if field.name == "sample":
                NAME.check("--sample", value)
            elif not _is_number(value, whole):
                raise UserError(
                    f"{spelled(field.name)} is {repr(value)[:60]}, which must be a {'whole ' * whole}number from 0"
                    f" to below {'2**31' if whole else '1e30'}"
                )
        for name in ("steps", "batch", "length", "accumulate", "eval_batches", "keep"):
            if getattr(self, name) < 1:
                raise UserError(f"{spelled(name)} is {getattr(self, name)}, which must be at least 1")

    def resolved(self) -> Options:
        """With the smallest learning rate a tenth of the largest, and a tenth of the steps, at most 100, to warm up."""
        min_lr = self.lr / 10 if self.min_lr is None else self.min_lr
        warmup = min(100, self.steps // 10) if self.warmup is None else self.warmup
        return Options(**(asdict(self) | {"min_lr": min_lr, "warmup": warmup}))

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.batch * self.length * self.accumulate

    @property
    def sizes(self) -> dict[str, int]:
        """The free dimensions of a step's entries, where it is trained on tokens."""
        return {"batch": self.batch, "length": self.length}

    def inputs(self) -> dict[str, int | float]:
        """The numbers that entries may ask for by name, whatever the step."""
        numbers = {
            "lr": self.lr,
            "min-lr": self.min_lr or 0.0,
            "warmup": self.warmup or 0,
            "steps": self.steps,
            "clip": self.clip,
            "weight-decay": self.weight_decay,
            "beta1": self.beta1,
            "beta2": self.beta2,
            "accumulate": self.accumulate,
        }
        return {name: float(value) for name, value in numbers.items()}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Options:
        """What asdict has made; UserError where it is something else."""
        known = {field.name for field in fields(Options)}
        if not isinstance(data, Mapping) or set(data) != known:
            raise UserError("the options of the run are damaged: run.json has others than it should")
        return Options(**data)


def spelled(name: str) -> str:
    """An option as the command line has it."""
    return "--" + name.replace("_", "-")


def _is_number(value: Any, whole: bool) -> bool:
    return is_whole(value, 0, LARGEST) if whole else is_number(value) and value >= 0
