"""What plans may say of what is made of weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from made_weights import HEAD, OUT, compile_marked

from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Plan


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    with pytest.MonkeyPatch.context() as patch:
        return compile_marked(HEAD + OUT.replace("SHAPES", "{batch 2}"), tmp_path_factory.mktemp("made"), patch)


def changed(plan: Plan, where: str, step: int, argument: int, **fields: Any) -> Plan:
    """A plan with an argument of another kind in what makes weights, or in its first entry."""
    entry = plan.making if where == "making" else plan.entries[0]
    assert entry is not None
    steps = list(entry.steps)
    arguments = list(steps[step].arguments)
    arguments[argument] = replace(arguments[argument], **fields)
    steps[step] = replace(steps[step], kernel="another", arguments=tuple(arguments))
    entry = replace(entry, steps=tuple(steps))
    return replace(plan, making=entry) if where == "making" else replace(plan, entries=(entry, *plan.entries[1:]))


def without_last(plan: Plan) -> Plan:
    assert plan.making is not None
    return replace(plan, making=replace(plan.making, steps=plan.making.steps[:-1]))


def with_input(plan: Plan) -> Plan:
    assert plan.making is not None
    return replace(plan, making=replace(plan.making, inputs=plan.entries[0].inputs))


def place_of(plan: Plan, where: str, kind: str) -> tuple[int, int]:
    """The first step with an argument of a kind, and its number."""
    kinds = {buffer.name: buffer.kind for buffer in plan.buffers}
    entry = plan.making if where == "making" else plan.entries[0]
    assert entry is not None
    return next(
        (s, i) for s, step in enumerate(entry.steps) for i, a in enumerate(step.arguments) if kinds[a.buffer] == kind
    )


def a_state(plan: Plan) -> Plan:
    kinds = tuple(replace(b, kind="state") if b.name == "v" else b for b in plan.buffers)
    return replace(plan, buffers=kinds)


DAMAGED: dict[str, tuple[Callable[[Plan], Plan], str]] = {
    "nobody makes it": (lambda p: replace(p, making=None), r"nothing makes 'made/w\+v\.\w+'$"),
    "half of it is made": (without_last, r"nothing makes 'made/w\+v\.\w+' from byte 40 on$"),
    "an entry writes it": (
        lambda p: changed(p, "entry", *place_of(p, "entry", "made"), access="write"),
        r"entry 'out' \([^)]*\) writes 'made/.*', which is made of weights$",
    ),
    "it has inputs": (with_input, "what makes of weights has inputs"),
    "it reads a state": (a_state, "what is made of weights reads 'v'$"),
    "it writes a weight": (
        lambda p: changed(p, "making", *place_of(p, "making", "weight"), access="write"),
        "what is made of weights writes 'w'$",
    ),
    "it reaches past its buffer": (
        lambda p: changed(p, "making", *place_of(p, "making", "made"), offset=1 << 20),
        r"step 0 of entry 'make-weights' .*bytes 1048576",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_plan_is_refused(name: str, artifact: Artifact) -> None:
    damage, words = DAMAGED[name]
    plan = Plan.from_json(damage(artifact.plan).to_json())
    steps = [step for entry in plan.every for step in entry.launches]
    with pytest.raises(UserError, match=words) as caught:
        plan.validate({step.kernel: step.facts() for step in steps})
    assert caught.value.message.startswith("the artifact's plan is damaged: ")


@pytest.mark.parametrize("making", [[], "x", 3, {}, {"name": "x"}])
def test_a_misshapen_making_is_refused(making: Any, artifact: Artifact) -> None:
    with pytest.raises(UserError, match="plan is damaged"):
        Plan.from_json({**artifact.plan.to_json(), "making": making})
