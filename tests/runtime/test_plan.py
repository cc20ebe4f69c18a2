"""What steps say of the bytes they touch: the graph that follows, and what the null device and debug runs find."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_model, random_weights

from lispgpt.base.errors import InternalError, UserError
from lispgpt.ir.access import check_access
from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import operations
from lispgpt.runtime.devices.checked import CheckedCpuDevice
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan import flow
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Buffer, Entry, Plan
from lispgpt.runtime.plan.steps import Argument, Launch
from lispgpt.runtime.session import Session

EXAMPLE = Path(__file__).resolve().parent.parent.parent / "examples" / "gpt2_generate.lisp"
BUFFERS = {b.name: b for b in (Buffer("w", "weight", (64,), "i8"), Buffer("arena", "arena", (64,), "i8"))}


def launch(*touched: tuple[str, int, int, str]) -> Launch:
    return Launch("k", (1, 1, 1), (1, 1, 1), 0, tuple(Argument(b, s, e - s, how) for b, s, e, how in touched))


def entry(*steps: Launch) -> Entry:
    return Entry("e", {}, {}, {}, steps)


def test_steps_wait_for_those_that_touch_their_bytes_before_them_and_for_no_others() -> None:
    steps = (
        launch(("arena", 0, 8, "write")),
        launch(("arena", 8, 16, "write")),
        launch(("arena", 0, 8, "read"), ("arena", 16, 24, "accumulate")),
        launch(("arena", 8, 16, "read"), ("arena", 20, 28, "accumulate")),
        launch(("arena", 16, 24, "read_write"), ("arena", 0, 4, "write")),
        launch(("w", 0, 8, "read")),
    )
    assert flow.dependencies(steps) == ((), (), (0,), (1,), (2, 3), ())


def test_dependencies_reach_every_conflict_and_no_edge_is_spare() -> None:
    seed = seeded.fresh_seed()
    rng = np.random.default_rng(seed)
    for _ in range(30):
        ends = np.sort(rng.integers(0, 12, (10, 2, 2)), -1)
        modes = rng.choice(["read", "write", "read_write", "accumulate"], (10, 2))
        steps = [
            launch(*(("arena", int(a), int(b) + 1, str(how)) for (a, b), how in zip(spans, hows, strict=True)))
            for spans, hows in zip(ends, modes, strict=True)
        ]
        waits, reached = flow.dependencies(steps), []
        for number, before in enumerate(waits):
            far = set().union(*(reached[i] for i in before)) if before else set()
            assert not far & set(before), f"seed {seed}"
            reached.append(far | set(before))
            conflicts = {
                i
                for i in range(number)
                if any(a.conflicts(b) for a in steps[number].arguments for b in steps[i].arguments)
            }
            assert conflicts <= reached[number] and set(before) <= conflicts, f"seed {seed}"


FAULTS = {
    "an unwritten read": ([launch(("arena", 0, 8, "write")), launch(("arena", 4, 12, "read"))], "nothing has written"),
    "a change of nothing": ([launch(("arena", 0, 8, "read_write"))], "nothing has written"),
    "two live values in one place": (
        [launch(("arena", 0, 8, "write")), launch(("arena", 4, 12, "write")), launch(("arena", 0, 8, "read"))],
        "steps 0, 1 wrote over each other",
    ),
    "a value inside another": (
        [launch(("arena", 0, 8, "write")), launch(("arena", 2, 4, "write")), launch(("arena", 0, 8, "read"))],
        "wrote over each other",
    ),
    "one place written twice at once": ([launch(("arena", 0, 8, "write"), ("arena", 4, 12, "write"))], "twice"),
    "reading what it writes": (
        [launch(("arena", 0, 8, "write")), launch(("arena", 0, 4, "read"), ("arena", 2, 8, "write"))],
        "reads bytes .* and writes them",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_in_a_plans_flow_are_found(name: str) -> None:
    steps, words = FAULTS[name]
    with pytest.raises(UserError, match=words):
        flow.check(entry(*steps), BUFFERS)


def test_right_flows_pass() -> None:
    steps = [
        launch(("w", 0, 64, "read_write"), ("arena", 0, 16, "write")),
        launch(("arena", 4, 8, "read_write"), ("arena", 16, 24, "write")),
        launch(("arena", 0, 16, "read"), ("arena", 16, 24, "accumulate")),
        launch(("arena", 0, 8, "write"), ("arena", 16, 24, "read")),
        launch(("arena", 0, 8, "read")),
        launch(("arena", 8, 12, "write")),
        launch(("arena", 0, 12, "read")),
    ]
    flow.check(entry(*steps), BUFFERS)


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return compile_model(EXAMPLE, layers=2, heads=2, width=16, vocab=13, padded_vocab=16, context=20)


def changed(artifact: Artifact, name: str, step: int, argument: int, **fields: object) -> Artifact:
    """The artifact with one argument of one launch saying something else, in every entry of that name."""
    entries = []
    for made in artifact.plan.entries:
        steps = list(made.steps)
        if made.name == name:
            arguments = list(steps[step].arguments)
            arguments[argument] = replace(arguments[argument], **fields)  # type: ignore[arg-type]
            steps[step] = replace(steps[step], arguments=tuple(arguments))
        entries.append(replace(made, steps=tuple(steps)))
    return replace(artifact, plan=Plan(artifact.plan.buffers, tuple(entries)))


def generate(artifact: Artifact, device: NullDevice | CheckedCpuDevice) -> list[int]:
    with Session(artifact, device, random_weights(artifact)) as session:  # type: ignore[arg-type]
        return list(Generator(session, "logits").generate([1, 2, 3], 4))


def test_every_launch_of_a_model_does_what_it_says(artifact: Artifact) -> None:
    device = CheckedCpuDevice(2)
    assert len(generate(artifact, device)) == 4
    assert device.checked >= 4 * min(len(entry.steps) for entry in artifact.plan.entries)


SEEDED = {
    "writes what it says it reads": (("write", {"access": "read"}), "only reads its argument"),
    "reads what it says it writes": (("read", {"access": "write"}), "are not written, or depend"),
    "writes more bytes than it says": (("write", {"nbytes": 8}), "writes outside its argument"),
    "reads more bytes than it says": (("read", {"nbytes": 4}), "are not written, or depend"),
    "writes fewer bytes than it says": (("write", {"longer": 16}), "are not written, or depend"),
}


@pytest.mark.parametrize("name", SEEDED)
def test_a_debug_run_finds_launches_that_do_something_else(name: str, artifact: Artifact) -> None:
    (access, fields), words = SEEDED[name]
    made = next(e for e in artifact.plan.entries if e.name == "prefill")
    places = [
        (number, i)
        for number, step in enumerate(made.steps)
        for i, argument in enumerate(step.arguments)
        if argument.access == access and argument.nbytes > 64 and not step.kernel.startswith("attention")
    ]
    rng = seeded.rng()
    number, i = places[rng.integers(len(places))]
    if "longer" in fields:
        fields = {"nbytes": made.steps[number].arguments[i].nbytes + 16}
    wrong = changed(artifact, "prefill", number, i, **fields)
    device = CheckedCpuDevice(1)
    device.careful = False  # the flow of such a plan is wrong too
    with pytest.raises(UserError, match=words) as caught:
        generate(wrong, device)
    assert f"step {number} of entry prefill" in caught.value.message


def test_the_null_device_refuses_a_plan_whose_values_share_memory(artifact: Artifact) -> None:
    made = artifact.plan.entries[0]
    number, step = next((n, s) for n, s in enumerate(made.steps) if n and s.arguments[-1].buffer == "arena")
    live = next(a for s in made.steps[number + 1 :] for a in s.arguments if a.buffer == "arena" and a.reads)
    place = len(step.arguments) - 1
    wrong = changed(artifact, made.name, number, place, offset=live.offset + 4)
    with pytest.raises(UserError, match=r"nothing has written|wrote over each other|reads bytes"):
        generate(wrong, NullDevice())


def test_a_kernel_that_writes_what_it_says_it_reads_is_no_kernel() -> None:
    text = """func.func @k(%a: memref<4xf32>, %b: memref<4xf32>) attributes {access = ["read", "write"]} {
      %i = arith.constant 1 : index
      %v = memref.load %a[%i] : memref<4xf32>
      %part = memref.subview %a[0] [2] [1] : memref<4xf32> to memref<2xf32, strided<[1]>>
      memref.store %v, %b[%i] : memref<4xf32>
      STORE
      return }"""
    for store, wrong in (("", False), ("memref.store %v, %part[%i] : memref<2xf32, strided<[1]>>", True)):
        with new_context(), ir.Location.unknown():
            module = ir.Module.parse(text.replace("STORE", store))
            (kernel,) = operations(module.body)
            if wrong:
                with pytest.raises(InternalError, match=r"only reads argument 0, and writes it: memref\.store"):
                    check_access(kernel)
            else:
                check_access(kernel)
