"""A run of several devices, begun by a process that has not used a driver yet: `python several_devices.py JSON`.

The JSON has `train`, what `lispgpt.train` is given, and where they are wanted `late` (every step waits for the one
ahead of it), `dies_at` (the step before which device 1 is killed) and `pipelines` (a folder in place of the own).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import lispgpt
from lispgpt.pipelines import pipeline_file
from lispgpt.runtime.training.trainer import Trainer


def main() -> int:
    given = json.loads(sys.argv[1])
    if given.get("late"):
        Trainer.runs_ahead = property(lambda self: False)  # type: ignore[assignment, method-assign]
    if given.get("pipelines"):
        pipeline_file.PIPELINES = Path(given["pipelines"])
    take, dies_at = Trainer.step, given.get("dies_at")

    def step(self: Trainer, number: int, more: bool = False) -> dict[str, float]:
        if number == dies_at and self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return take(self, number, more)

    Trainer.step = step  # type: ignore[method-assign]
    try:
        lispgpt.train(**given["train"])
    except lispgpt.UserError as error:
        print(error.render(), file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
