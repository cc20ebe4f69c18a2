"""The sizes of known models, and how the programs that come with the package are compiled at them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.compiler.folders import PROGRAMS, programs
from lispgpt.runtime.plan.artifact import Artifact

HERE = Path(__file__).resolve().parent
LAYERS, CONTEXT = 2, 128
"""Of each model here: enough for kernels of a first layer, of others and of what is behind the last."""
NAMES = {
    "vocabulary": "vocab", "heads": "heads", "kv_heads": "kv-heads", "width": "width", "hidden": "hidden",
    "head_width": "head-width", "tied": "tied-head", "experts": "experts", "used": "top", "window": "window",
    "state": "states",
}  # fmt: skip
PLAIN = {"gpt2": "gpt2.lisp"}
"""Programs of kinds that are not named after their file."""
ENTRIES: Mapping[str, Mapping[str, Any]] = {
    "one": {"entries": ("decode-greedy",)},
    "drawn": {"entries": ("decode-drawn",)},
    "two": {"entries": ("decode-greedy",), "batch": 2},
    "eight": {"entries": ("decode-greedy",), "batch": 8},
    "sixty-four": {"entries": ("decode-greedy",), "batch": 64},
    "prompt": {"entries": ("prefill",), "longest": 64},
}
WEIGHTS = ("bf16", "int8", "q8_0", "q4_0", "q4_k")


@cache
def sizes() -> dict[str, dict[str, Any]]:
    """Known models by name."""
    return {each["name"]: each for each in json.loads((HERE / "sizes.json").read_text())}


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

    def request(self, folder: Path) -> Request:
        """folder: where a program may be written."""
        size = sizes()[self.model]
        source = PROGRAMS / PLAIN[size["kind"]] if size["kind"] in PLAIN else programs()[size["kind"]]
        text = source.read_text(encoding="utf-8")
        known = set(re.findall(r"[\w-]+", text[text.index("(config") :].split("\n(", 1)[0]))
        given = {NAMES[key]: value for key, value in size.items() if key in NAMES and NAMES[key] in known}
        if not given.get("heads", 1):
            given = {name: value for name, value in given.items() if not name.endswith(("heads", "head-width"))}
        given |= {"layers": LAYERS, "context": CONTEXT, "weight-type": self.weights}
        if "kind" in known and "(kind" not in text:
            given |= {"kind": size["kind"]} if f'"{size["kind"]}"' in text else {}
        program = source
        if "(generate" not in text:
            program = folder / f"{source.stem}.lisp"
            program.write_text(f'(require "{source}")\n(generate logits {{:temperature 0.8 :top-k 50}})\n')
        return Request(program, self.target, given, precision=self.precision, **ENTRIES[self.entry])

    def compiled(self, folder: Path) -> tuple[Artifact, str]:
        """(what is run, its kernels as they are once each tensor has memory and before any is scheduled)."""
        said: list[str] = []
        observer = Observer(print_after=["destination-passing"], show=said.append)
        artifact, _ = compile_request(self.request(folder), observer)
        return artifact, "\n".join(said)
