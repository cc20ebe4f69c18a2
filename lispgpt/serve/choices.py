"""The texts that a request wants, held to what the model can do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lispgpt.chat.prompt_tokens import prompt_of
from lispgpt.chat.reasoning import Answer, marks_of
from lispgpt.chat.tool_calls import ToolAnswer, family_of
from lispgpt.serve import requests
from lispgpt.serve.jobs import Job
from lispgpt.serve.models import Served
from lispgpt.serve.requests import Asked, BadRequest
from lispgpt.serve.streams import Choice


def choices_of(served: Served, asked: Asked, chat: bool) -> list[Choice]:
    """The texts that a request wants; UserError and BadRequest for what none can be."""
    made: list[Choice] = []
    prompts = [conversation(served, asked)] if chat else [served.model.prompt(prompt) for prompt in asked.prompts]
    if len(prompts) * asked.n > requests.MOST_PROMPTS:
        raise BadRequest(f"one request has up to {requests.MOST_PROMPTS} texts", "n")
    context, vocab = served.scheduler.context, int(served.model.session.config["vocab"])
    grammar = _grammar(served, asked)
    for tokens in prompts:
        if not tokens or not 0 <= min(tokens) <= max(tokens) < vocab:
            raise BadRequest(f"a prompt has tokens, each from 0 to {vocab - 1}", "prompt")
        if len(tokens) >= context:
            message = f"the prompt has {len(tokens):,} tokens, and the model's context is {context:,}"
            raise BadRequest(message, "messages" if chat else "prompt", code="context_length_exceeded")
        room = context - len(tokens)
        most = min(asked.options.get("max_new_tokens", room), room)
        given = {**asked.options, "max_new_tokens": max(1, most), "logprobs": asked.logprobs is not None}
        options = served.model.options(**given)
        options.adjustment(vocab)  # says what is wrong with biases
        for number in range(asked.n):
            job = Job(tokens, options, _nobody, number, asked.priority, grammar, asked.logprobs or 0, asked.adapter)
            made.append(Choice(len(made), job))
    if chat:
        _tell_apart(served, asked, made)
    return made


def _nobody(*_: object) -> None:
    return


def conversation(served: Served, asked: Asked) -> list[int]:
    """The tokens of a conversation as the model's template renders it."""
    tokens, asked.rendered = prompt_of(served.template, served.tokenizer, asked.messages, asked.tools, **asked.template)
    return tokens


def _tell_apart(served: Served, asked: Asked, choices: list[Choice]) -> None:
    """Have answers' reasoning and calls told apart from what is said; what has to have a form is none of these."""
    if asked.form is not None or asked.forced:
        return
    marks, family = marks_of(served.template.source), family_of(served.template.source)
    for choice in choices:
        choice.answer = Answer(marks, asked.rendered) if marks else None
        choice.tools = ToolAnswer(family) if asked.tools else None


def _grammar(served: Served, asked: Asked) -> Callable[[], Any] | None:
    if asked.forced:
        calls = [_call_of(each) for each in asked.forced]
        return served.grammars.of_schema({"anyOf": calls} if len(calls) > 1 else calls[0])
    match asked.form:
        case None:
            return None
        case {"schema": schema}:
            return served.grammars.of_schema(schema)
        case {"pattern": pattern}:
            return served.grammars.of_regex(pattern)
        case {"choices": choices}:
            return served.grammars.of_choices(choices)
        case _:
            return served.grammars.of_json()


def _call_of(function: dict[str, Any]) -> dict[str, Any]:
    """The schema of a call of a function."""
    properties = {"name": {"const": function["name"]}, "arguments": function.get("parameters") or {"type": "object"}}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
