"""Small models whose decode step is shared among clusters in one launch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from changed_pipelines import changed_pipeline
from compiled_models import Weights, random_weights

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.arrays import as_stored
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
GPT2 = {"layers": 2, "heads": 2, "width": 128, "vocab": 211, "context": 64}
CLEAR = 1e-3
"""How much larger the largest logit is than the next, beside the largest in size."""
LLAMA = {"layers": 3, "heads": 4, "kv-heads": 2, "width": 128, "hidden": 256, "vocab": 211, "context": 16}


def compiled(
    folder: Path,
    target: str,
    clusters: int = 2,
    program: str = "gpt2.lisp",
    entry: str = "decode-greedy",
    options: str = "",
    batch: int = 1,
    **config: int | str,
) -> Artifact:
    path = folder / "program.lisp"
    text = (EXAMPLES / program).read_text()
    path.write_text(
        f'(require "{EXAMPLES / program}")\n' + ("" if "(generate" in text else "(generate logits {:temperature 0.0})")
    )
    given = changed_pipeline(folder, {"split-decode": f':when "always" :clusters {clusters} {options}'})
    sizes = GPT2 if program == "gpt2.lisp" else LLAMA
    request = Request(
        path, target, overrides={**sizes, **config}, pipeline=None if target == "cpu" else given,
        entries=(entry,), sizes=({"batch": batch, "positions": 1},) if batch > 1 else (),
    )  # fmt: skip
    return compile_request(request, Observer())[0]


def fill_cache(session: Session, seed: int) -> None:
    """Random keys and values, the same for each artifact of a model."""
    rng = np.random.default_rng(seed)
    for buffer in session.artifact.plan.buffers:
        if buffer.kind == "state":
            session.write(buffer.name, as_stored(rng.normal(size=buffer.shape), buffer, buffer.name))


def by_cpu(
    artifact: Artifact, weights: Weights, start: int, count: int, cached: int | None = None
) -> tuple[list[int], np.ndarray]:
    """The tokens that follow number 3 at a position, and the last step's logits; cached: a seed for what is there."""
    steps = list(_steps(artifact, weights, start, count, cached))
    return [token for token, _ in steps], steps[-1][1]


def clear_weights(artifact: Artifact, seed: int, start: int, count: int, cached: bool = False) -> tuple[Weights, int]:
    """Random weights by whose logits the CPU's tokens are clear, and their seed: the given one or one behind it.
    cached: with keys and values of that seed."""
    while True:
        weights = random_weights(artifact, scale=0.2, seed=seed)
        ranked = [np.sort(logits) for _, logits in _steps(artifact, weights, start, count, seed if cached else None)]
        if all(row[-1] - row[-2] > CLEAR * max(abs(row[0]), abs(row[-1])) for row in ranked):
            return weights, seed
        seed += 1


def _steps(
    artifact: Artifact, weights: Weights, start: int, count: int, cached: int | None
) -> Iterator[tuple[int, np.ndarray]]:
    """Each one's token and logits."""
    with Session(artifact, CpuDevice(), weights) as session:  # type: ignore[arg-type]
        if cached is not None:
            fill_cache(session, cached)
        token = 3
        for position in range(start, start + count):
            found = session.run("decode-greedy", [[token]], [[position]])
            token = int(found["next"].item())
            yield token, found["logits"][0][: artifact.config["vocab"]].copy()
