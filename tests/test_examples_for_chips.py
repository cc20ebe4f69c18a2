"""Every model among the examples, at small sizes, as code for an AMD and an NVIDIA chip; `--slow` makes all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import recorded_folders
import seeded

import lispgpt
from lispgpt.compiler.folders import programs
from lispgpt.runtime.plan import flow

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
CHIPS = ("rocm:gfx1151", "cuda:sm_90a")
GPT2 = {"vocab": 90, "context": 24, "layers": 2, "heads": 3, "width": 48}
TEXTS = [{"batch": 2, "length": 24}]
SHAPES = {"gpt2_train": TEXTS, "hipgpt_train": TEXTS, "classifier_train": [{"batch": 5}]}
SETTINGS: dict[str, dict[str, Any]] = {
    "alibi": {"vocab": 90, "context": 24, "heads": 2, "width": 40, "hidden": 50},
    "classifier": {"hidden": 70, "classes": 7},
    "classifier_train": {},
    "experts": {"width": 32, "hidden": 40, "experts": 6, "top": 3},
    "gpt2": GPT2,
    "gpt2_train": GPT2 | {"activation-type": "bf16", "dropout-rate": 0.1},
    "hipgpt_train": {"vocab": 90, "context": 24, "heads": 2, "width": 32, "hidden": 48},
    "my_layers": {"vocab": 90, "context": 40},
    "recurrence": {"vocab": 90, "width": 24, "hidden": 40},
    "sliding_window": {"vocab": 90, "window": 7, "heads": 2, "width": 32, "hidden": 50},
}
"""Of those that are for no folder of Hugging Face's."""
FOLDERS = {programs()[f.config["model_type"]].stem: f for f in recorded_folders.folders() if f.dtype == "bf16"}
EVERY = [(name, chip) for name in sorted({*SETTINGS, *FOLDERS}) for chip in CHIPS]


def check(name: str, chip: str, folder: Path) -> None:
    """It compiles, its code has every kernel that an entry launches, and what these read is written before."""
    if name in FOLDERS:
        artifact = lispgpt.compile(FOLDERS[name].write(folder / name), target=chip)
    else:
        program = EXAMPLES / f"{name}.lisp"
        artifact = lispgpt.compile(program, target=chip, settings=SETTINGS[name], shapes=SHAPES.get(name, []))
    launched = {step.kernel for entry in artifact.plan.entries for step in entry.launches}
    missing = [kernel for kernel in launched if kernel.encode() not in artifact.code]
    assert launched and not missing, f"{name} for {chip}: {missing}"
    buffers = {buffer.name: buffer for buffer in artifact.plan.buffers}
    for entry in artifact.plan.entries:
        flow.check(entry, buffers)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "chip"), EVERY, ids=[f"{name}-{chip}" for name, chip in EVERY])
def test_it_compiles(name: str, chip: str, tmp_path: Path) -> None:
    check(name, chip, tmp_path)


def test_some_of_them_compile(tmp_path: Path) -> None:
    """One for each chip, another each time."""
    for chip in CHIPS:
        check(str(seeded.rng().choice(sorted({name for name, _ in EVERY}))), chip, tmp_path / chip)


def test_every_example_of_a_model_is_among_them() -> None:
    models = {
        path.stem
        for path in EXAMPLES.glob("*.lisp")
        if "(entry " in path.read_text() or "(training " in path.read_text()
    }
    known = {name for name, _ in EVERY} | {"gpt2_generate"}
    assert models <= known and known - models <= {"gpt2_generate"}
