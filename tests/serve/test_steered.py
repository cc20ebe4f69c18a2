"""Texts of grammars and drawn ones beside greedy ones, on a CPU whose steps run ahead as a GPU's do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_model, random_weights
from kernels.test_sampling import EXAMPLE, TINY
from serve.promise import PLACES, Following, Heard, Request, asked_alone

from lispgpt.cli.serve import serve
from lispgpt.execution.model import Model
from lispgpt.passes.targets import Cpu, find_target
from lispgpt.runtime.batch import Batch
from lispgpt.runtime.decoding import GREEDY, STEERED
from lispgpt.runtime.devices.base import READ_LATER_BYTES
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.near_ties import report_of
from lispgpt.runtime.samplers.adjustment import Adjustment, Penalties
from lispgpt.runtime.samplers.base import log_probability, real_of
from lispgpt.runtime.samplers.steering import most_probable
from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.serve.scheduler import Scheduler

VOCAB = TINY["vocab"]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Cpu, "runs_ahead", True)
        patch.setattr(type(find_target("cpu")), "prefill_chunks", (1,))
        given: dict[str, Any] = {name.replace("-", "_"): value for name, value in TINY.items()}
        one, several = ({"batch": batch, "positions": 1} for batch in (1, PLACES))
        made = compile_model(EXAMPLE, entries=[GREEDY], sizes=[one, several], **given)
        steered = compile_model(EXAMPLE, entries=[STEERED], sizes=[several], **given)
    with Model(made, random_weights(made)) as model:  # type: ignore[arg-type]
        assert model.session.entries(GREEDY)
        model.add([steered])
        yield model


def penalties(random: np.random.Generator) -> Penalties:
    """Of all kinds, and a few tokens' biases, one of which never comes."""
    tokens = random.choice(np.arange(8, VOCAB), 3, replace=False).tolist()
    biases = dict(zip(tokens, [*random.normal(0, 2, 2).tolist(), -np.inf], strict=True))
    return Penalties(float(random.uniform(0.5, 2)), float(random.normal()), float(random.normal(0, 0.5)), biases)


