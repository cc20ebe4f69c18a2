"""Commands of commands, which say what there is where a word is none of them."""

from __future__ import annotations

import difflib
import os

import click


class Group(click.Group):
    """A group whose error for an unknown word names the commands that are like it, or else all."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that is asked for."""
        name, known = args[0] if args else "", self.list_commands(ctx)
        if name and not name.startswith("-") and name not in known:
            like = " or ".join(f"'{each}'" for each in difflib.get_close_matches(name, known, 3))
            advice = f"did you mean {like}?" if like else f"there are {', '.join(known)}"
            outermost = ctx.parent is None and os.path.exists(name)
            path = f"; to run a file or a folder: lispgpt run {name}" if outermost else ""
            ctx.fail(f"there is no command {name!r}: {advice}{path}")
        return super().resolve_command(ctx, args)
