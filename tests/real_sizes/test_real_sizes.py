"""Kernels at the sizes of known models, against float64: a few; all by `run.py`, or with --slow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import seeded
from emulated_amd.mutants import moved_store, mutated, sites
from real_sizes import chips, memory, run
from real_sizes.chips import Amd, open_chip
from real_sizes.given import Given, Group, lower_parts
from real_sizes.kernels import Artifacts, Found, chosen, distinct, kind_of
from real_sizes.models import ENTRIES, TRAINED, WEIGHTS, Case, odd_sizes, sizes
from real_sizes.run import (
    BEGUN,
    DONE,
    PART,
    PRECISIONS,
    REFUSED,
    TARGETS,
    UNDIVIDED,
    Limits,
    cases_of,
    outcomes,
    unfinished,
)
from real_sizes.table import BAD, table
from real_sizes.whole import DEVICES, KINDS, drawn, outcome

from lispgpt.base.dtypes import BLOCK_DTYPES
from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.ir.mlir import ir, new_context
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.plan.steps import Argument

SMALL = Case("smollm2-135m", "rocm:gfx942", "two")
FEW, SECONDS = 7, 2.0
"""How many kernels of a drawn case are executed, and how long each at most."""
BESIDE_CPU = 0.1
"""How often kernels are drawn, too, that are compared with the CPU's, for which the model is compiled once more."""


@contextmanager
def unless_undivided() -> Iterator[None]:
    """Go on where blocks do not divide the rows of weights."""
    try:
        yield
    except UserError as error:
        if UNDIVIDED not in error.message:
            raise


def check(case: Case, folder: Path, few: int = 0, seconds: float = 0) -> None:
    """Execute kernels of a case, or a few of them that are drawn."""
    seed, beside_cpu = seeded.fresh_seed(), seeded.rng().random() < BESIDE_CPU
    made = Artifacts(case, folder, seed, seconds)
    kernels = dict(distinct(made.artifact, made.text))
    if few:
        kernels = {key: group for key, group in kernels.items() if beside_cpu or made.has_reference(group)}
        kernels = {key: kernels[key] for key in chosen(kernels, few, seed)}
    found = [made.run(key, group) for key, group in kernels.items()]
    assert [each for each in found if each.how in BAD] == [], f"again: {case.command} --seed {seed}"
    assert any(each.how == "right" for each in found), found


def test_a_few_kernels_are_right(tmp_path: Path) -> None:
    """Of a model, a chip, an entry, weights and a precision that are drawn anew each time."""
    rng, known = seeded.rng(), (list(sizes()), TARGETS, ENTRIES, WEIGHTS, PRECISIONS)
    while True:
        case = Case(*(str(rng.choice(list(each))) for each in known))
        if case.is_one:
            with unless_undivided():
                return check(case, tmp_path, FEW, SECONDS)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
@pytest.mark.parametrize("target", [target for target in TARGETS if target.startswith("rocm")])
def test_no_registers_spill(target: str, number: int, tmp_path: Path) -> None:
    """Of any kernel of a case that is drawn anew each time."""
    rng = seeded.rng()
    while True:
        case = Case(*(str(rng.choice(list(each))) for each in (list(sizes()), [target], ENTRIES, WEIGHTS, PRECISIONS)))
        if case.is_one:
            with unless_undivided():
                made = Artifacts(case, tmp_path, 0)
                assert made.spilled == {}, case.command
                return


