"""Shows of a run of passes what an observer wants to see, under names that stay from pass to pass."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lispgpt.base.observer import Observer
from lispgpt.passes.dumps import make_folder, write_dump
from lispgpt.passes.kernel_texts import KernelTexts
from lispgpt.passes.text_changes import changes, summary
from lispgpt.passes.value_names import Names

LIST, KERNELS = "passes.txt", "kernels"
SAME = "as before"


@dataclass(frozen=True)
class Ran:
    """A pass that has run: its number in its pipeline, its name, with its options, and how long it took."""

    number: int
    name: str
    call: str
    seconds: float


class Watch:
    """Sees a module's text before the first pass and after each.

    print_: gives the text.  names: those of a text that the module was read from, if it was.
    """

    def __init__(self, observer: Observer, print_: Callable[[], str], names: Names | None = None) -> None:
        self.observer = observer
        self.last: Path | None = None
        """The dump of what the module is."""
        self._print = print_
        self._names = names or Names()
        self._raw = self._text = self._shown = ""
        self._bodies: dict[str, str] = {}
        self._rows: list[str] = []

    def text(self) -> str:
        """What the module is, in names after those of the last time."""
        raw = self._print()
        if raw != self._raw:
            self._raw, self._text = raw, self._names.name(raw)
        return self._text

    def begin(self) -> None:
        """Before the first pass."""
        if self.observer.dump_dir is not None:
            make_folder(self.observer.dump_dir)
            self._dump(Ran(0, "input", "input", 0.0), self.text())
        elif self.observer.changes:
            self.text()

    def after(self, ran: Ran) -> None:
        """After a pass."""
        observer, before = self.observer, self._text
        if observer.timed:
            observer.times.append((ran.call, ran.seconds))
        printed = "all" in observer.print_after or ran.name in observer.print_after
        if not (printed or observer.changes or observer.dump_dir is not None):
            return
        text = self.text()
        if observer.dump_dir is not None:
            self._dump(ran, text if text != before else None)
        if observer.changes and text != before:
            lines = list(changes(before, text))
            observer.show("\n".join([f"// {ran.call} changes {summary(lines)}", *lines, ""]))
        if printed and text == self._shown:
            observer.show(f"// IR after {ran.call}: as above")
        elif printed:
            self._shown = text
            observer.show(f"// IR after {ran.call}\n{text}")

    def failed(self, number: int, name: str, text: str) -> None:
        """What a pass that failed has left."""
        if self.observer.dump_dir is not None:
            write_dump(self.observer.dump_dir, f"{number:02d}-{name}.failed.mlir", text)

    def _dump(self, ran: Ran, text: str | None) -> None:
        """text: None where it is that of the pass before."""
        folder, name = self.observer.dump_dir, f"{ran.number:02d}-{ran.name}.mlir"
        assert folder is not None
        if text is not None:
            self.last = folder / name
            write_dump(folder, name, text)
            if self.observer.kernels:
                self._dump_kernels(folder, name, text)
        lines = "" if text is None else f"{text.count(chr(10)):,}"
        self._rows.append(
            f"{ran.number:>3}  {ran.seconds * 1e3:>9.1f}  {lines:>9}  {name if lines else SAME:44}  {ran.call}"
        )
        heading = f"{'':>3}  {'ms':>9}  {'lines':>9}  {'file':44}  pass"
        write_dump(folder, LIST, "\n".join([heading, *self._rows, ""]))

    def _dump_kernels(self, folder: Path, name: str, text: str) -> None:
        """A file of each function that is another than before."""
        texts = KernelTexts(text)
        bodies = dict(texts.bodies())
        for symbol, body in bodies.items():
            if self._bodies.get(symbol) != body:
                own = re.sub(r"[^\w.-]", "_", symbol, flags=re.ASCII)
                write_dump(folder, f"{KERNELS}/{own}/{name}", texts.whole(symbol))
        self._bodies = bodies
