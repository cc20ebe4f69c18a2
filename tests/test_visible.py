"""Every step can be looked at and run again: dumps, printing, stages, pipelines of one's own, failures."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.cli.opt import parse_module
from lispgpt.cli.options import parse_settings
from lispgpt.compiler.driver import Observer, Request, compile_request, emit
from lispgpt.compiler.schedules import runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.passes.dumps import write_dump
from lispgpt.passes.pipeline import Pipeline, Runner, Stage, parse_calls
from lispgpt.passes.targets import find_target
from lispgpt.pipelines.pipeline_file import PIPELINES, read_pipeline

SIZES = parse_settings(("layers=2", "heads=2", "width=8", "vocab=13", "padded-vocab=16", "context=16"))
CPU, GPU = PIPELINES / "cpu.lisp", PIPELINES / "gpu.lisp"


@pytest.fixture(scope="module")
def program() -> Path:
    return Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"


@pytest.fixture(scope="module")
def dumps(program: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("dumps")
    write_dump(folder, "05-stale.mlir", "an older run's")
    compile_request(Request(program, overrides=SIZES), Observer(folder))
    return sorted(folder.glob("*.mlir"))


def opt(file: Path, pipeline: Pipeline) -> str:
    with new_context() as context, ir.Location.unknown():
        module = parse_module(context, file)
        Runner(find_target("cpu")).run(module, pipeline)
        return str(module)


def test_there_is_a_dump_after_every_pass(dumps: list[Path]) -> None:
    names = ["input", *(call.name for call in read_pipeline(CPU).calls)]
    assert [d.name for d in dumps] == [f"{i:02d}-{name}.mlir" for i, name in enumerate(names)]


def test_every_dump_parses(dumps: list[Path]) -> None:
    for dump in dumps:
        with new_context() as context:
            assert parse_module(context, dump).operation.verify()


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_the_rest_of_the_pipeline_on_a_dump_gives_the_last_one(share: float, dumps: list[Path]) -> None:
    number = round(share * (len(dumps) - 1))
    assert opt(dumps[number], read_pipeline(CPU).after(number)).strip() == dumps[-1].read_text().strip()


def test_one_pass_on_a_dump_gives_the_next(dumps: list[Path]) -> None:
    calls = read_pipeline(CPU).calls
    number = next(i for i, call in enumerate(calls) if call.name == "schedule-rows")
    one = Pipeline("one", (Stage("one", parse_calls(str(calls[number]))),))
    assert opt(dumps[number], one).strip() == dumps[number + 1].read_text().strip()


@pytest.mark.parametrize("target", ["rocm:gfx1151", pytest.param("cuda:sm_90", marks=pytest.mark.slow)])
def test_both_vendors_have_one_pipeline_whose_dumps_go_back_in(target: str, program: Path, tmp_path: Path) -> None:
    assert find_target(target).pipeline == "gpu"
    compile_request(Request(program, target, overrides=SIZES), Observer(tmp_path / "usual"))
    compile_request(Request(program, target, overrides=SIZES, pipeline=GPU), Observer(tmp_path / "given"))
    usual, given = (sorted((tmp_path / name).glob("*.mlir")) for name in ("usual", "given"))
    assert [d.name for d in usual[1:]] == [f"{i:02d}-{c.name}.mlir" for i, c in enumerate(read_pipeline(GPU).calls, 1)]
    assert given[-1].read_text() == usual[-1].read_text()
    number = len(usual) // 2
    with new_context() as context, ir.Location.unknown():
        module = parse_module(context, usual[number])
        runner_for(find_target(target)).run(module, read_pipeline(GPU).after(number))
        assert str(module).strip() == usual[-1].read_text().strip()


def test_printing_after_a_pass(program: Path, dumps: list[Path]) -> None:
    shown: list[str] = []
    compile_request(Request(program, overrides=SIZES), Observer(None, ("plan-arena",), shown.append))
    assert len(shown) == 1
    header, text = shown[0].split("\n", 1)
    assert header == "// IR after plan-arena"
    assert text.strip() == next(d for d in dumps if "plan-arena" in d.name).read_text().strip()


def test_every_stage_can_be_emitted(program: Path, dumps: list[Path]) -> None:
    request = Request(program, overrides=SIZES)
    assert emit(request, "forms", Observer()).count("Symbol require\n") == 1
    assert "linalg.softmax" in emit(request, "mlir", Observer())
    stages = read_pipeline(CPU).stages
    ran = 0
    for stage in stages:
        ran += len(stage.calls)
        if stage is not stages[0] and stage is not stages[-1]:
            continue
        assert emit(request, stage.name, Observer()).strip() == dumps[ran].read_text().strip()


def test_assembly_shows_the_kernels_or_says_what_is_missing(program: Path) -> None:
    try:
        text = emit(Request(program, overrides=SIZES), "asm", Observer())
    except UserError as error:
        assert "objdump" in error.message
    else:
        assert "contraction_" in text
        assert "ret" in text


def test_a_pipeline_of_ones_own(program: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.lisp"
    text = CPU.read_text().replace("(pass cse)", "(pass cse) (pass symbol-dce)", 1)
    mine.write_text(text.replace(":rows-per-block 4", ":rows-per-block 1"))
    artifact, _ = compile_request(Request(program, overrides=SIZES, pipeline=mine), Observer(tmp_path / "dumps"))
    assert list((tmp_path / "dumps").glob("*-symbol-dce.mlir"))
    usual, _ = compile_request(Request(program, overrides=SIZES), Observer())
    blocks = [sum(la.grid[0] for e in a.plan.entries for la in e.launches) for a in (artifact, usual)]
    assert blocks[0] > blocks[1]


def test_a_pipeline_file_of_passes_prints_and_parses_back() -> None:
    for call in read_pipeline(CPU).calls:
        (again,) = parse_calls(str(call))
        assert str(again) == str(call)


def failing_pipeline(folder: Path, failing: str) -> Path:
    mine = folder / "mine.lisp"
    mine.write_text(f"(pipeline mine (stage kernels (pass cse) (pass outline-kernels)) (stage bad {failing}))")
    return mine


def test_an_unknown_option_is_refused_before_anything_runs(program: Path, tmp_path: Path) -> None:
    mine = failing_pipeline(tmp_path, "(pass convert-linalg-to-loops {:no-such-option 3})")
    with pytest.raises(UserError, match="no-such-option") as caught:
        compile_request(Request(program, overrides=SIZES, pipeline=mine), Observer(tmp_path / "dumps"))
    assert str(mine) in str(caught.value)
    assert not (tmp_path / "dumps").exists()


def test_a_failing_pass_leaves_its_input_and_the_command(program: Path, tmp_path: Path) -> None:
    mine, folder = failing_pipeline(tmp_path, "(pass emit-plan)"), tmp_path / "a folder"
    with pytest.raises(UserError, match="run plan-arena before it") as caught:
        compile_request(Request(program, overrides=SIZES, pipeline=mine), Observer(folder))
    found = re.search(r"to see it again: (lispgpt opt .*)", str(caught.value))
    assert found is not None
    _, _, file, _, target, _, calls = shlex.split(found[1])
    assert Path(file).name == "02-outline-kernels.mlir"
    assert (folder / "03-emit-plan.failed.mlir").is_file()
    again = Pipeline("again", (Stage("again", parse_calls(calls)),))
    with new_context() as context, ir.Location.unknown(), pytest.raises(UserError) as repeated:
        Runner(find_target(target)).run(parse_module(context, Path(file)), again)
    assert repeated.value.message.splitlines()[0] == caught.value.message.splitlines()[0]
