"""What is left of a model that was closed, and options of kinds that they are never of: an error, and no wait."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.runtime.options import Options

ROOT = Path(__file__).resolve().parent.parent


def test_a_text_of_a_closed_model_does_not_go_on() -> None:
    model = lispgpt.load(ROOT / "examples" / "gpt2_generate.lisp", checkpoint=ROOT / "examples" / "models" / "austen")
    text = model.generate([3, 5], max_new_tokens=40, greedy=True)
    first = next(iter(text))
    model.close()
    for _ in range(2):
        with pytest.raises(UserError, match="the model was closed"):
            next(iter(text))
    with model:
        assert next(iter(model.generate([3, 5], max_new_tokens=1, greedy=True))) == first, "it is opened again"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seed": "x"}, "seed is 'x', which must be a whole number"),
        ({"top_k": 2.5}, "top-k is 2.5, which must be a whole number"),
        ({"max_new_tokens": "9"}, "max-new-tokens is '9'"),
        ({"lookup": True}, "lookup is True"),
        ({"temperature": "hot"}, "temperature is 'hot', which must be a number"),
        ({"repeat_penalty": []}, r"repeat-penalty is \[\]"),
        ({"logit_bias": 3}, "logit-bias is 3, which must be a map"),
        ({"stop": 7}, "stop is 7, which must be a text"),
        ({"stop": ["a", 7]}, r"stop is \['a', 7\]"),
    ],
)
def test_options_of_another_kind_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        Options.of(given, {})
