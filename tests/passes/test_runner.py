"""What a user is told where a pass cannot run, fails, or leaves IR that MLIR does not take."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lispgpt.cli.main import main
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import kernel_functions, operations
from lispgpt.passes import pipeline
from lispgpt.passes.base import Pass

MODEL = """(require nn)
(config vocab 16 context 1 width 32)
(weights (table [vocab width] bf16) (w [width width] bf16) (b [width]))
(entry logits [tokens positions]
  (let [x (last (rows table tokens))]
    (matmul-transposed (linear x w b) table)))
"""


@pytest.fixture(scope="module")
def dumps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runner")
    (folder / "model.lisp").write_text(MODEL)
    for target, name in (("cpu:x86-64-v3", "cpu"), ("cuda:sm_90", "gpu")):
        command = ["compile", str(folder / "model.lisp"), "--target", target, "--dump-dir", str(folder / name)]
        with pytest.raises(SystemExit) as ended:
            main([*command, "-o", str(folder / f"{name}.lgpt")])
        assert ended.value.code == 0
    return folder


def opt(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["opt", *map(str, arguments)])
    captured = capfd.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


MISORDERED = {
    ("input", "cse,plan-arena{alignment=64}"): ["plan-arena", "tensors", "@logits_", "run destination-passing"],
    ("input", "destination-passing"): ["run outline-kernels before it"],
    ("input", "emit-plan"): ["run plan-arena before it"],
    ("outline-kernels", "schedule-contractions"): ["run destination-passing before it"],
    ("outline-kernels", "number-blocks"): ["run emit-plan before it"],
    ("destination-passing", "outline-kernels"): ["in memory already"],
    ("plan-arena", "plan-arena"): ["in an arena already"],
    ("plan-arena", "schedule-gpu-scatters"): ["it is for GPUs", "cpu:x86-64-v3"],
}


@pytest.mark.parametrize("case", MISORDERED, ids=lambda case: "-".join(case))
def test_a_pass_out_of_order_says_what_to_run_first(
    case: tuple[str, str], dumps: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    dump, passes = case
    (file,) = (dumps / "cpu").glob(f"??-{dump}.mlir")
    code, _, err = opt(capfd, file, "--target", "cpu:x86-64-v3", "--pipeline", passes)
    assert code == 1, err
    for words in MISORDERED[case]:
        assert words in err


def test_standard_output_is_the_module_alone(dumps: Path, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = opt(capfd, dumps / "cpu" / "00-input.mlir", "--pipeline", "cse,canonicalize")
    assert code == 0
    with new_context():
        assert ir.Module.parse(out)


class Looking(Pass):
    """Fails while it looks at an op of the second kernel."""

    name: ClassVar[str] = "looking"

    def run(self, module: ir.Module, target: Any) -> None:
        kernel = kernel_functions(module)[1]
        for op in operations(kernel.regions[0].blocks[0]):
            if op.name.startswith("linalg."):
                {}[op.name]


class Breaking(Pass):
    name: ClassVar[str] = "breaking"

    def run(self, module: ir.Module, target: Any) -> None:
        module.operation.attributes["count"] = ir.UnitAttr.get()


@pytest.fixture
def own_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {cls.name: cls for cls in (Looking, Breaking)}
    find = pipeline.find_pass
    monkeypatch.setattr(pipeline, "find_pass", lambda name: known.get(name) or find(name))


@pytest.mark.usefixtures("own_passes")
def test_a_bug_in_a_pass_is_one_line_with_pass_kernel_form_and_cause(
    dumps: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = Path(pipeline.__file__).with_name("pipelines").joinpath("cpu.lisp").read_text()
    mine = tmp_path / "mine.lisp"
    mine.write_text(text.replace("(pass place-hand-kernels)", "(pass place-hand-kernels) (pass looking)"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lispgpt-bug.txt").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SystemExit) as ended:
        main(["compile", str(dumps / "model.lisp"), "--pipeline", str(mine), "-o", "x.lgpt"])
    line = capfd.readouterr().err.splitlines()[0]
    assert ended.value.code == 3
    assert line.startswith("this is a bug in lispgpt: pass looking, kernel ")
    assert "model.lisp:6:5 `(matmul-transposed" in line or "model.lisp:6:24 `(linear x w b" in line
    assert "KeyError: 'linalg." in line and "(test_runner.py:" in line
    assert not (tmp_path / "elsewhere").exists(), "a report must not be written through a link"
    report = (tmp_path / "lispgpt-bug-2.txt").read_text()
    assert "Traceback" in report and "in run" in report


@pytest.mark.usefixtures("own_passes")
def test_ir_that_does_not_verify_is_the_passs_fault(
    dumps: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, err = opt(capfd, dumps / "cpu" / "00-input.mlir", "--pipeline", "breaking")
    assert code == 3
    assert "pass breaking: it left IR that does not verify: 'builtin.module' op can only contain attributes with" in err


WITHOUT_MLIR = """
import sys
for name in ("mlir", "flydsl", "flydsl._mlir"):
    sys.modules[name] = None
from lispgpt.__main__ import main
main()
"""


@pytest.mark.parametrize("command", ["run", "compile", "opt"])
def test_without_mlir_a_user_is_told_what_to_install(command: str, dumps: Path, tmp_path: Path) -> None:
    file = dumps / "cpu" / "00-input.mlir" if command == "opt" else dumps / "model.lisp"
    words = [sys.executable, "-c", WITHOUT_MLIR, command, str(file)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("error: compiling needs MLIR, which is not installed here: pip install flydsl==")
    assert len(done.stderr.splitlines()) == 1
