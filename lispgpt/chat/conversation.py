"""What was said so far, in files and as a prompt that fits the context."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.files import write_text
from lispgpt.base.json_files import read_json

ROLES = ("system", "user", "assistant", "tool")


class Conversation:
    """messages: objects with `role` and `content`, as chat templates read them."""

    def __init__(self, system: str | None = None) -> None:
        self.messages: list[dict[str, Any]] = []
        self.direct(system)

    def direct(self, system: str | None) -> None:
        """Have a system message, another one or none."""
        self.messages = [message for message in self.messages if message["role"] != "system"]
        if system:
            self.messages.insert(0, {"role": "system", "content": system})

    def ask(self, text: str) -> None:
        self.messages.append({"role": "user", "content": text})

    def answer(self, text: str, reasoning: str = "") -> None:
        more = {"reasoning_content": reasoning} if reasoning else {}
        self.messages.append({"role": "assistant", "content": text, **more})

    def take_back(self) -> bool:
        """Forget what followed the last question; False where nothing was asked."""
        asked = [number for number, message in enumerate(self.messages) if message["role"] == "user"]
        if asked:
            del self.messages[asked[-1] + 1 :]
        return bool(asked)

    def unask(self) -> None:
        """Forget the last question, too: it could not be put to the model."""
        if self.take_back():
            self.messages.pop()

    def clear(self) -> None:
        """Forget all but the system message."""
        self.messages = [message for message in self.messages if message["role"] == "system"]

    def save(self, path: Path) -> None:
        """Write it as JSON: {"messages": […]}."""
        write_text(path, json.dumps({"messages": self.messages}, ensure_ascii=False, indent=1) + "\n")

    def load(self, path: Path) -> None:
        """Go on with a saved one; UserError for a file that is none, which leaves this as it is."""
        found = read_json(path).get("messages")
        if not isinstance(found, list) or not all(map(_is_message, found)):
            raise UserError(f'{path} holds no conversation: that is {{"messages": [{{"role": …, "content": …}}, …]}}')
        self.messages = found

    def fitted(self, prompt_of: Callable[[Sequence[Mapping[str, Any]]], list[int]], most: int) -> tuple[list[int], int]:
        """The prompt of at most so many tokens, and how many of the oldest questions it leaves out with their answers.

        The system message and the last question always stay; UserError where these alone are too long.
        """
        kept, left_out = list(self.messages), 0
        while len(tokens := prompt_of(kept)) > most:
            asked = [number for number, message in enumerate(kept) if message["role"] == "user"]
            if len(asked) < 2:
                raise UserError(f"this takes {len(tokens):,} tokens, and the context has room for {most:,} of them")
            del kept[asked[0] : asked[1]]
            left_out += 1
        return tokens, left_out


def _is_message(found: Any) -> bool:
    return isinstance(found, dict) and found.get("role") in ROLES and isinstance(found.get("content"), str)
