"""Prefill with an artifact on an emulated AMD GPU: prefill.py CHIP ARTIFACT CHECKPOINT OUT TOKEN…

Writes logits and the cache to OUT (numpy's npz) and prints how many guards around buffers were overwritten.
"""

from __future__ import annotations

import sys
from pathlib import Path

import emulator
import numpy as np

from lispgpt.runtime import checkpoints
from lispgpt.runtime.artifact import load_artifact
from lispgpt.runtime.devices.rocm import HipDevice
from lispgpt.runtime.session import Session


def main(chip: str, artifact: str, checkpoint: str, out: str, prompt: list[int]) -> None:
    library = emulator.install(chip)
    with Session(load_artifact(Path(artifact)), HipDevice(), checkpoints.open(Path(checkpoint))) as session:
        tokens = np.array([prompt], np.int32)
        results = session.run("logits", tokens, np.arange(len(prompt), dtype=np.int32)[None])
        np.savez(out, logits=results["logits"], kv=session.read("kv"))
        print(library.shim_broken_guards())


if __name__ == "__main__":
    main(*sys.argv[1:5], [int(t) for t in sys.argv[5:]])
