"""Small models whose greedy decode step is made one launch."""

from __future__ import annotations

from pathlib import Path

from changed_pipelines import changed_pipeline

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.plan.artifact import Artifact

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
MODELS = {
    "gpt2": ("gpt2.lisp", {"layers": 3, "heads": 4, "width": 64, "vocab": 211, "context": 16}),
    "llama": (
        "llama_tiny.lisp",
        {"layers": 3, "heads": 4, "kv-heads": 2, "width": 64, "hidden": 96, "vocab": 211, "context": 16},
    ),
    "recurrence": ("recurrence.lisp", {"layers": 3, "width": 64, "hidden": 96, "vocab": 211, "context": 16}),
}
"""Each with layers enough for rounds of a loop that are not alike."""


def pipeline(folder: Path, options: str) -> Path:
    """The GPUs' pipeline with options for one-launch, and no clusters that share a step."""
    return changed_pipeline(folder, {"one-launch": options, "shard-decode": ':when "never"'})


def compiled(
    model: str,
    target: str,
    folder: Path,
    options: str = ':when "always" :workers 8',
    **settings: int,
) -> Artifact:
    """A model's greedy decode step, made of one launch where the target is a GPU.  settings: other config values."""
    name, usual = MODELS[model]
    program = folder / "program.lisp"
    text = f'(require "{EXAMPLES / name}")\n'
    text += "" if "(generate" in (EXAMPLES / name).read_text() else "(generate logits {:temperature 0.0})"
    program.write_text(text)
    given = None if target == "cpu" else pipeline(folder, options)
    request = Request(program, target, overrides={**usual, **settings}, pipeline=given, entries=("decode-greedy",))
    return compile_request(request, Observer())[0]
