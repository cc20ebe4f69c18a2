"""`lispgpt lsp`: the language server that editors start."""

from __future__ import annotations

import click

from lispgpt.base.errors import UserError


@click.command()
def lsp() -> None:
    """Serve an editor: errors as you type, types and shapes, definitions, completions, layout.

    Editors start this themselves, and speak the Language Server Protocol with it over standard input and output.
    Wants lispgpt[lsp].
    """
    try:
        from lispgpt.editor.answers import start
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("pygls", "lsprotocol", "cattrs", "attrs", "attr"):
            raise
        raise UserError(f"the language server wants {error.name}: pip install 'lispgpt[lsp]'") from None
    start()