@pytest.mark.drawn
@pytest.mark.parametrize(
    "chip, head, kept, precision",
    [
        *product(["gfx1151"], [64, 80, 96, 112, 128], ["bf16", "f32"], ["fast"]),
        *product(["gfx1151", "gfx1201"], [64, 80, 96, 112, 128], ["f32"], ["exact"]),
    ],
)
def test_no_registers_of_a_prompts_attention_spill(
    chip: str, head: int, kept: str, precision: str, tmp_path: Path
) -> None:
    """Where queries are turned before they are multiplied, and LLVM starts all loads at once."""
    widths = {"width": 64, "heads": 4, "kv-heads": 2, "head-size": head, "hidden": 64, "vocab": 128}
    wanted = {"entries": ("prefill",), "longest": 128, "precision": precision}
    program = Path(__file__).resolve().parents[2] / "examples" / "llama_tiny.lisp"
    sizes_of = {"layers": 2, "context": 1024, "cache-type": kept, **widths}
    artifact, _ = compile_request(Request(program, f"rocm:{chip}", sizes_of, **wanted), Observer())  # type: ignore[arg-type]
    opened = open_chip(artifact)
    grids = {step.kernel: step.grid for entry in artifact.plan.entries for step in entry.launches
             if step.kernel.startswith("attention_1x128x") and not step.kernel.endswith("_write")}  # fmt: skip
    assert grids and all(1 < grid[1] <= 8 for grid in grids.values()), f"no blocks of many rows: {grids}"
    assert {name: opened.scratch(name) for name in artifact.kernels} == dict.fromkeys(artifact.kernels, 0)


@pytest.mark.drawn
@pytest.mark.parametrize(
    "chip, program, precision", [("gfx1151", "llama_tiny", "fast"), ("gfx1201", "gemma2", "exact")]
)
def test_few_registers_of_wide_heads_spill(chip: str, program: str, precision: str, tmp_path: Path) -> None:
    """Whose sums alone are half of a lane's registers."""
    head = {"llama_tiny": "head-size", "gemma2": "head-width"}[program]
    widths = {"width": 64, "heads": 4, "kv-heads": 2, head: 256, "hidden": 64, "vocab": 128}
    wanted = {"entries": ("prefill",), "longest": 128, "precision": precision}
    source = Path(__file__).resolve().parents[2] / "examples" / f"{program}.lisp"
    sizes_of = {"layers": 2, "context": 1024, "cache-type": "bf16", **widths}
    artifact, _ = compile_request(Request(source, f"rocm:{chip}", sizes_of, **wanted), Observer())  # type: ignore[arg-type]
    opened = open_chip(artifact)
    assert max(opened.scratch(name) for name in artifact.kernels) <= 128


@pytest.mark.drawn
@pytest.mark.parametrize("chip", ["gfx942", "gfx1151", "gfx1201"])
def test_no_registers_of_attentions_gradients_spill(chip: str, tmp_path: Path) -> None:
    """Whose tiles of scores are two, beside sums for keys and for values."""
    program = tmp_path / "train.lisp"
    example = Path(__file__).resolve().parents[2] / "examples" / "llama_tiny.lisp"
    program.write_text(f'(require "{example}")\n(require training)\n{TRAINED["training"]}\n')
    widths = {"width": 64, "heads": 4, "kv-heads": 2, "head-size": 64, "hidden": 64, "vocab": 128}
    wanted = {"entries": ("train",), "sizes": ({"batch": 2, "length": 128},), "precision": "fast"}
    sizes_of = {"layers": 1, "context": 256, **widths}
    artifact, _ = compile_request(Request(program, f"rocm:{chip}", sizes_of, **wanted), Observer())  # type: ignore[arg-type]
    made = [facts.get("tiles") for name, facts in artifact.kernels.items() if "attention_gradient" in name]
    assert made == ["attention-gradients"] * 2
    opened = open_chip(artifact)
    assert {name: opened.scratch(name) for name in artifact.kernels} == dict.fromkeys(artifact.kernels, 0)


@pytest.mark.slow
@pytest.mark.parametrize("model", sizes())
@pytest.mark.parametrize("target", TARGETS)
def test_all_kernels_are_right(target: str, model: str, tmp_path: Path) -> None:
    for entry, weights, precision in product(ENTRIES, WEIGHTS, PRECISIONS):
        case = Case(model, target, entry, weights, precision)
        if case.is_one:
            with unless_undivided():
                check(case, tmp_path)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Artifacts:
    return Artifacts(SMALL, tmp_path_factory.mktemp("small"), seeded.fresh_seed())


