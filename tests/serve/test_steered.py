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

from lispgpt.execution.model import Model
from lispgpt.passes.targets import Cpu, find_target
from lispgpt.runtime.decoding import GREEDY, STEERED
from lispgpt.runtime.near_ties import report_of
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


def test_a_step_takes_of_what_a_mask_lets_through(model: Model) -> None:
    """Each sequence as it is asked: drawn, or the most probable, which is told of as clearly as it wins."""
    random, entry = seeded.rng(), model.session.entry(STEERED, batch=PLACES, positions=1)
    samplers = [Weighted(1.2, top_k, 0.95, 5, stream=n) for n, top_k in enumerate((30, 1, None, 1))]
    allowed = random.random((PLACES, VOCAB)) < 0.3
    allowed[:, 7], allowed[3] = True, np.arange(VOCAB) == 7
    bits = np.zeros((PLACES, -(-VOCAB // 32) * 32), bool)
    bits[:, :VOCAB] = allowed
    masks = np.packbits(bits, axis=1, bitorder="little").view(np.int32)
    tokens = random.integers(0, VOCAB, (PLACES, 1)).astype(np.int32)
    inputs = tokens, np.zeros((PLACES, 1), np.int32), np.stack([each.settings(0) for each in samplers]), masks
    with model.session.alone():
        found = model.session.run(entry.name, *inputs)
    for row, (sampler, let) in enumerate(zip(samplers, allowed, strict=True)):
        logits = np.where(let, found["logits"][row, :VOCAB], np.float32(-np.inf))
        assert found["next"][row] == found["report"][row, 0] == sampler(logits)
        clear = found["report"][row, 2:].copy().view(np.float32)[0]
        if row in (1, 3):
            token, same, lead = report_of(logits)
            assert found["report"][row, :2].tolist() == [token, same] and clear > 0
            assert np.isinf(clear) == np.isinf(np.int32(lead).view(np.float32))
        else:
            assert found["report"][row, 1] == 1 and clear > 1e38


def test_tokens_beside_grammars_are_those_of_the_request_alone(model: Model) -> None:
    """And those that the host finds, which follows grammars by logits."""
    random, requests = seeded.rng(), []
    ways: list[dict[str, Any]] = [{"greedy": True}, {"temperature": 1.0, "seed": 3}, {"temperature": 0.8, "top_p": 0.9}]
    for number in range(12):
        way = ways[number % 3] | ({"frequency_penalty": 0.5} if number == 7 else {})
        options = {**way, "max_new_tokens": int(random.integers(2, 9))}
        prompt = random.integers(0, VOCAB, random.integers(1, 9)).tolist()
        grammar = partial(Following, VOCAB, int(random.integers(1, 7))) if random.random() < 0.4 else None
        seed = {} if "greedy" in way else {"seed": number}
        requests.append(Request(prompt, options | seed, grammar=grammar))
    scheduler = Scheduler(model, PLACES, 100)
    try:
        assert scheduler._batch.other is not None and scheduler._batch.other.name == STEERED
        heard = Heard(scheduler, requests)
        heard.wait()
        alone = [asked_alone(scheduler, asked).whole for asked in requests]
        assert [said.whole for said in heard.said] == alone and not any(said.error for said in heard.said)
        scheduler._batch.other = None
        assert [asked_alone(scheduler, asked).whole for asked in requests] == alone
    finally:
        scheduler.close()
