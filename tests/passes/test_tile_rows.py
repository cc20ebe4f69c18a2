"""Tile programs of rows: what they mean by numpy, which of them are refused, and schedules of a user's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import seeded
from changed_tiles import Change, replaced
from compiled_models import compile_text, open_poisoned, random_weights
from tile_programs import WAYS, kernel_of, plain

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request, evaluate_request
from lispgpt.compiler.runners import runner_for
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import integers, kernel_functions
from lispgpt.passes.targets import find_target
from lispgpt.passes.tile.check_types import Unsafe
from lispgpt.passes.tile.evaluate import reference
from lispgpt.passes.tile.interpret import interpret
from lispgpt.passes.tile.verify import verify
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline

SOFTMAX = """
(require nn)
(entry f [(x [n m] f32) (y [n m] f32)] {{:shapes [{{n {n} m {m}}}]}}
  (let [z (tensor [r n c m] (* (at x r c) (at y r c)))]
    {{:share (softmax z) :most (maximum z) :double (+ z z)}}))
"""
NORM = """
(require nn)
(require gradients)
(entry f [(x [n m] f32) (g [m] f32) (b [m] f32) (t [n m] f32)] {{:shapes [{{n {n} m {m}}}]}}
  (let [loss (sum (sum (* t (layer-norm x g b 1e-5))))
        [dx dg db] (gradients loss [x g b])]
    {{:dx dx :dg dg :db db}}))
"""
PROGRAMS = {
    "a team a row": SOFTMAX.format(n=3, m=1100),
    "teams": SOFTMAX.format(n=4096, m=24),
    "loops": SOFTMAX.format(n=2, m=33004),
    "column sums": NORM.format(n=8192, m=260),
}


@pytest.fixture
def kernel(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ir.Operation]:
    """The kernel of rows of one of the programs, with its tile program."""
    (tmp_path / "rows.lisp").write_text(PROGRAMS[request.param])
    with new_context(), ir.Location.unknown():
        program = evaluate_request(Request(tmp_path / "rows.lisp", "rocm:gfx1151"))
        pipeline = read_pipeline(pipeline_path("gpu"))
        runner = runner_for(find_target("rocm:gfx1151"), (), program.schedules)
        names = [call.name for call in pipeline.calls]
        behind = next(i for i, call in enumerate(pipeline.calls) if "rows" in dict(call.options).get("use", ""))
        assert names[behind + 1] == "lower-tiles"
        runner.run(program.module, pipeline.before(behind + 1))
        yield tiled(program.module, "column-sums" if "sums" in request.param else "rows")


def tiled(module: ir.Module, schedule: str) -> ir.Operation:
    """The first kernel that a schedule has taken."""
    taken = [one for one in kernel_functions(module) if "tiles" in one.attributes]
    return next(one for one in taken if ir.StringAttr(one.attributes["tiles"]).value == schedule)


def arrays(kernel: ir.Operation) -> list[np.ndarray]:
    """Of a kernel's arguments; what it does not read is NaN."""
    rng = seeded.rng()
    access = [ir.StringAttr(one).value for one in kernel.attributes["access"]]
    shapes = [argument.type.shape for argument in kernel.regions[0].blocks[0].arguments]
    return [
        rng.standard_normal(shape).astype(np.float32) if how == "read" else np.full(shape, np.nan)
        for how, shape in zip(access, shapes, strict=True)
    ]


@pytest.mark.parametrize("kernel", PROGRAMS, indirect=True)
def test_numpy_makes_of_a_program_what_float64_makes_of_its_kernel(kernel: ir.Operation) -> None:
    """Some blocks store their part of every result, and nothing else."""
    verify(kernel, find_target("rocm:gfx1151"))
    memory, rng = arrays(kernel), seeded.rng()
    (count,) = integers(ir.DictAttr(kernel.attributes["tile"])["grid"])
    blocks = rng.choice(count, min(count, 3), replace=False)
    found = interpret(kernel, memory, rng, [(int(block), 0) for block in blocks])
    for mine, exact in zip(found, reference(kernel, memory), strict=True):
        stored = np.isfinite(mine)
        assert stored.sum() * count == mine.size * len(blocks)
        np.testing.assert_allclose(mine[stored], np.broadcast_to(exact, mine.shape)[stored], rtol=1e-4, atol=1e-3)


