"""What things take on a GPU: rows that tests add, told as one table, or as JSON."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Row:
    """model: of what.  what: was timed.  microseconds: of one `unit`.  more: in words."""

    model: str
    what: str
    microseconds: float
    unit: str
    more: str = ""


@dataclass
class Timings:
    """chip: in words."""

    chip: str = ""
    rows: list[Row] = field(default_factory=list)

    def add(self, *facts: str | float) -> None:
        self.rows.append(Row(*facts))  # type: ignore[arg-type]

    def table(self) -> list[str]:
        """A line for each row."""
        wide = max((len(row.what) for row in self.rows), default=0)
        found, model = [], ""
        for row in self.rows:
            if row.model != model:
                model = row.model
                found.append(model)
            found.append(f"  {row.what:{wide}}  {row.microseconds:10.1f} us/{row.unit:8}{row.more}".rstrip())
        return found

    def write(self, path: Path) -> None:
        path.write_text(json.dumps({"chip": self.chip, "times": [asdict(row) for row in self.rows]}, indent=1) + "\n")


def microseconds(work: Callable[[], object], rounds: int = 5) -> float:
    """Of the middle one of some rounds, after one that does not count.  work: returns when all of it is done."""
    times = []
    for _ in range(rounds + 1):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return 1e6 * statistics.median(times[1:])
