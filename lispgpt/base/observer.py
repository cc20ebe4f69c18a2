"""What somebody wants to see of a compilation.  Imports neither lark nor MLIR."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr)


@dataclass
class Observer:
    """What to show of a run of passes, and where.

    dump_dir: a folder for `NN-pass-name.mlir` after every pass that changes the IR (00-input before the first), and for
    passes.txt, which lists all.  kernels: whether it has a file of each function after each pass that changes it, too.
    print_after: names of passes to print the IR after, or "all".  changes: whether to print what each pass changes.
    show: where printing goes.  locations: whether what is shown says where ops are from.  timed: whether the passes'
    times are wanted; they come to `times`, in seconds, in order.  tell: where a table of them goes.
    watch: given the module before the first pass, with None, and after each pass, with its call and its seconds.
    """

    dump_dir: Path | None = None
    print_after: Sequence[str] = ()
    show: Callable[[str], None] = print
    tell: Callable[[str], None] = _to_stderr
    locations: bool = False
    kernels: bool = False
    changes: bool = False
    timed: bool = False
    watch: Callable[[Any, Any, float], None] | None = None
    times: list[tuple[str, float]] = field(default_factory=list)

    @property
    def watches(self) -> bool:
        """Whether the passes have to run, one by one, for something to be seen."""
        shows = self.dump_dir is not None or bool(self.print_after) or self.changes
        return shows or self.timed or self.watch is not None

    @contextmanager
    def timing(self, what: str) -> Iterator[None]:
        """Note how long the block takes."""
        started = time.perf_counter()
        yield
        self.times.append((what, time.perf_counter() - started))

    def tell_times(self) -> None:
        """Tell the times that were asked for, the longest last."""
        if not self.timed:
            return
        total = sum(seconds for _, seconds in self.times)
        rows = [*sorted(self.times, key=lambda row: row[1]), (f"{len(self.times)} steps", total)]
        self.tell("\n".join(f"{s * 1e3:>10.1f} ms {s / max(total, 1e-9):>7.1%}  {what}" for what, s in rows))
