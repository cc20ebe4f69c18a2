"""Random model programs against numpy: `python tests/fuzz/run.py --count 1000 --seed 1 --targets cpu,cuda:sm_90a`.

Five generators that share nothing make them: of entries on weights alone; with `--typed` of entries with inputs, free
dimensions, named results, layers, states, caches, updates and gradients; with `--wide` of everything that can stand in
a graph of values, results within what moving all values by their last places changes, and gradients of a scalar held to
finite differences; with `--rounds` of loops in entries, held to the same rounds written out and to float64, and their
gradients to finite differences; with `--mutated` of the examples, changed, which may be refused, and are else held to
float64 on the ops that no pass has touched.  Each failure prints its seed, the smallest program found that fails alike
(mutated ones and loops as they are), and the command that repeats it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.campaign import Failure
from fuzz.parallel import Check, failures
from fuzz.shrink import shrink, smaller
from fuzz.typed.smaller import smaller as smaller_typed
from fuzz.wide.program import smaller as smaller_wide


def main() -> int:
    options = _options()
    seen: Counter[str] = Counter()
    started = time.monotonic()
    for target in options.targets.split(","):
        check = Check(target, options.generator, options.execute_emulated, options.group)
        failed = 0
        for failure in failures(check, options.seed, options.count, options.jobs):
            failed += 1
            seen[failure.family] += 1
            if seen[failure.family] <= options.show:
                _report(failure, check, options.shrink)
        print(f"{target}: {failed} of {options.count} failed, {time.monotonic() - started:.0f} s", flush=True)
    for family, count in seen.most_common():
        print(f"{count:6} {family}")
    return bool(seen)


def _report(failure: Failure, check: Check, smallest: bool) -> None:
    made = check.program(failure.seed)
    if smallest and check.generator not in ("mutated", "rounds"):
        fewer, most = {"typed": (smaller_typed, 60), "wide": (smaller_wide, 60)}.get(check.generator, (smaller, 200))
        made = shrink(made, fewer, lambda other: _same(failure, other, check), most)
    print(f"==== {failure.kind} on {failure.target}, seed {failure.seed}", flush=True)
    print("\n".join(failure.message.strip().splitlines()[-12:]))
    print(f"{check.text(made)}\nrepeat: {check.repeated(failure.seed)}\n", flush=True)


def _same(failure: Failure, smaller: Any, check: Check) -> bool:
    found = next(check.failures_of({failure.seed: smaller}), None)
    return found is not None and found.family == failure.family


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many programs")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9, help="of the first program")
    parser.add_argument("--targets", default="cpu")
    generators = {
        "typed": "programs of the second generator",
        "mutated": "examples, changed",
        "wide": "programs of the third",
        "rounds": "loops in entries",
    }
    for name, what in generators.items():
        parser.add_argument(f"--{name}", dest="generator", action="store_const", const=name, default="plain", help=what)
    parser.add_argument("--execute-emulated", action="store_true", help="also run GPU code, on emulators")
    parser.add_argument("--jobs", type=int, default=1, help="how many processes")
    parser.add_argument("--group", type=int, default=8, help="programs in a module")
    parser.add_argument("--show", type=int, default=1, help="how many failures of one kind are shown")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
