"""What the guide says of words that are no names of the language."""

from __future__ import annotations

import re
from functools import cache

from lispgpt.reference.pages import guide

ROW = re.compile(r"^\| ([\w ,-]+) \| (.+) \|$", re.MULTILINE)
LINK = re.compile(r"\[([^\]]*)\]\((?:\d+-)?([\w-]+)\.md\)")


@cache
def words() -> dict[str, str]:
    """By each word of the guide's page of words what it is."""
    rows = ROW.findall(guide()["words"].read_text(encoding="utf-8"))
    return {word: LINK.sub(r"\1: the guide's page \2", said) for names, said in rows for word in names.split(", ")}


def said_of(word: str) -> str | None:
    """What a word means, or that whose plural it is."""
    known, wanted = words(), word.lower()
    return next(
        (known[each] for each in (wanted, wanted.removesuffix("s"), wanted.removesuffix("es")) if each in known), None
    )
