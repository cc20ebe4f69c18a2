"""Machine code that several processes make is that of one, kernel by kernel; failures in any of them reach the user."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lispgpt.base.errors import InternalError
from lispgpt.compiler.driver import Observer, Request, compile_request, evaluate_request
from lispgpt.compiler.kernel_code import kernel_shares, make_code, split_at_plan
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import kernel_functions
from lispgpt.passes import pipeline
from lispgpt.passes.base import Pass
from lispgpt.passes.pipeline import Runner
from lispgpt.passes.targets import Target, find_target
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline

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
        Runner(target).run(module, first)
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
            codes.append(make_code(*planned(tmp_path), processes=processes))
    alone, joined = map(bodies, codes)
    assert codes[0].count(b".version") == 1 < codes[1].count(b".version") <= 3
    assert alone == joined and len(alone) >= 2


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
