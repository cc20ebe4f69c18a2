"""Greedy tokens of Llama-shaped models of the widths that people run, of every type of weights: the CPU's.

Two layers each.  One sequence after another and eight at once, exact and fast, behind prompts of one token and of
hundreds.  Without --slow each width has BF16, and one of the other types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from drawn_weights import drawn_weights
from gpu.chips import Chip
from gpu.decoding import EXAMPLES

from lispgpt.base.dtypes import find_dtype
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import artifact_of
from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model
from lispgpt.runtime.decoding import DRAWN, GREEDY

WIDTHS = [
    (576, 9, 3, 64, 1536),
    (896, 14, 2, 64, 4864),
    (1024, 16, 8, 128, 3072),
    (1536, 12, 2, 128, 8960),
    (2048, 32, 8, 64, 8192),
    (2048, 16, 8, 128, 6144),
    (2560, 32, 8, 128, 9728),
    (3072, 24, 8, 128, 8192),
    (4096, 32, 8, 128, 14336),
    (5120, 40, 8, 128, 17408),
]
"""Width, heads, heads of keys and values, a head's width, hidden units: SmolLM2's, Qwen's, Llama's and others'."""
SMALL = [(128, 2, 1, 64, 256), (256, 4, 2, 64, 512)]
"""What an emulated chip has time for, in turn."""
BLOCKS = ("int8", "q8_0", "q4_0", "q4_k")
WAYS = ("exact", "fast", "batch")
NEAR = {"exact": 1e-3, "fast": 2e-2, "batch": 1e-3}
"""How far below the CPU's best logit, beside the largest, another token may be chosen."""
PROMPTS, NEW = (1, 7, 17, 200, 600, 2, 33, 64), 8
PROGRAM = EXAMPLES / "llama_tiny.lisp"


def cases() -> Iterator[Any]:
    """(number of the width, type of weights), those that --slow adds marked; rows are of whole blocks."""
    for number, (width, heads, _, depth, hidden) in enumerate(WIDTHS):
        fit = [kind for kind in BLOCKS if not any(n % find_dtype(kind).block for n in (width, heads * depth, hidden))]
        for kind in ("bf16", *fit):
            usual = kind in ("bf16", fit[number % len(fit)])
            yield pytest.param(number, kind, marks=[] if usual else pytest.mark.slow, id=f"{width}-{depth}-{kind}")


@dataclass(frozen=True)
class Reference:
    """A prompt, the CPU's greedy tokens behind it, and its logits before each of these."""

    prompt: list[int]
    tokens: list[int]
    logits: np.ndarray

    def problem(self, tokens: Sequence[int], near: float) -> str:
        """Where these are no tokens of the model's; "" where they are, or part where two are nearly as probable."""
        for place, (token, own, row) in enumerate(zip(tokens, self.tokens, self.logits, strict=True)):
            if token != own:
                size = np.abs(row).max()
                off = (row.max() - row[token]) / size if 0 <= token < row.size else np.inf
                what = f"prompt of {len(self.prompt)}: token {place} is {token}, the CPU's {own}, {off:.1e} better"
                return "" if off <= near else what
        return ""


class Subject:
    """A model of a width and a type of weights, on the CPU and on the chip; weights and code are made once."""

    def __init__(self, chip: Chip, sizes: tuple[int, ...], kind: str, folder: Path) -> None:
        self.chip, self.about = chip, f"{sizes}, {kind}, weights and prompts of seed {seeded.fresh_seed()}"
        names = ("width", "heads", "kv-heads", "head-size", "hidden")
        more = chip.sized({"layers": 2, "vocab": 32000, "context": 1024}, {"layers": 1, "vocab": 211, "context": 32})
        self.settings = {**dict(zip(names, sizes, strict=True)), "weight-type": kind, **more}
        self.cache = Cache(folder / "cache")
        first = artifact_of(self.request("cpu", entries=(GREEDY,)), cache=self.cache)
        rng = np.random.default_rng(seeded.fresh_seed())
        self.weights = drawn_weights(first.weights, 1.6 / sizes[0] ** 0.5, int(rng.integers(1 << 30)))
        lengths = chip.sized(PROMPTS, (1, 7))
        self.new = chip.sized(NEW, 2)
        prompts = [[int(t) for t in rng.integers(0, more["vocab"], length)] for length in lengths]
        with self.model("cpu", "cpu") as cpu:
            self.references = [self.reference(cpu, prompt) for prompt in prompts]
        self.found: dict[str, list[str]] = {}

    def request(self, target: str, **more: Any) -> Request:
        return Request(PROGRAM, target, self.settings, unneeded=(DRAWN,), **more)

    def model(self, target: str, device: str, **more: Any) -> Model:
        request = self.request(target, unsized=True, **more)
        return Model(request, self.weights, cache=self.cache, device=device)  # type: ignore[arg-type]

    def reference(self, cpu: Model, prompt: list[int]) -> Reference:
        text = cpu.generate(prompt, greedy=True, max_new_tokens=self.new)
        for _ in text:
            continue
        logits = cpu.logits(prompt + text.tokens[:-1])[len(prompt) - 1 :]
        return Reference(prompt, text.tokens, logits)

    def check(self, way: str) -> None:
        """Tokens of all prompts are the CPU's.  What is exact is made by one model, alone and at once."""
        if way not in self.found:
            self._run("fast" if way == "fast" else "exact")
        assert not self.found[way], f"{self.about}, {way}: {'; '.join(self.found[way])}"

    def _run(self, precision: str) -> None:
        prompts = [reference.prompt for reference in self.references]
        options: dict[str, Any] = {"greedy": True, "max_new_tokens": self.new}
        more = {"precision": precision} | ({} if precision == "fast" else {"batch": len(prompts)})
        with self.model(self.chip.target, self.chip.device, **more) as model:
            texts = [model.generate(prompt, **options) for prompt in prompts]
            self.found[precision] = self._problems([[*text] and text.tokens for text in texts], precision)
            if precision == "exact":
                texts = model.generate_batch(prompts, batch=len(prompts), **options)
                self.found["batch"] = self._problems([text.tokens for text in texts], "batch")

    def _problems(self, found: Sequence[Sequence[int]], way: str) -> list[str]:
        pairs = zip(self.references, found, strict=True)
        return [problem for reference, tokens in pairs if (problem := reference.problem(tokens, NEAR[way]))]


@pytest.fixture(scope="module")
def subjects(chip: Chip, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[tuple[int, str], Subject]]:
    """The last one, which the three ways share: together they would fill the memory."""
    yield {}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("number", "kind"), list(cases()))
def test_tokens_of_real_widths_are_the_cpus(
    number: int,
    kind: str,
    way: str,
    chip: Chip,
    subjects: dict[tuple[int, str], Subject],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    key = number, kind
    if key not in subjects:
        subjects.clear()
        sizes = chip.sized(WIDTHS, SMALL * len(WIDTHS))[number]
        if find_dtype(kind).block == 256:
            sizes = chip.sized(sizes, SMALL[1])
        subjects[key] = Subject(chip, sizes, kind, tmp_path_factory.mktemp("widths"))
    subjects[key].check(way)
