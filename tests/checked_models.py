"""A model on a chip that `lispgpt check` looks at, with faults planted in its kernels that change what it says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from planted import Fault, kernels_of, plant

from lispgpt.checking import check as checks
from lispgpt.checking.check import Checked, Found, check
from lispgpt.checking.words import told
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import Counterpart, artifact_of, counterpart_of
from lispgpt.compiler.request import Request
from lispgpt.execution import model as models
from lispgpt.runtime.decoding import GREEDY
from lispgpt.runtime.devices import open_device
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

LOUD = 1e-2
"""How far off logits are, beside the largest, where a planted fault counts: many that change an instruction change
nothing that matters."""
PROMPT = [3, 14]


class Subject:
    """A decode step of random weights.  device: what the target's is called.  request: more that a Request takes."""

    def __init__(self, target: str, device: str, program: Path, folder: Path, **request: Any) -> None:
        self.target, self.device, self.seed = target, device, seeded.fresh_seed()
        made = Request(program, target, entries=(GREEDY,), **request)
        self.artifact, self.cache = artifact_of(made), Cache(folder)
        self.weights = random_weights(self.artifact, 0.15, self.seed)
        self.checked = Checked(made, self.weights, device, cache=self.cache)  # type: ignore[arg-type]

    def check(
        self, artifact: Artifact, as_one: bool = False, on_cpu: Callable[[Artifact], Artifact] = lambda made: made
    ) -> Found:
        """What a check finds where the compiler makes this artifact of the model; as_one: where a step is a launch;
        on_cpu: what becomes of those for the CPU."""

        def made(request: Request, *more: Any) -> Artifact:
            here = request.target == self.target and not (as_one and request.apart)
            found = artifact if here else artifact_of(request, *more)
            return on_cpu(found) if request.target == "cpu" else found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(models, "artifact_of", made)
            return check(self.checked, PROMPT, 2, False, "", lambda _: None)

    def told(self, found: Found) -> str:
        return told(found, len(PROMPT), self.target, self.checked.request.program, "again")

    def logits(self, artifact: Artifact) -> np.ndarray:
        with Session(artifact, open_device(self.device), self.weights) as session:  # type: ignore[arg-type]
            return session.run(GREEDY, [[PROMPT[0]]], [[0]])["logits"]

    def planted(self, kernel: str = "") -> tuple[Fault, str]:
        """A fault that is heard in the logits, in one of the kernels or in this one, and what to say of it."""
        rng, right = seeded.rng(), self.logits(self.artifact)
        names = [kernel] if kernel else kernels_of(self.artifact)
        while True:
            fault = plant(self.artifact, str(rng.choice(names)), rng)
            off = np.abs(self.logits(fault.artifact) - right).max() / np.abs(right).max()
            if not off <= LOUD:
                return fault, f"{fault.what} in {fault.kernel}, logits off by {off:.1e}, weights of seed {self.seed}"


@contextmanager
def counterparts_once() -> Iterator[None]:
    """Within this, what a chip's kernels are compared with is compiled once for each request."""
    known: dict[str, Counterpart] = {}

    def made_once(request: Request) -> Counterpart:
        if str(request) not in known:
            known[str(request)] = counterpart_of(request)
        return known[str(request)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checks, "counterpart_of", made_once)
        yield


def check_found(subject: Subject) -> None:
    """A planted fault is found by its kernel's name, which stands in the first line about kernels with its form."""
    fault, about = subject.planted()
    found = subject.check(fault.artifact)
    assert found.wrong and found.wrong[0].launch.kernel == fault.kernel, about
    assert found.cpu_right and found.exact is not None and found.exact > LOUD / 10, about
    said = subject.told(found)
    assert f"the first kernel that is wrong: {fault.kernel}@gpt2.lisp:" in said, f"{about}\n{said}"
    assert f"again: again --kernel {fault.kernel}" in said, said


def check_one_launch_found(subject: Subject) -> None:
    """A fault in the one launch of a step is that launch's, and its kernels are right as launches of their own."""
    step = subject.artifact.plan.entries[0].launches[0]
    fault, about = subject.planted(step.kernel)
    found = subject.check(fault.artifact, as_one=True)
    assert found.as_one is not None and found.parted is None and not found.wrong, about
    said = subject.told(found)
    assert "where a step is one launch" in said and f"it is the one launch that is wrong, {step.kernel}" in said, said
