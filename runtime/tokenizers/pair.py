"""vocab.json beside merges.txt: GPT-2's own files, and those of others whose class tokenizer_config.json names."""

from __future__ import annotations

from pathlib import Path

from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Library

from lispgpt.base.errors import UserError
from lispgpt.base.json_files import read_json
from lispgpt.base.reading import read_text
from lispgpt.runtime.tokenizers.base import END_OF_TEXT
from lispgpt.runtime.tokenizers.declared import CONFIG, Declared
from lispgpt.runtime.tokenizers.merging import check_merges
from lispgpt.runtime.tokenizers.words import QWEN2, cutting

PLAIN = ("GPT2Tokenizer", "CodeGenTokenizer")
"""Classes of transformers' that cut words as GPT-2's does."""
COMPOSING = ("Qwen2Tokenizer",)
"""Those that compose characters (NFC) and cut words as Qwen 2's does."""


def library_of_pair(vocab: Path, merges: Path, declared: Declared) -> Library:
    """The library's tokenizer of two files and of what those beside them declare; UserError for another class."""
    kind = declared.kind or PLAIN[0]
    if kind not in (*PLAIN, *COMPOSING):
        raise UserError(
            f"{vocab.with_name(CONFIG)}: tokenizer_class is {kind[:60]}, and of vocab.json with merges.txt those known "
            f"are {', '.join((*PLAIN, *COMPOSING))}: have transformers write tokenizer.json (save_pretrained)"
        )
    lines = read_text(merges).splitlines()
    given = [line.split(" ") for line in lines if line and not line.startswith("#version")]
    known = read_json(vocab)
    check_merges(given, known)
    pairs = [(left, right) for left, right in given]
    return byte_level_library(models.BPE(_with_declared(vocab, known, declared), pairs), declared)


def byte_level_library(model: models.BPE, declared: Declared) -> Library:
    """The library's tokenizer of a byte-level model, with the declared tokens whole and the start that is asked for."""
    library, space_before = Library(model), declared.flag("add_prefix_space")
    if declared.kind in COMPOSING:
        library.normalizer = normalizers.NFC()
        library.pre_tokenizer = cutting((QWEN2,), space_before=space_before)
    else:
        library.pre_tokenizer = cutting((), space_before=space_before)
    library.decoder = decoders.ByteLevel()
    add_declared(library, declared)
    if library.token_to_id(END_OF_TEXT) is not None:
        library.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    first = declared.named.get("bos_token")
    if declared.flag("add_bos_token") and first is not None:
        number = library.token_to_id(first)
        if number is None:
            raise UserError(f"{CONFIG}: texts begin with the bos_token {first[:60]!r}, which is no token")
        library.post_processor = processors.TemplateProcessing(single=f"{first} $A", special_tokens=[(first, number)])
    return library


def add_declared(library: Library, declared: Declared) -> None:
    """Have a text mean declared tokens whole wherever it has them; those of other numbers than are said stay out."""
    for content, token in declared.tokens.items():
        number = library.token_to_id(content)
        if number is not None and declared.ids.get(content, number) == number:
            (library.add_special_tokens if token.special else library.add_tokens)([token])


def _with_declared(path: Path, vocabulary: dict[str, int], declared: Declared) -> dict[str, int]:
    """The table, with tokens that are declared beside it, by their numbers; UserError for one of another's number."""
    taken = set(vocabulary.values())
    more = {content: number for content, number in declared.ids.items() if content not in vocabulary}
    for content, number in more.items():
        if number in taken:
            raise UserError(f"{path}: token {number} is declared as {content[:60]!r}, and is another there")
    return vocabulary | more
