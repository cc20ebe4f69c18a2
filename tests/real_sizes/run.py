"""Kernels at the sizes of known models: compiled, some blocks of each executed, and compared with float64.

    python tests/real_sizes/run.py [--models M…] [--targets T…] [--entries E…] [--weights W…] [--precisions P…]
                                   [--part I/N] [--seed S] [--to FILE]

Each kernel, by its text and sizes, runs once; FILE has a line of JSON for each, and what is in it is not run again.  At
the end a table says how many there were of each outcome.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import asdict
from itertools import product
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from real_sizes.kernels import Artifacts, Found, distinct
from real_sizes.models import ENTRIES, WEIGHTS, Case, sizes

from lispgpt.base.errors import UserError

TARGETS = ("rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201")


def main() -> int:
    options = _options()
    known = [json.loads(line) for line in options.to.read_text().splitlines()] if options.to.exists() else []
    done, keys = {each["case"] for each in known if each["kernel"] == ""}, {each["key"] for each in known}
    whole = [Case(*each) for each in product(options.models, options.targets, options.entries, options.weights,
                                             options.precisions)]  # fmt: skip
    part, parts = map(int, options.part.split("/"))
    with options.to.open("a") as file, tempfile.TemporaryDirectory() as folder:
        for case in whole[part::parts]:
            if str(case) not in done:
                for found in outcomes(case, Path(folder), options.seed, keys):
                    print(json.dumps(asdict(found)), file=file, flush=True)
                    known.append(asdict(found))
                    if found.how in ("wrong", "fault", "failed"):
                        print(f"{found.case}: {found.kernel}: {found.how}: {found.detail}", flush=True)
    table(known)
    return any(each["how"] in ("wrong", "fault", "failed") for each in known)


def outcomes(case: Case, folder: Path, seed: int, keys: set[str]):
    """What comes of a case's kernels that are not among the keys, and at last of the case itself."""
    start = time.monotonic()
    try:
        made = Artifacts(case, folder, seed)
        for key, launch in distinct(made.artifact, made.text):
            if key not in keys:
                keys.add(key)
                yield made.run(key, launch)
    except UserError as error:  # blocks that do not divide the rows
        yield Found(str(case), "?", "", "refused", error.message[:300])
    except Exception as error:  # the tool goes on with others
        yield Found(str(case), "?", "", "failed", "".join(traceback.format_exception_only(error)).strip()[:500])
    yield Found(str(case), "", "", "done", f"{time.monotonic() - start:.1f} s")


def table(known: list[dict]) -> None:
    """How many kernels of each target had which outcome, and how many bytes of scratch."""
    counts = Counter((each["case"].split()[1], each["how"]) for each in known if each["kernel"])
    spilled = Counter(each["case"].split()[1] for each in known if each["spills"])
    for target in dict.fromkeys(target for target, _ in counts):
        mine = {how: count for (t, how), count in counts.items() if t == target}
        compiled = sum(mine.values())
        print(f"{target}: {compiled} kernels, {', '.join(f'{n} {how}' for how, n in mine.items())}, "
              f"{spilled[target]} with spills")  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(sizes()))
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--entries", nargs="*", default=list(ENTRIES))
    parser.add_argument("--weights", nargs="*", default=list(WEIGHTS))
    parser.add_argument("--precisions", nargs="*", default=["exact", "fast"])
    parser.add_argument("--part", default="0/1", help="I/N: every N-th case from the I-th on")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--to", type=Path, default=Path("real_sizes.jsonl"))
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
