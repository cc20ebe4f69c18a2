"""The texts that a request wants, held to what the model can do."""

from __future__ import annotations

from lispgpt.chat.prompt_tokens import prompt_of
from lispgpt.chat.reasoning import Answer, marks_of
from lispgpt.chat.tool_calls import ToolAnswer, family_of
from lispgpt.serve import requests
from lispgpt.serve.models import Served
from lispgpt.serve.requests import Asked, BadRequest
from lispgpt.serve.scheduler import Job
from lispgpt.serve.streams import Choice


def choices_of(served: Served, asked: Asked) -> list[Choice]:
    """The texts that a request wants; UserError and BadRequest for what none can be."""
    made: list[Choice] = []
    prompts = (
        [conversation(served, asked)] if asked.messages else [served.model.prompt(prompt) for prompt in asked.prompts]
    )
    if len(prompts) * asked.n > requests.MOST_PROMPTS:
        raise BadRequest(f"one request has up to {requests.MOST_PROMPTS} texts", "n")
    context, vocab = served.scheduler.context, int(served.model.session.config["vocab"])
    grammars, form = served.grammars, asked.form
    grammar = grammars.of_calls(asked.forced) if asked.forced else None if form is None else grammars.of_form(form)
    for tokens in prompts:
        if not tokens or not 0 <= min(tokens) <= max(tokens) < vocab:
            raise BadRequest(f"a prompt has tokens, each from 0 to {vocab - 1}", "prompt")
        if len(tokens) >= context:
            message = f"the prompt has {len(tokens):,} tokens, and the model's context is {context:,}"
            raise BadRequest(message, "messages" if asked.messages else "prompt", code="context_length_exceeded")
        room = context - len(tokens)
        most = min(asked.options.get("max_new_tokens", room), room)
        given = {**asked.options, "max_new_tokens": max(1, most), "logprobs": asked.logprobs is not None}
        options = served.model.options(**given)
        options.adjustment(vocab)  # says what is wrong with biases
        for number in range(asked.n):
            job = Job(tokens, options, number=number, priority=asked.priority, grammar=grammar, adapter=asked.adapter)
            job.top = asked.logprobs or 0
            made.append(Choice(len(made), job))
    if asked.messages:
        _tell_apart(served, asked, made)
    return made


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
