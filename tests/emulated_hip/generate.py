"""Generate with an artifact on an emulated AMD GPU: generate.py CHIP ARTIFACT CHECKPOINT COUNT SAMPLING TOKEN…

SAMPLING is a JSON object of make_sampler's options, or null for greedy decoding.  Prints one JSON object: the new
tokens, the last step's logits, and how many guards around buffers were overwritten.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import emulator

from lispgpt.runtime import checkpoints
from lispgpt.runtime.artifact import load_artifact
from lispgpt.runtime.devices.rocm import HipDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.samplers import make_sampler
from lispgpt.runtime.session import Session


def main(chip: str, artifact: str, checkpoint: str, count: int, sampling: dict | None, prompt: list[int]) -> None:
    library = emulator.install(chip)
    device = HipDevice()
    with Session(load_artifact(Path(artifact)), device, checkpoints.open(Path(checkpoint))) as session:
        drawn = sampling is not None
        generator = Generator(session, "logits", make_sampler(**sampling) if drawn else None)
        assert generator.decoder() is session.entry("decode-drawn" if drawn else "decode-greedy")
        tokens = list(generator.generate(prompt, count))
        broken = library.shim_broken_guards()
        logits = session.read(session.entry("decode-drawn" if drawn else "decode-greedy").results["logits"])
    print(json.dumps({"device": device.name, "tokens": tokens, "broken": broken, "logits": logits[0].tolist()}))


if __name__ == "__main__":
    main(
        sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), json.loads(sys.argv[5]), [int(t) for t in sys.argv[6:]]
    )
