"""What is left of a model that was closed, and options and prompts of kinds that they are never of: an error each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.runtime.options import Options
from lispgpt.runtime.text import tokens_of

ROOT = Path(__file__).resolve().parent.parent


def test_a_text_of_a_closed_model_does_not_go_on() -> None:
    model = lispgpt.load(ROOT / "examples" / "gpt2_generate.lisp", checkpoint=ROOT / "examples" / "models" / "austen")
    text = model.generate([3, 5], max_new_tokens=40, greedy=True)
    first = next(iter(text))
    model.close()
    for _ in range(2):
        with pytest.raises(UserError, match="the model was closed"):
            next(iter(text))
    for use in (lambda: model.generate([3, 5]), lambda: model.logits([3]), lambda: model.session):
        with pytest.raises(UserError, match="the model was closed"):
            list(use())  # type: ignore[no-untyped-call]
    model.close()
    with model:
        assert next(iter(model.generate([3, 5], max_new_tokens=1, greedy=True))) == first, "it is opened again"


def test_a_model_in_a_forked_process_says_so() -> None:
    """The threads that run kernels are not in the child: it would wait for them for good."""
    with lispgpt.load(ROOT / "examples" / "gpt2_generate.lisp", ROOT / "examples" / "models" / "austen") as model:
        expected = list(model.generate([3, 5], max_new_tokens=3, greedy=True))
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                list(model.generate([3, 5], max_new_tokens=3, greedy=True))
            except BaseException as error:
                os.write(write, str(error).encode())
            model.close()
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as said:
            assert "load it in each process" in said.read()
        assert os.waitpid(child, 0)[1] == 0
        assert list(model.generate([3, 5], max_new_tokens=3, greedy=True)) == expected


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


@pytest.mark.parametrize("prompt", [[1.5], None, 3, {1: 2}, ["a"], [True], [[1], [2, 3]], np.ones((1, 2), np.int32)])
def test_a_prompt_of_another_kind_is_refused(prompt: Any) -> None:
    with pytest.raises(UserError, match="a prompt is a text or a list of token ids, and not "):
        tokens_of(prompt, None)


def test_token_ids_come_in_lists_and_arrays() -> None:
    assert [tokens_of(ids, None) for ids in ([1, 2], (1, 2), range(1, 3), np.array([1, 2], np.uint16))] == [[1, 2]] * 4


def test_one_text_is_no_list_of_prompts() -> None:
    with (
        lispgpt.load(ROOT / "examples" / "gpt2_generate.lisp", ROOT / "examples" / "models" / "austen") as model,
        pytest.raises(UserError, match="takes a list of prompts"),
    ):
        model.generate_batch("abc")
