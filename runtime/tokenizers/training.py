"""A byte-level byte-pair vocabulary made of texts, in the form of GPT-2's tokenizer.json."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models, pre_tokenizers, trainers

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.runtime.tokenizers.base import END_OF_TEXT, byte_alphabet

FEWEST = 257
"""Every byte, and the token that ends texts."""

MOST = 1 << 24
"""The library takes memory for all of them before it begins."""


def train_tokenizer(texts: Iterable[str], vocab: int, path: Path) -> int:
    """Write a tokenizer of at most `vocab` tokens, `<|endoftext|>` the last; how many they are.

    Texts with little in them have fewer pairs of tokens that occur twice.
    """
    if vocab < FEWEST:
        raise UserError(f"a vocabulary of {vocab} cannot spell every byte: it has at least {FEWEST} tokens")
    if vocab > MOST:
        raise UserError(f"a vocabulary of {vocab:,} is larger than any that texts fill: it has at most {MOST:,} tokens")
    library = Library(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab - 1, min_frequency=2, show_progress=False, initial_alphabet=byte_alphabet()
    )
    library.train_from_iterator(texts, trainer)
    library.add_special_tokens([END_OF_TEXT])
    with replacing(path) as file:
        file.write(library.to_str().encode("utf-8"))
    return int(library.get_vocab_size())
