"""What features of the language keep during one evaluation: each owns a class, and the evaluation one object of it."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, TypeVar, cast

T = TypeVar("T")


class States:
    """The features' objects by their classes."""

    def __init__(self) -> None:
        self._made: dict[type, Any] = {}

    def of(self, kind: type[T]) -> T:
        """The object of a class that is made without arguments, when it is first asked for."""
        found = self._made.get(kind)
        if found is None:
            found = self._made[kind] = kind()
        return cast(T, found)

    def keep(self) -> Callable[[], None]:
        """Remember what every object holds, its lists and dictionaries too; calling the result brings it back."""
        kept = {kind: {name: _held(value) for name, value in vars(made).items()} for kind, made in self._made.items()}

        def bring_back() -> None:
            for kind, made in self._made.items():
                vars(made).clear()
                vars(made).update(kept[kind] if kind in kept else vars(kind()))

        return bring_back


def _held(value: Any) -> Any:
    return copy(value) if isinstance(value, (dict, list, set)) else value
