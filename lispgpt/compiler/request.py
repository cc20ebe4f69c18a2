"""What to compile, and what to show on the way.  Imports neither lark nor MLIR."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lispgpt.base.precisions import EXACT


@dataclass(frozen=True)
class Request:
    """A program's file and what its compilation depends on beside the files that it reads.

    overrides: config values that the user sets.  checkpoint_config: from a checkpoint's header.  batch: sequences in a
    decode step beside the single one.  pipeline: a file in place of the target's own.  sizes, entries, unsized, inputs:
    which entries to compile and for what shapes, see `lispgpt.language.model.sizes.Wanted`.  devices: how many share
    the batch of each entry that has one; shares_states: whether each of them keeps a part of the states only.
    precision: "fast" has products with short weights read activations in BF16; "exact" leaves it to the pipeline.
    """

    program: Path
    target: str = "cpu"
    overrides: Mapping[str, Any] = field(default_factory=dict)
    checkpoint_config: Mapping[str, Any] = field(default_factory=dict)
    pipeline: Path | None = None
    batch: int = 1
    sizes: Sequence[Mapping[str, int]] = ()
    entries: Sequence[str] | None = None
    unsized: bool = False
    inputs: Mapping[str, Mapping[str, Sequence[int]]] = field(default_factory=dict)
    devices: int = 1
    shares_states: bool = False
    precision: str = EXACT


@dataclass
class Observer:
    """What a user wants to see on the way: see `lispgpt.passes.pipeline.Runner`."""

    dump_dir: Path | None = None
    print_after: Sequence[str] = ()
    show: Callable[[str], None] = print

    @property
    def watches(self) -> bool:
        """Whether the passes have to run for something to be seen."""
        return self.dump_dir is not None or bool(self.print_after)
