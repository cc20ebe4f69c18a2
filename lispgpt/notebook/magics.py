"""`%lisp` and `%%lisp`, for IPython and the notebooks that it runs."""

from __future__ import annotations

import atexit
import sys
from collections.abc import Iterator
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell
from IPython.core.magic import Magics, cell_magic, line_magic, magics_class
from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

from lispgpt import api
from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.notebook.cells import Cells


def load(shell: InteractiveShell) -> None:
    """Give a shell the magics, and `lispgpt.train` a bar there."""
    from lispgpt.notebook.progress import NotebookProgress
    from lispgpt.training import runs

    shell.register_magics(LispMagics(shell))
    runs.watch_with(NotebookProgress)


@magics_class
class LispMagics(Magics):  # type: ignore[misc]
    """The cells of one shell share a session, as the inputs of `lispgpt repl` do."""

    def __init__(self, shell: InteractiveShell) -> None:
        super().__init__(shell)
        self._shell = shell
        self.cells = Cells(lambda text: (sys.stdout.write(text), sys.stdout.flush()))
        atexit.register(self.cells.close)

    @line_magic  # type: ignore[misc]
    def lisp(self, line: str) -> None:
        """Evaluate forms and show their values: `%lisp (map (fn [x] (* x x)) (range 4))`."""
        self._show(line)

    @magic_arguments()  # type: ignore[misc]
    @argument("file", nargs="?", help="Write the cell to this file, check it, and load it as a model.")
    @argument("--as", dest="variable", metavar="NAME", help="The variable that the model is to be in.")
    @argument("--checkpoint", metavar="FILE", help="The model's weights.")
    @argument("--target", default="cpu", help="cpu, cuda, rocm, auto, emulated:gfx1151, …")
    @argument("--quick", action="store_true", help="Compile in less time, to code that is slower.")
    @cell_magic("lisp")  # type: ignore[misc, arg-type]
    def lisp_cell(self, line: str, cell: str) -> api.Model | None:
        """Evaluate forms, and show the value of each; or, with FILE, make the cell a program in that file and load it.

        Later cells have what earlier ones define.  `(doc NAME)` says what a name means; `,help` lists what else can be
        asked.  A model that takes weights of a file:  %%lisp mine.lisp --as model --checkpoint mine.safetensors
        """
        given = parse_argstring(self.lisp_cell, line)
        if given.file is None:
            if given.variable or given.checkpoint or given.quick:
                raise UserError("a model wants a file for its program: %%lisp mine.lisp --as model")
            self._show(f"\n{cell}")  # below the line of the magic, so that lines are numbered as the notebook does
            return None
        if given.variable and not given.variable.isidentifier():
            raise UserError(f"--as wants a variable's name, and not {given.variable!r}")
        path = Path(given.file)
        if path.suffix != ".lisp":
            raise UserError(f"a program's file ends in .lisp, and this is {path}")
        with replacing(path) as file:
            file.write(cell.encode())
        model = api.load(path, given.checkpoint, target=given.target, quick=given.quick)
        if given.variable:
            self._shell.user_ns[given.variable] = model
        return model

    def _show(self, text: str) -> None:
        """Evaluate the parts of a text, and print what they give."""
        for part in _parts(text):
            for shown in self.cells.evaluate(f"In[{self._shell.execution_count}]", part):
                print(shown)


def _parts(text: str) -> Iterator[str]:
    """Lines that begin with a comma, each of which asks for something, and the forms between them, which lines above
    leave where they are."""
    begun, above = "", ""
    for line in text.splitlines(keepends=True):
        if line.startswith(","):
            yield from (above + begun, line) if begun.strip() else (line,)
            above, begun = above + "\n" * (begun.count("\n") + 1), ""
        else:
            begun += line
    if begun.strip():
        yield above + begun
