"""`lispgpt repl`: forms are evaluated one by one into a module that grows, and can be looked at and run."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from lispgpt.base.errors import InternalError, UserError
from lispgpt.base.reading import LARGEST
from lispgpt.base.source import Source, Span
from lispgpt.cli import repl_doc
from lispgpt.cli.doc import shown
from lispgpt.cli.repl_line import complete_by_tab, completions, keep_history
from lispgpt.cli.shown import show_value
from lispgpt.cli.terminal import echo
from lispgpt.ir.mlir import create_op, ir, new_context
from lispgpt.language.core.values import describe
from lispgpt.language.forms import functions
from lispgpt.language.forms.compilation import Compilations
from lispgpt.language.forms.modules import Files
from lispgpt.language.model import building
from lispgpt.language.model.table import Model
from lispgpt.language.ops.function_table import Functions
from lispgpt.language.program import begin
from lispgpt.language.reader.forms import Form, List, Symbol, head_name
from lispgpt.language.reader.reader import read
from lispgpt.programs import launch

HELP = """Type a form and see its value; a value that exists at run time only is shown as the op that makes it.
  ,ir      the module so far          ,ir NAME   one function of it
  ,run     compile the module and run its main, or its loose ops in order
  ,names   what you have defined      ,entry NAME 16   an entry for one sequence of 16 positions
  ,doc NAME    what a name means      ,source NAME     its definition      ,about WORD   names by words
  ,reset   start again
  ,help    this                       ,quit      leave (or end the input)
