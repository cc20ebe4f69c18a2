"""Texts to train on: files, folders of them, and JSON lines, read piece by piece.

A folder gives its files named .txt, .md and .jsonl, at any depth, in the order of their names.  A file is one document;
of JSON lines, each line is one: a string, or an object whose `text` is one.
"""

from __future__ import annotations

import codecs
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.base.reading import check_ordinary
from lispgpt.runtime.tokenizers import Tokenizer

SUFFIXES = (".txt", ".md", ".jsonl")
PIECE_BYTES = 1 << 20
LONGEST_LINE = 1 << 28
"""Bytes of a document in JSON lines."""
_AFTER_LINES = "/"
"""What GPT-4o's pattern takes together with a line's end before it."""
STANDARD_INPUT = Path("-")
"""Stands for what is piped into a command, which is one document."""


def text_files(paths: Sequence[Path]) -> list[Path]:
    """The files that paths stand for; UserError where there is none."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(p for p in path.rglob("*") if p.suffix in SUFFIXES and p.is_file())
            if not inside:
                raise UserError(f"{path} has no file to train on: those are named {', '.join(SUFFIXES)}")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            check_ordinary(path)
            raise UserError(f"there is no file or folder {path}")
    return found


def pieces(files: Sequence[Path]) -> Iterator[tuple[str, bool]]:
    """The documents' text in pieces of about a megabyte, and whether each piece begins a document.

    Pieces end where a line does, or else a word, with no other white space beside, so that byte-level tokenizers make
    of them what they make of the whole.
    """
    for path in files:
        try:
            if path == STANDARD_INPUT:
                yield from _whole(sys.stdin.buffer)
                continue
            with path.open("rb") as file:
                yield from _lines(path, file) if path.suffix == ".jsonl" else _whole(file)
        except UnicodeDecodeError as error:
            raise UserError(f"{_said(path)} is not UTF-8 text ({error.reason})") from error
        except OSError as error:
            raise UserError(f"cannot read {_said(path)}: {error.strerror or error}") from error


def _said(path: Path) -> str:
    return "standard input" if path == STANDARD_INPUT else str(path)


def encoded(files: Sequence[Path], tokenizer: Tokenizer) -> Iterator[np.ndarray]:
    """The documents' tokens as arrays of i32; each document follows the token that ends texts, where there is one."""
    for piece, begins in pieces(files):
        tokens = tokenizer.encode(piece)
        if begins and tokenizer.end_of_text is not None:
            tokens = [tokenizer.end_of_text, *tokens]
        yield np.array(tokens, np.int32)


def _whole(file: BinaryIO) -> Iterator[tuple[str, bool]]:
    decoder, held, begins = codecs.getincrementaldecoder("utf-8")(), "", True
    while read := file.read(PIECE_BYTES):
        held += decoder.decode(read)
        cut = _end_of_piece(held)
        if cut:
            yield held[:cut], begins
            held, begins = held[cut:], False
    held += decoder.decode(b"", final=True)
    if held:
        yield held, begins


def _end_of_piece(text: str) -> int:
    """How much of a text that goes on can be encoded for itself; 0 where nothing can.

    That ends after a line's end that is the only white space between two characters, or where no line ends so, as in
    texts whose lines end in two characters, before the only space between two letters.  Of more white space, GPT-2's
    pattern leaves the last character to what follows, and others' do not.
    """
    end = len(text) - 1
    while (end := text.rfind("\n", 1, end)) > 0:
        if not text[end - 1].isspace() and not text[end + 1].isspace() and text[end + 1] not in _AFTER_LINES:
            return end + 1
    end = len(text) - 1
    while (end := text.rfind(" ", 1, end)) > 0:
        if text[end - 1].isalpha() and text[end + 1].isalpha():
            return end
    return 0


def _lines(path: Path, file: BinaryIO) -> Iterator[tuple[str, bool]]:
    for number in itertools.count(1):
        line = file.readline(LONGEST_LINE)
        if not line:
            return
        if not line.strip():
            continue
        try:
            value = json.loads(line.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number}, is no JSON: {str(error)[:100]}") from error
        text = value.get("text") if isinstance(value, dict) else value
        if not isinstance(text, str):
            raise UserError(f"{path}, line {number}: neither a string nor an object whose `text` is one")
        if text:
            yield text, True
