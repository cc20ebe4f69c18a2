"""Calls of a GPU driver's C API through its Python binding, with errors that say what failed and what to do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lispgpt.errors import UserError


@dataclass(frozen=True)
class Calls:
    """api: the binding's module.  success: the status of a call that worked.  missing: what to say where the binding
    cannot load the driver's library.  name_of: a status's name."""

    api: Any
    success: Any
    missing: str
    name_of: Callable[[Any], str] = lambda status: getattr(status, "name", str(status))

    def __call__(self, name: str, *arguments: Any, about: str = "", hint: str = "") -> tuple[Any, ...]:
        """The call's results without its status; UserError names the call, what it was about, and the hint."""
        try:
            returned = getattr(self.api, name)(*arguments)
        except RuntimeError as error:  # how both bindings say that the driver's library does not load
            raise UserError(f"{self.missing} (calling {name})") from error
        status, *results = returned if isinstance(returned, tuple) else (returned,)
        if status != self.success:
            subject = f" for {about}" if about else ""
            raise UserError(f"{name} failed{subject} with {self.name_of(status)}" + (f": {hint}" if hint else ""))
        return tuple(results)
