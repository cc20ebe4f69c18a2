"""Chat templates: the text that a model wants a conversation as, by the Jinja template that comes with it."""

from __future__ import annotations

import atexit
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.json_files import read_json
from lispgpt.base.machine import complaint
from lispgpt.base.reading import is_there, read_text
from lispgpt.runtime.gguf.header import is_gguf, read_header

SECONDS, MEMORY, LONGEST = 5.0, 1 << 29, 1 << 24
"""What rendering a prompt may take: time, bytes of memory, characters of the result."""
TO_START = 60.0
"""Seconds that the process which renders may take to start."""

CONTINUATION = (
    "{% for message in messages %}{{ message['content'] }}{% if not loop.last %}{{ '\\n' }}{% endif %}{% endfor %}"
)
"""What stands in for the template of a model that has none: all that was said as one text, which the model goes on
with."""

FILE, CONFIG, SPECIAL = "chat_template.jinja", "tokenizer_config.json", "special_tokens_map.json"
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_GGUF_NAMES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}


@dataclass(frozen=True)
class ChatTemplate:
    """source: the Jinja template.  tokens: what it calls special tokens, such as `bos_token`, and what they are.
    tool_source: the template where tools are given, if it is another.  own: whether it is the model's own, or stands
    in for one."""

    source: str
    tokens: Mapping[str, str] = field(default_factory=dict)
    tool_source: str | None = None
    own: bool = True

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        generation_prompt: bool = True,
        now: str | None = None,
        **more: Any,
    ) -> str:
        """The prompt of a conversation; UserError where the template refuses it, or takes too long or too much memory.

        messages: objects with `role`, `content` and what else the template reads.  tools: JSON schemas of functions.
        generation_prompt: whether the model's answer is to follow.  now: the time that the template is told, as ISO
        8601 has it.  more: other values by the template's names, such as `enable_thinking`.
        """
        values = {**self.tokens, "documents": None, **more, "messages": [_message(message) for message in messages]}
        values |= {"tools": tools, "add_generation_prompt": generation_prompt}
        source = self.tool_source if tools and self.tool_source else self.source
        return _RENDERER.render({"template": source, "values": values, "now": now})