def test_a_step_takes_of_what_a_mask_lets_through(model: Model) -> None:
    """Each sequence as it is asked: drawn, or the most probable, which is told of as clearly as it wins; by penalties
    of its own; and as many of the most probable tokens as it wishes."""
    random, entry = seeded.rng(), model.session.entry(STEERED, batch=PLACES, positions=1)
    samplers = [Weighted(1.2, top_k, 0.95, 5, stream=n) for n, top_k in enumerate((30, 1, None, 1))]
    allowed = random.random((PLACES, VOCAB)) < 0.3
    allowed[:, 7], allowed[3] = True, np.arange(VOCAB) == 7
    bits = np.zeros((PLACES, -(-VOCAB // 32) * 32), bool)
    bits[:, :VOCAB] = allowed
    masks = np.packbits(bits, axis=1, bitorder="little").view(np.int32)
    tokens = random.integers(0, VOCAB, (PLACES, 1)).astype(np.int32)
    inputs = tokens, np.zeros((PLACES, 1), np.int32), np.stack([each.settings(0) for each in samplers]), masks
    own = [Adjustment(penalties(random), VOCAB) for _ in range(PLACES)]
    wishes = np.zeros((PLACES, 4), np.float32)
    for row, adjustment in enumerate(own):
        adjustment.read(random.integers(0, VOCAB, 9))
        for token in random.integers(0, VOCAB, 9):
            adjustment.wrote(token)
        wishes[row] = (*(adjustment.strengths if row != 2 else (0, 0, 0)), 6 * row)
    counts = np.stack([each.counts for each in own])
    with model.session.alone():
        found = model.session.run(entry.name, *inputs, wishes, np.stack([each.bias for each in own]), counts)
        counted = model.session.read(entry.inputs["counts"])
    counts[range(PLACES), found["next"]] += 1
    np.testing.assert_array_equal(counted, counts)
    for row, (sampler, let) in enumerate(zip(samplers, allowed, strict=True)):
        logits = found["logits"][row, :VOCAB]
        assert np.isclose(real_of(found["report"][row, 3]), log_probability(logits, found["next"][row]), atol=1e-5)
        tops = most_probable(logits, 6 * row)[: 6 * row]
        assert found["tops"][row, : 12 * row : 2].tolist() == [token for token, _ in tops]
        said = [real_of(bits) for bits in found["tops"][row, 1 : 12 * row : 2]]
        np.testing.assert_allclose(said, [value for _, value in tops], atol=1e-5)
        logits = np.where(let, logits if row == 2 else own[row](logits), np.float32(-np.inf))
        assert found["next"][row] == found["report"][row, 0] == sampler(logits)
        clear = real_of(found["report"][row, 2])
        if row in (1, 3):
            token, same, lead = report_of(logits)
            assert found["report"][row, :2].tolist() == [token, same] and clear > 0
            assert np.isinf(clear) == np.isinf(real_of(lead))
        else:
            assert found["report"][row, 1] == 1 and clear > 1e38


def test_tokens_beside_all_wishes_are_those_of_the_request_alone(model: Model) -> None:
    """Grammars, penalties, biases, log-probabilities and the most probable tokens: all on the device, as the host finds
    them by logits."""
    random, requests = seeded.rng(), []
    ways: list[dict[str, Any]] = [{"greedy": True}, {"temperature": 1.0, "seed": 3}, {"temperature": 0.8, "top_p": 0.9}]
    for number in range(20):
        options = {**ways[number % 3], "max_new_tokens": int(random.integers(2, 12))}
        if random.random() < 0.5:
            options |= {"frequency_penalty": float(random.normal()), "repeat_penalty": 1.3}
            options |= {"logit_bias": {int(random.integers(VOCAB)): 2.0}, "presence_penalty": 0.3}
        prompt = random.integers(0, VOCAB, random.integers(1, 9)).tolist()
        grammar = partial(Following, VOCAB, int(random.integers(1, 7))) if random.random() < 0.3 else None
        top = int(random.integers(1, 21)) if random.random() < 0.3 else 0
        seed = {} if "greedy" in options else {"seed": number}
        logprobs = {"logprobs": bool(top) or random.random() < 0.3}
        requests.append(Request(prompt, options | seed | logprobs, top, grammar=grammar))
    scheduler = Scheduler(model, PLACES, 100)
    try:
        assert scheduler._batch.other is not None and scheduler._batch.other.name == STEERED
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Batch, "_chosen", staticmethod(given_by_the_device))
            heard = Heard(scheduler, requests)
            heard.wait()
            alone = [asked_alone(scheduler, asked) for asked in requests]
        assert [said.whole for said in heard.said] == [said.whole for said in alone]
        assert not any(said.error for said in heard.said)
        scheduler._batch.other = None
        for asked, device in zip(requests, alone, strict=True):
            host = asked_alone(scheduler, asked)
            assert "".join(host.pieces) == "".join(device.pieces), asked
            assert (host.tokens, host.ended) == (device.tokens, device.ended), asked
            np.testing.assert_allclose(device.logprobs, host.logprobs, atol=1e-5)
            assert len(host.tops or []) == len(device.tops or [])
            for one, other in zip(host.tops or [], device.tops or [], strict=True):
                assert [token for token, _ in one] == [token for token, _ in other]
                np.testing.assert_allclose([x for _, x in one], [x for _, x in other], atol=1e-5)
    finally:
        scheduler.close()


def given_by_the_device(generator: Generator, given: Any) -> int:
    assert isinstance(given, list), "the host has to choose"
    return generator.accept(given)


def test_what_steps_report_of_all_places_is_read_while_others_run() -> None:
    """On GPUs, however many places a server may have."""
    most = next(option.type.max for option in serve.params if option.name == "places")  # type: ignore[attr-defined]
    words, nbytes = 4, 4
    assert most * words * nbytes <= READ_LATER_BYTES
