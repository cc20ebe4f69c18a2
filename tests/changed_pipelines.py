"""The GPUs' pipeline with other options for some of its passes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lispgpt.pipelines.pipeline_file import pipeline_path


def changed_pipeline(folder: Path, options: Mapping[str, str]) -> Path:
    """A file of it.  options: by the names of passes that stand there once, without options."""
    text = pipeline_path("gpu").read_text()
    for name, given in options.items():
        call = f"(pass {name})"
        assert text.count(call) == 1, call
        text = text.replace(call, f"(pass {name} {{{given}}})")
    path = folder / "gpu.lisp"
    path.write_text(text)
    return path
