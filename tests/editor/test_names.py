"""What names mean to an editor: as the evaluator finds them, through macros and files, renamed without harm."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lispgpt.base.errors import UserError
from lispgpt.editor import checking, completion, navigation
from lispgpt.editor.checker import checked
from lispgpt.editor.files import File, Files
from lispgpt.editor.hover import hover
from lispgpt.editor.outline import outline, shapes
from lispgpt.editor.view import View
from lispgpt.editor.watching import Watching
from lispgpt.language.core.environment import Environment
from lispgpt.language.reader.forms import Form, List, Symbol

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def view_of(path: Path, text: str, check: bool = False) -> View:
    files = Files()
    file = files.opened[path] = File(path, text, typed=True, files=files)
    return View(files, file, checked(text, checking.check(str(path), text)) if check else None)


def place_in(text: str, marked: str) -> int:
    """The offset of the `|` in an excerpt of a text."""
    before, _, after = marked.partition("|")
    assert text.count(before + after) == 1, marked
    return text.index(before + after) + len(before)


class Tracing(Watching):
    """Remembers where the evaluator found each name of the watched file bound."""

    bound: dict[tuple[int, str], Any] = {}  # noqa: RUF012
    found: dict[tuple[int, int], set[int | None]] = {}  # noqa: RUF012

    def evaluate(self, form: Form, environment: Environment) -> Any:
        symbol = form.items[0] if isinstance(form, List) and form.items else form
        if isinstance(symbol, Symbol) and symbol.mark is None and symbol.span.source.name == self.watched:
            scope: Environment | None = environment
            while scope is not None and symbol.name not in scope.names:
                scope = scope.outer
            span = self.bound.get((id(scope), symbol.name))
            own = span is not None and span.source.name == self.watched
            place = symbol.span.start, symbol.span.end
            self.found.setdefault(place, set()).add(span.start if own else None)
        return super().evaluate(form, environment)


@pytest.mark.parametrize(
    "name", ["gpt2", "gpt2_explicit", "llama_tiny", "tour/03-control", "tour/06-macros", "tour/15-attention"]
)
def test_names_mean_what_the_evaluator_finds(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """But for sizes, which it binds without a place, and accessors of structs."""
    path = EXAMPLES / f"{name}.lisp"
    file = view_of(path, path.read_text()).file
    kept = []
    define = Environment.define

    def noting(self: Environment, symbol: Symbol, value: Any) -> None:
        kept.append(self)  # so that no other scope gets its id
        Tracing.bound[id(self), symbol.name] = symbol.span if symbol.mark is None else None
        define(self, symbol, value)

    monkeypatch.setattr(Environment, "define", noting)
    monkeypatch.setattr(checking, "Watching", Tracing)
    Tracing.bound, Tracing.found = {}, {}
    assert checking.check(str(path), file.text)["errors"] == []
    uses = {(use.start, use.end): use for use in file.index.uses}
    assert len(Tracing.found) > 20
    for place, starts in Tracing.found.items():
        definition = uses[place].definition if place in uses else None
        spans = {span.start for span in definition.spans} if definition is not None else set()
        if definition is None or definition.kind != "dimension":
            assert starts <= (spans or {None}), f"{path.name}:{file.source.line_column(place[0])}"


def test_definitions_through_macros_and_required_files(tmp_path: Path) -> None:
    (tmp_path / "mine.lisp").write_text("(require nn)\n; What I add\n(defn mine [x y] (relu x))\n")
    (tmp_path / "other.lisp").write_text('(require ["mine.lisp" :as m])\n(def z (m/mine 1 2))\n')
    text = (
        '(require "mine.lisp")\n(require rotary)\n(rotary-config)\n'
        "(defmacro each [[i n] & body] `(for [~i (range ~n)] ~@body))\n"
        "(each [k 3] (+ k rope-theta))\n(mine 1 (gelu 2))\n"
    )
    view = view_of(tmp_path / "main.lisp", text, check=True)

    def found(marked: str) -> list[tuple[str, str, int]]:
        places = navigation.definition(view, place_in(text, marked))
        return [(p.file.path.name, p.file.text[p.start : p.end], p.start) for p in places]

    assert found("(mi|ne 1") == [("mine.lisp", "mine", 32)]
    assert [each[:2] for each in found("(ge|lu 2")] == [("nn.lisp", "gelu")]
    assert [each[:2] for each in found("rope|-theta")] == [("main.lisp", "rotary-config")]
    assert found("(+ k| rope") == [("main.lisp", "k", place_in(text, "[|k 3]"))]
    assert found("(ea|ch [k") == [("main.lisp", "each", place_in(text, "(defmacro |each"))]
    assert found('"mi|ne.lisp"') == [("mine.lisp", "", 0)]
    assert found("(require rot|ary)")[0][0] == "rotary.lisp"
    said = hover(view, place_in(text, "(mi|ne 1"))
    assert said is not None and "(mine x y)" in said[0] and "What I add" in said[0]
    nearby = [tmp_path / "other.lisp", tmp_path / "mine.lisp"]
    uses = navigation.references(view, place_in(text, "(mi|ne 1"), nearby)
    assert sorted((p.file.path.name, p.file.text[p.start : p.end]) for p in uses) == [
        ("main.lisp", "mine"),
        ("mine.lisp", "mine"),
        ("other.lisp", "mine"),
    ]


TEXT = """(config width 8)
(weights (w [width width]))
(defn layer [x l] (let [x (+ x l) y x] (* x y width)))
(entry out [(x [2 width] f32)] (layer x (matmul x w)))
"""


def test_a_new_name_goes_where_the_old_one_means_the_same() -> None:
    view = view_of(EXAMPLES / "unsaved.lisp", TEXT)

    def after(marked: str, name: str) -> str:
        text = TEXT
        for place in sorted(navigation.renamed(view, place_in(TEXT, marked), name, ()), key=lambda p: -p.start):
            text = text[: place.start] + name + text[place.end :]
        return text

    assert after("[x| l]", "rows") == TEXT.replace("[x l]", "[rows l]").replace("(+ x l)", "(+ rows l)")
    assert after("[x| (+", "z") == TEXT.replace("[x (+", "[z (+").replace("y x]", "y z]").replace("(* x y", "(* z y")
    assert after("(defn la|yer", "block-of") == TEXT.replace("layer", "block-of")
    assert after("(config wi|dth", "size") == TEXT.replace("width", "size")
    for marked, name, why in [
        ("[x| (+", "y", "means something else"),
        ("(+| x l)", "plus", "not defined in a file of yours"),
        ("[x| l]", "two words", "not a name"),
        ("[x| l]", "12", "not a name"),
        ("(config wi|dth", "l", "means something else"),
    ]:
        with pytest.raises(UserError, match=why):
            after(marked, name)


def test_completions_signatures_shapes_and_outline() -> None:
    text = TEXT + "(defn late [q]\n  (layer q (li"
    view = view_of(EXAMPLES / "unsaved.lisp", text, check=True)
    names = [each.name for each in completion.completions(view, len(text))[0]]
    assert {"list", "link-library", "linear"} < set(names) and names.index("list") < names.index("linear")
    linear = next(each for each in completion.completions(view, len(text))[0] if each.name == "linear")
    assert (linear.requires, linear.library) == (True, "nn")
    signature = completion.signature(view, place_in(text, "(layer q| (li"))
    assert signature is not None and (signature.label, signature.active) == ("(layer x l)", 0)
    assert view.checked is not None and "matmul" in view.checked.errors[0]["message"]
    good = text.replace("(matmul x w)", "(reshape w [8 8])").replace("[2 width]", "[8 8]")
    view = view_of(EXAMPLES / "unsaved.lisp", good, check=True)
    assert view.checked is not None and view.checked.errors == []
    found = [(good[:place].rpartition("[")[2], shape) for place, shape in shapes(view, 0, len(good))]
    assert ("x", "[8 8] f32") in found and ("x l", "[8 8] f32") in found
    said = hover(view, place_in(good, "(* x| y width)"))
    assert said is not None and "`[8 8] f32`" in said[0]
    tree = [(item.name, [child.name for child in item.children]) for item in outline(view.file)]
    assert tree == [("config", ["width"]), ("weights", ["w"]), ("layer", []), ("out", []), ("late", [])]
