"""What a tokenizer format is.  A new one is one file in this folder; copy `huggingface.py`, the smallest.

A format's module is found by its name in this folder.  It must offer

    recognises(path: Path, head: bytes) -> bool
        Whether the path (which exists) is this format's; head is a file's first 4096 bytes, none for a folder.
    open_tokenizer(path: Path) -> Tokenizer
        UserError when the file is damaged.

and may offer

    write(path: Path, pieces: Sequence[bytes], end_of_text: int | None) -> None
        Write a byte-level BPE tokenizer: each id's bytes, where ids serve as merge ranks.

Decoding works on bytes, since a token may hold part of a character; `StreamDecoder` gives whole characters.
"""

from __future__ import annotations

import codecs
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import cached_property

from lispgpt.base.errors import UserError
from lispgpt.runtime.tokenizers.pieces import MOST_AT_ONCE, pieces_of

END_OF_TEXT = "<|endoftext|>"

UNKNOWN = "\ufffd".encode()
"""What an id beyond the table decodes to: a model's vocabulary may be larger than its tokenizer's."""


class Tokenizer(ABC):
    """Text to token ids and back.

    size: every id is below it.  end_of_text: the id that ends a text, where there is one.  other_ends: more ids that
    end one, such as a turn's in a conversation.  start: the ids that every text begins with (none for GPT-2, one for
    Llama).  special: the texts that stand for one token each, which says something of the text around it, such as where
    a turn ends.  added: other texts that are one token wherever they stand.  parts: whether a text's pieces (see
    `pieces`) make the tokens of the whole.
    """

    size: int
    end_of_text: int | None
    other_ends: tuple[int, ...] = ()
    start: tuple[int, ...] = ()
    special: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    parts: bool = False

    @abstractmethod
    def encode_valid(self, text: str) -> list[int]:
        """Ids of a text without lone surrogates; `<|endoftext|>` in it becomes its one id."""

    @abstractmethod
    def decode_bytes(self, token: int) -> bytes:
        """A token's bytes, which may be part of a UTF-8 character; U+FFFD's for an id that the table lacks."""

    def to_json(self) -> str | None:
        """What Hugging Face's tokenizer.json would have; None where it cannot say it."""
        return None

    def encode(self, text: str) -> list[int]:
        """A text's token ids; UserError for text that is not Unicode (lone surrogates, from undecodable bytes), and
        where more than MOST_AT_ONCE characters have to be encoded at once."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise UserError(f"the text is not valid UTF-8 at character {error.start}") from error
        if len(text) <= MOST_AT_ONCE:
            return self.encode_valid(text)
        pieces = list(pieces_of(text)) if self.parts else [text]
        longest = max(map(len, pieces))
        if longest > MOST_AT_ONCE:
            what = "has a word of" if self.parts else "has"
            raise UserError(f"the text {what} {longest:,} characters, and at most {MOST_AT_ONCE:,} are encoded at once")
        return [token for piece in pieces for token in self.encode_valid(piece)]

    @property
    def ends(self) -> frozenset[int]:
        """The ids after which nothing is generated."""
        return frozenset(self.other_ends if self.end_of_text is None else (self.end_of_text, *self.other_ends))

    def prompt(self, text: str) -> list[int]:
        """The ids that a model continues a text from; for an empty one what every text begins with, or else what
        ended the text before it, and none where there is neither."""
        if text or self.start:
            return [*self.start, *self.encode(text)]
        return [] if self.end_of_text is None else [self.end_of_text]

    def decode(self, tokens: list[int]) -> str:
        """The text of whole tokens; invalid bytes become U+FFFD."""
        return b"".join(map(self.spelled, tokens)).decode("utf-8", "replace")

    @cached_property
    def spelled(self) -> Callable[[int], bytes]:
        """`decode_bytes`, which is asked once for each token."""
        return _Spelled(self.decode_bytes).__getitem__


class _Spelled(dict[int, bytes]):
    """What a function gives of each number that it was asked for: in C where it was before."""

    def __init__(self, made: Callable[[int], bytes]) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, token: int) -> bytes:
        found = self[token] = self._made(token)
        return found


class StreamDecoder:
    """Text from tokens as they come, in whole characters.

    The concatenation of what push and finish return is what Tokenizer.decode gives for all tokens at once.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._spelled = tokenizer.spelled
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token: int) -> str:
        """The characters that this token completes; bytes that no character can begin with become U+FFFD."""
        return self._decoder.decode(self._spelled(token))

    def push_all(self, tokens: Sequence[int]) -> str:
        """What `push` gives of each token, together."""
        return self._decoder.decode(b"".join(map(self._spelled, tokens)))

    def finish(self) -> str:
        """U+FFFD if the last character was left incomplete."""
        return self._decoder.decode(b"", final=True)


def byte_alphabet() -> list[str]:
    """The printable character that stands for each byte in GPT-2's vocabulary files, indexed by byte.

    Bytes that Latin-1 prints visibly stand for themselves; the others take the characters from U+0100 on, in order.
    """
    visible = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    hidden = [byte for byte in range(256) if byte not in visible]
    return [chr(byte) if byte in visible else chr(0x100 + hidden.index(byte)) for byte in range(256)]
