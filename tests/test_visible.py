"""Every step can be looked at and run again: dumps, printing, stages, pipelines of one's own, failures."""

from __future__ import annotations

import difflib
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.cli.opt import parse_module
from lispgpt.cli.options import parse_settings
from lispgpt.compiler.driver import Observer, Request, compile_request, emit, evaluate_request
from lispgpt.compiler.runners import runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.passes.dumps import write_dump
from lispgpt.passes.pipeline import Pipeline, Stage, parse_calls
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
        runner_for(find_target("cpu")).run(module, pipeline)
        return str(module)


def ir_of(dump: Path) -> str:
    """A dump's IR as MLIR prints it."""
    with new_context() as context:
        return str(parse_module(context, dump)).strip()


def test_there_is_a_dump_after_every_pass_that_changes_something_and_a_list_of_all(dumps: list[Path]) -> None:
    calls = read_pipeline(CPU).calls
    names = [f"{i:02d}-{name}.mlir" for i, name in enumerate(["input", *(call.name for call in calls)])]
    rows = (dumps[0].parent / "passes.txt").read_text().splitlines()
    assert [row.split("  ")[-1].strip() for row in rows] == ["pass", "input", *map(str, calls)]
    listed = [name for name, row in zip(names, rows[1:], strict=True) if name in row]
    assert [d.name for d in dumps] == listed
    assert [name for name, row in zip(names, rows[1:], strict=True) if "as before" not in row] == listed
    assert 10 < len(listed) < len(names)
    assert all(a.read_text() != b.read_text() for a, b in pairwise(dumps))


@pytest.fixture(scope="module")
def plain(program: Path) -> dict[str, str]:
    """After each pass that changes something, the IR as MLIR prints it without anybody's names."""
    shown: dict[str, str] = {}
    with new_context(), ir.Location.unknown():
        calls = read_pipeline(CPU).calls
        module = evaluate_request(Request(program, overrides=SIZES)).module
        shown["00-input.mlir"] = str(module).strip()
        for number, call in enumerate(calls, 1):
            runner_for(find_target("cpu")).run(module, Pipeline("one", (Stage("one", (call,)),)))
            shown[f"{number:02d}-{call.name}.mlir"] = str(module).strip()
    return shown


def test_a_dump_says_what_the_module_is(dumps: list[Path], plain: dict[str, str]) -> None:
    for dump in dumps:
        assert ir_of(dump) == plain[dump.name]
    folded, last = [], dumps[0].name
    for name, text in plain.items():
        last = name if (dumps[0].parent / name).exists() else last
        folded += [] if text == plain[last] else [name]
    assert not folded, "these were said to be as before"


def test_values_keep_their_names_from_pass_to_pass(dumps: list[Path], plain: dict[str, str]) -> None:
    place = next(i for i, dump in enumerate(dumps) if dump.name.endswith("-cse.mlir"))
    before, after = (dump.read_text().splitlines() for dump in dumps[place - 1 : place + 1])
    names = [
        {line.split(" = ")[0].strip() for line in text if line.lstrip().startswith("%")} for text in (before, after)
    ]
    assert len(names[1] - names[0]) < 0.01 * len(names[0]), "cse makes no values"
    assert len(names[0] - names[1]) > 0.1 * len(names[0])
    differ = sum(line[0] in "+-" for line in difflib.unified_diff(before, after, n=0))
    plainly = (plain[dump.name].splitlines() for dump in dumps[place - 1 : place + 1])
    assert differ < 0.5 * sum(line[0] in "+-" for line in difflib.unified_diff(*plainly, n=0))


def test_arguments_are_called_by_their_weights(dumps: list[Path]) -> None:
    entry = next(line for line in dumps[0].read_text().splitlines() if "@decode_greedy" in line and "func.func" in line)
    assert "%wte: tensor<" in entry and "%tokens: tensor<" in entry and "%ln1-w: tensor<" in entry
    outlined = next(dump for dump in dumps if "outline-kernels" in dump.name).read_text()
    kernels = [line for line in outlined.splitlines() if 'kernel = "contraction"' in line]
    assert any("%qkv-w: tensor<" in line for line in kernels)
    scheduled = next(dump for dump in dumps if "emit-plan" in dump.name).read_text()
    assert "%qkv-w: memref<" in scheduled, "kernels keep their arguments' names"


