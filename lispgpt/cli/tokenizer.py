"""`lispgpt tokenizer`: make vocabularies of texts, encode texts to token shards, decode tokens."""

from __future__ import annotations

from pathlib import Path

import click
import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.cli.groups import Group
from lispgpt.cli.options import PATH
from lispgpt.cli.terminal import echo, say
from lispgpt.runtime import tokenizers
from lispgpt.runtime.data.shards import is_shard, read_shard, write_shard
from lispgpt.runtime.data.texts import STANDARD_INPUT, encoded, pieces, text_files


@click.group(cls=Group)
def tokenizer() -> None:
    """Make vocabularies, encode texts, decode tokens."""


@tokenizer.command("train")
@click.argument("texts", type=PATH, nargs=-1, required=True)
@click.option("--vocab-size", type=click.IntRange(1), default=5000, show_default=True, help="Tokens, at least 257.")
@click.option(
    "-o", "output", type=PATH, default=Path("tokenizer.json"), show_default=True, help="The vocabulary to write."
)
def train(texts: tuple[Path, ...], vocab_size: int, output: Path) -> None:
    """Make a byte-level byte-pair vocabulary of TEXTS (files, JSON lines, folders), as a tokenizer.json."""
    from lispgpt.runtime.tokenizers.training import train_tokenizer

    size = train_tokenizer((piece for piece, _ in pieces(text_files(texts))), vocab_size, output)
    say(f"wrote {output}: {size:,} tokens")
    if size < vocab_size:
        say(f"no more pairs of tokens occur twice: {size:,} in place of {vocab_size:,}")


@tokenizer.command("encode")
@click.argument("texts", type=PATH, nargs=-1, required=True)
@click.option("--tokenizer", "path", type=PATH, required=True, help="A tokenizer file.")
@click.option("-o", "output", type=PATH, help="A token shard to write (default: print the tokens).")
def encode(texts: tuple[Path, ...], path: Path, output: Path | None) -> None:
    """Encode TEXTS (files, JSON lines, folders; - is standard input): to a token shard as llm.c has them, or as numbers
    on standard output.

    In a shard each document follows the token that ends texts.
    """
    if STANDARD_INPUT in texts and len(texts) > 1:
        raise click.UsageError("standard input (-) is one text, and cannot stand beside others")
    opened = tokenizers.open(path)
    files = list(texts) if texts == (STANDARD_INPUT,) else text_files(texts)
    if output is None:
        for piece, _ in pieces(files):
            echo(" ".join(map(str, opened.encode(piece))))
        return
    count = write_shard(output, encoded(files, opened), opened.size)
    say(f"wrote {output}: {count:,} tokens")


@tokenizer.command("decode")
@click.argument("tokens", nargs=-1, required=True)
@click.option("--tokenizer", "path", type=PATH, required=True, help="A tokenizer file.")
def decode(tokens: tuple[str, ...], path: Path) -> None:
    """Print the text of TOKENS: numbers, or files of token shards."""
    opened = tokenizers.open(path)
    found: list[np.ndarray] = []
    for token in tokens:
        if token.isdigit():
            found.append(np.array([int(token)], object))
        elif Path(token).is_file() and is_shard(Path(token)):
            found.append(read_shard(Path(token)).tokens)
        else:
            raise UserError(f"{token} is neither a token's number nor a token shard")
    for part in found:
        wrong = part[part >= opened.size]
        if wrong.size:
            raise UserError(f"there is no token {wrong[0]}: {path} has {opened.size:,} (0 to {opened.size - 1})")
    text = b"".join(opened.decode_bytes(int(token)) for part in found for token in part).decode("utf-8", "replace")
    echo(text)
