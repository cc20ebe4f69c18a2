"""A server of the small model that comes with the project, on a port of this machine."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn
from serve.client import Client
from serve.promise import PLACES

import lispgpt
from lispgpt.chat.template import ChatTemplate, find_template
from lispgpt.serve.app import application
from lispgpt.serve.models import Models, Served
from lispgpt.serve.scheduler import Scheduler

AUSTEN = Path(__file__).resolve().parent.parent.parent / "examples" / "models" / "austen"


@dataclass
class Running:
    """A server: its address, and what is behind it."""

    port: int
    models: Models
    client: Client = field(init=False)

    def __post_init__(self) -> None:
        self.client = Client(self.port)

    @property
    def scheduler(self) -> Scheduler:
        return self.models.there[0].scheduler


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What servers of so many places compile is compiled once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def model(cache: Path) -> Iterator[lispgpt.Model]:
    with lispgpt.load(AUSTEN, batch=PLACES, cache=cache, threads=1) as made:
        yield made


def served(model: lispgpt.Model, queue: int, template: ChatTemplate | None = None, name: str = "austen") -> Served:
    return Served.of(name, model, template or find_template(AUSTEN), PLACES, queue)


@contextmanager
def running(made: Callable[[], Served], names: tuple[str, ...] = ("austen",), **more: object) -> Iterator[Running]:
    models = Models(dict.fromkeys(names, made), len(names))
    for name in names:
        found = models.begin(name)
        assert found is not None
        models.end(found)
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(1024)
        server = uvicorn.Server(uvicorn.Config(application(models, **more), log_level="error", lifespan="off"))  # type: ignore[arg-type]
        thread = threading.Thread(target=asyncio.run, args=(server.serve([listening]),), daemon=True)
        thread.start()
        try:
            yield Running(listening.getsockname()[1], models)
        finally:
            server.should_exit = True
            thread.join(30)
            for each in models.there:
                each.scheduler.close()


@pytest.fixture(scope="session")
def server(model: lispgpt.Model) -> Iterator[Running]:
    with running(lambda: served(model, 64)) as made:
        yield made
