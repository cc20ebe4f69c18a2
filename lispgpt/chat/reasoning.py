"""What of an answer is reasoning and what is said, piece by piece as it comes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lispgpt.base.overlap import overlap


@dataclass(frozen=True)
class Marks:
    """opens, closes: what stands around reasoning.  dropped: what stands before the rest of an answer and is no part
    of it."""

    opens: str
    closes: str
    dropped: tuple[str, ...] = ()


MARKS = (
    Marks(
        "<|channel|>analysis<|message|>",
        "<|end|>",
        ("<|start|>assistant", "<|channel|>final<|message|>", "<|return|>"),
    ),
    Marks("<|START_THINKING|>", "<|END_THINKING|>", ("<|START_RESPONSE|>", "<|END_RESPONSE|>")),
    Marks("<seed:think>", "</seed:think>"),
    Marks("[THINK]", "[/THINK]"),
    Marks("<think>", "</think>"),
)
"""Those of known families of models; what opens stands in the family's templates."""


def marks_of(template: str) -> Marks | None:
    """The marks that a chat template writes or looks for; None where it knows of no reasoning."""
    return next((marks for marks in MARKS if marks.opens in template or marks.closes in template), None)


class Answer:
    """An answer as it comes.

    marks: of its reasoning, if the model has such.  prompt: the text that it answers, which may open the reasoning
    itself.  reasoning, said: what there is so far, without marks and the white space around them.
    """

    def __init__(self, marks: Marks | None, prompt: str = "") -> None:
        self._marks, self._held, self._begins = marks, "", True
        self._reasons = marks is not None and prompt.rstrip().endswith(marks.opens)
        self.reasoning = self.said = ""

    def push(self, piece: str, ended: bool = False) -> list[tuple[bool, str]]:
        """What a piece of text adds, in order: whether it is reasoning, and the text.  ended: it is the last."""
        found: list[tuple[bool, str]] = []
        self._held += piece
        for reasons, text in self._parts(ended):
            text = text.lstrip() if self._begins else text
            self._begins = self._begins and not text
            if text:
                self.reasoning, self.said = (
                    (self.reasoning + text, self.said) if reasons else (self.reasoning, self.said + text)
                )
                found.append((reasons, text))
        return found

    def _parts(self, ended: bool) -> Iterator[tuple[bool, str]]:
        while True:
            marks = self._looked_for()
            places = [(place, mark) for mark in marks if (place := self._held.find(mark)) >= 0]
            if not places:
                break
            place, mark = min(places)
            yield self._reasons, self._held[:place]
            self._held = self._held[place + len(mark) :]
            if self._marks is not None and mark in (self._marks.opens, self._marks.closes):
                self._reasons, self._begins = mark == self._marks.opens, True
        kept = 0 if ended else max((overlap(self._held, mark) for mark in marks), default=0)
        ready, self._held = self._held[: len(self._held) - kept], self._held[len(self._held) - kept :]
        yield self._reasons, ready

    def _looked_for(self) -> Sequence[str]:
        if self._marks is None:
            return ()
        return (self._marks.closes,) if self._reasons else (self._marks.opens, *self._marks.dropped)
