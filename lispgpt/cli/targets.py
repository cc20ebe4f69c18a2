"""`lispgpt targets`: what can compile and run here, and what would help where something cannot."""

from __future__ import annotations

import click

from lispgpt.base.machine import complaint
from lispgpt.cli.terminal import echo
from lispgpt.runtime.devices import device_kinds, device_module


@click.command()
def targets() -> None:
    """Say of every target whether it can compile and run here."""
    chips, cannot_compile = _chips()
    for kind in device_kinds():
        device = device_module(kind)
        missing = device.missing()
        installed = device.installed_target() if missing is None else None
        if missing is None and installed is None:
            continue  # nothing is compiled for it
        here = missing or f"runs here as {installed}"
        compiles = "compiles" if cannot_compile is None else f"does not compile: {cannot_compile}"
        echo(f"{kind:10} {compiles}; {here}")
        for name, description in chips.get(kind, {}).items():
            echo(f"  {name:16} {description}")


def _chips() -> tuple[dict[str, dict[str, str]], str | None]:
    """Of each kind of targets the chips and their capabilities; or why nothing can be compiled."""
    try:
        from lispgpt.passes.targets import CHIPS
    except ImportError as error:
        return {}, complaint(error) or str(error)
    return {kind: {str(c): c.describe() for c in chips.values()} for kind, chips in CHIPS.items()}, None
