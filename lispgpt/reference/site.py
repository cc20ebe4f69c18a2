"""The reference and the guide as pages that need no server: HTML, one style sheet, one search box."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template

from markdown_it import MarkdownIt

from lispgpt import __version__
from lispgpt.base.errors import UserError
from lispgpt.reference.entry import KINDS, Entry
from lispgpt.reference.pages import FOLDER, guide

TITLES = {
    "form": "Forms and built-in functions",
    "library": "The library",
    "tile": "Tile programs",
    "pass": "Passes",
    "target": "Targets",
    "device": "Devices",
    "command": "Commands",
    "flag": "Flags",
}


def write_site(folder: Path, entries: Sequence[Entry]) -> Path:
    """Write the pages into a folder; the first page's path.  UserError where they cannot be written."""
    links = "".join(f'<li><a href="{name}.html">{escape(title_of(path))}</a></li>' for name, path in guide().items())
    kinds = "".join(f'<li><a href="{kind}.html">{title}</a></li>' for kind, title in TITLES.items())
    template = Template((FOLDER / "page.html").read_text(encoding="utf-8"))

    def page(title: str, body: str) -> str:
        return template.substitute(title=escape(title), body=body, guide=links, reference=kinds, version=__version__)

    pages = {kind: page(TITLES[kind], _entries([e for e in entries if e.kind == kind])) for kind in KINDS}
    pages |= {name: page(title_of(path), _html(path.read_text(encoding="utf-8"))) for name, path in guide().items()}
    pages["index"] = page(
        "lispgpt", f"<h1>lispgpt</h1><h2>Guide</h2><ul>{links}</ul><h2>Reference</h2><ul>{kinds}</ul>"
    )
    found = [[e.name, e.kind, f"{e.kind}.html#{_anchor(e)}", e.summary] for e in entries]
    found += [[title_of(path), "guide", f"{name}.html", ""] for name, path in guide().items()]
    files = {f"{name}.html": text for name, text in pages.items()}
    files |= {name: (FOLDER / name).read_text(encoding="utf-8") for name in ("style.css", "search.js")}
    files["names.js"] = f"const NAMES = {json.dumps(found, ensure_ascii=False)};\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error
    return folder / "index.html"


def title_of(path: Path) -> str:
    """A page's first heading."""
    return path.read_text(encoding="utf-8").partition("\n")[0].lstrip("# ")


def _html(markdown: str) -> str:
    """HTML in the text itself is shown, not taken."""
    made: str = MarkdownIt("commonmark", {"html": False}).enable("table").render(markdown)
    return re.sub(r'href="(?:\d+-)?([\w-]+)\.md"', r'href="\1.html"', made)


def _anchor(entry: Entry) -> str:
    return "".join(c if c.isalnum() or c == "-" else f"_{ord(c):x}" for c in entry.name)


def _entries(entries: Sequence[Entry]) -> str:
    """A section for each; entries that share what is said of them, and the example, have one together."""
    places = {entry.name: _anchor(entry) for entry in entries}
    together: dict[str, list[Entry]] = {}
    for entry in entries:
        together.setdefault(entry.shared + entry.example if entry.shared else entry.name, []).append(entry)
    sections = "".join(_section(group, places) for group in together.values())
    return f"<h1>{TITLES[entries[0].kind]}</h1>{sections}" if entries else ""


def _section(group: Sequence[Entry], places: Mapping[str, str]) -> str:
    """places: where each name of the page is."""
    first, parts = group[0], []
    for entry in group:
        text = f"<pre class=text>{escape(entry.own)}</pre>" if entry.kind == "pass" else _html(entry.own)
        place = f"<p class=place>{escape(entry.place)}</p>" if entry.place else ""
        head = f'<h3 id="{_anchor(entry)}">{escape(entry.name)}</h3><p><code>{escape(entry.signature)}</code></p>'
        parts.append(f"{head}{text}{place}")
    example = f"<pre><code>{escape(first.example)}</code></pre>" if first.example else ""
    names = [] if first.shared else first.related
    others = [f'<a href="#{places[n]}">{escape(n)}</a>' if n in places else escape(n) for n in names]
    see = f"<p class=see>See also {', '.join(others)}</p>" if others else ""
    parts.insert(1 if first.shared else len(parts), f"{_html(first.shared)}{example}{see}")
    return f"<section>{''.join(parts)}</section>"
