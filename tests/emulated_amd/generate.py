"""Generate with artifacts on emulated AMD GPUs, through hip-python: generate.py JOBS.json

JOBS.json is a list of objects: chip, artifact, checkpoint, prompt (token ids), count, sampling (make_sampler's options,
or null for greedy decoding).  Prints a list of objects: device, tokens, the last step's logits, whether the
chip chose the tokens, or fault.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.runtime import checkpoints
from lispgpt.runtime.devices.amd_emulator.stand_in import StandIn
from lispgpt.runtime.devices.rocm import HipDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.artifact import load_artifact
from lispgpt.runtime.samplers import make_sampler
from lispgpt.runtime.session import Session


def run(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    stand_in = StandIn(job["chip"], folder)
    device, drawn = HipDevice(), job["sampling"] is not None
    try:
        with Session(
            load_artifact(Path(job["artifact"])), device, checkpoints.open(Path(job["checkpoint"]))
        ) as session:
            generator = Generator(session, "logits", make_sampler(**job["sampling"]) if drawn else None)
            tokens = list(generator.generate(job["prompt"], job["count"]))
            entry = session.entry("decode-drawn" if drawn else "decode-greedy")
            logits = session.read(entry.results["logits"])[0].tolist()
            on_device = generator.decoder() is entry
    except UserError as error:
        return {"fault": f"{error}: {stand_in.fault}"}
    return {"device": device.name, "tokens": tokens, "logits": logits, "on_device": on_device}


def main(jobs: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps([run(job, Path(folder)) for job in json.loads(Path(jobs).read_text())]))


if __name__ == "__main__":
    main(sys.argv[1])