def test_a_fault_is_seen(small: Artifacts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a store that is moved by an element, in a product."""
    made = small
    products = {group.main.kernel: (key, group) for key, group in distinct(made.artifact, made.text)
                if group.main.kernel.startswith("contraction")}  # fmt: skip
    name = sorted(products)[int(seeded.rng().integers(len(products)))]
    site = sites(made.artifact, name, "store one further")[0]
    assert moved_store(site.instruction) == site.words
    assert isinstance(made.chip, Amd)
    monkeypatch.setattr(made.chip, "code", CodeObject(mutated(made.artifact, site), made.chip.code.chip))
    assert made.run(*products[name]).how in BAD, name


def test_blocks_run_again_in_the_same_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where loads race with stores, which is no fault where each of them may find anything."""
    program = tmp_path / "rows.lisp"
    program.write_text("(entry e [(x [4 64] f32)] (tensor [r 4 c 64] (+ (at x r c) 1.0)))")
    artifact, _ = compile_request(Request(program, "cuda:sm_80"), Observer())
    (launch,) = artifact.plan.entries[0].launches
    orders = list[list[int]]()

    def watched(threads: Callable[[], Any], *_: Any) -> None:
        orders.append([threads(), threads()])

    monkeypatch.setattr(chips, "run_watched", watched)
    monkeypatch.setattr(chips, "Threads", lambda *given: given[6])
    arena = memory.Arena([argument.nbytes for argument in launch.arguments])
    places = arena.starts[: len(launch.arguments)]
    chips.Nvidia(artifact).run(launch, arena, places, [(0, 0, 0)], seeded.rng())
    assert orders and all(first == again for first, again in orders)


def test_every_class_has_a_model_before_any_has_a_second() -> None:
    order = ["--models", "gpt2-124m", "qwen3-0.6b", "mamba-130m", "--shuffle", "--seed", str(seeded.fresh_seed())]
    classes = [case.kind for case in cases_of(order, ())]
    first = set(classes)
    of_a_target = (len(ENTRIES) - len(TRAINED)) * len(WEIGHTS) + len(TRAINED)
    assert len(first) == (len(TARGETS) * of_a_target - len(WEIGHTS)) * len(PRECISIONS)  # no CPU draws
    assert set(classes[: len(first)]) == first
    refused = {str(case) for case in cases_of(order, ()) if case.model == "gpt2-124m"}
    again = list(cases_of(order, refused))
    assert {str(case) for case in again} == {str(case) for case in cases_of(order, ())}
    place = next(n for n, case in enumerate(again) if str(case) in refused)
    one, other = again[place : place + 2]
    assert one.kind == other.kind
    known = set(classes[: len(first) : 2])
    later = [case.kind for case in cases_of(order, (), known)][: len(first)]
    assert set(later[-len(known) :]) == known and set(later) == first


def test_a_few_kernels_are_of_different_kinds() -> None:
    names = ["rows_1x8", "contraction_1x8", "contraction_1x8_2", "contraction_2x8", "attention_1x1x8", "advance"]
    assert {kind_of(name) for name in names} == {"rows", "contraction", "attention", "advance"}
    kernels: dict[str, Group] = {name: SimpleNamespace(main=SimpleNamespace(kernel=name)) for name in names}  # type: ignore
    few = chosen(kernels, 4, seeded.fresh_seed())
    assert len(set(few)) == 4 and kind_of(few[0]) == "contraction" != kind_of(few[1])
    assert sorted(chosen(kernels, 99, seeded.fresh_seed())) == sorted(names)


@pytest.mark.parametrize(
    "said, how", [("rows of w have 48 elements, and blocks of q4_k have 256", REFUSED), ("B is in BF16", "failed")]
)
def test_a_case_is_refused_for_undivided_rows_alone(said: str, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any other error while compiling a known model is a fault."""

    def refused(*_: Any) -> Artifacts:
        raise UserError(said)

    monkeypatch.setattr(run, "Artifacts", refused)
    assert [each.how for each in outcomes(SMALL, Path(), 1, set(), Limits())] == [how, DONE]


def test_what_has_begun_and_not_ended() -> None:
    hows = {"a": [BEGUN, PART, BEGUN], "b": [BEGUN, BEGUN], "c": [BEGUN, DONE], "d": [BEGUN, BEGUN, PART]}
    assert unfinished([{"case": case, "how": how} for case, each in hows.items() for how in each]) == {"a": 1, "b": 2}


def test_large_memory_takes_little() -> None:
    arena = memory.Arena([1 << 30, 8])
    array = arena.fill(0, np.random.default_rng(seeded.fresh_seed()), ((1 << 17, 4096), "bf16"), True)
    elements = memory.PERIOD // 2
    assert array.nbytes == 1 << 30 and array[5, 7] == array.reshape(-1)[5 * 4096 + 7 + 3 * elements]
    assert (array[0] != array[1]).any()
    array[5, 7] += 1
    assert array[5, 7] == array.reshape(-1)[5 * 4096 + 7 + 3 * elements] + 1


def test_every_model_is_compiled_at_its_own_sizes(tmp_path: Path) -> None:
    for name, size in sizes().items():
        given = Case(name, "cpu", "two", "q8_0").request(tmp_path).overrides
        assert (given["width"], given["vocab"]) == (size["width"], size["vocabulary"]), name
        assert given["weight-type"] == "q8_0", name


def test_odd_sizes_are_of_many_kinds() -> None:
    odd = [odd_sizes(seed) for seed in range(200)]
    assert all(1100 <= each["width"] <= 6000 for each in odd) and {each["width"] % 2 for each in odd} == {0, 1}
    assert {each["width"] % 64 for each in odd} > {0, 8} and {each["vocabulary"] % 2 for each in odd} == {0, 1}
    assert {each["head_width"] for each in odd} > set(range(40, 257, 8))
    assert {each["head_width"] % 8 for each in odd} == {0, 2, 4, 6}
    assert Case("odd-3", "cpu", "two").request(Path()).overrides["width"] == odd[3]["width"]


def test_whole_models_are_of_many_kinds() -> None:
    """Of sizes that nothing divides, and of those that blocks do."""
    models = [drawn(seed, wide=seed % 2 == 0) for seed in range(300)]
    assert {model.kind for model in models} == set(KINDS) and {model.batch for model in models} == set(range(1, 10))
    assert {model.settings["weight-type"] for model in models} == {"bf16", "f32", *BLOCK_DTYPES}
    assert {model.settings["width"] % 2 for model in models} == {0, 1}
    assert max(model.prompt for model in models) > 64 and max(model.settings["width"] for model in models) > 2000


@pytest.mark.drawn
@pytest.mark.parametrize("device", DEVICES)
def test_a_whole_model_of_odd_sizes_is_right(device: str) -> None:
    """On the CPU or on a chip that is emulated, as `whole.py` draws it."""
    model = drawn(seeded.fresh_seed())
    assert outcome(model, device, 0) == ("right", ""), f"{device}: {model}"


PARTS = """
func.func @k(%u: memref<4x8xbf16>, %l: memref<4x8xbf16>) {
  %a = bufferization.to_tensor %u restrict : memref<4x8xbf16> to tensor<4x8xbf16>
  %b = bufferization.to_tensor %l restrict : memref<4x8xbf16> to tensor<4x8xbf16>
  %e = tensor.empty() : tensor<4x8xf32>
  %s = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i, j)>, affine_map<(i, j) ->
      (i, j)>], iterator_types = ["parallel", "parallel"]} ins(%a, %b : tensor<4x8xbf16>, tensor<4x8xbf16>)
      outs(%e : tensor<4x8xf32>) ATTRIBUTES {
    ^bb0(%x: bf16, %y: bf16, %o: f32):
      %p = arith.extf %x : bf16 to f32
      %q = arith.extf %y : bf16 to f32
      %r = arith.addf %p, %q : f32
      linalg.yield %r : f32
  } -> tensor<4x8xf32>
  return
}
"""


def test_parts_of_numbers_are_drawn_as_such() -> None:
    """Kernels multiply the second parts of two operands by nothing, since a number's is 2^-9 of it at most."""
    with new_context():
        for attributes, lower in (("attrs = {inline}", {1}), ("", set())):
            module = ir.Module.parse(PARTS.replace("ATTRIBUTES", attributes))
            assert lower_parts(module.operation.regions[0].blocks[0].operations[0].operation) == lower
    arguments = tuple(Argument(name, 0, 64, "r") for name in "ul")
    group: Any = SimpleNamespace(main=SimpleNamespace(arguments=arguments), launches=())
    kinds, seed = [((4, 8), "bf16")] * 2, seeded.fresh_seed()
    plain, given = Given(group, kinds, seed), Given(group, kinds, seed, lower={1})
    (upper, other), (same, rest) = ([memory.number(each, "bf16") for each in one.arrays] for one in (plain, given))
    assert (upper == same).all() and (rest == other / 1024).all()


