"""The guide's pages, and which of them README's commands go before."""

from __future__ import annotations

from lispgpt.reference.pages import guide

TEXTS = {name: path.read_text(encoding="utf-8") for name, path in guide().items()}

AFTER_README = (
    "from-lisp-to-tokens",
    "entries",
    "generating",
    "few-bits",
    "training",
    "several-devices",
    "language",
    "commands-and-targets",
    "write-your-own",
    "figures",
)
"""Whose commands use what README's make."""
