"""Texts as they are while somebody types: what reads is understood, errors are told apart, and nothing breaks."""

from __future__ import annotations

from pathlib import Path

import pytest
from seeded import rng

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.editor import completion, navigation, outline
from lispgpt.editor.checker import Checked
from lispgpt.editor.checking import check
from lispgpt.editor.files import File, Files
from lispgpt.editor.hover import hover
from lispgpt.editor.recovery import recover
from lispgpt.editor.view import View
from lispgpt.language.reader.tree import tree

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TYPED = ["", "(", ")", "[", "]", "{", '"', "`", "~", "<", ",", "9x", "\\", "'", "(let [", "(defn f [", ";", "é", "😀"]


@pytest.mark.parametrize(
    ("text", "errors", "forms"),
    [
        ("(f [x", ["never closed"], ["List", "Symbol f", "Vector", "Symbol x"]),
        ("(f (x)\n(g)\n", ["never closed"], ["List", "Symbol f", "List", "Symbol x", "List", "Symbol g"]),
        ('(f "b\n(g)\n(h "c")', ["never closed"], None),
        ("(f x]]\n(g", ["meets the `(` of line 1", "never closed"], None),
        ("(a)\n(f 1a)\n(g ~)\n(h)", ["starts like a number", "nothing to quote"], None),
        ("(module\n(f)\n)", [], ["List", "Symbol module", "List", "Symbol f"]),
        ('(f "a\n(b" c)', [], ["List", "Symbol f", 'Literal "a (b"', "Symbol c"]),
    ],
)
def test_what_is_whole_is_read_and_each_form_has_its_error(
    text: str, errors: list[str], forms: list[str] | None
) -> None:
    found = recover(Source("t", text))
    assert len(found.errors) == len(errors)
    assert all(part in error.message for part, error in zip(errors, found.errors, strict=True))
    assert forms is None or [line[8:].strip() for line in tree(found.forms).splitlines()] == forms
    for error in found.errors:
        assert error.span is not None and error.span.source.text == text


def test_several_errors_are_told_and_none_that_only_follows() -> None:
    text = (
        "(config n 4 m (+ n unknown))\n(defn f [x] (+ x m))\n(defn broken [x (f x)\n"
        "(entry a [(x [n 2] f32)] (reshape (f x) [3 3]))\n(entry b [(x [4 2] f32)] (+ x (broken x) missing))\n"
        "(entry c [(x [4 2] f32) (y [3 2] f32)] (+ x y))\n(entry d [(x [4 2] f32)] (+ x 1.0))\n"
    )
    errors = check(str(EXAMPLES / "unsaved.lisp"), text)["errors"]
    told = [(text[e["start"] : e["end"]], e["message"]) for e in errors]
    assert [where for where, _ in told] == ["unknown", "(+ x y)"], told
    assert "`unknown` is not defined" in told[0][1]
    assert all(error["severity"] == 1 for error in errors)


def test_an_error_in_the_library_is_shown_at_the_call() -> None:
    text = "(require nn)\n(entry e [(x [4 2] f32)] (log-sum-exp x))\n"
    (error,) = check(str(EXAMPLES / "unsaved.lisp"), text)["errors"]
    assert text[error["start"] : error["end"]] == "(log-sum-exp x)"
    assert any(each["file"] == "lib/attention.lisp" for each in error["around"])


def test_any_text_is_answered() -> None:
    random, files = rng(), Files()
    for name in ("gpt2", "tour/05-structs", "tour/15-attention") * 3:
        path = EXAMPLES / f"{name}.lisp"
        text = path.read_text()
        for _ in range(random.integers(1, 4)):
            place = int(random.integers(len(text)))
            text = text[:place] + str(random.choice(TYPED)) + text[place + int(random.integers(8)) :]
        view = View(files, File(path, text, typed=True, files=files), Checked(path.read_text()))
        outline.outline(view.file)
        list(outline.shapes(view, 0, len(text)))
        for offset in map(int, random.integers(len(text), size=12)):
            hover(view, offset)
            completion.completions(view, offset)
            completion.signature(view, offset)
            navigation.references(view, offset, ())
            try:
                navigation.renamed(view, offset, "another-name", ())
            except UserError:
                continue


def test_places_in_an_older_text_are_found_again() -> None:
    old = "(f a)\n(g b)\n"
    new = "(f a)\n(new)\n(g b)\n"
    then = Checked(old).as_in(new)
    assert [then(new.index("a)")), then(new.index("b)")), then(new.index("new") + 1)] == [3, 9, None]
    assert [Checked(new).as_in(new)(n) for n in range(len(new))] == list(range(len(new)))
