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
from lispgpt.runtime.tokenizers.pieces import MOST_AT_ONCE, end_of_piece, pieces_of

SUFFIXES = (".txt", ".md", ".jsonl")
PIECE_BYTES = 1 << 20
LONGEST_LINE = 1 << 28
"""Bytes of a document in JSON lines."""
LONGEST_WORD = MOST_AT_ONCE // 2
"""Characters without a line's end or a space between words."""
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
    of them what they make of the whole; only what goes on for LONGEST_WORD without such a place is parted anywhere.
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
        cut = end_of_piece(held) or (len(held) if len(held) > LONGEST_WORD else 0)
        if cut:
            yield held[:cut], begins
            held, begins = held[cut:], False
    held += decoder.decode(b"", final=True)
    if held:
        yield held, begins


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
            yield from _parts(text)


def _parts(text: str) -> Iterator[tuple[str, bool]]:
    """A whole document in pieces."""
    begins = True
    for piece in pieces_of(text):
        for start in range(0, len(piece), LONGEST_WORD):
            yield piece[start : start + LONGEST_WORD], begins
            begins = False
