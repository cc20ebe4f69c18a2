"""A field that is almost one of a request is told; others that mean nothing here pass, as clients send such."""

from __future__ import annotations

from typing import Any

import pytest

from lispgpt.serve.requests import BadRequest, Body, chat, completion

SAID = [{"role": "user", "content": "a"}]
EXTRA = {
    "user": "me",
    "metadata": {},
    "service_tier": "auto",
    "store": False,
    "parallel_tool_calls": True,
    "verbosity": "low",
}


@pytest.mark.parametrize(
    ("field", "meant"),
    [
        ("promt", "prompt"),
        ("temprature", "temperature"),
        ("max_token", "max_tokens"),
        ("top-p", "top_p"),
        ("Seed", "seed"),
    ],
)
def test_a_field_that_is_almost_one_is_told(field: str, meant: str) -> None:
    with pytest.raises(BadRequest, match=f"{field} is no field of a request: {meant} is") as raised:
        completion(Body({"model": "a", field: 1}))
    assert raised.value.param == field


@pytest.mark.parametrize("more", [{}, {"temperature": 1, "top_p": 0.5, "max_tokens": 3, "logprobs": None}])
def test_what_clients_send_beside_passes(more: dict[str, Any]) -> None:
    assert completion(Body({"prompt": "a", **EXTRA, **more})).prompts == ["a"]
    assert chat(Body({"messages": SAID, **EXTRA, **more})).messages
