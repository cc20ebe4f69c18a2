"""Calls into the library of tokenizers, whose panics are no Exception and write to standard error."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from lispgpt.base.errors import UserError
from lispgpt.base.own_stderr import with_own_stderr

PANIC = "PanicException"
"""The class of the library's panics, which it does not offer by name."""

Made = TypeVar("Made")


def call(work: Callable[[], Made], failure: str) -> Made:
    """What the work makes; UserError, which begins with `failure`, where the library raises or panics in it."""
    try:
        return with_own_stderr(work)
    except (UserError, MemoryError):
        raise
    except BaseException as error:  # the library raises nothing narrower for what is damaged
        if not isinstance(error, Exception) and type(error).__name__ != PANIC:
            raise
        reason = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise UserError(f"{failure}: {reason}") from error
