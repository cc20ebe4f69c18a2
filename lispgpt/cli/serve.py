"""`lispgpt serve`: models behind OpenAI's endpoints."""

from __future__ import annotations

import signal
import socket
from functools import partial
from pathlib import Path
from typing import Any

import click

from lispgpt.base.errors import UserError
from lispgpt.chat.template import find_template
from lispgpt.cli.chat import load_model, loading_options
from lispgpt.cli.options import DRAFT, PATH, all_of, guarded
from lispgpt.cli.terminal import say
from lispgpt.cli.trace import TIMELINE_OPTION
from lispgpt.compiler.folders import find_given
from lispgpt.runtime.timeline import recording

LOCAL = ("127.0.0.1", "localhost", "::1")


@click.command("serve")
@click.argument("models", nargs=-1, required=True, type=PATH, metavar="MODEL…")
@all_of(loading_options())
@click.option("--adapter", "adapters", type=PATH, multiple=True, help="A LoRA's folder: MODEL with it, by its name.")
@DRAFT
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 takes a free one.")
@click.option("--api-key", help="What clients have to show (default: LISPGPT_API_KEY, or nothing).")
@click.option(
    "--places",
    type=click.IntRange(1, 1024),
    default=8,
    show_default=True,
    help="Texts that run at once, each in a place of the batch.",
)
@click.option("--queue", type=click.IntRange(1), default=256, show_default=True, help="Texts that may wait.")
@click.option("--loaded", type=click.IntRange(1), default=4, show_default=True, help="Models in memory at once.")
@click.option("--timeout", type=click.FloatRange(0.1), default=600.0, show_default=True, help="Seconds of a request.")
@click.option("--grace", type=click.IntRange(0), default=30, show_default=True, help="Seconds to end in on SIGTERM.")
@TIMELINE_OPTION
@click.pass_context
@partial(guarded, ends_itself=True)
def serve(ctx: click.Context, models: tuple[Path, ...], **options: Any) -> int:
    """Serve MODELs (folders, GGUF files, ORG/NAME) by OpenAI's API, and a page to talk at /.

    There are /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/models, /tokenize, /detokenize,
    /health and /metrics.  A text's tokens do not depend on what else is served, or was.  MODEL with each --adapter is a
    model, too: its requests run in one batch with the others.  /metrics is for Prometheus, and counts requests; no line
    is printed for each.  Wants: pip install 'lispgpt[serve]'.
    """
    try:
        import uvicorn

        from lispgpt.serve.app import application
        from lispgpt.serve.models import Models, Served
    except ImportError as error:
        raise UserError(f"serving wants more packages ({error.name}): pip install 'lispgpt[serve]'") from None

    adapters = options["adapters"]
    if adapters and len(models) > 1:
        raise UserError("adapters are of one MODEL: give one")
    if options["draft"] and len(models) > 1:
        raise UserError("a draft model is for one MODEL: give one")

    def loaded(path: Path) -> Served:
        template = find_template(find_given(path, options["checkpoint"]).weights, options["template"])
        more: dict[str, Any] = {"batch": options["places"], "adapters": adapters, "adapter": None}
        model = load_model(ctx, path, options | more, **more)
        return Served.of(_name(path), model, template, options["places"], options["queue"])

    named = {_name(path): partial(loaded, path) for path in models}
    beside = {_name(path): (_name(models[0]), number) for number, path in enumerate(adapters, 1)}
    if len({**named, **beside}) < len(models) + len(adapters):
        raise UserError("two of the models have one name: give other folders")
    there = Models(named, options["loaded"], beside)
    sockets = _bound(options["host"], options["port"])
    key = options["api_key"] or ctx.obj["environment"].get("LISPGPT_API_KEY")
    hosts = (*LOCAL, options["host"]) if options["host"] in LOCAL else ()
    app = application(there, key, options["timeout"], hosts)
    config = uvicorn.Config(
        app,
        http="h11",  # which bounds what a request's head may have, as no other does
        access_log=False,
        log_level="critical",
        timeout_graceful_shutdown=options["grace"],
        server_header=False,
    )
    with recording(options["timeline"]):
        for name in list(named)[: options["loaded"]]:
            there.end(there.begin(name))  # type: ignore[arg-type]
        _run(uvicorn.Server(config), sockets)
    return 0


def _bound(host: str, port: int) -> list[socket.socket]:
    """Sockets at all addresses of a host, which nobody else has; they do not listen yet."""
    found: list[socket.socket] = []
    try:
        every = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(every):
            found.append(socket.socket(family, kind, protocol))
            found[-1].setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                found[-1].setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            found[-1].bind(address)
    except (OSError, UnicodeError) as error:
        for each in found:
            each.close()
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise UserError(f"cannot listen at {host}, port {port}: {why}") from None
    return found


def _run(server: Any, sockets: list[socket.socket]) -> None:
    """Serve until SIGTERM or Ctrl-C, and say where, once it is so."""
    startup = server.startup

    async def announced(sockets: Any) -> None:
        await startup(sockets)
        for host, port, *_ in (s.getsockname() for each in server.servers for s in each.sockets):
            say(f"serving at {address_of(host, port)}")

    server.startup = announced
    for number in (signal.SIGINT, signal.SIGTERM):  # which the server raises again for whoever runs it
        signal.signal(number, lambda *_: None)
    server.run(sockets=sockets)


def address_of(host: str, port: int) -> str:
    """Where to ask a server, for people to copy."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _name(path: Path) -> str:
    return str(path) if not path.exists() else path.resolve().stem if path.is_file() else path.resolve().name
