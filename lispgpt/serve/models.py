"""The models of a server: loaded when they are first asked for, and the longest unused left again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lispgpt.api import Model, UserError
from lispgpt.chat.grammar import Grammars
from lispgpt.chat.prompt_tokens import with_ends
from lispgpt.chat.template import ChatTemplate
from lispgpt.runtime.tokenizers import Tokenizer
from lispgpt.serve.scheduler import Scheduler


@dataclass
class Served:
    """A model that runs.  users: requests under way."""

    name: str
    model: Model
    template: ChatTemplate
    tokenizer: Tokenizer
    scheduler: Scheduler
    grammars: Grammars
    users: int = 0
    used: float = 0.0

    @staticmethod
    def of(name: str, model: Model, template: ChatTemplate, places: int = 8, queue: int = 256) -> Served:
        """A model that was loaded with a batch of so many places.  queue: texts that may wait."""
        if model.tokenizer is None:
            raise UserError(f"{name}: serving wants a tokenizer, and none was found: give --tokenizer FILE")
        tokenizer = with_ends(model.tokenizer, template)
        grammars = Grammars(tokenizer, int(model.session.config["vocab"]))
        return Served(name, model, template, tokenizer, Scheduler(model, places, queue), grammars)

    def close(self) -> None:
        self.scheduler.close()
        self.model.close()


class Models:
    """loaders: what loads each model, by its name.  most: how many are loaded at once.  adapters: names of models with
    an adapter, each with the model's own name and the adapter's number there."""

    def __init__(
        self,
        loaders: Mapping[str, Callable[[], Served]],
        most: int,
        adapters: Mapping[str, tuple[str, int]] | None = None,
    ) -> None:
        self._loaders, self._most, self._adapters = loaders, most, adapters or {}
        self._there: dict[str, Served] = {}
        self._lock, self._loading = threading.Lock(), threading.Lock()
        self.created = int(time.time())

    @property
    def names(self) -> list[str]:
        return [*self._loaders, *self._adapters]

    def adapter(self, name: str) -> int:
        """Which of the model's adapters a name stands for; 0 for none."""
        return self._adapters.get(name, ("", 0))[1]

    @property
    def there(self) -> list[Served]:
        """Those that are loaded."""
        return list(self._there.values())

    def begin(self, name: str, load: bool = True) -> Served | None:
        """The model of that name, which stays until `end` of it; None where there is none.

        load: whether one that is not there is loaded, which may take long; one is at a time, and those that are there
        go on meanwhile.
        """
        name = self._adapters.get(name, (name, 0))[0]
        if name not in self._loaders:
            return None
        with self._lock:
            if name in self._there or not load:
                return self._used(name) if name in self._there else None
        with self._loading:
            with self._lock:
                if name in self._there:
                    return self._used(name)
                leaving = self._make_room()
            for served in leaving:
                served.close()
            made = self._loaders[name]()
            with self._lock:
                self._there[name] = made
                return self._used(name)

    def _used(self, name: str) -> Served:
        found = self._there[name]
        found.users, found.used = found.users + 1, time.monotonic()
        return found

    def end(self, served: Served) -> None:
        with self._lock:
            served.users -= 1

    def _make_room(self) -> list[Served]:
        """Have those leave that another one takes the room of."""
        idle = sorted((each for each in self.there if not each.users), key=lambda each: each.used)
        leaving = idle[: max(0, len(self._there) - self._most + 1)]
        for served in leaving:
            del self._there[served.name]
        return leaving

    def close(self) -> None:
        with self._lock:
            for served in self.there:
                served.close()
            self._there.clear()
