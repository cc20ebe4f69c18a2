"""An entry of the reference, and how a name is found among all."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lispgpt.base.errors import UserError

KINDS = ("form", "library", "tile", "pass", "target", "device", "command", "flag")


@dataclass(frozen=True)
class Entry:
    """kind: one of KINDS.  signature: how it is written.  text: Markdown.  example: lines that run.  place: the file
    that has it, from the package's folder, and the line.  related: other names."""

    name: str
    kind: str
    signature: str
    text: str
    example: str
    place: str = ""
    related: tuple[str, ...] = ()

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
        return "\n".join([*lines, *(["", f"In {self.place}"] if self.place else [])])


def find(entries: Iterable[Entry], name: str) -> list[Entry]:
    """The entries of a name; of a flag, those of every command that has it.  UserError says which are like it."""
    known = list(entries)
    found = [entry for entry in known if entry.name == name]
    found = found or [entry for entry in known if entry.name.rpartition(" ")[2] == name]
    if not found:
        like = difflib.get_close_matches(name, [entry.name for entry in known], 3)
        meant = like or [entry.name for entry in apropos(known, [name])[:3]]
        hint = f"; did you mean {' or '.join(f'`{each}`' for each in meant)}?" if meant else ""
        raise UserError(f"the reference has no `{name}`{hint}")
    return found


def apropos(entries: Iterable[Entry], words: Sequence[str]) -> list[Entry]:
    """The entries that have all words, those that have them in their names first."""
    wanted = [word.lower() for word in words]

    def rank(entry: Entry) -> int | None:
        if all(word in entry.name.lower() for word in wanted):
            return 0
        whole = f"{entry.name} {entry.signature} {entry.text}".lower()
        return 1 if all(word in whole for word in wanted) else None

    ranked = [(rank(entry), number, entry) for number, entry in enumerate(entries)]
    return [entry for place, _, entry in sorted((r for r in ranked if r[0] is not None), key=lambda r: r[:2])]
