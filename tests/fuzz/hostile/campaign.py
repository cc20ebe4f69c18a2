"""Hostile files against lispgpt's commands: `python -m fuzz.hostile.campaign --count 3000` from the folder tests.

What fails is kept in a folder, with its command; --kind and --first with --count 1 make one again.  With --record a
campaign that was cut off goes on where it was.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fuzz.hostile import base
from fuzz.hostile.case import Case
from fuzz.hostile.execute import End, load_all, run
from fuzz.hostile.kinds import EVERY, KINDS


@dataclass(frozen=True)
class Found:
    """What became of one hostile file."""

    kind: str
    seed: int
    words: tuple[str, ...]
    end: End
    problems: list[str]

    def __str__(self) -> str:
        said = (self.end.err or self.end.out).strip()
        again = f"python -m fuzz.hostile.campaign --kind {self.kind} --first {self.seed} --count 1"
        head = f"{self.kind} {self.seed}: {'; '.join(self.problems)}"
        return "\n  ".join((head, " ".join(self.words), again, said[-1500:]))


def cases(kinds: Sequence[str], first: int, count: int) -> Iterator[tuple[str, int]]:
    """The kinds in turns, with the seeds of what is drawn."""
    for seed in range(first, first + count):
        yield kinds[seed % len(kinds)], seed


def try_one(kind: str, seed: int, good: Path, place: Path) -> Found:
    """Make a hostile file in an empty folder, and run its command."""
    words = [str(word) for word in KINDS[kind](Case(random.Random(f"{kind} {seed}"), good, place))]
    cache = place / "cache" if kind == "caches" else good / "cache"
    end = run(words, place, cache)
    return Found(kind, seed, tuple(words), end, end.problems())


def campaign(kinds: Sequence[str], first: int, count: int, good: Path, keep: Path | None = None) -> Iterator[Found]:
    """Each case's end; keep: a folder for the files of those that fail."""
    for kind, seed in cases(kinds, first, count):
        with tempfile.TemporaryDirectory() as folder:
            found = try_one(kind, seed, good, Path(folder))
            if found.problems and keep is not None:
                target = keep / f"{kind}-{seed}"
                shutil.rmtree(target, ignore_errors=True)
                shutil.copytree(folder, target, symlinks=True, ignore=_irregular)
        yield found


def _irregular(folder: str, names: list[str]) -> list[str]:
    """What cannot be copied, or is large."""
    paths = [Path(folder) / name for name in names]
    return [path.name for path in paths if not path.is_dir() and (not path.is_file() or path.stat().st_size > 1 << 28)]


def recorded(path: Path | None) -> dict[str, dict[str, Any]]:
    """What a file has of cases tried before, by kind and seed."""
    if path is None or not path.exists():
        return {}
    lines = [line for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return {f"{each['kind']} {each['seed']}": each for each in map(json.loads, lines)}


def tried(options: argparse.Namespace, good: Path) -> Iterator[dict[str, Any]]:
    """Each case's end in short: those that the record has, and the others, which are tried and added to it."""
    before = recorded(options.record)
    kinds = options.kind or EVERY
    for kind, seed in cases(kinds, options.first, options.count):
        if (known := before.get(f"{kind} {seed}")) is not None:
            yield known
            continue
        found = next(campaign([kind], seed, 1, good, options.keep))
        if found.problems:
            print(found, flush=True)
        end = found.end
        short = {"code": end.code, "seconds": round(end.seconds, 2), "mib": end.nbytes >> 20, "wrong": found.problems}
        if options.record is not None:
            with options.record.open("a") as file:
                file.write(json.dumps({"kind": kind, "seed": seed} | short) + "\n")
        yield {"kind": kind, "seed": seed} | short


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=3000)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--kind", choices=EVERY, action="append", help="(default: all)")
    parser.add_argument("--good", type=Path, help="the folder of good files, to be made once (default: a new one)")
    parser.add_argument("--keep", type=Path, default=Path("hostile"), help="where what fails is kept")
    parser.add_argument("--record", type=Path, help="a file for each case's end; what it has is not tried again")
    options = parser.parse_args()
    load_all()
    good = options.good or Path(tempfile.mkdtemp(prefix="good-"))
    if not (good / "entries.lgpt").exists():
        base.make(good)
    ended: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    seconds, mib = 0.0, 0
    for each in tried(options, good):
        ended[each["kind"]]["WRONG" if each["wrong"] else f"exit code {each['code']}"] += 1
        seconds, mib = max(seconds, each["seconds"]), max(mib, each["mib"])
    for kind, counts in ended.items():
        print(f"{kind:12} " + "  ".join(f"{what} {number}" for what, number in sorted(counts.items())))
    count = sum(sum(counts.values()) for counts in ended.values())
    print(f"{count} files, at most {seconds:.1f} s of processors and {mib:,} MiB")
    sys.exit(any("WRONG" in counts for counts in ended.values()))


if __name__ == "__main__":
    main()
