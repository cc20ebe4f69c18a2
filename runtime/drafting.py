"""Drafts of a text's next tokens by a smaller model: "Fast Inference from Transformers via Speculative Decoding",
Leviathan et al. 2023, with drafts that are the small model's most probable tokens.

A draft decides no token: the large model says of each what it says without a draft.
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.base.errors import UserError
from lispgpt.runtime.generate import Generator

DRAFTED = 4
"""Tokens of a draft, where nobody says how many."""


class DraftModel:
    """generator: of the smaller model, which goes on with whatever text it is asked about.  vocab: of the larger one.

    UserError for a model of other tokens, and for one whose states cannot go back in a text.
    """

    def __init__(self, generator: Generator, vocab: int) -> None:
        if generator.vocab != vocab:
            raise UserError(f"the draft model has {generator.vocab:,} tokens, and the model {vocab:,}: they differ")
        if not generator.repeatable:
            raise UserError("the draft model's states add up over positions, so that no draft can be taken back")
        generator.near_ties = None  # of a draft either token will do
        self._generator = generator

    def __call__(self, tokens: Sequence[int], count: int) -> list[int]:
        """The `count` tokens that the small model takes to follow; none where its context ends before."""
        made = self._generator
        if count < 1 or len(tokens) + count > made.context:
            return []
        with made.session.alone():
            same = self._known(tokens)
            if made.session.holder is not made or len(tokens) + count > made.limit:
                made.restart(len(tokens) + count)
                same = 0
            made.position, made.tokens = same, list(tokens)
            found: list[int] = []
            if len(tokens) - same > 1:
                found.append(made.take_all(tokens[same:]))
                made.take(found[0])
            while len(found) < count:  # where steps follow each other without the host, all of them
                for token in made.next_tokens(count - len(found)):
                    made.take(token)
                    found.append(token)
        return found

    def _known(self, tokens: Sequence[int]) -> int:
        """How many positions the states hold of a text, all but its last at most."""
        made, count = self._generator, 0
        most = min(made.position, len(tokens) - 1)
        while count < most and made.tokens[count] == tokens[count]:
            count += 1
        return count
