"""Who may ask."""

from __future__ import annotations

import hmac
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lispgpt.serve.requests import BadRequest

OPEN = ("/", "/health", "/page")
"""Where no key is asked for."""


class Guard:
    """Who may ask: those with the key, by a name of the server's, and no other site's pages."""

    def __init__(self, app: ASGIApp, key: str | None, hosts: tuple[str, ...]) -> None:
        self._app, self._key, self._hosts = app, key, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refused := self._refused(Request(scope))) is not None:
            await JSONResponse(refused.body(), refused.status)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _refused(self, request: Request) -> BadRequest | None:
        host, origin = request.headers.get("host", ""), request.headers.get("origin")
        if self._hosts and urlsplit(f"//{host}").hostname not in self._hosts:
            return BadRequest("the server is not called so", status=421)
        if origin is not None and urlsplit(origin).netloc != host:
            return BadRequest("requests of other sites' pages are refused", status=403)
        open_ = request.url.path in OPEN or request.url.path.startswith("/page/")
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if self._key is None or open_ or hmac.compare_digest(shown.encode(), self._key.encode()):
            return None
        return BadRequest("the API key is missing or another one", status=401, code="invalid_api_key")
