"""What `lispgpt run` is to continue: options, files and standard input that say so."""

from __future__ import annotations

import json
import os
import select
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from lispgpt.base.errors import UserError
from lispgpt.base.reading import LARGEST, read_text
from lispgpt.cli.terminal import say
from lispgpt.runtime.options import MOST_TOGETHER


@dataclass(frozen=True)
class Prompt:
    """given: text, or tokens.  shown: what of it is printed before its continuation."""

    given: str | list[int]

    @property
    def shown(self) -> str:
        return self.given if isinstance(self.given, str) else ""


class Prompts:
    """The prompts of a command line.  How many there are is known before standard input is read."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.texts: list[str] = list(options["prompts"])
        self.tokens, self.file, self.lines = options["prompt_tokens"], options["prompt_file"], options["prompts_file"]
        kinds = {
            "--prompt": bool(self.texts),
            "--prompt-tokens": bool(self.tokens),
            "--prompt-file": self.file is not None,
            "--prompts": self.lines is not None,
        }
        given = [name for name, there in kinds.items() if there]
        if len(given) > 1:
            raise click.UsageError(f"give {given[0]} or {given[1]}, not both")
        self._read_lines: str | None = None
        if "-" in self.texts and len(self.texts) > 1:
            raise click.UsageError("standard input (--prompt -) is one prompt, and cannot stand beside others")
        several = len(self._lines()) if self.lines is not None else max(1, len(self.texts), len(self.tokens))
        batch, samples = options["batch"], options["samples"]
        self.samples: int = samples or (batch if batch and several == 1 else 1)
        self.count = several * self.samples
        self.batch: int = batch or (1 if options["lookup"] or options.get("draft") else min(self.count, MOST_TOGETHER))

    def read(self) -> list[Prompt]:
        """What to continue, each so often as samples are wanted of it."""
        return [prompt for prompt in self._read() for _ in range(self.samples)]

    def longest(self) -> int | None:
        """Tokens that the longest has at most: one a byte, and a few that tokenizers put before the text; None where
        standard input has to be read to know."""
        if self.tokens:
            return max(tokens.count(",") for tokens in self.tokens) + 1
        if self.file is not None:
            given = [_text_of(self.file)]
        else:
            given = self.texts if self.lines is None else [line for _, line in self._lines()]
        if not given or given == ["-"]:
            return None
        return MORE_TOKENS + max(len(text.encode(errors="replace")) for text in given)

    def _read(self) -> list[Prompt]:
        if self.tokens:
            return [Prompt(numbers(tokens)) for tokens in self.tokens]
        if self.file is not None:
            return [Prompt(_text_of(self.file).removesuffix("\n"))]
        if self.lines is not None:
            return [self._of_line(number, line) for number, line in self._lines()]
        if self.texts == ["-"] or not self.texts:
            return [Prompt(_standard_input(wait=bool(self.texts)))]
        return [Prompt(text) for text in self.texts]

    def _lines(self) -> list[tuple[int, str]]:
        """The lines of the file of prompts, or of standard input, that have something in them, with their numbers."""
        if self._read_lines is None:
            self._read_lines = _standard_input(wait=True) if str(self.lines) == "-" else _text_of(self.lines)
        found = [(n, line) for n, line in enumerate(self._read_lines.splitlines(), 1) if line.strip()]
        if not found:
            raise UserError(f"{self._lines_name} has no prompts: each line is one, such as {EXAMPLE}")
        return found

    @property
    def _lines_name(self) -> str:
        return "standard input" if str(self.lines) == "-" else str(self.lines)

    def _of_line(self, number: int, line: str) -> Prompt:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, str):
            return Prompt(found)
        if isinstance(found, dict) and len(found) == 1:
            ((key, value),) = found.items()
            if key == "prompt" and isinstance(value, str):
                return Prompt(value)
            if key == "tokens" and isinstance(value, list) and all(type(token) is int for token in value):
                return Prompt(value)
        raise UserError(
            f"{self._lines_name}:{number}: a line is a prompt such as {EXAMPLE}, and not {line.strip()[:60]}"
        )


MORE_TOKENS = 4
"""That a tokenizer may put before a text."""

MARK = "\ufeff"
EXAMPLE = '{"prompt": "Once upon"} or {"tokens": [1, 2]}'


def numbers(text: str) -> list[int]:
    """Token ids as the command line has them; UsageError for what is none."""
    try:
        return [int(token) for token in text.split(",") if token.strip()]
    except ValueError:
        raise click.UsageError(f"--prompt-tokens wants numbers such as 1,2,3, not {text!r}") from None


def _standard_input(wait: bool) -> str:
    """What is piped or redirected into the command, without the line's end; "" for nothing.

    wait: until it ends, however long that takes; otherwise a pipe in which nothing is yet is left alone, and that said.
    """
    if not wait:
        kind = os.fstat(0).st_mode
        if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
            return ""
        if not select.select([0], [], [], 0.1)[0]:
            say("nothing is in the pipe that is standard input, so it is not read; --prompt - waits")
            return ""
    text = sys.stdin.read(LARGEST + 1)
    if len(text) > LARGEST:
        raise UserError(f"standard input is longer than any sensible prompt ({LARGEST:,} characters)")
    return text.removeprefix(MARK).removesuffix("\n")


def _text_of(path: Path) -> str:
    """A file's text, without the mark that some editors begin files with."""
    return read_text(path).removeprefix(MARK)


def prompt_options() -> list[Any]:
    """The options that say what to continue."""
    path = click.Path(path_type=Path)
    return [
        click.option(
            "--prompt", "prompts", multiple=True, help="Text to continue; - reads standard input.  Repeatable."
        ),
        click.option("--prompt-file", type=path, help="A file whose text is to be continued."),
        click.option(
            "--prompts",
            "prompts_file",
            type=path,
            metavar="FILE.jsonl",
            help=f"Prompts, a line each: {EXAMPLE}; - reads standard input.",
        ),
        click.option("--prompt-tokens", multiple=True, metavar="1,2,3", help="Token ids to continue.  Repeatable."),
        click.option(
            "--samples", type=click.IntRange(1, 1_000_000), help="Continuations of each prompt, by seeds one apart."
        ),
    ]