def _message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message without what is null, and its reasoning under the names that templates read."""
    found = {name: value for name, value in message.items() if value is not None}
    reasoning = next((found[name] for name in ("reasoning_content", "thinking", "reasoning") if name in found), None)
    return found if reasoning is None else {"thinking": reasoning, **found, "reasoning_content": reasoning}


def find_template(model: str | Path | None, file: Path | None = None) -> ChatTemplate:
    """The chat template of a model's folder or GGUF file, or the one in a file with the model's special tokens.

    Where there is none, `CONTINUATION` stands in.  UserError for what is damaged.
    """
    found = ChatTemplate(CONTINUATION, own=False)
    if model is not None:
        model = Path(model)
        found = _in_gguf(model) if is_gguf(model) else _in_folder(model if model.is_dir() else model.parent)
    return found if file is None else ChatTemplate(read_text(file), found.tokens)


def _in_folder(folder: Path) -> ChatTemplate:
    config: dict[str, Any] = {}
    for name in (SPECIAL, CONFIG):
        if is_there(folder / name):
            config |= read_json(folder / name)
    tokens = {name: _content(config[name]) for name in _NAMED if config.get(name) is not None}
    named = _by_name(folder / CONFIG, config.get("chat_template"))
    if is_there(folder / FILE):
        named["default"] = read_text(folder / FILE)
    for path in sorted((folder / "additional_chat_templates").glob("*.jinja")):
        named[path.stem] = read_text(path)
    return _of(named, tokens)


def _by_name(path: Path, given: Any) -> dict[str, str]:
    """Templates by their names, of a text or of a list of {"name", "template"}."""
    listed = given if isinstance(given, list) else [] if given is None else [{"name": "default", "template": given}]
    try:
        named = {each["name"]: each["template"] for each in listed}
    except (TypeError, KeyError):
        named = {"": None}
    if not all(isinstance(text, str) for pair in named.items() for text in pair):
        raise UserError(f"{path} is damaged: chat_template is a text, or a list of such as {{name, template}}")
    return named


def _content(token: Any) -> str:
    return str(token.get("content", "") if isinstance(token, dict) else token)


def _in_gguf(path: Path) -> ChatTemplate:
    data, key = read_header(path).metadata, "tokenizer.chat_template"
    pieces = data.get("tokenizer.ggml.tokens") or []
    tokens = {}
    for short, name in _GGUF_NAMES.items():
        number = data.get(f"tokenizer.ggml.{short}_token_id")
        if isinstance(number, int) and 0 <= number < len(pieces):
            tokens[name] = str(pieces[number])
    named = {name.removeprefix(key).strip(".") or "default": data[name] for name in data if name.startswith(key)}
    return _of({name: text for name, text in named.items() if isinstance(text, str)}, tokens)


def _of(named: Mapping[str, str], tokens: Mapping[str, str]) -> ChatTemplate:
    plain = named.get("default") or next(iter(named.values()), None)
    if plain is None:
        return ChatTemplate(CONTINUATION, tokens, own=False)
    return ChatTemplate(plain, tokens, named.get("tool_use"))


class _Renderer:
    """The process that renders (see `renderer`), started when it is first needed, and again after it was ended."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def render(self, asked: Mapping[str, Any]) -> str:
        try:
            line = json.dumps(asked).encode() + b"\n"
        except (TypeError, ValueError, RecursionError) as error:
            raise UserError(f"a conversation is made of texts, numbers, lists and objects: {error}") from None
        with self._lock:
            said = self._ask(line)
        if "text" in said:
            return str(said["text"])
        raise UserError(f"the chat template says: {said['error'][:500]}")

    def _ask(self, line: bytes) -> dict[str, str]:
        process = self._process if self._process and self._process.poll() is None else self._start()
        writer = threading.Thread(target=_write, args=(process.stdin, line), daemon=True)
        writer.start()
        found, in_time = _line(process, SECONDS)
        if not found:
            self.close()
        writer.join()
        if not found:
            return {"error": "it takes too much memory" if in_time else f"it takes longer than {SECONDS:g} s"}
        said: dict[str, str] = json.loads(found)
        return said

    def _start(self) -> subprocess.Popen[bytes]:
        self.close()
        program = Path(__file__).with_name("renderer.py")
        self._process = subprocess.Popen(
            [sys.executable, "-P", str(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            process_group=0,  # a Ctrl-C is for the process that asks
        )
        _write(self._process.stdin, json.dumps({"memory": MEMORY, "longest": LONGEST}).encode() + b"\n")
        if not _line(self._process, TO_START)[0]:
            self.close()
            lacking = None if find_spec("jinja2") else complaint(ModuleNotFoundError(name="jinja2"))
            raise UserError(lacking or "the process that renders chat templates does not start")
        return self._process

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for pipe in (self._process.stdin, self._process.stdout):
                if pipe is not None:
                    pipe.close()
            self._process = None


def _line(process: subprocess.Popen[bytes], seconds: float) -> tuple[bytes, bool]:
    """What a process writes up to the next line's end; nothing, and whether in time, where it ends or takes longer."""
    assert process.stdout is not None
    found, until = bytearray(), time.monotonic() + seconds
    while not found.endswith(b"\n"):
        ready, _, _ = select.select([process.stdout], [], [], max(0.0, until - time.monotonic()))
        part = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
        if not part:
            return b"", bool(ready)
        found += part
    return bytes(found), True


def _write(pipe: Any, line: bytes) -> None:
    try:
        view = memoryview(line)
        while view:
            view = view[pipe.write(view) :]
    except (OSError, ValueError):  # the process has ended, which its answer tells
        return


_RENDERER = _Renderer()
atexit.register(_RENDERER.close)