def test_truths_are_0_or_1() -> None:
    assert set(memory.elements(seeded.rng(), 99, "i1")) == {0, 1}


def test_the_table() -> None:
    case, other = "gpt2-xl rocm:gfx942 two bf16 exact", "gpt2-xl rocm:gfx942 two int8 exact"
    known = [Found(case, "a", "1", "right", by="float64", spills=0), Found(case, "b", "2", "right", by="cpu", spills=8),
             Found(case, "c", "3", "wrong", "3 is not 4", "float64", 0), Found(case, "", "", "done"),
             Found(other, "c", "3", "right", "", "float64", 0), Found(other, "a", "1", "too slow", spills=0),
             Found("gpt2-xl rocm:gfx942 two int8 fast", "d", "4", "too slow", "more than 2 s", spills=0)]  # fmt: skip
    said = table([vars(each) for each in known]).splitlines()
    assert said[2] == "| rocm:gfx942 | 2 of 3 | 1 | 4 | 1 | 1 | 1 | 0 | 0 | 1 | 1 |"
    assert said[4:] == [f"- {case}: c: wrong: 3 is not 4",
                        "- gpt2-xl rocm:gfx942 two int8 fast: d: too slow: more than 2 s",
                        f"- {case}: b: 8 bytes of a thread are in memory"]  # fmt: skip


