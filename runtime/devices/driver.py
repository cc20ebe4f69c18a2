"""A GPU driver's C interface through ctypes, for models and programs alike: the driver is all that has to be there.

A vendor's file has an `Api`: what this package calls things → the C function and what it takes.  Names are CUDA's,
without `cu`.  In `cuMemAlloc_v2(*p, z)` every word is an argument:

    p  an address or handle    i  int    u  unsigned    z  size    s  text
    with * in front: a result, given by its address            =3 or =0u: always that
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lispgpt.errors import InternalError, UserError

TYPES: dict[str, Any] = {
    "p": ctypes.c_void_p,
    "i": ctypes.c_int,
    "u": ctypes.c_uint,
    "z": ctypes.c_size_t,
    "s": ctypes.c_char_p,
}
load_library: Callable[[str], Any] = ctypes.CDLL
_users: dict[str, int] = {}
"""The process that has called a library's functions: a driver refuses to work in a fork of one that has used it."""


@dataclass(frozen=True)
class Api:
    """A vendor's driver.

    vendor: as people say it.  libraries: names under which the loader may find it, the usual one first.  missing: what
    helps where it finds none.  functions: see above.  error_name: a status's name, by the library.
    """

    vendor: str
    libraries: Sequence[str]
    missing: str
    functions: Mapping[str, str]
    error_name: Callable[[Any, int], str]

    def symbol(self, name: str) -> str:
        """The C function's name."""
        return self.functions[name].partition("(")[0]

    def words(self, name: str) -> list[str]:
        """What the C function takes, argument by argument."""
        return re.findall(r"[^\s,()]+", self.functions[name].partition("(")[2])


class Driver:
    """A loaded driver; `driver("MemAlloc", size)` gives the call's results, without its status.

    UserError names the call that failed, what it was about, the status, and what to do.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        self.library = _load(api)
        self._calls: dict[str, Callable[..., tuple[int, tuple[Any, ...]]]] = {}

    def __call__(self, name: str, *arguments: Any, about: str = "", hint: str = "") -> tuple[Any, ...]:
        status, results = self.status(name, *arguments)
        if status:
            subject = f" for {about}" if about else ""
            advice = f": {hint}" if hint else ""
            raise UserError(f"{self.api.symbol(name)} failed{subject} with {self.error(status)}{advice}")
        return results

    def status(self, name: str, *arguments: Any) -> tuple[int, tuple[Any, ...]]:
        """A call's status and results, for callers to whom a failure may be none."""
        call = self._calls.get(name)
        if call is None:
            call = self._calls[name] = self._bound(name)
        return call(*arguments)

    def error(self, status: int) -> str:
        """A status by its name and number."""
        return f"{self.api.error_name(self.library, status)} ({status})"

    def address(self, name: str) -> int:
        """Where a C function is, for machine code that calls it."""
        return ctypes.cast(self._function(name), ctypes.c_void_p).value or 0

    def _function(self, name: str) -> Any:
        symbol = self.api.symbol(name)
        try:
            return getattr(self.library, symbol)
        except AttributeError:
            raise UserError(f"the {self.api.vendor} driver here has no {symbol}: it is too old") from None

    def _bound(self, name: str) -> Callable[..., tuple[int, tuple[Any, ...]]]:
        self._check_process()
        function, words = self._function(name), self.api.words(name)
        takes = [_constant(word) if word.startswith("=") else TYPES[word[-1]] for word in words]
        given = [i for i, word in enumerate(words) if word[0] not in "=*"]
        made = [i for i, word in enumerate(words) if word[0] == "*"]

        def call(*arguments: Any) -> tuple[int, tuple[Any, ...]]:
            values = list(takes)
            for i, argument in zip(given, arguments, strict=True):
                values[i] = takes[i](argument)
            results = [takes[i]() for i in made]
            for i, result in zip(made, results, strict=True):
                values[i] = ctypes.byref(result)
            status = function(*values)
            return status, tuple(result.value or 0 for result in results)

        return call

    def _check_process(self) -> None:
        library, process = self.api.libraries[0], os.getpid()
        if _users.setdefault(library, process) != process:
            raise InternalError(f"{library} was used before this process was forked, and cannot be used in a fork")


def _load(api: Api) -> Any:
    for name in api.libraries:
        try:
            return load_library(name)
        except OSError:
            continue
    raise UserError(f"no {api.vendor} GPU can be used here: {api.libraries[0]} is missing ({api.missing})")


def _constant(word: str) -> Any:
    text = word.removeprefix("=")
    return ctypes.c_uint(int(text[:-1])) if text.endswith("u") else ctypes.c_int(int(text))


def installed(api: Api, count: Callable[[Driver], int]) -> Driver | str:
    """The driver where it finds a GPU; else why none can be used here and what would help, in one line."""
    try:
        driver = Driver(api)
        return driver if count(driver) else f"the {api.vendor} driver finds no GPU"
    except UserError as error:
        return error.message