CHANGES: dict[str, tuple[Change, str]] = {
    "a team a row": (lambda text, _: text.replace("array<i64: 288, 1>", "array<i64: 280, 1>"), "no vectors of 280"),
    "teams": (replaced(r'("tile\.team".* threads = )\d+', lambda p, _: f"{p[1]}24"), "24 threads are no team of"),
    "loops": (
        lambda text, _: re.sub(r" *\"tile.reduce_rows.*\n", "", text),
        "it reads a slot of which what was written there may not be there",
    ),
}


@pytest.mark.parametrize("kernel", CHANGES, indirect=True)
def test_programs_that_teams_may_not_run_are_refused(kernel: ir.Operation, request: pytest.FixtureRequest) -> None:
    """Such as one whose next turn's reduction may overtake what threads still read of the last one's."""
    change, says = CHANGES[request.node.callspec.params["kernel"]]
    schedule, text = ir.StringAttr(kernel.attributes["tiles"]).value, str(kernel.parent)
    changed = ir.Module.parse(change(text, seeded.rng()))
    with pytest.raises(Unsafe, match=says):
        verify(tiled(changed, schedule), find_target("rocm:gfx1151"))


def program_for_cpus(path: Path) -> ir.Module:
    """A program's module with tile programs for CPUs; needs an active context and location."""
    request, pipeline = Request(path, "cpu:x86-64-v4"), read_pipeline(pipeline_path("cpu"))
    program, names = evaluate_request(request), [call.name for call in pipeline.calls]
    runner = runner_for(find_target(request.target), (), program.schedules)
    runner.run(program.module, pipeline.before(names.index("lower-tiles")))
    return program.module


