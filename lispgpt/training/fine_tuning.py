"""A model's folder or file as what is trained: the package's program for it, by a program in the run's folder."""

from __future__ import annotations

from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.json_files import read_json
from lispgpt.compiler.folders import is_folder, open_weights, program_for
from lispgpt.runtime.checkpoints.huggingface import CONFIG
from lispgpt.runtime.checkpoints.mapped_folder import QUANTIZATION
from lispgpt.training.lora import Lora

PROGRAM = "fine_tuned.lisp"
"""The run's program, in its folder."""
WEIGHT_TYPES = "weight-types"
TEXT = """; {model} learning: its program as it is, with a loss over its logits.
(require "{program}")
(require training)

(training logits)
"""


def write_program(folder: Path, model: Path, lora: Lora | None) -> Path:
    """Write the program that trains a model, or an adapter of it, into a run's folder; UserError where its weights are
    not trained."""
    program = program_for(model)
    if is_folder(model) and read_json(model / CONFIG).get(QUANTIZATION):
        raise UserError(
            f"{model} has quantized weights ({QUANTIZATION}), which are not trained: take the model in BF16"
        )
    blocks = open_weights(model).config.get(WEIGHT_TYPES, {})
    if blocks:
        name, kind = next(iter(blocks.items()))
        raise UserError(f"{model} has weights in blocks ({name} is {kind}), which are not trained: take it in BF16")
    if lora is not None and not is_folder(model):
        raise UserError(f"{model} is no Hugging Face folder, and --lora trains adapters of such")
    text = TEXT.format(model=model.name, program=program) if lora is None else lora.program(model)
    path = folder / PROGRAM
    with replacing(path) as file:
        file.write(text.encode())
    return path