def test_every_dump_parses(dumps: list[Path]) -> None:
    for dump in dumps:
        with new_context() as context:
            assert parse_module(context, dump).operation.verify()


@pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 1.0])
def test_the_rest_of_the_pipeline_on_a_dump_gives_the_last_one(share: float, dumps: list[Path]) -> None:
    dump = dumps[round(share * (len(dumps) - 1))]
    assert opt(dump, read_pipeline(CPU).after(number_of(dump))).strip() == ir_of(dumps[-1])


def number_of(dump: Path) -> int:
    """How many passes have run before a dump."""
    return int(dump.name.partition("-")[0])


def test_one_pass_on_a_dump_gives_the_next(dumps: list[Path]) -> None:
    calls = read_pipeline(CPU).calls
    number = next(i for i, call in enumerate(calls, 1) if call.name == "schedule-contractions")
    place = next(i for i, dump in enumerate(dumps) if number_of(dump) == number)
    one = Pipeline("one", (Stage("one", parse_calls(str(calls[number - 1]))),))
    assert opt(dumps[place - 1], one).strip() == ir_of(dumps[place])


@pytest.mark.slow
@pytest.mark.parametrize("target", ["rocm:gfx1151", "cuda:sm_90"])
def test_both_vendors_have_one_pipeline_whose_dumps_go_back_in(target: str, program: Path, tmp_path: Path) -> None:
    assert find_target(target).pipeline == "gpu"
    compile_request(Request(program, target, overrides=SIZES), Observer(tmp_path / "usual"))
    compile_request(Request(program, target, overrides=SIZES, pipeline=GPU), Observer(tmp_path / "given"))
    usual, given = (sorted((tmp_path / name).glob("*.mlir")) for name in ("usual", "given"))
    rows = (tmp_path / "usual" / "passes.txt").read_text().splitlines()
    assert [row.split("  ")[-1].strip() for row in rows[2:]] == list(map(str, read_pipeline(GPU).calls))
    assert [d.name for d in given] == [d.name for d in usual]
    assert given[-1].read_text() == usual[-1].read_text()
    middle = usual[len(usual) // 2]
    with new_context() as context, ir.Location.unknown():
        module = parse_module(context, middle)
        runner_for(find_target(target)).run(module, read_pipeline(GPU).after(number_of(middle)))
        assert str(module).strip() == ir_of(usual[-1])


def test_printing_after_a_pass(program: Path, dumps: list[Path]) -> None:
    shown: list[str] = []
    compile_request(Request(program, overrides=SIZES), Observer(None, ("plan-arena",), shown.append))
    assert len(shown) == 1
    header, text = shown[0].split("\n", 1)
    assert header == "// IR after plan-arena"
    assert parsed(text) == ir_of(next(d for d in dumps if "plan-arena" in d.name))


def parsed(text: str) -> str:
    with new_context():
        return str(ir.Module.parse(text)).strip()


def test_every_stage_can_be_emitted(program: Path, dumps: list[Path]) -> None:
    request = Request(program, overrides=SIZES)
    assert emit(request, "forms", Observer()).count("Symbol require\n") == 1
    assert emit(request, "mlir", Observer()) == dumps[0].read_text()
    stages = read_pipeline(CPU).stages
    ran = 0
    for stage in stages:
        ran += len(stage.calls)
        if stage is not stages[0] and stage is not stages[-1]:
            continue
        last = [dump for dump in dumps if number_of(dump) <= ran][-1]
        assert parsed(emit(request, stage.name, Observer())) == ir_of(last)


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
    mine.write_text(text.replace(":outputs 48", ":outputs 6"))
    artifact, _ = compile_request(Request(program, overrides=SIZES, pipeline=mine), Observer(tmp_path / "dumps"))
    assert "symbol-dce" in (tmp_path / "dumps" / "passes.txt").read_text()
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
        runner_for(find_target(target)).run(parse_module(context, Path(file)), again)
    assert repeated.value.message.splitlines()[0] == caught.value.message.splitlines()[0]


def test_a_request_of_no_entry_is_refused(program: Path) -> None:
    with pytest.raises(UserError, match=r"no entry of .* is asked for; it has "):
        compile_request(Request(program, entries=()), Observer())
