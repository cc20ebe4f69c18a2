"""The HTTP surface: OpenAI's endpoints, and what those who run the server ask."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from lispgpt.api import UserError
from lispgpt.base.bell import Bell
from lispgpt.serve import requests
from lispgpt.serve.answers import Answers, Responses
from lispgpt.serve.choices import choices_of, conversation
from lispgpt.serve.embeddings import Embeddings
from lispgpt.serve.events import Events, event, left
from lispgpt.serve.guard import Guard
from lispgpt.serve.metrics import metrics
from lispgpt.serve.models import Models, Served
from lispgpt.serve.requests import Asked, BadRequest, Body
from lispgpt.serve.streams import Streams, TooBusy, failure, priced

LARGEST_BODY = 1 << 23
NO_MODEL = BadRequest("there is no such model: GET /v1/models says which there are", "model", 404, "model_not_found")
PAGE = Path(__file__).parent / "page"
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


def application(models: Models, key: str | None = None, seconds: float = 600.0, hosts: tuple[str, ...] = ()) -> ASGIApp:
    """The server of some models.  key: what clients have to show.  seconds: what a request may take.  hosts: names that
    clients may call the server by; any, if there are none."""
    server = _Server(models, seconds)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(models.close)

    routes = [
        Route("/v1/completions", partial(server.generate, requests.completion, Answers), methods=["POST"]),
        Route("/v1/chat/completions", partial(server.generate, requests.chat, Answers), methods=["POST"]),
        Route("/v1/responses", partial(server.generate, requests.response, Responses), methods=["POST"]),
        Route("/v1/models", server.list),
        Route("/v1/models/{name:path}", server.model),
        Route("/v1/embeddings", server.embeddings, methods=["POST"]),
        Route("/tokenize", server.tokenize, methods=["POST"]),
        Route("/detokenize", server.detokenize, methods=["POST"]),
        Route("/health", server.health),
        Route("/metrics", server.metrics),
        Route("/", server.page),
        Mount("/page", StaticFiles(directory=PAGE)),
    ]
    handlers: Any = {BadRequest: _refused, ClientDisconnect: _gone, 404: _missing, 405: _missing, Exception: _failed}
    return Guard(Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers), key, hosts)


class _Server:
    def __init__(self, models: Models, seconds: float) -> None:
        self._models, self._seconds, self._bell = models, seconds, Bell()

    async def generate(self, read: Callable[[Body], Asked], kind: type[Answers], request: Request) -> Response:
        """Texts for prompts or a conversation, whole or as they come.  read: what a request says.  kind: of answers."""
        asked = read(await _body(request))
        served, asked.adapter = await self._begin(asked.model), self._models.adapter(asked.model)
        try:
            choices = await asyncio.to_thread(choices_of, served, asked)
            streams = Streams(served.scheduler, choices, self._bell, not asked.stream or bool(asked.forced))
            answers = kind(asked, asked.model or served.name, served.tokenizer)
            streams.submit()
        except BaseException as error:
            self._models.end(served)
            raise failure(error) if isinstance(error, UserError) else error from None
        if asked.stream:
            return Events(self._events(asked, answers, streams), partial(self._end, streams, served))
        return await self._whole(request, asked, answers, streams, served)

    async def _events(self, asked: Asked, answers: Answers, streams: Streams) -> AsyncIterator[str]:
        try:
            async with self._in_time():
                if first := "".join(map(answers.first, streams.choices)):
                    yield first
                async for said in streams:
                    if part := "".join(answers.step(choice, heard) for choice, heard in said):
                        yield part
                if asked.usage:
                    yield answers.usage(priced(asked, streams.choices))
        except BadRequest as error:
            yield event(error.body())

    async def _whole(
        self, request: Request, asked: Asked, answers: Answers, streams: Streams, served: Served
    ) -> Response:
        tasks = [asyncio.ensure_future(streams.all()), asyncio.ensure_future(left(request.receive))]
        try:
            async with self._in_time():
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if tasks[0] not in done:
                raise ClientDisconnect
            tasks[0].result()
            return JSONResponse(answers.whole(streams.choices, priced(asked, streams.choices)))
        finally:
            for task in tasks:
                task.cancel()
            self._end(streams, served)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._seconds):
                yield
        except TimeoutError:
            raise BadRequest(f"the request took longer than {self._seconds:g} s", status=504) from None

    def _end(self, streams: Streams, served: Served) -> None:
        streams.cancel()
        self._models.end(served)

    async def _begin(self, name: str) -> Served:
        name = name or self._models.names[0]
        served = self._models.begin(name, load=False) or await asyncio.to_thread(self._models.begin, name)
        if served is None:
            raise NO_MODEL
        return served

    @asynccontextmanager
    async def _using(self, body: Body) -> AsyncIterator[Served]:
        """The model that a request names; what it cannot do is the request's fault."""
        served = await self._begin(body.text("model", requests.LONGEST_NAME))
        try:
            yield served
        except UserError as error:
            raise failure(error) from None
        finally:
            self._models.end(served)

    async def list(self, _: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._described(name) for name in self._models.names]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._models.names:
            raise NO_MODEL
        return JSONResponse(self._described(name))

    def _described(self, name: str) -> dict[str, Any]:
        return {"id": name, "object": "model", "created": self._models.created, "owned_by": "lispgpt"}

    async def embeddings(self, request: Request) -> Response:
        """{"model", "input", "encoding_format", "pooling"} -> a vector of length 1 of each input"""
        body = await _body(request)
        asked = Embeddings(body)
        async with self._using(body) as served:
            name = str(body.get("model") or served.name)
            found, count = await asyncio.to_thread(asked.of, served.model, self._models.adapter(name))
            usage = {"prompt_tokens": count, "total_tokens": count}
            return JSONResponse({"object": "list", "model": name, "data": found, "usage": usage})

    async def tokenize(self, request: Request) -> Response:
        """{"model", "prompt"} or {"model", "messages"} -> {"tokens", "count", "max_model_len"}"""
        body = await _body(request)
        async with self._using(body) as served:
            if body.get("messages") is not None:
                tokens = await asyncio.to_thread(conversation, served, requests.conversation(body))
            else:
                tokens = await asyncio.to_thread(served.tokenizer.encode, body.text("prompt", LARGEST_BODY))
            return JSONResponse({"tokens": tokens, "count": len(tokens), "max_model_len": served.scheduler.context})

    async def detokenize(self, request: Request) -> Response:
        """{"model", "tokens"} -> {"prompt"}"""
        body = await _body(request)
        tokens = requests.prompts(body.get("tokens"), "tokens")
        if len(tokens) != 1 or isinstance(tokens[0], str):
            raise BadRequest("tokens is a list of whole numbers", "tokens")
        async with self._using(body) as served:
            return JSONResponse({"prompt": served.tokenizer.decode(tokens[0])})

    async def health(self, _: Request) -> Response:
        return JSONResponse({"status": "ok", "models": {s.name: s.scheduler.running for s in self._models.there}})

    async def metrics(self, _: Request) -> Response:
        return PlainTextResponse(metrics(self._models.there), media_type="text/plain; version=0.0.4")

    async def page(self, _: Request) -> Response:
        return Response((PAGE / "index.html").read_text(encoding="utf-8"), media_type="text/html", headers=HEADERS)


async def _body(request: Request) -> Body:
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > LARGEST_BODY:
            raise BadRequest(f"the body is larger than {LARGEST_BODY:,} bytes", status=413)
        parts.append(part)
    return Body.of(b"".join(parts))


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, BadRequest)
    headers = {"retry-after": str(error.seconds)} if isinstance(error, TooBusy) else {}
    return JSONResponse(error.body(), error.status, headers=headers)


async def _missing(_: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    return JSONResponse(BadRequest("there is nothing here by that name and method", status=status).body(), status)


async def _gone(*_: object) -> Response:
    return Response(status_code=400)  # which nobody reads


async def _failed(_: Request, error: Exception) -> Response:
    logging.getLogger("lispgpt.serve").error("a request failed", exc_info=error)
    return JSONResponse(BadRequest("the server failed at this request", status=500).body(), 500)
