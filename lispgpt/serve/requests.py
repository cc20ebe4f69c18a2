"""What a request says, held to bounds: every number, and how many texts and how long they are."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from lispgpt.chat.messages import NoMessage, is_text, message_of
from lispgpt.chat.responses import NotKnown, chat_of

MOST_CHOICES, MOST_STOPS, LONGEST_STOP, MOST_MESSAGES, MOST_TOOLS, MOST_BIASES = 16, 16, 1000, 4096, 128, 1024
MOST_PROMPTS, MOST_TOP, LONGEST_SCHEMA, LONGEST_NAME = 64, 20, 100_000, 256
ALMOST = 0.85  # alike, of letters
OF_TEMPLATES = {"messages", "tools", "template", "tokenizer", "generation_prompt", "add_generation_prompt", "now"}


class BadRequest(Exception):
    """What a client did wrong.  param: the field that it is about."""

    def __init__(self, message: str, param: str | None = None, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.message, self.param, self.status, self.code = message, param, status, code

    def body(self) -> dict[str, Any]:
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}


@dataclass
class Asked:
    """What is wanted of a model, of `prompts` (texts or tokens) or of `messages`.

    options: those of `lispgpt.runtime.options` that were given.  n: texts of each prompt.  logprobs: whether to tell
    log-probabilities, and of how many of the most probable tokens beside.  form: what the text has to be, or None.
    tools: as the template is told of them.  forced: the functions of which one has to be called.
    adapter: of the model's, 0 for none.
    """

    model: str
    options: dict[str, Any]
    prompts: list[str | list[int]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    n: int = 1
    stream: bool = False
    usage: bool = False
    logprobs: int | None = None
    form: Mapping[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    forced: list[dict[str, Any]] = field(default_factory=list)
    echo: bool = False
    priority: int = 0
    template: dict[str, Any] = field(default_factory=dict)
    rendered: str = ""
    adapter: int = 0


class Body:
    """A JSON object, asked field by field."""

    def __init__(self, found: dict[str, Any]) -> None:
        self.found, self.known = found, set[str]()

    @staticmethod
    def of(data: bytes) -> Body:
        try:
            found = json.loads(data, parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise BadRequest("the body is not JSON") from None
        if not isinstance(found, dict):
            raise BadRequest("the body is not a JSON object")
        return Body(found)

    def get(self, name: str) -> Any:
        self.known.add(name)
        return self.found.get(name)

    def check_spelling(self) -> None:
        """Of fields that nobody asks for: clients send some that mean nothing here, but none that is almost one."""
        for name in self.found.keys() - self.known:
            if near := get_close_matches(name.lower().replace("-", "_"), self.known - self.found.keys(), 1, ALMOST):
                raise BadRequest(f"{name} is no field of a request: {near[0]} is", name)

    def number(self, name: str, least: float, most: float, whole: bool = False) -> Any:
        def right(value: Any) -> bool:
            number = type(value) is int or (type(value) is float and not whole and math.isfinite(value))
            return number and least <= value <= most

        return self._of(name, None, right, f"{'a whole number' if whole else 'a number'} from {least} to {most}")

    def flag(self, name: str) -> bool:
        return bool(self._of(name, False, lambda value: isinstance(value, bool), "true or false"))

    def text(self, name: str, most: int, default: str = "") -> str:
        said = f"a text of at most {most:,} characters"
        return str(self._of(name, default, lambda value: is_text(value) and len(value) <= most, said))

    def one_of(self, name: str, known: tuple[str, ...]) -> str:
        """One of some words, of which the first is meant where nothing is said."""
        return str(self._of(name, known[0], known.__contains__, f"one of {', '.join(known)}"))

    def object(self, name: str) -> dict[str, Any]:
        return dict(self._of(name, {}, lambda value: isinstance(value, dict), "an object"))

    def _of(self, name: str, default: Any, right: Callable[[Any], bool], said: str) -> Any:
        """A field that is right, or the default where it is not given."""
        value = self.get(name)
        if value is not None and not right(value):
            raise BadRequest(f"{name} is {said}", name)
        return default if value is None else value


def _no_number(name: str) -> None:
    raise ValueError(name)


def completion(body: Body) -> Asked:
    """What POST /v1/completions asks for."""
    if body.get("suffix") or body.get("best_of") not in (None, body.get("n"), 1):
        raise BadRequest("suffix and best_of are not known here")
    asked = _common(body)
    asked.prompts = prompts(body.get("prompt") if body.get("prompt") is not None else "")
    asked.logprobs = body.number("logprobs", 0, MOST_TOP, whole=True)
    asked.echo = body.flag("echo")
    asked.options.setdefault("max_new_tokens", 16)
    body.check_spelling()
    return asked


def prompts(given: Any, name: str = "prompt") -> list[str | list[int]]:
    """A text, tokens, or a list of either."""
    if isinstance(given, str) or (isinstance(given, list) and given and all(type(t) is int for t in given)):
        given = [given]
    if not isinstance(given, list) or not 0 < len(given) <= MOST_PROMPTS or not all(map(_is_prompt, given)):
        raise BadRequest(f"{name} is a text, a list of tokens, or up to {MOST_PROMPTS} of these", name)
    return given


def _is_prompt(given: Any) -> bool:
    if isinstance(given, list):
        return bool(given) and all(type(token) is int and 0 <= token < 1 << 31 for token in given)
    return is_text(given)


def chat(body: Body) -> Asked:
    """What POST /v1/chat/completions asks for."""
    asked = conversation(body)
    top = body.number("top_logprobs", 0, MOST_TOP, whole=True)
    if body.flag("logprobs"):
        asked.logprobs = top or 0
    elif top:
        raise BadRequest("top_logprobs wants logprobs", "top_logprobs")
    most = body.number("max_completion_tokens", 0, 1 << 24, whole=True)
    if most is not None:
        asked.options["max_new_tokens"] = most
    body.check_spelling()
    return asked


def response(body: Body) -> Asked:
    """What POST /v1/responses asks for."""
    try:
        asked = chat(Body(chat_of(body.found)))
    except NotKnown as error:
        raise BadRequest(str(error), error.field) from None
    asked.usage = True  # which the last event has
    return asked


def conversation(body: Body) -> Asked:
    """What is said in a request, and what tools there are."""
    asked, given = _common(body), body.get("messages")
    if not isinstance(given, list) or not 0 < len(given) <= MOST_MESSAGES:
        raise BadRequest(f"messages is a list of 1 to {MOST_MESSAGES} messages", "messages")
    try:
        asked.messages = [message_of(each, MOST_TOOLS) for each in given]
    except NoMessage as error:
        raise BadRequest(str(error), "messages") from None
    asked.tools, asked.forced = _tools(body)
    asked.template = body.object("chat_template_kwargs")
    if OF_TEMPLATES & set(asked.template):
        raise BadRequest("chat_template_kwargs are other values than those that a request has", "chat_template_kwargs")
    return asked


def _common(body: Body) -> Asked:
    penalty = {name: body.number(name, -2, 2) for name in ("presence_penalty", "frequency_penalty")}
    options = {
        **penalty,
        "max_new_tokens": body.number("max_tokens", 0, 1 << 24, whole=True),
        "temperature": body.number("temperature", 0, 100),
        "top_p": body.number("top_p", 0, 1),
        "top_k": body.number("top_k", -1, 1 << 24, whole=True),
        "min_p": body.number("min_p", 0, 1),
        "repeat_penalty": body.number("repetition_penalty", 0.01, 100),
        "seed": body.number("seed", -(1 << 63), (1 << 64) - 1, whole=True),
        "stop": _stops(body.get("stop")),
        "logit_bias": _biases(body.object("logit_bias")),
    }
    options = {name: value for name, value in options.items() if value not in (None, (), {})}
    if options.get("top_p") == 0:
        options |= {"top_p": 1e-9}
    if options.get("top_k") == -1:
        options.pop("top_k")
    if "seed" in options:
        options["seed"] %= 1 << 64
    asked = Asked(body.text("model", LONGEST_NAME), options, n=body.number("n", 1, MOST_CHOICES, whole=True) or 1)
    asked.stream, asked.usage = body.flag("stream"), bool(body.object("stream_options").get("include_usage"))
    asked.form, asked.priority = _form(body.object("response_format")), body.number("priority", -100, 100, True) or 0
    return asked


def _stops(given: Any) -> tuple[str, ...]:
    stops = [given] if isinstance(given, str) else [] if given is None else given
    right = isinstance(stops, list) and len(stops) <= MOST_STOPS
    if not right or not all(isinstance(stop, str) and 0 < len(stop) <= LONGEST_STOP for stop in stops):
        raise BadRequest(f"stop is a text of 1 to {LONGEST_STOP} characters, or up to {MOST_STOPS} of these", "stop")
    return tuple(stops)


def _biases(given: Mapping[str, Any]) -> dict[int, float]:
    try:
        found = {int(token): float(bias) for token, bias in given.items()}
    except (TypeError, ValueError, OverflowError):
        found = {-1: 0.0}
    if len(found) > MOST_BIASES or not all(token >= 0 and -100 <= bias <= 100 for token, bias in found.items()):
        raise BadRequest(f"logit_bias has up to {MOST_BIASES} tokens with numbers from -100 to 100", "logit_bias")
    return {token: -math.inf if bias == -100 else bias for token, bias in found.items()}


def _form(given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """{"schema"}, {"pattern"}, {"choices"}, or {} for any JSON object; None where the text is free."""
    kind = given.get("type", "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return {}
    if len(json.dumps(given)) > LONGEST_SCHEMA:
        raise BadRequest(f"response_format has more than {LONGEST_SCHEMA:,} characters", "response_format")
    named = given.get("json_schema")
    if kind == "json_schema" and isinstance(named, dict) and isinstance(named.get("schema"), dict | bool):
        return {"schema": named["schema"]}
    if kind == "regex" and isinstance(given.get("pattern"), str):
        return {"pattern": given["pattern"]}
    choices = given.get("choices")
    if kind == "choice" and isinstance(choices, list) and choices and all(isinstance(c, str) and c for c in choices):
        return {"choices": choices}
    raise BadRequest(
        'response_format is of the type "text", "json_object", "json_schema" with {"json_schema": {"schema"}}, "regex" '
        'with "pattern" or "choice" with "choices"',
        "response_format",
    )


def _tools(body: Body) -> tuple[list[dict[str, Any]] | None, list[dict[str, Any]]]:
    """The tools that the template is told of, and the functions of which one has to be called."""
    given, choice = body.get("tools"), body.get("tool_choice")
    if not given:
        return None, []
    functions: list[Any] = [None]
    if isinstance(given, list) and len(given) <= MOST_TOOLS:
        functions = [each.get("function") if isinstance(each, dict) else None for each in given]
    if not all(isinstance(f, dict) and isinstance(f.get("name"), str) for f in functions):
        raise BadRequest(f'tools are up to {MOST_TOOLS} of {{"type": "function", "function": {{"name", …}}}}', "tools")
    if choice == "none":
        return None, []
    if choice in (None, "auto"):
        return given, []
    if choice == "required":
        return given, functions
    named = choice.get("function") if isinstance(choice, dict) else None
    chosen = [function for function in functions if isinstance(named, dict) and function["name"] == named.get("name")]
    if not chosen:
        raise BadRequest('tool_choice is "none", "auto", "required", or names one of the tools', "tool_choice")
    return given, chosen
