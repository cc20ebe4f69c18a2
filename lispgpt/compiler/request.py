"""What to compile.  Imports neither lark nor MLIR."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lispgpt.base.observer import Observer
from lispgpt.base.precisions import EXACT

__all__ = ["PROMPTS", "Observer", "Request", "prompt_size"]

PROMPTS = (16, 128, 512)
"""Sizes of prompts that are told apart by what is compiled for them: few, so that most are compiled already."""


def prompt_size(count: int | None) -> int:
    """The size to compile for where prompts have so many tokens at most; 0 where that is any, or nobody knows."""
    return 0 if count is None else next((size for size in PROMPTS if size >= count), 0)


@dataclass(frozen=True)
class Request:
    """A program's file and what its compilation depends on beside the files that it reads.

    overrides: config values that the user sets.  checkpoint_config: from a checkpoint's header.  batch: sequences in a
    decode step beside the single one.  pipeline: a file in place of the target's own.  sizes, entries, unneeded,
    unsized, inputs, arrays, up_to: which entries to compile and for what shapes, see
    `lispgpt.language.model.sizes.Wanted`.
    devices: how many share the batch of each entry that has one; shares_states: whether each of them keeps a part
    of the states only.
    precision: "fast" has products with short weights read activations in BF16; "exact" leaves it to the pipeline.
    room: bytes of memory where the entries are to run, if that is known; no code is made of what does not fit there.
    schedules: files of schedules of the user's own, which come before the library's.
    longest: tokens of the longest prompt that entries have to take at once, a number of PROMPTS; 0: of any.
    apart: whether every kernel stays a launch of its own, and none is one for a whole step.  each_op: whether each op
    that computes is a kernel of its own, so that a launch is of one form.  float64: whether all floats are of 64 bits,
    weights and states too, so that rounding hides nothing.  checks_gradients: whether entries say what they
    differentiate, see `lispgpt.language.model.gradient_checks`.
    quick: whether code is made quickly, and need not be fast.
    tuned: names of schedules by the identities of kernels that they were measured to be fastest for, see
    `lispgpt.compiler.tuning`.
    more: forms that are evaluated behind the program's, such as those that declare adapters.
    """

    program: Path
    target: str = "cpu"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    checkpoint_config: Mapping[str, Any] = field(default_factory=dict)
    pipeline: Path | None = None
    batch: int = 1
    sizes: Sequence[Mapping[str, int]] = ()
    entries: Sequence[str] | None = None
    unneeded: Sequence[str] = ()
    unsized: bool = False
    inputs: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    arrays: Mapping[str, Sequence[int]] = field(default_factory=dict)
    up_to: Mapping[str, int] = field(default_factory=dict)
    devices: int = 1
    shares_states: bool = False
    precision: str = EXACT
    room: int | None = None
    longest: int = 0
    apart: bool = False
    each_op: bool = False
    float64: bool = False
    checks_gradients: bool = False
    schedules: Sequence[Path] = ()
    quick: bool = False
    tuned: Mapping[str, str] = field(default_factory=dict)
    more: str = ""

    def wider(self) -> list[Request]:
        """This and what would do as well: the same for longer prompts, with the entries that it does without, and,
        where code need not be fast, fast."""
        longer = [*(size for size in PROMPTS if size > self.longest), 0] if self.longest else []
        lengths = [self, *(replace(self, longest=size) for size in longer)]
        found = lengths + ([replace(each, unneeded=()) for each in lengths] if self.unneeded else [])
        return found + ([replace(each, quick=False) for each in found] if self.quick else [])
