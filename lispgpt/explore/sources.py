"""The texts that places are in, the forms in them, and which chains of places a line of a later stage stands for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePath

from lispgpt.base.errors import UserError
from lispgpt.base.reading import read_text
from lispgpt.base.source import Source
from lispgpt.explore.places import Chain, Place, Places
from lispgpt.language.reader.forms import Form, Sequence
from lispgpt.language.reader.reader import read

PACKAGE = Path(__file__).resolve().parents[1]
LIBRARY = "lib"


@dataclass(frozen=True)
class SourceFile:
    """name: as locations have it.  library: whether it is the language's own.  forms: the bracketed ones, as (start,
    end) in characters, each ahead of those in it."""

    name: str
    text: str
    library: bool
    forms: tuple[tuple[int, int], ...]


def is_librarys(name: str) -> bool:
    """Whether a location's file is one of the language's library, or of its schedules."""
    parts = PurePath(name).parts
    return parts[:1] == (LIBRARY,) and ".." not in parts and (PACKAGE / name).is_file()


def source_files(program: Path, places: Places) -> list[SourceFile]:
    """The program, and the files that any place is in; those that cannot be read any more are left out."""
    names = dict.fromkeys([str(program), *(file for file, _, _ in places.places)])
    return [found for name in names if (found := _source_file(name)) is not None]


def _source_file(name: str) -> SourceFile | None:
    library = is_librarys(name)
    try:
        text = read_text(PACKAGE / name if library else Path(name))
        forms = read(Source(name, text))
    except UserError:
        return None
    spans = sorted({(start, -end) for form in forms for start, end in _spans(form)})
    return SourceFile(name, text, library, tuple((start, -end) for start, end in spans))


def _spans(form: Form) -> Iterator[tuple[int, int]]:
    if isinstance(form, Sequence):
        yield form.span.start, form.span.end
        for item in form.items:
            yield from _spans(item)


class Meant:
    """Which whole chains a location of any stage stands for.

    Lowering keeps of a chain its innermost place and the innermost that is the model's own; machine code keeps the
    latter's line.  So each stands for all chains that begin and go on like that.
    """

    def __init__(self, places: Places) -> None:
        self._places = list(places.places)
        self._own = [not is_librarys(file) for file, _, _ in self._places]
        self._chains = list(places.chains)
        self._alike: dict[tuple[int, int], list[int]] = {}
        self._at: dict[Place, list[int]] = {}
        for number, chain in enumerate(self._chains):
            own = self.own(chain)
            self._alike.setdefault((chain[0], own), []).append(number)
            file, line, _ = self._places[own]
            for place in {self._places[own], (file, line, 0)}:
                self._at.setdefault(place, []).append(number)

    def own(self, chain: Chain) -> int:
        """The innermost place of a chain that is in a file of the model's; where none is, the innermost."""
        return next((place for place in chain if self._own[place]), chain[0])

    def chains(self, numbers: Iterable[int], of_machine: bool) -> list[int]:
        """The numbers of the chains that a location's stand for."""
        found: dict[int, None] = {}
        for number in numbers:
            chain = self._chains[number]
            own = self.own(chain)
            if of_machine:
                found.update(dict.fromkeys(self._at.get(self._places[own], [number])))
            elif len(chain) <= 2:
                found.update(dict.fromkeys(self._alike[chain[0], own]))
            found[number] = None
        return list(found)
