"""Random model programs against numpy: `python tests/fuzz/run.py --count 1000 --seed 1 --targets cpu,cuda:sm_90a`.

Each failure prints its seed, the smallest program found that fails alike, and the command that repeats it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from fuzz.campaign import Failure, Work, check_group, groups, work_for
from fuzz.generate import program
from fuzz.program import Program, source
from fuzz.shrink import shrink


def main() -> int:
    options = _options()
    seeds = range(options.seed, options.seed + options.count)
    seen: Counter[str] = Counter()
    started = time.monotonic()
    for target in options.targets.split(","):
        failed = 0
        for some in groups(seeds, options.group):
            programs = {seed: program(seed) for seed in some}
            for failure in check_group(programs, target, work_for(target, options.execute_emulated)):
                failed += 1
                seen[failure.family] += 1
                if seen[failure.family] <= options.show:
                    _report(failure, programs[failure.seed], options)
        print(f"{target}: {failed} of {options.count} failed, {time.monotonic() - started:.0f} s", flush=True)
    for family, count in seen.most_common():
        print(f"{count:6} {family}")
    return bool(seen)


def _report(failure: Failure, made: Program, options: argparse.Namespace) -> None:
    if options.shrink:
        work = work_for(failure.target, options.execute_emulated)
        made = shrink(made, lambda smaller: _same(failure, smaller, work))
    print(f"==== {failure.kind} on {failure.target}, seed {failure.seed}", flush=True)
    print("\n".join(failure.message.strip().splitlines()[-12:]))
    print(source({"out": made}))
    command = f"{os.path.relpath(__file__)} --seed {failure.seed} --count 1 --targets {failure.target}"
    print(f"repeat: python {command}{' --execute-emulated' * options.execute_emulated}\n", flush=True)


def _same(failure: Failure, smaller: Program, work: Work) -> bool:
    found = next(check_group({failure.seed: smaller}, failure.target, work), None)
    return found is not None and found.family == failure.family


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="how many programs")
    parser.add_argument("--seed", type=int, default=time.time_ns() % 10**9, help="of the first program")
    parser.add_argument("--targets", default="cpu")
    parser.add_argument("--execute-emulated", action="store_true", help="also run GPU code, on emulators")
    parser.add_argument("--group", type=int, default=8, help="programs in a module")
    parser.add_argument("--show", type=int, default=1, help="how many failures of one kind are shown")
    parser.add_argument("--no-shrink", dest="shrink", action="store_false")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
