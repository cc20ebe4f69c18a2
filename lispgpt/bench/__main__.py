"""Measure a model's decode step and a prompt on a device beside predictions: python -m lispgpt.bench --target rocm

It makes GPT-2 124M with random weights where no checkpoint is given; `emulated:gfx1151` and `cpu` work, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.bench.comparison import ROUNDS, assumptions, compare, table
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.checkpoints.seeded import PRESETS


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tools/bench", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("program", nargs="?", default="examples/gpt2_generate.lisp")
    parser.add_argument("--target", default="auto", help="auto, cpu, rocm[:CHIP], cuda[:CHIP] or emulated:CHIP")
    parser.add_argument("--checkpoint", type=Path, default=Path("build/bench/gpt2-124m.bin"))
    parser.add_argument("--position", type=int, default=64, help="of the decode step")
    parser.add_argument("--prompt", type=int, default=512, help="tokens of the prompt, at most")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--whole", action="store_true", help="time no kernel by itself")
    parser.add_argument("--json", type=Path, help="also write the numbers to this file")
    given = parser.parse_args(arguments)
    try:
        return _run(given)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(given: argparse.Namespace) -> int:
    if not given.checkpoint.exists() and given.checkpoint.name == "gpt2-124m.bin":
        given.checkpoint.parent.mkdir(parents=True, exist_ok=True)
        make(given.checkpoint, PRESETS["gpt2-124m"], "llmc", "bf16", 0)
    with lispgpt.load(given.program, given.checkpoint, target=given.target) as model:
        print(f"{model.session.device.name}, {model.artifact.target}")
        found = []
        for comparison in compare(model, given.position, given.prompt, not given.whole, given.rounds):
            found.append(comparison)
            print(f"\n{table(comparison)}")
        print(f"\n{assumptions(model)}")
        if given.json:
            numbers = [asdict(comparison) for comparison in found]
            given.json.write_text(json.dumps({"target": model.artifact.target, "entries": numbers}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
