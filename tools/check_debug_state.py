"""Compare a GPT-2's logits, loss and gradients with those in a debug state, a file that llm.c's train_gpt2.py writes.

    python tools/check_debug_state.py gpt2_124M.bin gpt2_124M_debug_state.bin [TARGET]

The tolerances are those of llm.c's test_gpt2.c: 1e-2 for logits and the loss, 2e-2 for each element of each gradient.
The file: 256 i32 (magic 20240327, version 2, batch, length), tokens and targets i32 [batch length], logits f32 [batch
length vocab], the loss, and gradients f32 in the order of the model's tensors.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

import numpy as np

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "gpt2_train.lisp"
MAGIC, VERSION, HEADER = 20240327, 2, 256
TOLERANCES = {"logits": 1e-2, "loss": 1e-2}
OF_GRADIENTS = 2e-2
PROGRAM = """(require "{example}")
(entry probe [(tokens [batch length] i32) (targets [batch length] i32)]
  (let [rows (reshape tokens [(fold * 1 (shape tokens))])
        scores (whole-texts (shape tokens) nil (fn [] (logits rows (row-positions))))
        loss (first (loss-in-texts logits tokens targets nil))
        g (gradients loss (all-weights))]
    {{:logits scores :loss loss {gradients}}}))
"""


def read_debug_state(path: Path, shape: Gpt2Shape) -> dict[str, np.ndarray]:
    """tokens, targets, logits, loss, and each weight's gradient; UserError where it is of another model."""
    data = path.read_bytes()
    header = np.frombuffer(data[: 4 * HEADER], np.int32)
    if len(header) < HEADER or tuple(header[:2]) != (MAGIC, VERSION):
        raise UserError(f"{path} is no debug state of llm.c's, version {VERSION}")
    batch, length = int(header[2]), int(header[3])
    rows = (batch, length)
    parts = [("tokens", rows, "<i4"), ("targets", rows, "<i4"), ("logits", (*rows, shape.vocab), "<f4")]
    parts += [("loss", (), "<f4"), *((name, extents, "<f4") for name, extents, _ in shape.tensors())]
    wanted = 4 * (HEADER + sum(math.prod(extents) for _, extents, _ in parts))
    if len(data) != wanted:
        raise UserError(f"{path} has {len(data)} bytes, and of a model of these sizes it has {wanted}")
    found, place = {}, 4 * HEADER
    for name, extents, dtype in parts:
        count = math.prod(extents)
        found[name] = np.frombuffer(data, dtype, count, place).reshape(extents)
        place += 4 * count
    return found


def compute(model: Path, state: dict[str, np.ndarray], target: str) -> dict[str, np.ndarray]:
    """What the example makes of the same tokens and targets, in F32, by the names of the state."""
    checkpoint = checkpoints.open(model)
    shape = Gpt2Shape.from_config(dict(checkpoint.config))
    names = [name for name, _, _ in shape.tensors()]
    asked = " ".join(f":{name} (nth g {number})" for number, name in enumerate(names))
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "probe.lisp"
        program.write_text(PROGRAM.format(example=EXAMPLE, gradients=asked))
        with lispgpt.load(program, model, target=target, settings={"weight-type": "f32"}) as loaded:
            found = loaded.run("probe", tokens=state["tokens"], targets=state["targets"])
    found["logits"] = found["logits"][:, : shape.vocab].reshape(state["logits"].shape)
    return found


def compare(model: Path, path: Path, target: str = "cpu") -> dict[str, tuple[float, float]]:
    """For logits, loss and each gradient, the largest difference and what it may be."""
    state = read_debug_state(path, Gpt2Shape.from_config(dict(checkpoints.open(model).config)))
    found = compute(model, state, target)
    names = [name for name in state if name not in ("tokens", "targets")]
    return {n: (float(np.abs(found[n] - state[n]).max()), TOLERANCES.get(n, OF_GRADIENTS)) for n in names}


def main() -> int:
    model, path, target = Path(sys.argv[1]), Path(sys.argv[2]), (*sys.argv[3:], "cpu")[0]
    right = True
    for name, (difference, most) in compare(model, path, target).items():
        fits = difference < most
        right &= fits
        print(f"{name:8} {difference:.2e} {'within' if fits else 'NOT within'} {most:.0e}")
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
