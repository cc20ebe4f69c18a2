"""A conversation on a terminal, or through pipes: what is read, what is printed, and the commands between."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text as Styled

from lispgpt.base.errors import UserError, visible
from lispgpt.chat.conversation import Conversation
from lispgpt.chat.prompt_tokens import prompt_of, with_ends
from lispgpt.chat.reasoning import Answer, marks_of
from lispgpt.chat.template import ChatTemplate
from lispgpt.cli.terminal import say
from lispgpt.execution.model import Model
from lispgpt.runtime.options import Choices

CONTINUED, LEAST = 120, 16
"""Tokens that a model without a template goes on for, and those that an answer has room for at least."""
HELP = """/retry            have the last message answered again
/save FILE        write the conversation; /load FILE goes on with one
/system TEXT      have another system message; without TEXT none
/clear            forget what was said
/bye              end, as /quit, /exit and Ctrl-D do"""
ENDS = ("/bye", "/quit", "/exit")
TWICE = 0.3
"""Seconds within which a second Ctrl-C is the first one, which came by two ways."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class ChatSession:
    """choices: how answers are generated.  think: what the template is told of reasoning, if anything."""

    def __init__(
        self, model: Model, template: ChatTemplate, choices: Choices, system: str | None, think: bool | None
    ) -> None:
        if model.tokenizer is None:
            raise UserError("a conversation wants a tokenizer, and none was found: give --tokenizer FILE")
        self._tokenizer = with_ends(model.tokenizer, template)
        self._model, self._template, self._choices = model, template, choices
        self._more: dict[str, Any] = {} if think is None else {"enable_thinking": think, "thinking": think}
        self.conversation = Conversation(system)
        self._terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._console = Console(highlight=False, soft_wrap=True, no_color=None if self._terminal else True)
        self._answers, self._stopped, self._interrupted = False, False, 0.0
        self._rendered, self._tries, self._left_out = "", 0, 0

    def run(self, prompts: Sequence[str]) -> None:
        """Answer these, or else what is typed or piped in until that ends."""
        if not self._template.own:
            say("the model has no chat template: it goes on with what was said so far, as one text")
        if not prompts and self._terminal:
            say("/help lists commands; Ctrl-C stops an answer, Ctrl-D ends")
        signal.signal(signal.SIGINT, self._interrupt)
        for message in prompts or self._messages():
            try:
                if prompts or not self._command(message):
                    self._say(message)
            except UserError as error:
                if not self._terminal:
                    raise
                say(error.render())

    def _messages(self) -> Iterator[str]:
        if self._terminal:
            with suppress(ImportError):
                import readline  # noqa: F401 - gives `input` its editing and history
        while True:
            try:
                if message := self._message().strip():
                    if message in ENDS:
                        return
                    yield message
            except EOFError:
                if self._terminal:
                    say()
                return
            except KeyboardInterrupt:
                if not self._terminal:
                    raise
                now = time.monotonic()
                if now - self._interrupted > TWICE:
                    say("\n(Ctrl-D or /bye ends)")
                self._interrupted = now

    def _message(self) -> str:
        """A line, or several: those after a backslash, or up to the next three quotes."""
        line = self._line("> ")
        if line.lstrip().startswith('"""'):
            lines = [line.lstrip()[3:]]
            while not lines[-1].rstrip().endswith('"""'):
                lines.append(self._line(". "))
            return "\n".join(lines).rstrip().removesuffix('"""')
        lines = [line]
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1][:-1]
            lines.append(self._line(". "))
        return "\n".join(lines)

    def _line(self, prompt: str) -> str:
        if self._terminal:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                return input(prompt)
            finally:
                signal.signal(signal.SIGINT, self._interrupt)
        line = sys.stdin.readline()
        if not line:
            raise EOFError
        return line.removesuffix("\n")

    def _command(self, message: str) -> bool:
        """Do what a message commands, if it is a command."""
        name, _, rest = message.partition(" ")
        match name:
            case "/help":
                say(HELP)
            case "/save" | "/load" if rest.strip():
                path = Path(rest.strip()).expanduser()
                (self.conversation.save if name == "/save" else self.conversation.load)(path)
                say(f"{'saved to' if name == '/save' else 'loaded'} {path}")
            case "/retry":
                if not self.conversation.take_back():
                    raise UserError("nothing was said yet that could be answered again")
                self._tries += 1
                self._answer()
            case "/system":
                self.conversation.direct(rest.strip() or None)
            case "/clear":
                self.conversation.clear()
            case _ if re.fullmatch(r"/\w*", name):
                raise UserError(f"{name} is no command, or wants more; /help lists them")
            case _:
                return False
        return True

    def _say(self, message: str) -> None:
        self.conversation.ask(message)
        self._tries = 0
        try:
            self._answer()
        except UserError:
            self.conversation.unask()
            raise

    def _answer(self) -> None:
        """Print the answer to the last question as it comes, and keep it."""
        prompt, limit = self._prompt()
        options = self._model.options(**{"max_new_tokens": limit, **self._choices})
        text = self._model.text(prompt, options, self._tries)
        answer = Answer(marks_of(self._template.source), self._rendered)
        with self._stopping():
            for piece in text:
                end = self._tokenizer.decode(text.tokens[-1:]) if text.ended == "end" else ""
                for reasons, part in answer.push(piece.removesuffix(end), ended=text.ended is not None):
                    self._show(reasons, part)
                if self._stopped:
                    break
        self._show(False, "\n")
        self.conversation.answer(answer.said, answer.reasoning)

    def _prompt(self) -> tuple[list[int], int]:
        """The tokens to answer from, and how many the answer may have."""

        def tokens_of(messages: Sequence[Any]) -> list[int]:
            tokens, self._rendered = prompt_of(self._template, self._tokenizer, messages, **self._more)
            return tokens

        if not self._template.own:
            return tokens_of(self.conversation.messages), CONTINUED
        context = int(self._model.session.config["context"])
        tokens, left_out = self.conversation.fitted(tokens_of, max(1, context - LEAST))
        if left_out > self._left_out:
            say(f"(the context is full: the {left_out} oldest messages are left out)")
        self._left_out = left_out
        return tokens, context - len(tokens)

    def _show(self, reasons: bool, text: str) -> None:
        if not self._terminal:
            stream = sys.stderr if reasons else sys.stdout
            stream.write(visible(text) if stream.isatty() else text)
            stream.flush()
            return
        shown = _CONTROL.sub("\ufffd", text)  # what a model writes does not steer the terminal
        self._console.print(Styled(shown, style="dim italic" if reasons else ""), end="")

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Within this, a Ctrl-C sets `_stopped`."""
        self._stopped, self._answers = False, True
        try:
            yield
        finally:
            self._answers = False

    def _interrupt(self, number: int, _: Any) -> None:
        """End what is not on a terminal; there an answer stops, and what comes between answers and lines is late."""
        if self._answers:
            self._stopped, self._interrupted = True, time.monotonic()
        elif not self._terminal:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
