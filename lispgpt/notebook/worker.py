"""The process in which a notebook's cells of Lisp are evaluated: what ends it does not end the notebook.

It is told (name, text) through a connection, and answers (lines, error): what the repl shows for each form, and what
was wrong, or None.  What programs print goes to its standard output.
"""

from __future__ import annotations

import sys
from multiprocessing.connection import Connection
from pathlib import Path

from lispgpt.base.errors import InternalError, UserError
from lispgpt.cli.repl import Session
from lispgpt.ir.mlir import ir, new_context


def main(number: int) -> None:
    """Answer until the other end is closed.  number: of the connection's file."""
    connection, shown = Connection(number), list[str]()
    with new_context(), ir.Location.unknown():
        session = Session(Path.cwd(), shown.append)
        while True:
            try:
                name, text = connection.recv()
            except (EOFError, KeyboardInterrupt):
                return
            shown.clear()
            error = _error_of(session, name, text)
            sys.stdout.flush()
            connection.send((list(shown), error))


def _error_of(session: Session, name: str, text: str) -> UserError | InternalError | None:
    try:
        session.evaluate(text, name)
    except (UserError, InternalError) as error:
        return error
    except KeyboardInterrupt:
        return UserError("interrupted")
    return None
