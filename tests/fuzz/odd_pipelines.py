"""A target's pipeline with each of its passes dropped, doubled, swapped with another or moved: `python
tests/fuzz/odd_pipelines.py --target rocm:gfx1151 --changes moved` (or several, with commas; default: all).

What is compiled by such a pipeline is refused in one error, or gives what numpy does in float64, on the CPU or an
emulator.  Each failure is printed with the pipeline's change; --record lets a run that was cut off go on.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from compiled_models import Weights, compile_text, poison
from fuzz.campaign import device_for

from lispgpt.base.child import Reporter, run_in_child
from lispgpt.base.errors import InternalError, UserError
from lispgpt.pipelines.pipeline_file import pipeline_path
from lispgpt.runtime.session import Session

CHANGES = ("dropped", "doubled", "swapped", "moved")
TEXT = """(require nn) (require kernels)
(weights (w [8 16]) (u [16 16]))
(entry weighed [(x [4 16] f32)] {:product (gelu (matmul-transposed x w)) :rows (softmax (* x 0.5))})
(entry attended [(q [4 16] f32) (n [] i32)]
  (let [k (matmul-transposed q u) scores (softmax (* 0.25 (matmul-transposed q k)))]
    {:mixed (contract [i j] scores [i k] q [k j]) :next (+ n 1)}))
(entry rounds [(x [4 16] f32)] (over [i 0 3 1] [y x] (+ x (softmax (matmul-transposed y u)))))
"""


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def right(x: np.ndarray, w: np.ndarray, u: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """What the entries of the program give."""
    product = x @ w.T
    gelu = 0.5 * product * (1 + np.tanh(np.sqrt(2 / np.pi) * (product + 0.044715 * product**3)))
    mixed, y = softmax(0.25 * x @ (x @ u.T).T) @ x, x
    for _ in range(3):
        y = x + softmax(y @ u.T)
    weighed, attended = {"product": gelu, "rows": softmax(x / 2)}, {"mixed": mixed, "next": np.array(4.0)}
    return {"weighed": weighed, "attended": attended, "rounds": {"rounds": y}}


def changed(text: str, change: str, places: int = 2) -> Iterator[tuple[str, str]]:
    """Each pipeline that one change makes of this one, and what the change was.  places: how many others a pass is
    swapped with or moved to; always the same for the same text."""
    parts = re.split(r"(\(pass [^()]*\))", text)
    passes = range(1, len(parts), 2)
    rng = random.Random(change)
    for one in passes:
        alone = change in ("dropped", "doubled")
        others = [one] if alone else [rng.choice([p for p in passes if p != one]) for _ in range(places)]
        for other in others:
            mine, name = list(parts), parts[one]
            if change == "doubled":
                mine[one] = f"{name} {name}"
            elif change == "swapped":
                mine[one], mine[other] = mine[other], mine[one]
            else:
                mine[one] = ""
                mine[other] += f" {name}" if change == "moved" else ""
            where = "" if alone else f" {'with' if change == 'swapped' else 'behind'} {parts[other]} ({other})"
            yield "".join(mine), f"{change} {name} ({one}){where}"


def tried(text: str, target: str) -> str:
    """What becomes of the program by a pipeline's text: "right", "refused", or what is wrong."""

    def inside(reporter: Reporter) -> int:
        reporter.give(_wrong(text, target))
        return 0

    try:
        outcome = run_in_child(inside)
    except UserError:
        return "refused"
    except InternalError as error:
        return f"a bug: {str(error)[-600:]}"
    return f"ended by {outcome.reason}" if outcome.signal_number else str(outcome.value or "right")


def _wrong(text: str, target: str) -> str:
    rng = np.random.default_rng(3)
    x, w, u = (rng.normal(size=shape).astype(np.float32) for shape in ((4, 16), (8, 16), (16, 16)))
    with tempfile.TemporaryDirectory() as folder:
        pipeline = Path(folder) / "mine.lisp"
        pipeline.write_text(text)
        artifact = compile_text(TEXT, Path(folder), target=target, pipeline=pipeline)
    given: dict[str, dict[str, Any]] = {"weighed": {"x": x}, "attended": {"q": x, "n": np.int32(3)}, "rounds": {"x": x}}
    with Session(artifact, device_for(target), Weights({"w": w, "u": u})) as session:  # type: ignore[arg-type]
        for entry, wanted in right(*(a.astype(np.float64) for a in (x, w, u))).items():
            poison(session)
            found = session.run(entry, **given[entry])
            for name, array in wanted.items():
                if not np.allclose(found[name], array, rtol=2e-3, atol=2e-3):
                    return f"wrong values of {entry}, {name}: {found[name]!s:.300}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--changes", default=",".join(CHANGES))
    parser.add_argument("--places", type=int, default=2, help="where each pass is moved to, or what it is swapped with")
    parser.add_argument("--record", type=Path, help="a file for each end; what it has is not tried again")
    options = parser.parse_args()
    lines = options.record.read_text().splitlines() if options.record and options.record.exists() else []
    known = {what: end for each in lines for what, end in [json.loads(each)]}
    text = pipeline_path("cpu" if options.target == "cpu" else "gpu").read_text()
    ends: Counter[str] = Counter()
    for change in options.changes.split(","):
        for mine, what in changed(text, change, options.places):
            if what not in known:
                known[what] = tried(mine, options.target)
                if known[what] not in ("right", "refused"):
                    print(f"{what}: {known[what]}", flush=True)
                if options.record:
                    with options.record.open("a") as file:
                        file.write(json.dumps([what, known[what]]) + "\n")
            ends[known[what] if known[what] in ("right", "refused") else "WRONG"] += 1
    print(f"{options.target}: " + ", ".join(f"{count} {end}" for end, count in sorted(ends.items())))
    return bool(ends["WRONG"])


if __name__ == "__main__":
    sys.exit(main())
