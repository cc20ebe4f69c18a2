"""Machine code that several processes make is that of one, kernel by kernel; failures in any of them reach the user.

Where ptxas is installed an artifact also has the chip's own code.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from compiled_models import open_poisoned, random_weights, step
from emulated_amd.running import run_entries

from lispgpt.base.elf import elf_files
from lispgpt.base.errors import InternalError
from lispgpt.compiler.driver import Observer, Request, compile_request, evaluate_request
from lispgpt.compiler.kernel_code import kernel_shares, make_code, split_at_plan
from lispgpt.compiler.runners import runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import kernel_functions
from lispgpt.passes import pipeline
from lispgpt.passes.base import Pass
from lispgpt.passes.targets import Target, find_target
from lispgpt.passes.targets.binary import find_ptxas
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline
from lispgpt.runtime.plan.artifact import Artifact, load_artifact


@pytest.fixture(autouse=True)
def _processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as users have."""
    monkeypatch.setattr("lispgpt.compiler.kernel_code.MOST_PROCESSES", 16)


MODEL = """(require nn)
(config vocab 48 context 8 width 32)
(weights (table [vocab width] bf16) (w [width width] bf16) (b [width]))
(entry logits [tokens positions]
  (let [x (last (gelu (linear (softmax (rows table tokens)) w b)))]
    (matmul-transposed x table)))
"""


def planned(folder: Path) -> tuple[ir.Module, pipeline.Pipeline, Target]:
    """A module with its plan, in the active context, and what comes next."""
    (folder / "model.lisp").write_text(MODEL)
    target = find_target("cuda:sm_90")
    whole = read_pipeline(pipeline_path("gpu"))
    first, rest = split_at_plan(whole)
    assert (*first.calls, *rest.calls) == whole.calls and first.calls[-1].name == "emit-plan"
    module = evaluate_request(Request(folder / "model.lisp", "cuda:sm_90")).module
    with ir.Location.unknown():
        runner_for(target).run(module, first)
    return module, rest, target


def bodies(code: bytes) -> dict[str, str]:
    """PTX of each kernel by its name, without the numbers of labels, which count over all of a module."""
    found = re.findall(r"\.entry (\w+)\((.*?)^}$", code.decode(), re.MULTILINE | re.DOTALL)
    return {name: re.sub(r"\$L__BB\d+", "$L__BB", body) for name, body in found}


def test_processes_make_the_code_that_one_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lispgpt.compiler.kernel_code.SMALLEST_SHARE", 20)
    codes = []
    for processes in (1, 3):
        with new_context():
            codes.append(make_code(*planned(tmp_path), processes=processes).code)
    alone, joined = map(bodies, codes)
    assert codes[0].count(b".version") == 1 < codes[1].count(b".version") <= 3
    assert alone == joined and len(alone) >= 2


def first_results(artifact: Artifact) -> np.ndarray:
    """For one token, of weights that are always the same."""
    weights = random_weights(artifact, seed=5)
    if artifact.target == "cpu":
        return step(open_poisoned(artifact, weights), [3], [0])["logits"]
    values = {name: weights.view(name) for name in weights.names()}
    return run_entries(artifact, ["logits"], {**values, "tokens": np.array([3], np.int32)})["logits"]


