"""An entry of the reference, and how a name is found among all."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.language.core.elsewhere import advice, alike

PACKAGE = Path(__file__).resolve().parents[1]
KINDS = ("form", "library", "tile", "pass", "target", "device", "command", "flag")


@dataclass(frozen=True)
class Entry:
    """kind: one of KINDS.  signature: how it is written.  text: Markdown.  example: lines that run.  place: the file
    that has it, from the package's folder, and the line.  related: other names.  shared: of the text, what is said of
    the related names too, by the same example.  uses: how many of the package's example programs have the name."""

    name: str
    kind: str
    signature: str
    text: str
    example: str
    place: str = ""
    related: tuple[str, ...] = ()
    shared: str = ""
    uses: int = 0

    @property
    def own(self) -> str:
        """Of the text, what is said of this name alone."""
        return self.text.removesuffix(self.shared).strip()

    @property
    def summary(self) -> str:
        """The text's first sentence, without the name or the call that it may begin with."""
        text = re.sub(rf"^(`[^`]*`|{re.escape(self.name)}|Of): ", "", " ".join(self.text.split()))
        return re.split(r"(?<=\.)\s", text, maxsplit=1)[0]

    def render(self) -> str:
        """For a terminal."""
        lines = [f"{self.signature}    ({self.kind})", "", self.text.strip()]
        if self.example:
            lines += ["", *(f"    {line}" for line in self.example.splitlines())]
        if self.related:
            lines += ["", f"See also: {', '.join(self.related)}"]
        place = PACKAGE / self.place
        here = place if place.parent.is_dir() else self.place
        return "\n".join([*lines, *(["", f"In {here}"] if self.place else [])])


def find(entries: Iterable[Entry], name: str) -> list[Entry]:
    """The entries of a name; of a flag, those of every command that has it.  UserError says which are like it."""
    known = sorted(entries, key=lambda entry: KINDS.index(entry.kind))
    found = [entry for entry in known if entry.name == name]
    found = found or [entry for entry in known if entry.name.rpartition(" ")[2] == name]
    if not found:
        names = [entry.name for entry in known]
        same, said = alike(name, names), advice(name)
        like = [same] if same else difflib.get_close_matches(name, names, 3)
        if said and not same:
            raise UserError(f"the reference has no `{name}`; {said}")
        spoken = [entry.name for entry in apropos(known, [name])[:5]]
        hint = f"; did you mean {' or '.join(f'`{each}`' for each in like)}?" if like else ""
        hint += f"; it is spoken of under {', '.join(f'`{each}`' for each in spoken)}" if spoken else ""
        raise UserError(f"the reference has no `{name}`{hint}")
    return found


def apropos(entries: Iterable[Entry], words: Sequence[str]) -> list[Entry]:
    """The entries that have all words: first those whose names are made of them, then those that have them in their
    names, in their text as words, and within others; of each, those first that most example programs use."""
    wanted = " ".join(words).lower().split()

    def rank(entry: Entry) -> int | None:
        name, whole = entry.name.lower(), f"{entry.name} {entry.signature} {entry.text}".lower()
        places = (re.split(r"[\s.-]+", name), name, re.split(r"[^\w-]+", whole), whole)
        return next((at for at, place in enumerate(places) if all(word in place for word in wanted)), None)

    ranked = [(rank(entry), -entry.uses, number, entry) for number, entry in enumerate(entries)]
    return [entry for place, _, _, entry in sorted((r for r in ranked if r[0] is not None), key=lambda r: r[:3])]
