"""Kernels written in Lisp, compiled for AMD GPUs and run on an instruction emulator, against float64."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from kernels.test_hand_kernels import PROGRAM, VOCAB, expected

from lispgpt.driver import Observer, Request, compile_request

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parent.parent.parent / "shared" / "tools"
TINYGRAD = Path(os.environ.get("TINYGRAD_DIR", ""))
EMULATED = (TINYGRAD / "test" / "mockgpu" / "amd" / "emu.py").is_file() and (TOOLS / "emulate_amdgpu.py").is_file()

pytestmark = [
    pytest.mark.emulator,
    pytest.mark.slow,
    pytest.mark.skipif(not EMULATED or find_spec("elftools") is None, reason="needs TINYGRAD_DIR and pyelftools"),
]


def run_entries(
    chip: str, artifact: Path, entries: list[str], values: dict[str, np.ndarray], folder: Path
) -> dict[str, np.ndarray]:
    """The entries' first results as float32, from tokens, weights and states by name."""
    np.savez(folder / "given.npz", **values)
    clang = folder / "clang"
    clang.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang clang "$@"\n')
    clang.chmod(0o700)
    (TINYGRAD / "test" / "__init__.py").touch()
    paths = {"PYTHONPATH": os.pathsep.join([str(TOOLS), *sys.path]), "CC": shutil.which("clang") or str(clang)}
    path = f"{os.environ['PATH']}{os.pathsep}{folder}"
    command = [
        sys.executable,
        str(HERE / "run_entry.py"),
        chip,
        str(artifact),
        str(folder / "given.npz"),
        str(folder / "out.npz"),
        *entries,
    ]
    ran = subprocess.run(
        command, env={**os.environ, **paths, "PATH": path}, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return {name: found.view(np.float32) for name, found in np.load(folder / "out.npz").items()}


@pytest.mark.parametrize(
    ("chip", "entries"),
    [
        ("gfx942", ["softmax-by-hand", "norm-by-hand", "linear-by-hand", "vectors-by-hand", "chain"]),
        ("gfx1151", ["norm-by-hand", "linear-by-hand"]),  # the emulator lacks the comparisons across lanes of softmax
    ],
)
def test_values(chip: str, entries: list[str], tmp_path: Path) -> None:
    program = tmp_path / "layers.lisp"
    program.write_text(PROGRAM)
    artifact, _ = compile_request(Request(program, target=f"rocm:{chip}"), Observer())
    artifact.save(tmp_path / "layers.lgpt")
    weights = random_weights(artifact)
    tokens = seeded.rng().integers(0, VOCAB, 16).astype(np.int32)
    values = {"tokens": tokens, **{name: weights.view(name) for name in weights.names()}}
    found = run_entries(chip, tmp_path / "layers.lgpt", entries, values, tmp_path)
    for entry in entries:
        right = expected(weights, tokens)[entry.partition("-by-")[0]]
        np.testing.assert_allclose(found[entry].reshape(right.shape), right, rtol=2e-5, atol=2e-5, err_msg=entry)
