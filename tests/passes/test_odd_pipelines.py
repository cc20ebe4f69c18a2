"""Pipelines that lack passes, have them in another order, or options out of range: one error, and no bug of ours."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import seeded
from fuzz import odd_pipelines

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, compile_request
from lispgpt.compiler.request import Request
from lispgpt.ir.mlir import ir, new_context
from lispgpt.passes.lower.collect_gpu_kernels import CollectGpuKernels
from lispgpt.pipelines.pipeline_file import pipeline_path
from lispgpt.runtime.plan.artifact import Artifact

PROGRAM = "(weights (w [4 4]))(entry f [(x [2 4] f32)] (+ 1.0 (matmul-transposed x w)))"
QUERIES, PRODUCTS = "{:queries 32", "{:outputs 48 :rows 16 :rows-tile 4"


def compiled(folder: Path, text: str, target: str, program: str = PROGRAM) -> Artifact:
    (folder / "p.lisp").write_text("(require nn)" + program)
    (folder / "mine.lisp").write_text(text)
    return compile_request(Request(folder / "p.lisp", target, pipeline=folder / "mine.lisp"), Observer())[0]


@pytest.mark.parametrize(
    "target, passes, said",
    [
        ("cpu", "emit-plan", "the pipeline|emit-plan"),
        ("cpu", "number-blocks", "should take a block's number and bare pointers"),
        ("cpu", "destination-passing", "run destination-passing before it"),
        ("cpu", "convert-arith-to-llvm", "leaves .* ops that are not LLVM's: arith"),
        ("cpu", "convert-func-to-llvm", "not LLVM's: .*func"),
        ("cpu", "wrap-cpu-kernels", "threads cannot call kernel .*: run wrap-cpu-kernels behind convert-func-to-llvm"),
        ("cpu", "finalize-memref-to-llvm", "not LLVM's"),
        ("cuda:sm_90a", "destination-passing", "run destination-passing before it"),
        ("cuda:sm_90a", "collect-gpu-kernels", "the pipeline lacks collect-gpu-kernels"),
    ],
)
def test_a_pass_that_is_missing_is_one_error(tmp_path: Path, target: str, passes: str, said: str) -> None:
    text = pipeline_path("cpu" if target == "cpu" else "gpu").read_text()
    with pytest.raises(UserError, match=said):
        compiled(tmp_path, re.sub(rf"\(pass {passes}( {{[^}}]*}})?\)", "", text), target)


@pytest.mark.parametrize(
    "old, new, said",
    [
        (QUERIES, "{:queries 0", "option queries is 0, and should be from 1 to"),
        (PRODUCTS, "{:outputs 1000000000 :rows 16 :rows-tile 4", "option outputs is 1000000000"),
        (PRODUCTS, "{:outputs 48 :rows -1 :rows-tile 4", "option rows is -1"),
        (PRODUCTS, '{:outputs "many" :rows 16 :rows-tile 4', "option outputs wants int, not 'many'"),
    ],
)
def test_an_option_out_of_range_is_one_error(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = pipeline_path("cpu").read_text()
    assert old in text
    with pytest.raises(UserError, match=said):
        compiled(tmp_path, text.replace(old, new, 1), "cpu")


def test_a_pipeline_backwards_is_one_error(tmp_path: Path) -> None:
    calls = re.findall(r"\(pass [^()]*\)", pipeline_path("cpu").read_text())
    with pytest.raises(UserError, match=r"run plan-arena before it|cannot run here|pass .* failed"):
        compiled(tmp_path, f"(pipeline p (stage one {' '.join(reversed(calls))}))", "cpu")


@pytest.mark.parametrize("early", ["number-blocks", "emit-plan", "finalize-memref-to-llvm", "convert-arith-to-llvm"])
def test_a_pass_that_comes_before_the_plan_is_written_down_is_one_error(tmp_path: Path, early: str) -> None:
    text = pipeline_path("cpu").read_text().replace("(pass emit-plan)", f"(pass {early}) (pass emit-plan)")
    with pytest.raises(UserError, match=r"emit-plan failed: it cannot run here|pass .* failed"):
        compiled(tmp_path, text, "cpu")


@pytest.mark.parametrize(
    ("moved", "behind", "said"),
    [
        ("convert-vector-to-llvm", "collect-gpu-kernels", "pass convert-vector-to-llvm failed: .* memory space"),
        ("lower-gpu-kernels", "collect-gpu-kernels", "leaves .* ops that are not LLVM's: .*cf|pass .* failed"),
        ("convert-scf-to-cf", "bound-inputs", "pass .* failed: it cannot run here: control flow has become branches"),
        ("convert-scf-to-cf", "line-tables", "leaves .* ops that are not LLVM's|pass .* failed"),
    ],
)
def test_a_gpus_pass_elsewhere_is_one_error(tmp_path: Path, moved: str, behind: str, said: str) -> None:
    """Where one of MLIR's reports an error and succeeds, too, of which its bindings would end the process."""
    text = pipeline_path("gpu").read_text().replace(f"(pass {moved})", "")
    with pytest.raises(UserError, match=said):
        compiled(
            tmp_path,
            text.replace(f"(pass {behind})", f"(pass {behind}) (pass {moved})"),
            "rocm:gfx1151",
            odd_pipelines.TEXT,
        )


