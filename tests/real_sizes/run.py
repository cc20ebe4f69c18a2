"""Kernels at the sizes of known models: compiled, some blocks of each executed, and compared with float64.

    python tests/real_sizes/run.py [--models M…] [--targets T…] [--entries E…] [--weights W…] [--precisions P…]
                                   [--part I/N] [--shuffle] [--few N] [--seed S] [--seconds N] [--case-seconds N]
                                   [--minutes N] [--to FILE]
    python tests/real_sizes/run.py --table FILE…
    python tests/real_sizes/run.py --page FILE…

Each kernel, by its text and sizes, runs once; FILE has a line of JSON for each, and what is in it is not run again.  At
the end a table in Markdown says how many there were of each outcome.  With --page what files have is counted by classes
in tested.md beside this one.

With --shuffle every class, which is a target, an entry, weights and a precision, has a model before any has a second
one, and with --few N no more than N kernels of a model are run, of different kinds, the cheapest first: what is left of
them is run without it.  --models odd-17 is one of sizes that nobody has, drawn by that seed.  With --part I/N processes
take a share of the classes each, with a FILE of their own.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
import traceback
from collections import Counter, deque
from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from real_sizes.kernels import Artifacts, Found, chosen, distinct
from real_sizes.models import ENTRIES, WEIGHTS, Case, sizes
from real_sizes.table import BAD, Class, by_class, classes, table

from lispgpt.base.errors import UserError

PAGE = Path(__file__).resolve().parent / "tested.md"
TARGETS = ("rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201", "cuda:sm_80", "cuda:sm_90a", "cpu")
PRECISIONS = ("exact", "fast")
BEGUN, PART, DONE, REFUSED = "begun", "part", "done", "refused"
"""What comes of a case: PART where there are more kernels of it."""
BEGUN_TYPES = ("q5_k", "q6_k", "iq4_xs", "k_mix", "mxfp4")
BEGUN_ENTRIES = ("long-training", "parted-training", "muon-training")
"""Weights and entries of which the page does not have every class yet."""
UNDIVIDED = "elements, and blocks of"
"""What is said of rows that whole blocks do not divide, the one thing for which a case is refused."""


def main() -> int:
    options = _options(sys.argv[1:])
    if options.table:
        print(table([each for path in options.table for each in _read(path)]))
        return 0
    if options.page:
        text = PAGE.read_text().partition("\n| ")[0]
        known = [each for path in options.page for each in _read(path)]
        PAGE.write_text(f"{text}\n{by_class(known)}\n")
        return 0
    known = _read(options.to)
    keys, end = {each["key"] for each in known}, time.monotonic() + 60 * options.minutes
    refused = {each["case"] for each in known if each["how"] == REFUSED}
    with options.to.open("a") as file, tempfile.TemporaryDirectory() as folder:

        def tell(found: Found) -> None:
            print(json.dumps(asdict(found)), file=file, flush=True)
            known.append(asdict(found))
            if found.how == REFUSED:
                refused.add(found.case)
            if found.how in BAD:
                print(f"{found.case}: {found.kernel}: {found.how}: {found.detail}", flush=True)

        for name, began in unfinished(known).items():
            if began > 1:
                tell(Found(name, "?", "", "failed", "the process that ran it ended twice"))
                tell(Found(name, "", "", DONE))
        ends = {DONE, PART} if options.few else {DONE}
        done = {each["case"] for each in known if each["how"] in ends}
        for case in cases_of(sys.argv[1:], refused, classes(known)):
            if str(case) not in done and time.monotonic() < end:
                tell(Found(str(case), "", "", BEGUN))
                limits = Limits(options.few, options.seconds, options.case_seconds)
                for found in outcomes(case, Path(folder), options.seed, keys, limits):
                    tell(found)
    print(table(known))
    return any(each["how"] in BAD for each in known)


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def unfinished(known: list[dict[str, Any]]) -> dict[str, int]:
    """How often cases have begun that have not ended since."""
    found: Counter[str] = Counter()
    for each in known:
        if each["how"] == BEGUN:
            found[each["case"]] += 1
        elif each["how"] in (PART, DONE):
            del found[each["case"]]
    return found


def cases_of(arguments: Sequence[str], refused: Container[str], known: Container[Class] = ()) -> Iterator[Case]:
    """Those of a command, one of each class in turn, or the one behind it where that is refused by then; in order, or
    all shuffled; those first of which nothing is known to be right."""
    options = _options(arguments)
    random = Random(options.seed)
    kinds = list(product(options.targets, options.entries, options.weights, options.precisions))
    if options.shuffle:
        random.shuffle(kinds)
    part, parts = map(int, options.part.split("/"))
    queues = []
    for kind in kinds:
        models = random.sample(options.models, len(options.models)) if options.shuffle else options.models
        queues.append(deque(case for case in (Case(model, *kind) for model in models) if case.is_one))
    queues = sorted(queues[part::parts], key=lambda cases: bool(cases) and cases[0].kind in known)
    while any(queues):
        for cases in queues:
            while cases:
                yield (case := cases.popleft())
                if str(case) not in refused:
                    break


@dataclass(frozen=True)
class Limits:
    """few: how many kernels of a case are run, 0 for all.  seconds: that a kernel may take, 0 for any.  case: seconds
    after which no more kernels of a case are begun once one has been compared."""

    few: int = 0
    seconds: float = 0
    case: float = math.inf


def outcomes(case: Case, folder: Path, seed: int, keys: set[str], limits: Limits) -> Iterator[Found]:
    """What comes of a case's kernels that are not among the keys, or of a few of them, and at last of the case."""
    start, end = time.monotonic(), DONE
    try:
        made = Artifacts(case, folder, seed, limits.seconds)
        left = {key: group for key, group in distinct(made.artifact, made.text) if key not in keys}
        order = made.cheapest_first(chosen(left, limits.few, seed), left) if limits.few else list(left)
        compared = False
        for key in order:
            if compared and time.monotonic() - start > limits.case:
                break
            keys.add(key)
            found = made.run(key, left.pop(key))
            compared |= found.how == "right"
            yield found
        end = PART if left else DONE
    except UserError as error:
        how = REFUSED if UNDIVIDED in error.message else "failed"
        yield Found(str(case), "?", "", how, error.message[:300])
    except Exception as error:  # the tool goes on with others
        yield Found(str(case), "?", "", "failed", "".join(traceback.format_exception(error))[-900:])
    yield Found(str(case), "", "", end, f"{time.monotonic() - start:.1f} s")


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(sizes()))
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--entries", nargs="*", default=list(ENTRIES))
    parser.add_argument("--weights", nargs="*", default=list(WEIGHTS))
    parser.add_argument("--precisions", nargs="*", default=list(PRECISIONS))
    parser.add_argument("--part", default="0/1", help="I/N: every N-th class from the I-th on")
    parser.add_argument("--shuffle", action="store_true", help="in an order by the seed")
    parser.add_argument("--few", type=int, default=0, help="how many kernels of a case are run, 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60, help="that a kernel may take")
    parser.add_argument("--case-seconds", type=float, default=math.inf, help="after which a case's others wait")
    parser.add_argument("--minutes", type=float, default=1e6, help="after which no case is begun")
    parser.add_argument("--to", type=Path, default=Path("real_sizes.jsonl"))
    parser.add_argument("--table", nargs="*", type=Path, help="print the table of what such files have")
    parser.add_argument("--page", nargs="*", type=Path, help=f"the same by classes, in {PAGE.name}")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
