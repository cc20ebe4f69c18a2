"""The one layout of a program's text, as `lispgpt fmt` and editors write it."""

from __future__ import annotations

from lispgpt.base.source import Source
from lispgpt.editor.indentation import indented
from lispgpt.editor.spacing import closed_up


def format_source(source: Source) -> str:
    """The source's text, laid out; laid out again it stays as it is.  UserError where it does not read.

    Lines are indented by what they stand in, which moves what spaces line up, and closing gaps moves what lines are
    indented by: both are done until neither changes anything.  Each round closes a gap, so that it ends.
    """
    text = indented(source)
    while (closed := closed_up(Source(source.name, text))) != text:
        text = indented(Source(source.name, closed))
    return text
