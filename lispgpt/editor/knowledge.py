"""What the reference says of names, for hovers, completions and signatures."""

from __future__ import annotations

from functools import cache

from lispgpt.editor.files import Meaning
from lispgpt.language.forms.modules import LIBRARY
from lispgpt.language.ops.op_names import DIALECTS
from lispgpt.language.reader.forms import show
from lispgpt.reference import language
from lispgpt.reference.entry import Entry

TYPES = ("f64", "f32", "f16", "bf16", "i64", "i32", "i16", "i8", "i1", "index")
CONSTANTS = ("true", "false", "nil")
FORM_KEYWORDS = {
    "entry": ("shapes",),
    "weights": ("init", "where"),
    "state": ("where",),
    "per": ("init", "where"),
    "generate": ("max-new-tokens", "temperature", "top-k", "top-p", "min-p", "seed", "stop"),
    "loop": ("while", "do", "result"),
    "if": ("result",),
    "cond": ("else", "result"),
    "require": ("as",),
}
"""Keywords that a form takes."""


@cache
def forms() -> dict[str, Entry]:
    """Core forms and built-in functions by their names."""
    return {entry.name: entry for entry in language.forms()}


@cache
def library() -> dict[str, Entry]:
    """What the library defines, by the file's name, a slash, and its own."""
    found = {}
    for entry in language.library(examples=False):
        file = entry.place.rpartition(":")[0].rpartition("/")[2]
        found[f"{file.removesuffix('.lisp')}/{entry.name}"] = entry
    return found


@cache
def libraries() -> tuple[str, ...]:
    """What `require` takes by name."""
    return tuple(sorted(path.stem for path in LIBRARY.glob("*.lisp")))


def dialects() -> tuple[str, ...]:
    return DIALECTS


def entry_of(meaning: Meaning | None, name: str) -> Entry | None:
    """The reference's entry of what a name means; None for what the user defines without a word."""
    if meaning is None:
        return forms().get(name)
    if meaning.file.path.is_relative_to(LIBRARY):
        return library().get(f"{meaning.file.path.stem}/{meaning.definition.name}")
    return None


def comment_above(meaning: Meaning) -> str:
    """The comment right above a definition, or at the end of its line."""
    text, start = meaning.file.text, meaning.definition.form.span.start
    lines: list[str] = []
    for line in reversed(text[:start].splitlines()):
        if not line.lstrip().startswith(";") or line.lstrip().startswith("; --"):
            break
        lines.insert(0, line.lstrip("; "))
    return "\n".join(lines)


def signature_of(meaning: Meaning) -> str:
    """How a definition is called or declared."""
    definition = meaning.definition
    if definition.parameters is not None:
        return f"({' '.join([definition.name, *(show(each) for each in definition.parameters.items)])})"
    if definition.kind in ("weight", "state"):
        return show(definition.form, 100)
    if definition.written is not None and definition.kind in ("config", "value", "local"):
        return f"{definition.name} = {show(definition.written, 80)}"
    return definition.name


def parameters_of(meaning: Meaning | None, entry: Entry | None) -> tuple[str, list[str]] | None:
    """A call's text and its parameters' texts, as signature help shows them; None for what is not called."""
    if meaning is not None and meaning.definition.parameters is not None:
        words = [show(each) for each in meaning.definition.parameters.items]
        rest = words.index("&") if "&" in words else len(words)
        return signature_of(meaning), [*words[:rest], *([" ".join(words[rest:])] if words[rest:] else [])]
    if entry is None or not entry.signature.startswith("("):
        return None
    return entry.signature, _words(entry.signature[1:-1])[1:]


def _words(text: str) -> list[str]:
    """The parts of a signature, whatever is in brackets as one."""
    found, depth = [""], 0
    for character in text:
        depth += (character in "([{") - (character in ")]}")
        if character == " " and not depth:
            found.append("")
        else:
            found[-1] += character
    return [word for word in found if word]