@pytest.mark.parametrize("width", [20, 1200])
def test_a_cpus_code_is_what_numpy_and_float64_make_of_its_program(width: int, tmp_path: Path) -> None:
    """Of any number of rows, in vectors that reach to a row's end whatever its length."""
    rng = seeded.rng()
    rows, columns = int(rng.integers(1, 14)), int(rng.integers(1, width + 1))
    (tmp_path / "rows.lisp").write_text(SOFTMAX.format(n=rows, m=columns))
    given = {name: rng.standard_normal((rows, columns)).astype(np.float32) for name in "xy"}
    with new_context(), ir.Location.unknown():
        module = program_for_cpus(tmp_path / "rows.lisp")
        kernel = tiled(module, "rows")
        shapes = [argument.type.shape for argument in kernel.regions[0].blocks[0].arguments]
        memory = [*given.values(), *(np.full(shape, np.nan) for shape in shapes[2:])]
        meant, exact = interpret(kernel, memory, rng), reference(kernel, memory)
    artifact = compile_text(SOFTMAX.format(n=rows, m=columns), tmp_path)
    assert [facts["tiles"] for facts in artifact.kernels.values()] == ["rows"]
    found = open_poisoned(artifact, random_weights(artifact)).run("f", **given)
    for name, mine, wanted in zip(("share", "most", "double"), meant, exact, strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(found[name], wanted, rtol=1e-5, atol=1e-6)


def test_a_cpu_refuses_what_its_one_thread_cannot_be(tmp_path: Path) -> None:
    """At the op's place: a dump that was changed, or made for a GPU."""
    (tmp_path / "rows.lisp").write_text(SOFTMAX.format(n=3, m=50))
    with new_context(), ir.Location.unknown():
        module = program_for_cpus(tmp_path / "rows.lisp")
        verify(tiled(module, "rows"), find_target("cpu"))
        for before, after, says in (
            ("threads = 1 : i64, together", "threads = 2 : i64, together", "a block has at most 1 threads"),
            ("tensor<16xf32, {", "tensor<24xf32, {", "24 columns of 50 are no vectors of 1 threads"),
        ):
            assert before in str(module)
            text = module.operation.get_asm(print_generic_op_form=True).replace(before, after)
            changed = ir.Module.parse(text)
            with pytest.raises(Unsafe, match=says):
                verify(tiled(changed, "rows"), find_target("cpu"))
        product = WAYS["one slot"].module(plain(8, 8, 8), tmp_path)
        with pytest.raises(Unsafe, match="cpu runs programs of rows alone"):
            verify(kernel_of(product), find_target("cpu"))


OWN = """
(schedule wide-blocks [r]
  {:of rows :takes (and (= (tile.shares r) 0) (<= (tile.longest-row r) 64))}
  (let [at (tile.row-task r 64 1 4 1)]
    (map (fn [x] (tile.over-row r x at 0 (fn [which] (tile.store-numbers r (tile.numbers r x at which) x at which))))
         (tile.row-results r))))
"""


@pytest.mark.parametrize("target", ["rocm:gfx1151", "cuda:sm_80"])
def test_a_users_own_schedule_of_rows_comes_first(target: str, tmp_path: Path) -> None:
    text = SOFTMAX.format(n=40, m=40)
    (tmp_path / "own.lisp").write_text(OWN)
    (tmp_path / "rows.lisp").write_text(text)
    request = Request(tmp_path / "rows.lisp", target, schedules=[tmp_path / "own.lisp"])
    (facts,) = compile_request(request, Observer())[0].kernels.values()
    assert facts["tiles"] == "wide-blocks" and facts["block"][0] == 64
    (facts,) = compile_text(text, tmp_path, target=target).kernels.values()
    assert facts["tiles"] == "rows"


def test_a_users_own_schedule_of_rows_is_a_cpus_where_its_teams_are_one_thread(tmp_path: Path) -> None:
    text = SOFTMAX.format(n=40, m=40)
    facts = {}
    for threads in (1, 64):
        schedule = OWN.replace("r 64 1 4 1", f"r {threads} 1 4 1")
        artifact = compile_text(schedule + text, tmp_path)
        (facts[threads],) = artifact.kernels.values()
    assert facts[1]["tiles"] == "wide-blocks" and facts[1]["grid"][0] == 40
    assert facts[64]["tiles"] == "rows" and facts[64]["grid"][0] == 10
    assert "is one thread, and no team of 64" in facts[64]["offers"][0]["refused"]


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("(tile.row-results r)", "[(first (tile.row-results r))]", "it stores 1 of 3 results"),
        ("(tile.row-task r 64 1 4 1)", "[0 0]", "who has which row is said first"),
        ("(tile.row-task r 64 1 4 1)", "(tile.share-task r 64 4)", "it sums no columns"),
        ("(tile.row-task r 64 1 4 1)", "(tile.row-task r 64 7 4 1)", "7 teams of a block do not divide 40 rows"),
    ],
)
def test_a_schedule_that_cannot_be_leaves_the_kernel_to_the_librarys(
    before: str, after: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "own.lisp").write_text(OWN.replace(before, after))
    (tmp_path / "rows.lisp").write_text(SOFTMAX.format(n=40, m=40))
    request = Request(tmp_path / "rows.lisp", "rocm:gfx1151", schedules=[tmp_path / "own.lisp"])
    (facts,) = compile_request(request, Observer())[0].kernels.values()
    assert facts["tiles"] == "rows"
    assert says in facts["offers"][0]["refused"] and facts["offers"][0]["schedule"] == "wide-blocks"


SUMS = """
(schedule a-row-a-turn [r]
  {{:of rows :takes (> (tile.shares r) 0)}}
  (let [[share row] (tile.share-task r 96 4)]
    (tile.store-sums r
      (tile.sum-rows r (tile.share-rows r) 1
        (fn [n sums]
          (let [at [(+ (* share (tile.share-rows r)) n) row]]
            (map (fn [x] (tile.store-numbers r (tile.numbers r x at [0]) x at [0])) (tile.row-results r))
            {barrier}
            (tile.add-rows r sums at))))
      [share row])))
"""


def test_a_loop_in_which_a_turn_may_overtake_the_last_ones_reductions_is_refused_at_its_form(tmp_path: Path) -> None:
    """Taking two rows a turn needs no barrier: the second one's reductions stand between the first one's."""
    (tmp_path / "rows.lisp").write_text(PROGRAMS["column sums"])
    request = Request(tmp_path / "rows.lisp", "rocm:gfx1151", schedules=[tmp_path / "own.lisp"])
    (tmp_path / "own.lisp").write_text(SUMS.format(barrier="(tile.barrier r)"))
    assert "a-row-a-turn" in [facts.get("tiles") for facts in compile_request(request, Observer())[0].kernels.values()]
    (tmp_path / "own.lisp").write_text(SUMS.format(barrier=""))
    with pytest.raises(UserError, match="what was written there may not be there yet") as refused:
        compile_request(request, Observer())
    assert refused.value.span is not None and refused.value.span.source.name.endswith("own.lisp")
