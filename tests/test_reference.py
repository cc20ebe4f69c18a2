"""The reference: every name has an entry with all that one has, whose example runs; the commands that show it."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.cli.doc import entries, shown
from lispgpt.cli.main import COMMANDS
from lispgpt.cli.repl import Session
from lispgpt.ir.mlir import ir, new_context
from lispgpt.language.model.table import Model
from lispgpt.language.program import LANGUAGE
from lispgpt.language.reader.reader import read
from lispgpt.passes.base import FOLDER, find_pass, make_pass
from lispgpt.passes.targets import CHIPS, find_target
from lispgpt.pipelines.pipeline_file import pass_call
from lispgpt.reference.entry import KINDS, Entry
from lispgpt.reference.pages import Said, said_in
from lispgpt.reference.site import TITLES, guide, write_site
from lispgpt.runtime.devices import device_kinds

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = list({id(said): said for file in ("forms.md", "library.md") for said in said_in(file).values()}.values())


def names_of(kind: str) -> set[str]:
    return {entry.name for entry in entries() if entry.kind == kind}


def test_every_name_has_an_entry() -> None:
    assert names_of("form") == set(LANGUAGE.names)
    definition = re.compile(r"^\((?:defn|defmacro|def|kernel|defstruct|schedule) ([^\s()]+)", re.MULTILINE)
    written = {n for path in (ROOT / "lispgpt" / "lib").rglob("*.lisp") for n in definition.findall(path.read_text())}
    assert names_of("library") == written
    stems = [path.stem.replace("_", "-") for path in FOLDER.rglob("*.py")]
    assert names_of("pass") == {stem for stem in stems if find_pass(stem)}
    assert names_of("target") == {str(chip) for chips in CHIPS.values() for chip in chips.values()} | set(CHIPS)
    assert names_of("device") == {f"device {kind}" for kind in device_kinds()}
    assert {f"lispgpt {name}" for name in COMMANDS} <= names_of("command")
    assert names_of("flag") and set(KINDS) == set(TITLES)


def test_every_entry_has_what_entries_have() -> None:
    bare = [entry.name for entry in entries() if not (entry.signature and entry.text.strip() and entry.example)]
    assert not bare


def test_what_is_said_of_names_is_said_of_names_that_are_there() -> None:
    assert set(said_in("forms.md")) <= names_of("form")
    assert set(said_in("library.md")) <= names_of("library")


@pytest.mark.parametrize("said", EXAMPLES, ids=[said.names[0] for said in EXAMPLES])
def test_examples_run_and_give_what_they_say(said: Said, tmp_path: Path) -> None:
    """Forms one by one as in the repl, and then their entries; `; => value` is what the repl shows."""
    told: list[str] = []
    with new_context(), ir.Location.unknown():
        session = Session(tmp_path, told.append)
        for form in read(Source("example", said.example)):
            before = len(told)
            session.enter(said.example[form.span.start : form.span.end])
            wanted = re.match(r"\s*; => (.*)", said.example[form.span.end :].split("\n")[0])
            assert wanted is None or told[before:] == [wanted.group(1).strip()]
        for name in list(session.evaluator.states.of(Model).entries):
            session.enter(f",entry {name} 4")
    assert not [line for line in told if "error:" in line or "bug" in line]


def of_kind(kind: str) -> list[Entry]:
    return [entry for entry in entries() if entry.kind == kind]


def test_examples_of_the_library_can_be_read() -> None:
    """They are parts of programs and of the library, which other tests compile."""
    for entry in of_kind("library"):
        assert read(Source(entry.name, entry.example)), entry.name


def test_examples_of_passes_and_targets_are_understood() -> None:
    for entry in of_kind("pass"):
        (form,) = read(Source(entry.name, entry.example))
        call, found = pass_call(form), find_pass(entry.name)
        assert found is not None and make_pass(found, dict(call.options)).name == call.name == entry.name
    for entry in of_kind("target"):
        assert find_target(entry.example.split()[-1])


def test_a_name_a_flag_and_words_are_found() -> None:
    assert shown(("contract",)).startswith("(contract [n o] x [n k] w [o k])    (form)")
    assert "(rms-norm x weight epsilon)" in shown(("rms-norm",))
    assert shown(("--min-p",)).count("(flag)") >= 1
    assert "plan-arena" in shown(("arena", "bytes"), about=True)
    with pytest.raises(UserError, match="has no `rms-nrom`; did you mean `rms-norm`"):
        shown(("rms-nrom",))


class Links(HTMLParser):
    """The anchors of a page, and where its links lead."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        self.places |= {given["id"] or ""} if "id" in given else set()
        self.links += [given[name] or "" for name in ("href", "src") if name in given]


def test_the_site_is_whole(tmp_path: Path) -> None:
    first = write_site(tmp_path / "site", entries())
    pages = {path.name: Links(path.read_text()) for path in first.parent.glob("*.html")}
    assert {f"{kind}.html" for kind in KINDS} | {f"{name}.html" for name in guide()} | {"index.html"} == set(pages)
    for name, page in pages.items():
        for link in page.links:
            file, _, anchor = link.partition("#")
            if file.startswith("https://"):
                continue
            assert (first.parent / (file or name)).is_file(), (name, link)
            assert not anchor or anchor in pages[file or name].places, (name, link)
    named = re.findall(r'"(\w+\.html)#([^"]+)"', (first.parent / "names.js").read_text())
    assert len(named) == len(entries()) and all(anchor in pages[file].places for file, anchor in named)
    with pytest.raises(UserError, match="cannot write"):
        write_site(first, entries())