A form may take several lines: it ends where its brackets close."""

_QUIET = re.compile(r';[^\n]*|"(?:[^"\\]|\\.)*"', re.DOTALL)
"""Where brackets do not count."""


def is_complete(text: str) -> bool:
    """Whether every bracket and string that the text opens is closed in it."""
    bare = _QUIET.sub(" ", text)
    depth = sum(bare.count(bracket) for bracket in "([{") - sum(bare.count(bracket) for bracket in ")]}")
    return '"' not in bare and depth <= 0 and not bare.rstrip().endswith(("'", "`", "~", "~@"))


class Session:
    """A module in the making.  Needs an active ir.Context and location.

    root: where `(require "@path")` starts.  write: is told each line to show.
    """

    def __init__(self, root: Path, write: Callable[[str], None]) -> None:
        self.root, self.write = root, write
        self.inputs = 0
        self.start()

    def start(self) -> None:
        """Forget everything."""
        self.last: Any = None
        place = List(Span(Source("repl", ""), 0, 0), ())
        self.evaluator, self.environment = begin(self.root, place)
        self.module = self.evaluator.builder.module
        self.evaluator.states.of(Files).loading.append(self.root / "repl")

    def enter(self, text: str) -> bool:
        """Evaluate an input; False where it asks to leave.  Errors are shown, and leave everything as it was."""
        self.inputs += 1
        try:
            return self.evaluate(text, f"input {self.inputs}")
        except UserError as error:
            self.write(error.render())
        except InternalError as error:
            self.write(f"this is a bug in lispgpt: {error}")
        return True

    def evaluate(self, text: str, name: str) -> bool:
        """Evaluate an input that messages call by a name; False where it asks to leave.  UserError for what is wrong
        with it, which leaves everything as it was."""
        if text.strip().startswith(","):
            return self._command(text.strip()[1:])
        try:
            for form in read(Source(name, text)):
                answer = repl_doc.asked_in(form, self.environment)
                self._evaluate(form) if answer is None else self.write(answer)
        except RecursionError:
            raise UserError("this is nested too deeply to evaluate") from None
        return True

    def _evaluate(self, form: Form) -> None:
        with self._undoing():
            replaced = self._take_out(form)
            try:
                functions.declare_ahead(self.evaluator, (form,), self.environment)
                value = self.evaluator.evaluate(form, self.environment)
                self.evaluator.site.verify(self.module.operation, form)
            except (UserError, InternalError, RecursionError):
                if replaced is not None:
                    self.module.body.append(replaced)
                raise
        self.last = value
        for warning in self.evaluator.site.warnings:
            self.write(warning.render("warning"))
        self.evaluator.site.warnings.clear()
        shown = show_value(value)
        if shown:
            self.write(shown)

    @contextmanager
    def _undoing(self, always: bool = False) -> Iterator[None]:
        """Undo what is evaluated inside where it fails, or always: ops, names and functions."""
        before = {op.operation for op in self.module.body.operations}
        bring_back, names = self.evaluator.states.keep(), dict(self.environment.names)
        done = False
        try:
            yield
            done = not always
        finally:
            if not done:
                _erase_others(self.module, before)
                bring_back()
                self.environment.names.clear()
                self.environment.names.update(names)

    def _take_out(self, form: Form) -> ir.Operation | None:
        """Take a function out of the module that the form defines anew."""
        name = form.items[1] if head_name(form) == "defn" and isinstance(form, List) and len(form.items) > 2 else None
        defined = self.evaluator.states.of(Functions).defined
        if not isinstance(name, Symbol) or name.name not in defined:
            return None
        for op in self.module.body.operations:
            if _symbol(op.operation) == name.name:
                del defined[name.name]
                return op.operation.detach_from_parent()
        return None

    def _command(self, text: str) -> bool:
        name, _, argument = text.partition(" ")
        commands = {"ir": self._ir, "run": self._run, "names": self._names, "entry": self._entry}
        commands["reset"] = lambda _: self.start()
        commands["doc"] = lambda name: self.write(repl_doc.explain(self.environment, name))
        commands["source"] = lambda name: self.write(repl_doc.source(self.environment, name))
        commands["about"] = lambda words: self.write(shown(tuple(words.split()), about=True))
        if name in ("quit", "q", "exit"):
            return False
        if name in commands:
            commands[name](argument.strip())
        else:
            self.write(HELP if name in ("help", "h", "?") else f"there is no command ,{name}; ,help lists them")
        return True

    def completions(self, line: str) -> list[str]:
        """What the last word of a line that is being typed may become."""
        return completions(self.environment, line, self._taken_by)

    def _taken_by(self, command: str) -> list[str]:
        if command == "entry":
            return list(self.evaluator.states.of(Model).entries)
        symbols = (_symbol(op.operation) for op in self.module.body.operations) if command == "ir" else ()
        return [name for name in symbols if name]

    def _ir(self, name: str) -> None:
        if not name:
            self.write(str(self.module).rstrip())
            return
        found = [op for op in self.module.body.operations if _symbol(op.operation) == name]
        self.write(str(found[0]) if found else f"the module has no function {name}")

    def _names(self, _: str) -> None:
        own = [(key, value) for key, value in self.environment.names.items() if isinstance(key, str)]
        self.write("\n".join(f"{key}: {describe(value)}" for key, value in own) or "nothing is defined yet")

    def _entry(self, argument: str) -> None:
        name, _, positions = argument.partition(" ")
        known_entries = self.evaluator.states.of(Model).entries
        declared = known_entries.get(name)
        if declared is None:
            known = ", ".join(known_entries) or "none yet"
            self.write(f"there is no entry {name!r}; there are: {known}")
            return
        sizes = dict.fromkeys(declared.dimensions, 1)
        if positions.isdigit() and sizes:
            sizes[declared.dimensions[-1]] = int(positions)
        with self._undoing(always=True):
            building.build(self.evaluator, declared, sizes)
            operations = self.module.body.operations
            self.write(str(operations[len(operations) - 1]))

    def _run(self, _: str) -> None:
        module = ir.Module.parse(self.module.operation.get_asm(print_generic_op_form=True))
        states = self.evaluator.states
        if "main" not in states.of(Functions).defined:
            _wrap_in_main(module, self.last)
        pipelines, libraries = states.of(Compilations).found, states.of(functions.Libraries).linked
        job = launch.Job(module, compilations=pipelines, libraries=libraries)
        sys.stdout.flush()
        launch.run(job, [])


def _erase_others(module: ir.Module, kept: set[Any]) -> None:
    """Take everything out of a module that is not among these ops; the last come first, because they use the others."""
    for op in reversed([op.operation for op in module.body.operations]):
        if op not in kept:
            op.erase()


def _symbol(op: ir.Operation) -> str | None:
    return ir.StringAttr(op.attributes["sym_name"]).value if "sym_name" in op.attributes else None


def _wrap_in_main(module: ir.Module, last: Any) -> None:
    """Put a module's loose ops into a main, which returns the last one's number where the last form had one."""
    loose = [op.operation for op in module.body.operations if _symbol(op.operation) is None]
    kind = ir.FunctionType.get([], [])
    attributes = {"sym_name": ir.StringAttr.get("main"), "function_type": ir.TypeAttr.get(kind)}
    main = create_op("func.func", attributes=attributes, regions=1, ip=ir.InsertionPoint(module.body))
    block = main.regions[0].blocks.append()
    for op in loose:
        block.append(op)
    returned = list(loose[-1].results)[:1] if loose and isinstance(last, ir.Value) else []
    if returned and not isinstance(returned[0].type, (ir.IntegerType, ir.FloatType, ir.IndexType)):
        returned = []
    with ir.InsertionPoint(block):
        create_op("func.return", returned)
    main.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([], [v.type for v in returned]))


def inputs(prompt: bool) -> Iterator[str]:
    """Inputs from standard input, each as many lines as its brackets need."""
    text = ""
    while True:
        try:
            line = input("....> " if text else "lisp> ") if prompt else _piped_line()
        except EOFError:
            break
        except KeyboardInterrupt:
            text = ""
            echo()
            continue
        text = f"{text}\n{line}" if text else line
        if text.strip() and (is_complete(text) or text.startswith(",")):
            yield text
            text = ""
        elif not text.strip():
            text = ""
    if text.strip():
        yield text


def _piped_line() -> str:
    line = sys.stdin.readline(LARGEST + 1)
    if not line:
        raise EOFError
    if len(line) > LARGEST:
        raise UserError(f"standard input has a line of more than {LARGEST:,} characters")
    return line.removesuffix("\n")


@click.command()
@click.pass_context
def repl(ctx: click.Context) -> None:
    """Evaluate forms one by one, from the keyboard or from standard input; ,help lists what else can be asked."""
    at_keyboard = sys.stdin.isatty()
    if at_keyboard:
        echo("lispgpt: ,help for help, ,quit to leave")
        keep_history(ctx)
    with new_context(), ir.Location.unknown():
        session = Session(Path.cwd(), echo)
        if at_keyboard:
            complete_by_tab(session.completions)
        for text in inputs(at_keyboard):
            if not session.enter(text):
                break
