"""The loss of texts by a model's logits, for programs that say how to generate and not how to train."""

from __future__ import annotations

import math

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.data.batches import IGNORED, Stream, sweep
from lispgpt.runtime.decoding import SCORE
from lispgpt.runtime.long_texts import tell_lengths
from lispgpt.runtime.session import Session
from lispgpt.runtime.training.trainer import Evaluation


def score(session: Session, stream: Stream, batch: int, length: int, most: int | None = None) -> Evaluation:
    """The loss of a stream of tokens by the entry `score-tokens`, in at most `most` batches spread over it.

    Every sequence begins at position 0, and with states of zeros where those add up over positions.
    """
    entry = session.entry(SCORE, batch=batch, length=length)
    positions = np.tile(np.arange(length, dtype=np.int32), (batch, 1))
    losses, correct, count = [], 0, 0
    for tokens, targets in sweep(stream, batch, length, most):
        asked = targets != IGNORED
        real = asked.reshape(-1)
        if not entry.repeatable:
            session.forget([entry])
        tell_lengths(session, [entry], asked.sum(1).tolist())
        session.start(entry, {"tokens": tokens, "positions": positions, "targets": np.maximum(targets, 0)})
        losses.append(float(session.result(entry, "losses")[real].sum(dtype=np.float64)))
        correct += int((session.result(entry, "next") == targets.reshape(-1))[real].sum())
        count += int(real.sum())
    if not count:
        raise UserError(f"there are {stream.count} tokens to evaluate, and two are the least")
    return Evaluation(math.fsum(losses) / count, correct, count)