@pytest.mark.parametrize("target", ["cpu", "rocm:gfx1151"])
def test_linked_or_apart_kernels_do_the_same(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.lisp").write_text(MODEL)
    alone, _ = compile_request(Request(tmp_path / "model.lisp", target), Observer())
    monkeypatch.setattr("lispgpt.compiler.kernel_code.SMALLEST_SHARE", 20)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    apart, _ = compile_request(Request(tmp_path / "model.lisp", target), Observer())
    assert apart.kernels == alone.kernels
    assert (len(elf_files(alone.code)), len(elf_files(apart.code))) == (1, 1 if target == "cpu" else 2)
    made = first_results(alone)
    assert np.isfinite(made).all() and np.array_equal(made, first_results(apart))


def test_every_kernel_is_in_one_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lispgpt.compiler.kernel_code.SMALLEST_SHARE", 20)
    with new_context():
        module, _, _ = planned(tmp_path)
        names = [ir.StringAttr(k.attributes["sym_name"]).value for k in kernel_functions(module)]
        for most in (1, 2, 3, 50):
            shares = kernel_shares(module, most)
            assert len(shares) <= most
            assert sorted(name for share in shares for name in share) == sorted(names)


class Failing(Pass):
    name: ClassVar[str] = "failing"

    def run(self, module: ir.Module, target: Any) -> None:
        raise InternalError(f"{len(kernel_functions(module))} kernels are too many")


def test_a_failure_in_a_process_is_the_compilers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lispgpt.compiler.kernel_code.SMALLEST_SHARE", 20)
    find = pipeline.find_pass
    monkeypatch.setattr(pipeline, "find_pass", lambda name: Failing if name == "failing" else find(name))
    with new_context():
        module, rest, target = planned(tmp_path)
        broken = pipeline.Pipeline("x", (pipeline.Stage("x", (pipeline.PassCall("failing"), *rest.calls)),))
        with pytest.raises(InternalError, match=r"pass failing.* kernels are too many"):
            make_code(module, broken, target, processes=2)


def test_what_is_watched_is_one_module(tmp_path: Path) -> None:
    (tmp_path / "model.lisp").write_text(MODEL)
    artifact, _ = compile_request(Request(tmp_path / "model.lisp", "cuda:sm_90"), Observer(tmp_path / "dumps"))
    assert artifact.code.count(b".version") == 1
    assert (tmp_path / "dumps" / "00-input.mlir").is_file()


ASSEMBLER = r"""#!/bin/sh
set -e
test "$1" = -arch=sm_90 -a "$3" = -o
grep -q '^.version' "$2"
{ echo made of; grep '\.entry' "$2"; } > "$4"
"""


@pytest.fixture
def ptxas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the assembler, alone on PATH beside the shell's tools; it writes the kernels' names."""
    path = tmp_path / "bin" / "ptxas"
    path.parent.mkdir()
    path.write_text(ASSEMBLER)
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
    monkeypatch.setattr("lispgpt.compiler.kernel_code.SMALLEST_SHARE", 20)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2})
    return path


def compiled(folder: Path) -> Artifact:
    (folder / "model.lisp").write_text(MODEL)
    return compile_request(Request(folder / "model.lisp", "cuda:sm_90"), Observer())[0]


def test_an_artifact_has_the_chips_own_code_where_ptxas_is(tmp_path: Path, ptxas: Path) -> None:
    assert find_ptxas() == str(ptxas)
    artifact = compiled(tmp_path)
    assert len(artifact.objects) == artifact.code.count(b".version") > 1
    assert all(each.startswith(b"made of\n") for each in artifact.objects)
    names = re.findall(r"\.entry (\w+)", b"".join(artifact.objects).decode())
    assert sorted(names) == sorted(artifact.kernels)
    artifact.save(tmp_path / "m.lgpt")
    assert load_artifact(tmp_path / "m.lgpt").objects == artifact.objects


@pytest.mark.parametrize(
    ("script", "words"),
    [("echo 'unknown chip' >&2; exit 3", "unknown chip"), ("exit 3", "exit code 3"), ("exit 0", "exit code 0")],
)
def test_an_assembler_that_fails_leaves_the_ptx(
    script: str, words: str, tmp_path: Path, ptxas: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ptxas.write_text(f"#!/bin/sh\n{script}\n")
    artifact = compiled(tmp_path)
    assert artifact.objects == () and artifact.code.count(b".version") > 1
    said = capsys.readouterr().err
    assert said.count("warning: the artifact has no code for cuda:sm_90 itself") == 1 and words in said


def test_without_an_assembler_there_is_no_word_of_it(
    tmp_path: Path, ptxas: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ptxas.unlink()
    monkeypatch.setenv("PATH", os.environ["PATH"].partition(":")[0])
    assert find_ptxas() is None
    assert compiled(tmp_path).objects == () and capsys.readouterr().err == ""


@pytest.mark.skipif(find_ptxas() is None, reason="needs NVIDIA's ptxas")
def test_nvidias_assembler_takes_the_code(tmp_path: Path) -> None:
    artifact = compiled(tmp_path)
    assert artifact.objects and all(each.startswith(b"\x7fELF") for each in artifact.objects)
    assert all(name.encode() in b"".join(artifact.objects) for name in artifact.kernels)


def test_the_command_finds_the_assembler_in_cuda_home(tmp_path: Path, ptxas: Path) -> None:
    (tmp_path / "model.lisp").write_text(MODEL)
    environment = {"PATH": "/usr/bin:/bin", "CUDA_HOME": str(tmp_path), "HOME": str(tmp_path)}
    command = [sys.executable, "-m", "lispgpt", "compile", "model.lisp", "--target", "cuda:sm_90"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert "for the chip itself" in done.stderr
    assert load_artifact(tmp_path / "model.lgpt").objects[0].startswith(b"made of\n")
