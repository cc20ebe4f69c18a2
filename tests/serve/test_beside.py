"""Prompts that are taken in while a step of the others goes on, by a GPU made here that does both in any order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import seeded
from late_gpu import LateGpu, late_gpu
from serve.promise import check_promise, small_folder

import lispgpt
from lispgpt.execution import opening
from lispgpt.runtime.decoding import GROUPS, SHORT_PROMPT
from lispgpt.runtime.session import Session

PLACES = 2 * GROUPS


def test_tokens_beside_prompts_are_those_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of short prompts, some of which come together, and of chunks of longer ones; steps are started meanwhile."""
    random, began, both = seeded.rng(), list[str](), list[str]()
    folder = small_folder(tmp_path / "model", int(random.integers(1 << 20)))
    given: dict[str, Any] = {"batch": PLACES, "threads": 1, "cache": tmp_path / "cache"}
    launch, launch_beside, join = LateGpu.launch, LateGpu.launch_beside, LateGpu.join

    def noted(self: LateGpu, executable: Any) -> None:
        began.append("beside")
        launch_beside(self, executable)

    def launched(self: LateGpu, executable: Any) -> None:
        both.extend(began)
        launch(self, executable)

    def joined(self: LateGpu) -> None:
        began.clear()
        join(self)

    with lispgpt.load(folder, **given) as alone, monkeypatch.context() as patch:
        assert not alone.session.device.asynchronous  # which is opened here
        device = late_gpu(patch, float(random.choice([0.0, 0.5])), int(random.integers(1 << 30)))
        patch.setattr(opening, "open_device", lambda *_: device)
        patch.setattr(LateGpu, "launch_beside", noted)
        patch.setattr(LateGpu, "launch", launched)
        patch.setattr(LateGpu, "join", joined)
        with lispgpt.load(folder, **given) as model:
            for each in (model, alone):
                patch.setattr(each.session.device, "weight_rows", SHORT_PROMPT)
            check_promise(model, alone, random, 24, 0, PLACES)
            check_common(model.session, random)
    assert both


def check_common(session: Session, random: Any) -> None:
    """What has something in common with an entry that was started beside it waits for it, and what has not does not."""
    one, several = (session.entry("decode-greedy", batch=batch, positions=1) for batch in (1, PLACES))
    tokens = random.integers(0, 500, (8, PLACES, 1)).astype("int32")
    found: list[list[Any]] = []
    for start in (Session.start, Session.start_beside):
        found.append([])
        with session.alone():
            session.forget()
            for position, each in enumerate(tokens):
                start(session, one, {"tokens": each[:1], "positions": [[position]]})
                session.start(several, {"tokens": each, "positions": [[position]] * PLACES})
                if position % 3 == 2:
                    session.start(one, {"tokens": each[1:2], "positions": [[position]]})
                found[-1] += [session.result(entry, "logits").copy() for entry in (several, one)]
    assert all((a == b).all() for a, b in zip(*found, strict=True))
