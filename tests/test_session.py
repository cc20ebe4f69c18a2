"""Sessions on the null device: what is launched, what is refused, and that nothing is written outside a buffer."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_model, open_poisoned, random_weights

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices import open_device
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Plan
from lispgpt.runtime.plan.steps import Argument
from lispgpt.runtime.samplers import Sampler, make_sampler
from lispgpt.runtime.session import Session

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "gpt2_generate.lisp"


@pytest.fixture(scope="module")
def artifact() -> Artifact:
    return compile_model(EXAMPLE, batch=3, layers=3, heads=2, width=8, vocab=13, padded_vocab=16, context=20)


def open_null(artifact: Artifact, weights: Weights | None = None) -> tuple[Session, NullDevice]:
    device = NullDevice()
    return Session(artifact, device, weights or random_weights(artifact)), device  # type: ignore[arg-type]


def test_every_launch_of_an_entry_is_made_once_a_step(artifact: Artifact) -> None:
    session, device = open_null(artifact)
    with session:
        for entry in artifact.plan.entries:
            before = device.launched.copy()
            zeros = np.zeros((entry.sizes["batch"], entry.sizes["positions"]), np.int32)
            results = session.run(entry.name, zeros, zeros)
            made = device.launched - before
            assert sum(made.values()) == len(entry.launches)
            assert made == {kernel: [x.kernel for x in entry.launches].count(kernel) for kernel in made}
            assert results["logits"].shape == (entry.sizes["batch"], 16)
            assert results["next"].shape == (entry.sizes["batch"],)
            assert device.check_guards()


def test_inputs_arrive_and_states_stay(artifact: Artifact) -> None:
    session, _ = open_null(artifact)
    rng = seeded.rng()
    with session:
        session._buffers["kv"][:] = 7
        for entry in artifact.plan.entries:
            tokens, places = rng.integers(0, 13, (2, entry.sizes["batch"], entry.sizes["positions"])).astype(np.int32)
            session.run(entry.name, tokens=tokens, positions=places)
            np.testing.assert_array_equal(session.read(entry.inputs["tokens"]), tokens)
            np.testing.assert_array_equal(session.read(entry.inputs["positions"]), places)
        assert (session.read("kv").view(np.uint8) == 7).all()


def test_large_inputs_wait_for_what_devices_do_together(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    """To copy them waits for the device, which would go on for ever where another one does not come."""
    order: list[str] = []
    monkeypatch.setattr("lispgpt.runtime.session.INPUT_BYTES", 8)
    session, device = open_null(artifact)
    engine = SimpleNamespace(settle=lambda: order.append("settle"), close=lambda: None)
    with session:
        session.engine = engine  # type: ignore[assignment]
        monkeypatch.setattr(device, "copy_in_together", lambda _: order.append("copy"))
        for batch in (1, 3):
            session.put(session.entry("decode-greedy", batch=batch), {"tokens": np.zeros((batch, 1), np.int32)})
    assert order == ["copy", "settle", "copy"]


def test_a_generator_prefills_in_chunks_and_decodes_one_by_one(artifact: Artifact) -> None:
    session, device = open_null(artifact)
    with session:
        tokens = list(Generator(session, "logits").generate([1] * 15, 4))
        assert tokens == [0] * 4
        head = session.entry("decode-greedy", batch=1).launches[-1].kernel
        assert device.launched[head] == 1 + 3
        assert device.check_guards()


def test_shapes_that_were_not_compiled_are_refused(artifact: Artifact) -> None:
    session, _ = open_null(artifact)
    zeros = np.zeros((2, 5), np.int32)
    with session, pytest.raises(UserError, match=r"tokens \[1 16\].*not tokens \[2 5\], positions \[2 5\]$"):
        session.run("prefill", zeros, zeros)


@pytest.mark.parametrize("position", [-1, 20, 1000])
def test_positions_that_a_state_does_not_have_are_refused(artifact: Artifact, position: int) -> None:
    """A row would be written to what lies beside the state."""
    session, device = open_null(artifact)
    one = np.zeros((1, 1), np.int32)
    with session, pytest.raises(UserError, match=rf"positions has {position}, .* for 0 to 19$"):
        session.run("decode-greedy", one, one + position)
    with session:
        assert not device.launched


def test_a_program_for_the_cpu_draws_no_tokens_by_itself(artifact: Artifact) -> None:
    session, _ = open_null(artifact)
    one = np.zeros((1, 1), np.int32)
    with session, pytest.raises(UserError, match="there is no entry 'decode-drawn'; there are prefill, decode-greedy"):
        session.run("decode-drawn", one, one, np.zeros((1, 8), np.int32))


@pytest.mark.parametrize("sampler", [None, make_sampler(greedy=True), make_sampler(seed=1)])
def test_damaged_weights_end_in_one_line(artifact: Artifact, sampler: Sampler | None) -> None:
    weights = changed(random_weights(artifact), lnf_b=np.full(8, np.nan, np.float32))
    with open_poisoned(artifact, weights) as session, pytest.raises(UserError, match="the model's best logit is"):
        list(Generator(session, "logits", sampler).generate([1, 2], 3))


def changed(weights: Weights, **values: np.ndarray) -> Weights:
    return Weights({**weights.values, **{k.replace("_", "-"): v for k, v in values.items()}}, weights.bf16)


def test_weights_that_do_not_fit_are_refused(artifact: Artifact) -> None:
    weights = random_weights(artifact)
    with pytest.raises(UserError, match=r"'lnf-w' is \[8\] in the program, \[9\]"):
        open_null(artifact, changed(weights, lnf_w=np.zeros(9, np.float32)))
    less = {name: values for name, values in weights.values.items() if name != "wpe"}
    with pytest.raises(UserError, match="no weight 'wpe'"):
        open_null(artifact, Weights(less, weights.bf16))


def test_a_session_that_cannot_be_gives_its_device_back(artifact: Artifact) -> None:
    class Watched(NullDevice):
        closed = 0

        def close(self) -> None:
            super().close()
            self.closed += 1

    device = Watched()
    with pytest.raises(UserError, match="no weight"):
        Session(artifact, device, Weights({}, frozenset()))  # type: ignore[arg-type]
    assert device.closed == 1


def test_the_null_device_sees_an_argument_past_its_buffer(artifact: Artifact) -> None:
    entry = artifact.plan.entries[0]
    first = entry.launches[0]
    wide = replace(first, arguments=(Argument("kv", 0, 1 << 30, "read"), *first.arguments[1:]))
    plan: Any = Plan(artifact.plan.buffers, (replace(entry, steps=(wide,)),))
    session, _ = open_null(replace(artifact, plan=plan))
    with session, pytest.raises(UserError, match="past the end of buffer 'kv'"):
        session.device.prepare(session.artifact.plan.entries[0], session._buffers)


def test_the_guards_notice_a_stray_byte(artifact: Artifact) -> None:
    session, device = open_null(artifact)
    with session:
        assert device.check_guards()
        device._guarded[3][-1] ^= 1
        assert not device.check_guards()


def test_an_unknown_target_has_no_device() -> None:
    assert open_device("null").name.startswith("null")
    with pytest.raises(UserError, match="abacus"):
        open_device("abacus:9")