@pytest.mark.parametrize("twice", ["outline-kernels", "destination-passing", "plan-arena"])
def test_a_pass_that_comes_twice_is_one_error(tmp_path: Path, twice: str) -> None:
    text = re.sub(rf"\(pass {twice}( {{[^}}]*}})?\)", r"\g<0> \g<0>", pipeline_path("cpu").read_text())
    with pytest.raises(UserError, match=f"pass {twice} failed: it cannot run here"):
        compiled(tmp_path, text, "cpu")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(pass collect-gpu-kernels)", "(pass collect-gpu-kernels) (pass collect-gpu-kernels)"),
        ("(pass destination-passing)", "(pass canonicalize) (pass destination-passing)"),
    ],
)
def test_a_pass_of_gpus_that_comes_again_is_right(old: str, new: str) -> None:
    """Where a kernel hands on what it is given, too, as canonicalize leaves copies."""
    text = pipeline_path("gpu").read_text()
    assert old in text and odd_pipelines.tried(text.replace(old, new, 1), "rocm:gfx1151") == "right"


def test_kernels_that_no_entry_calls_any_more_stay(tmp_path: Path) -> None:
    """Once the plan is written down there are no entries."""
    text = pipeline_path("gpu").read_text()
    assert text.count("(pass split-decode)") == 1
    text = text.replace("(pass split-decode)", "").replace("(pass emit-plan)", "(pass emit-plan) (pass split-decode)")
    made = compiled(tmp_path, text, "cuda:sm_90a")
    assert made.kernels and sorted(re.findall(r"\.entry (\w+)", made.code.decode())) == sorted(made.kernels)


def test_kernels_without_memory_are_said_to_lack_it(tmp_path: Path) -> None:
    """Which destination-passing gives them, ahead of those that read what launches do to it."""
    text, outline = pipeline_path("cpu").read_text(), "(pass outline-kernels {:gathers true})"
    assert text.count("(pass run-in-order)") == text.count(outline) == 1
    text = text.replace("(pass run-in-order)", "").replace(outline, f"{outline} (pass run-in-order)")
    with pytest.raises(UserError, match="has no memory yet: run destination-passing before it"):
        compiled(tmp_path, text, "cpu")


def test_calls_are_made_number_by_number() -> None:
    """What libm takes, where functions of numbers became calls ahead of schedules."""
    text, first = pipeline_path("cpu").read_text(), "(pass shard-batch {:devices 1})"
    assert text.count("(pass convert-math-to-libm)") == text.count(first) == 1
    moved = text.replace("(pass convert-math-to-libm)", "").replace(first, f"{first} (pass convert-math-to-libm)")
    assert odd_pipelines.tried(moved, "cpu") == "right"


def test_a_module_without_kernels_has_nothing_to_collect() -> None:
    with new_context(), ir.Location.unknown():
        module = ir.Module.parse("module {}")
        CollectGpuKernels().run(module, None)
        assert "gpu.module @kernels" in str(module)


@pytest.mark.parametrize("change", odd_pipelines.CHANGES)
def test_a_changed_pipeline_is_one_error_or_gives_what_is_right(change: str) -> None:
    """One of the changes that `python tests/fuzz/odd_pipelines.py` makes of each target's, all of them."""
    every = list(odd_pipelines.changed(pipeline_path("cpu").read_text(), change))
    text, what = every[seeded.fresh_seed() % len(every)]
    assert odd_pipelines.tried(text, "cpu") in ("right", "refused"), what
