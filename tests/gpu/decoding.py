"""Models' greedy decode steps: in every form that they have on a GPU, beside the CPU's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from changed_pipelines import changed_pipeline
from compiled_models import Weights
from gpu.chips import Chip
from gpu.models import loud_weights

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.decoding import GREEDY
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FIRST = 3
"""The token that texts here begin with."""
NEAR = 1e-3
"""How far logits may be from the CPU's, beside the largest, and so how far a chosen one below its best."""

REAL = {"layers": 3, "heads": 4, "width": 256, "vocab": 1000, "context": 256}
EMULATED = {"layers": 1, "heads": 2, "width": 128, "vocab": 211, "context": 32}
GROUPED, EXPERTS = {"kv-heads": 2, "hidden": 512}, {"kv-heads": 2, "hidden": 128, "experts": 6}
MODELS: dict[str, tuple[str, dict[str, int | str], dict[str, int | str]]] = {
    "gpt2": ("gpt2.lisp", {}, {}),
    "llama": ("llama_tiny.lisp", GROUPED, {"hidden": 256, "kv-heads": 1}),
    "gpt2, int8": ("gpt2.lisp", {"weight-type": "int8"}, {"weight-type": "int8"}),
    "gpt2, q8_0": ("gpt2.lisp", {"weight-type": "q8_0"}, {"weight-type": "q8_0"}),
    "experts": ("mixtral.lisp", EXPERTS, {"hidden": 64, "kv-heads": 1, "experts": 3}),
    "window": ("mistral.lisp", GROUPED | {"window": 40}, {"hidden": 128, "kv-heads": 1, "window": 3}),
    "alibi": ("alibi.lisp", {}, {"hidden": 128}),
    "recurrence": ("recurrence.lisp", {"hidden": 384}, {"hidden": 160}),
    "mamba": ("mamba.lisp", {}, {}),
}
"""The program, and config values on a real chip and on an emulated one, beside REAL and EMULATED."""
UNKNOWN = {"recurrence.lisp": {"heads"}, "mamba.lisp": {"heads"}}
"""Config values that a program has not."""


@dataclass(frozen=True)
class Form:
    """passes: their options.  runs: of a step in one launch, at most; 0: as many as the device takes.  graphs: whether
    a step is one graph, and not as many as it has kernels."""

    passes: Mapping[str, str] = field(default_factory=dict)
    runs: int = 0
    graphs: bool = True


APART = {"split-decode": ':when "never"'}
FORMS = {
    "launches apart": Form(APART, 1, graphs=False),
    "graph": Form(APART, 1),
    "several in a graph": Form(APART),
    "shared by clusters": Form({"split-decode": ':when "always"'}),
}
FEW_BLOCKS = {"split-decode": " :clusters 2"}
"""What an emulated chip has time for."""


def compiled(
    chip: Chip,
    model: str,
    folder: Path,
    form: Form | None = None,
    entry: str = GREEDY,
    texts: int = 1,
    **settings: int | str,
) -> Artifact:
    """A model's decode step: for the chip in a form, or for the CPU.  settings: config values with dashes as
    underscores."""
    name, real, emulated = MODELS[model]
    sizes: dict[str, Any] = chip.sized({**REAL, **real}, {**EMULATED, **emulated})
    sizes |= {key.replace("_", "-"): value for key, value in settings.items()}
    sizes = {key: value for key, value in sizes.items() if key not in UNKNOWN.get(name, ())}
    text = (EXAMPLES / name).read_text()
    program = folder / "program.lisp"
    program.write_text(
        f'(require "{EXAMPLES / name}")\n' + ("" if "(generate" in text else "(generate logits {:greedy true})")
    )
    pipeline = None
    if form is not None:
        few = chip.sized({}, FEW_BLOCKS)
        always = {pass_: "always" in text for pass_, text in form.passes.items()}
        given = {p: text + few.get(p, "") * always[p] for p, text in form.passes.items()}
        pipeline = changed_pipeline(folder, given)
    target = "cpu" if form is None else chip.target
    request = Request(program, target, overrides=sizes, pipeline=pipeline, entries=(entry,),
                      sizes=({"batch": texts, "positions": 1},) if texts > 1 else ())  # fmt: skip
    return compile_request(request, Observer())[0]


