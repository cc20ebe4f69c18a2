"""The sizes of known models, and how the programs that come with the package are compiled at them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from lispgpt.base.dtypes import BLOCK_DTYPES
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.compiler.folders import PROGRAMS, programs
from lispgpt.runtime.plan.artifact import Artifact

HERE = Path(__file__).resolve().parent
LAYERS, CONTEXT = 2, 1024
"""Of each model here: enough for kernels of a first layer, of others and of what is behind the last."""
NAMES = {
    "vocabulary": "vocab", "heads": "heads", "kv_heads": "kv-heads", "width": "width", "hidden": "hidden",
    "head_width": "head-width", "tied": "tied-head", "experts": "experts", "used": "top", "window": "window",
    "state": "states",
}  # fmt: skip
PLAIN = {"gpt2": "gpt2.lisp"}
"""Programs of kinds that are not named after their file."""
GENERATED = "(generate logits {:temperature 0.8 :top-k 50})"
"""What a program is given to generate, where it does not say so itself."""
MUON = "{:groups [{:weights (filter (fn [w] (> (count (weight-shape w)) 2)) (all-weights)) :optimizer muon}]}"
"""Options of `training`: matrices of layers learn by Muon, tables, norms and biases by AdamW."""
TRAINED: Mapping[str, str] = {
    "training": "(training logits)",
    "long-training": "(training logits)",
    "parted-training": "(training logits)",
    "muon-training": f"(training logits {MUON})",
}
"""What a program is given to be trained, by entry."""
ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "two": {"entries": ("decode-greedy",), "batch": 2},
    "eight": {"entries": ("decode-greedy",), "batch": 8},
    "sixty-four": {"entries": ("decode-greedy",), "batch": 64},
    "drawn": {"entries": ("decode-drawn",), "batch": 8},
    "prompt": {"entries": ("prefill",), "longest": 512},
    "training": {"entries": ("train",), "sizes": ({"batch": 4, "length": 128},)},
    "long-training": {"entries": ("train",), "sizes": ({"batch": 8, "length": 1024},)},
    "parted-training": {"entries": ("accumulate", "apply", "evaluate"), "sizes": ({"batch": 2, "length": 256},)},
    "muon-training": {"entries": ("train",), "sizes": ({"batch": 4, "length": 128},)},
}
"""What is compiled of a model.  Steps of several sequences come with the step of one, and prompts in chunks of all
sizes."""
WEIGHTS = ("bf16", *BLOCK_DTYPES)


@cache
def sizes() -> dict[str, dict[str, Any]]:
    """Known models by name."""
    return {each["name"]: each for each in json.loads((HERE / "sizes.json").read_text())}


ODD = "odd-"
"""How names of models begin that nobody has: their sizes are drawn by the seed behind it."""


def size_of(model: str) -> dict[str, Any]:
    """The sizes of a known model, or of an odd one."""
    return odd_sizes(int(model.removeprefix(ODD))) if model.startswith(ODD) else sizes()[model]


@cache
def odd_sizes(seed: int) -> dict[str, Any]:
    """Sizes that no known model has: widths of 1100 to 6000, of any number, or that whole blocks or 8 divide, heads of
    any even number from 40 to 256, and vocabularies of any number."""
    random = Random(seed)
    block = random.choice((1, 1, 8, 32, 64, 128, 256))
    head_width = random.randrange(40, 257, 2 if block == 1 else 8)
    kv_heads, group = random.randint(1, 8), random.randint(1, 6)
    return {
        "kind": random.choice(("llama", "qwen3", "mistral")),
        "width": block * random.randint(-(-1100 // block), 6000 // block),
        "hidden": block * random.randint(-(-1500 // block), 16000 // block), "head_width": head_width,
        "kv_heads": kv_heads, "heads": kv_heads * group, "vocabulary": random.randint(1000, 70000),
        "tied": random.random() < 0.5,
    }  # fmt: skip


def source_of(kind: str) -> Path:
    """The program of a kind of model."""
    return PROGRAMS / PLAIN[kind] if kind in PLAIN else programs()[kind]


def _settings(source: Path) -> set[str]:
    """The names in a program's `config` forms, and in those of what it requires."""
    text = source.read_text(encoding="utf-8")
    found = {name for form in text.split("(config")[1:] for name in re.findall(r"[\w-]+", form.split("\n(", 1)[0])}
    return found.union(*(_settings(source.parent / name) for name in re.findall(r'\(require "(.*?)"\)', text)))


@dataclass(frozen=True)
class Case:
    """A model by its name, a chip, a kind of entry, the type of its weights, and "exact" or "fast"."""

    model: str
    target: str
    entry: str
    weights: str = "bf16"
    precision: str = "exact"

    def __str__(self) -> str:
        return f"{self.model} {self.target} {self.entry} {self.weights} {self.precision}"

    @property
    def kind(self) -> tuple[str, ...]:
        """All but the model."""
        return self.target, self.entry, self.weights, self.precision

    @property
    def command(self) -> str:
        """What runs it by itself."""
        given = f"--models {self.model} --targets {self.target} --entries {self.entry} --weights {self.weights}"
        return f"python tests/real_sizes/run.py {given} --precisions {self.precision}"

    @property
    def is_one(self) -> bool:
        """Whether there is such a thing: training is of weights that are numbers, of models with attention, and
        a CPU's tokens are drawn by the host."""
        if self.entry == "drawn" and self.target == "cpu":
            return False
        return self.entry not in TRAINED or (self.weights == "bf16" and size_of(self.model)["heads"] > 0)

    def request(self, folder: Path) -> Request:
        """folder: where a program may be written."""
        size = size_of(self.model)
        source = source_of(size["kind"])
        text = source.read_text(encoding="utf-8")
        known = _settings(source)
        given = {NAMES[key]: value for key, value in size.items() if key in NAMES and NAMES[key] in known}
        if not given.get("heads", 1):
            given = {name: value for name, value in given.items() if not name.endswith(("heads", "head-width"))}
        given |= {"layers": LAYERS, "context": CONTEXT} | size.get("settings", {})
        given |= {"weight-type": self.weights} if "weight-type" in known else {}
        if "kind" in known and "(kind" not in text:
            given |= {"kind": size["kind"]} if f'"{size["kind"]}"' in text else {}
        trained = [f"(require training)\n{TRAINED[self.entry]}"] if self.entry in TRAINED else []
        more = trained or ([GENERATED] if "(generate" not in text else [])
        program = folder / f"{source.stem}.lisp" if more else source
        if more:
            program.write_text(f'(require "{source}")\n{more[0]}\n')
        return Request(program, self.target, given, precision=self.precision, **ENTRIES[self.entry])

    def compiled(self, folder: Path) -> tuple[Artifact, str]:
        """(what is run, its kernels as they are once each tensor has memory and before any is scheduled)."""
        said: list[str] = []
        observer = Observer(print_after=["destination-passing"], show=said.append)
        artifact, _ = compile_request(self.request(folder), observer)
        return artifact, "\n".join(said)