def test_cheap_kernels_come_first_and_others_wait(small: Artifacts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that a block reads least for, as long as a case has time."""
    monkeypatch.setattr(run, "Artifacts", lambda *_: small)
    found = list(outcomes(SMALL, Path(), seeded.fresh_seed(), set(), Limits(few=5, seconds=20, case=0)))
    assert [each.how for each in found] == ["right", PART] and found[0].took > 0
    made = small
    kernels = dict(distinct(made.artifact, made.text))
    order = [kernels[key] for key in made.cheapest_first(list(kernels), kernels)]
    known = [made.has_reference(group) for group in order]
    assert known == sorted(known, reverse=True)
    bytes_of_blocks = [sum(a.nbytes for a in group.main.arguments) / np.prod(group.main.grid)
                       for group in order if made.has_reference(group)]  # fmt: skip
    assert bytes_of_blocks == sorted(bytes_of_blocks) and len(set(bytes_of_blocks)) > 1


def test_the_page_has_all_classes() -> None:
    """With a kernel that is right for each precision, and no class that is gone; of new types and entries, what is
    there."""
    rows = [line.strip("| ").split(" | ") for line in run.PAGE.read_text().splitlines() if line.startswith("| ")][2:]
    there = {tuple(row[:3]) for row in rows if int(row[4]) and int(row[5])}
    known = {case.kind[:3] for case in cases_of([], ())}
    assert {tuple(row[:3]) for row in rows} <= known
    begun = {*run.BEGUN_TYPES, *run.BEGUN_ENTRIES}
    assert {kind for kind in known if not begun & set(kind)} <= there