def opened(chip: Chip, artifact: Artifact, weights: Weights, form: Form) -> Session:
    """A session on the chip; skips where an artifact is not of the form, and says what the compiler said."""
    (entry,) = artifact.plan.entries
    if "always" in str(form.passes) and not any(facts.get("persistent") for facts in artifact.kernels.values()):
        pytest.skip("; ".join(entry.remarks) or f"{chip.target} has no such launch")
    device = chip.open()
    device.most_runs = form.runs or device.most_runs
    return Session(artifact, device, weights)  # type: ignore[arg-type]


def decode(session: Session, form: Form, count: int, start: int = 0) -> tuple[list[int], np.ndarray]:
    """The tokens that follow FIRST at a position, and the last step's logits; states are zeros before."""
    (entry,) = session.artifact.plan.entries
    session.forget()
    session.put(entry, {"tokens": [[FIRST]], "positions": [[start]]})
    if form.graphs:
        tokens = [int(found.item()) for found in session.repeat(entry, "next", count)]
    else:
        tokens = _apart(session, entry, count)
    return tokens, session.read(entry.results["logits"])[0].copy()


def decode_texts(session: Session, starts: Sequence[int], count: int) -> tuple[list[list[int]], np.ndarray]:
    """The same of a text for each position, together: each text's tokens, and all texts' last logits."""
    (entry,) = session.artifact.plan.entries
    session.forget()
    session.put(entry, {"tokens": [[FIRST]] * len(starts), "positions": [[start] for start in starts]})
    runs = [found.reshape(-1).tolist() for found in session.repeat(entry, "next", count)]
    return [list(text) for text in zip(*runs, strict=True)], session.read(entry.results["logits"]).copy()


def _apart(session: Session, entry: Entry, count: int) -> list[int]:
    """By launches that nothing binds to each other."""
    made = [session.prepare(replace(entry, steps=(launch,))) for launch in entry.launches]
    tokens = []
    for _ in range(count):
        for launch in made:
            session.device.launch(launch)
        tokens.append(int(session.result(entry, "next").item()))
    return tokens


class Reference:
    """A model on the CPU, on weights of its own; also for other chips.  about: how to repeat it."""

    def __init__(self, chip: Chip, model: str, folder: Path, **settings: int | str) -> None:
        self.artifact = compiled(chip, model, folder, **settings)
        seed = seeded.fresh_seed()
        self.weights, self.about = loud_weights(self.artifact, seed), f"{model}, seed {seed}"
        self.vocab = int(self.artifact.config["vocab"])

    def check(self, tokens: Sequence[int], logits: np.ndarray, start: int = 0, near: float = NEAR) -> None:
        """Every token is the CPU's after those before it, or as good as that, and the last step's logits are the
        CPU's, on one thread: several would wait for each other at each of a step's launches, a slice of time for any
        whose core another process has."""
        with Session(self.artifact, CpuDevice(1), self.weights) as session:  # type: ignore[arg-type]
            for number, (before, token) in enumerate(zip([FIRST, *tokens], tokens, strict=False)):
                found = session.run(GREEDY, [[before]], [[start + number]])
                own = found["logits"][0][: self.vocab]
                size, about = np.abs(own).max(), f"{self.about}, token {number} of {list(tokens)}"
                assert 0 <= token < self.vocab, about
                assert own[token] >= own.max() - near * size, f"{about}: the CPU's is {own.argmax()}"
        np.testing.assert_allclose(logits[: self.vocab], own, rtol=0, atol=near * size, err_msg=self.about)


class References:
    """Models on the CPU, each made once."""

    def __init__(self, chip: Chip, folder: Path) -> None:
        self._chip, self._folder, self._made = chip, folder, dict[str, Reference]()

    def of(self, model: str, **settings: int | str) -> Reference:
        key = f"{model} {settings}"
        if key not in self._made:
            self._made[key] = Reference(self._chip, model, self._folder, **settings)
        return self._made[key]
