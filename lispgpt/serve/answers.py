"""Answers as OpenAI's clients read them: whole, and in pieces."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from lispgpt.chat.responses import Output
from lispgpt.runtime.tokenizers import Tokenizer
from lispgpt.serve.events import encoded, event
from lispgpt.serve.requests import Asked
from lispgpt.serve.streams import Choice, Heard


class Answers:
    """The answers to one request: of a conversation, or completions of prompts."""

    def __init__(self, asked: Asked, name: str, tokenizer: Tokenizer) -> None:
        self._asked, self._chat, self._tokenizer = asked, bool(asked.messages), tokenizer
        self._head = {
            "id": f"{'chatcmpl' if self._chat else 'cmpl'}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": name,
        }
        self._kind = "chat.completion" if self._chat else "text_completion"
        self._streamed = "chat.completion.chunk" if self._chat else self._kind
        self._before = f"data: {encoded({**self._head, 'object': self._streamed, 'choices': []})[:-2]}"
        self._offset: dict[int, int] = {}

    def first(self, choice: Choice) -> str:
        """What a stream says before a choice's first piece, as events."""
        if self._chat:
            return self._chunk(
                {"index": choice.index, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}
            )
        if self._asked.echo:
            text = self._tokenizer.decode(choice.job.prompt)
            return self._chunk({"index": choice.index, "text": text, "logprobs": None, "finish_reason": None})
        return ""

    def step(self, choice: Choice, heard: Heard) -> str:
        """What a stream says of a step, as events: nothing of text that is held back, but why it ended in any case."""
        logprobs = self._logprobs(choice, heard)
        if not self._chat:
            if not heard.piece and not heard.ended and not logprobs:
                return ""
            found: dict[str, Any] = {"index": choice.index, "text": heard.piece, "logprobs": logprobs}
            return self._chunk(found | {"finish_reason": _reason(heard.ended)})
        deltas: list[dict[str, Any]] = [
            {"reasoning_content" if reasons else "content": text} for reasons, text in self._parts(choice, heard)
        ]
        calls = self._calls(choice) if heard.ended else []
        if calls:
            deltas.append({"tool_calls": [{"index": n, **call} for n, call in enumerate(calls)]})
        if logprobs and not deltas:
            deltas.append({"content": ""})
        parts: list[dict[str, Any]] = [
            {"index": choice.index, "delta": delta, "finish_reason": None} for delta in deltas
        ]
        if logprobs:
            parts[0]["logprobs"] = logprobs
        if heard.ended:
            why = "tool_calls" if calls else _reason(heard.ended)
            parts.append({"index": choice.index, "delta": {}, "finish_reason": why})
        return "".join(map(self._chunk, parts))

    def whole(self, choices: Sequence[Choice], usage: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._head, "object": self._kind, "choices": [self._choice(c) for c in choices], "usage": usage}

    def usage(self, usage: Mapping[str, Any]) -> str:
        """The last event of a stream, where that was asked for."""
        return event({**self._head, "object": self._streamed, "choices": [], "usage": usage})

    def _chunk(self, choice: dict[str, Any]) -> str:
        return f"{self._before}{encoded(choice)}]}}\n\n"

    def _choice(self, choice: Choice) -> dict[str, Any]:
        said, logprobs = choice.said, self._logprobs(choice, choice.said)
        ended = said.ended
        if not self._chat:
            text = self._tokenizer.decode(choice.job.prompt) + said.piece if self._asked.echo else said.piece
            return {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": _reason(ended)}
        parts = self._parts(choice, said)
        message: dict[str, Any] = {"role": "assistant", "content": "".join(t for reasons, t in parts if not reasons)}
        if reasoning := "".join(text for reasons, text in parts if reasons):
            message["reasoning_content"] = reasoning
        calls = self._calls(choice)
        if calls:
            message |= {"tool_calls": calls, "content": message["content"].strip() or None}
        why = "tool_calls" if calls else _reason(ended)
        return {"index": choice.index, "message": message, "logprobs": logprobs, "finish_reason": why}

    def _parts(self, choice: Choice, heard: Heard) -> list[tuple[bool, str]]:
        """The text of a step that is shown: whether it is reasoning, and what it says."""
        if self._asked.forced:
            return []
        ended = heard.ended is not None
        parts = [(False, heard.piece)] if choice.answer is None else choice.answer.push(heard.piece, ended)
        if choice.tools is not None:
            parts = [(reasons, text if reasons else choice.tools.push(text)) for reasons, text in parts]
            if ended and not self._asked.forced:
                rest, choice.called = choice.tools.finish()
                parts.append((False, rest))
        return [part for part in parts if part[1]]

    def _calls(self, choice: Choice) -> list[dict[str, Any]]:
        """The calls of an answer that has ended."""
        if self._asked.forced:
            said = json.loads(choice.said.piece or "{}")
            choice.called = [(said["name"], said["arguments"])] if "name" in said else []
        functions = [
            {"name": name, "arguments": json.dumps(given, ensure_ascii=False)} for name, given in choice.called
        ]
        return [{"id": f"call_{secrets.token_hex(8)}", "type": "function", "function": each} for each in functions]

    def _logprobs(self, choice: Choice, heard: Heard) -> dict[str, Any] | None:
        if self._asked.logprobs is None:
            return None
        tokens, values, tops = heard.tokens, heard.logprobs, heard.tops or [[] for _ in heard.tokens]
        told = list(zip(tokens, values, tops, strict=False))
        if not told:
            return None
        if self._chat:
            return {
                "content": [self._token(t, v) | {"top_logprobs": [self._token(*e) for e in top]} for t, v, top in told]
            }
        offsets = []
        for token in tokens:
            offsets.append(self._offset.get(choice.index, 0))
            self._offset[choice.index] = offsets[-1] + len(self._tokenizer.decode([token]))
        return {
            "tokens": [self._tokenizer.decode([token]) for token in tokens],
            "token_logprobs": values,
            "top_logprobs": [{self._tokenizer.decode([t]): v for t, v in top} for top in tops],
            "text_offset": offsets,
        }

    def _token(self, token: int, value: float) -> dict[str, Any]:
        spelled = self._tokenizer.decode_bytes(token)
        return {"token": spelled.decode("utf-8", "replace"), "logprob": value, "bytes": list(spelled)}


class Responses(Answers):
    """The answer to a request of OpenAI's Responses format."""

    def __init__(self, asked: Asked, name: str, tokenizer: Tokenizer) -> None:
        super().__init__(asked, name, tokenizer)
        self._output, self._full = Output(name), False

    def first(self, _: Choice) -> str:
        return event(self._output.begun())

    def step(self, choice: Choice, heard: Heard) -> str:
        parts = self._parts(choice, heard)
        events = [event for reasons, text in parts for event in self._output.say(reasons, text)]
        if heard.ended:
            events += self._output.close()
            events += [event for call in self._calls(choice) for event in self._output.call(call)]
            self._full = heard.ended == "length"
        return "".join(map(event, events))

    def whole(self, choices: Sequence[Choice], usage: Mapping[str, Any]) -> dict[str, Any]:
        self.step(choices[0], choices[0].said)
        return self._output.whole(self._full, usage)

    def usage(self, usage: Mapping[str, Any]) -> str:
        return event(self._output.ended(self._full, usage))


def _reason(ended: str | None) -> str | None:
    return ended and {"length": "length"}.get(ended, "stop")
