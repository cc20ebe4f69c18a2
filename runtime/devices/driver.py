"""A GPU driver through its vendor's Python package, hip-python or cuda-bindings, for models and programs alike.

A vendor's file has an `Api`: what this package calls things → the package's function and what it takes.  Names are
CUDA's, without `cu`.  In `cuMemHostRegister(_, _, 0)` every word is an argument of the Python function:

    _      what the caller gives             0      always that number
    Kind   the same, as that type            Kind.member   always that member
"""

from __future__ import annotations

import ctypes
import importlib
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lispgpt.base.errors import InternalError, UserError

FAILED_BEFORE = "a kernel launched before it may have failed"
load_library: Callable[[str], Any] = ctypes.CDLL
_users: dict[str, int] = {}
"""The process that has called a package's functions: a driver refuses to work in a fork of one that has used it."""


@dataclass(frozen=True)
class Api:
    """A vendor's driver.

    vendor: as people say it.  module: that of the Python package.  wanted: what pip installs it by.  status: its type
    of what calls return.  libraries: names under which the loader may find the driver itself, the usual one first.
    missing: what helps where it finds none.  functions: see above.
    """

    vendor: str
    module: str
    package: str
    wanted: str
    status: str
    libraries: Sequence[str]
    missing: str
    functions: Mapping[str, str]

    def symbol(self, name: str) -> str:
        """The function's name."""
        return self.functions[name].partition("(")[0]

    def words(self, name: str) -> list[str]:
        """What the function takes, argument by argument."""
        return re.findall(r"[^\s,()]+", self.functions[name].partition("(")[2])


class Driver:
    """A driver behind its package; `driver("MemAlloc", size)` gives the call's results, without its status.

    UserError names the call that failed, what it was about, the status, and what to do.
    """

    def __init__(self, api: Api) -> None:
        self.api = api
        try:
            self.module = load_module(api.module)
        except (ImportError, AttributeError):
            raise UserError(
                f"no {api.vendor} GPU can be used here: the Python package {api.package} is missing "
                f"(pip install {api.wanted})"
            ) from None
        self._calls: dict[str, Callable[..., Any]] = {}

    def __call__(self, name: str, *arguments: Any, about: str = "", hint: str = "") -> tuple[Any, ...]:
        status, results = self.status(name, *arguments)
        if status:
            subject = f" for {about}" if about else ""
            advice = f": {hint}" if hint else ""
            raise UserError(f"{self.api.symbol(name)} failed{subject} with {self.error(status)}{advice}")
        return results

    def status(self, name: str, *arguments: Any) -> tuple[Any, tuple[Any, ...]]:
        """A call's status, false where it worked, and its results, for callers to whom a failure may be none."""
        call = self._calls.get(name)
        if call is None:
            call = self._calls[name] = self._bound(name)
        try:
            returned = call(*arguments)
        except RuntimeError as error:  # how both packages say that the driver's library does not load
            raise UserError(self._no_library()) from error
        status, results = (returned[0], returned[1:]) if isinstance(returned, tuple) else (returned, ())
        return (status if int(status) else 0), results

    def error(self, status: Any) -> str:
        """A status, of the package or a number from machine code, by its name and number."""
        known = status if hasattr(status, "name") else getattr(self.module, self.api.status)(status)
        return f"{known.name} ({int(status)})"

    def address(self, name: str) -> int:
        """Where the C function that machine code may call in place of the package's is."""
        for library in self.api.libraries:
            try:
                found = getattr(load_library(library), self.api.symbol(name))
            except (OSError, AttributeError):
                continue
            return ctypes.cast(found, ctypes.c_void_p).value or 0
        raise UserError(self._no_library())

    def _no_library(self) -> str:
        return f"no {self.api.vendor} GPU can be used here: {self.api.libraries[0]} is missing ({self.api.missing})"

    def _bound(self, name: str) -> Callable[..., Any]:
        self._check_process()
        words, symbol = self.api.words(name), self.api.symbol(name)
        function = getattr(self.module, symbol, None)
        if function is None:
            raise UserError(f"{self.api.package} here has no {symbol}: it is too old")
        if all(word == "_" for word in words):
            return function
        values = [self._constant(word) for word in words]
        given = [
            (i, None if word == "_" else getattr(self.module, word)) for i, word in enumerate(words) if _is_given(word)
        ]

        def call(*arguments: Any) -> Any:
            filled = list(values)
            for (i, kind), argument in zip(given, arguments, strict=True):
                filled[i] = argument if kind is None else kind(argument)
            return function(*filled)

        return call

    def _constant(self, word: str) -> Any:
        if _is_given(word):
            return None
        kind, _, member = word.rpartition(".")
        return getattr(getattr(self.module, kind), member) if kind else int(word)

    def _check_process(self) -> None:
        library, process = self.api.module, os.getpid()
        if _users.setdefault(library, process) != process:
            raise InternalError(f"{library} was used before this process was forked, and cannot be used in a fork")


def is_used() -> bool:
    """Whether this process has called a driver, so that none works in a fork of it."""
    return bool(_users)


def load_module(name: str) -> Any:
    """A package's module; hip-python's is an attribute of its package alone."""
    package, _, member = name.rpartition(".")
    importlib.import_module(package)
    with suppress(ModuleNotFoundError):
        importlib.import_module(name)
    return getattr(sys.modules[package], member)


def _is_given(word: str) -> bool:
    return not word.isdigit() and "." not in word


def installed(api: Api, count: Callable[[Driver], int]) -> Driver | str:
    """The driver where it finds a GPU; else why none can be used here and what would help, in one line."""
    try:
        driver = Driver(api)
        return driver if count(driver) else f"the {api.vendor} driver finds no GPU"
    except UserError as error:
        return error.message
