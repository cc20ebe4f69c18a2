"""Text to forms: what belongs to a symbol, what a number is, and where each form stands."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.language.core.library import LIBRARY
from lispgpt.language.reader.forms import Form, Keyword, Later, Literal, Map, Sequence, Symbol, Value, Vector, show
from lispgpt.language.reader.reader import read, read_library


def plain(form: Form) -> object:
    """A form as Python data: lists as lists, vectors and maps tagged, names and keywords as strings."""
    match form:
        case Symbol(name=name):
            return name
        case Keyword(name=name):
            return f":{name}"
        case Literal(value=value) | Value(value=value):
            return ("text", value) if isinstance(value, str) else value
        case Sequence(items=items):
            members = [plain(item) for item in items]
            return (
                {"vector": members}
                if isinstance(form, Vector)
                else {"map": members}
                if isinstance(form, Map)
                else members
            )
    raise AssertionError(form)


def one(text: str) -> object:
    (form,) = read(Source("t", text))
    return plain(form)


@pytest.mark.parametrize(
    "symbol",
    [
        "memref<?x4xf32, strided<[1], offset: ?>>",
        "array<i32: 0, 1>",
        "array<i32: 0 1 1>",
        "dense<[[1, 2], [3, 4]]>",
        "affine_map<(d0, d1) -> (d1, d0 * 64)>",
        "affine_set<(d0) : (d0 - 1 >= 0)>",
        "!llvm.func<i32 (ptr, ...)>",
        "!llvm.struct<(i32, array<4 x i8>)>",
        "tuple<i32, f32>",
        "memref<4xf32, #gpu.address_space<workgroup>>",
        *[
            "->",
            "...",
            "<=i",
            ">=i",
            "<i",
            "!=i",
            "=i",
            "@sym",
            "@a::@b",
            "!llvm.ptr",
            "%x",
            "^then",
            ":",
            "-",
            "/",
            "/f",
            "*i",
            "+",
            "?",
            "set!",
            "a-1",
            "x/y",
            "&",
            "llvm.mlir.zero",
        ],
    ],
)
def test_symbols_hold_together(symbol: str) -> None:
    assert one(symbol) == symbol
    assert one(f"[{symbol} {symbol}]") == {"vector": [symbol, symbol]}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0x1F", 31),
        ("-12", -12),
        ("123456789012345678901234567890", 123456789012345678901234567890),
        ("-2.5e-3", -0.0025),
        ("1e4", 10000.0),
        ("true", True),
        ("nil", None),
        ('"a\\n\\"\\q\\00"', ("text", 'a\n"q\x000')),
        ('"two\nlines"', ("text", "two\nlines")),
        (":llvm.emit_c_interface", ":llvm.emit_c_interface"),
        ("'x", ["quote", "x"]),
        ("`(a ~b ~@c)", ["quasiquote", ["a", ["unquote", "b"], ["splice", "c"]]]),
        ("{:a 1 ; two\n :b [2]}", {"map": [":a", 1, ":b", {"vector": [2]}]}),
        ("(- 1)", ["-", 1]),
        ("(-1)", [-1]),
        ("()", []),
    ],
)
def test_values(text: str, value: object) -> None:
    assert one(text) == value


def test_spans_point_at_the_text() -> None:
    source = Source("t", "(def x\n  [1 memref<4xf32>])")
    (form,) = read(source)
    assert isinstance(form, Sequence)
    vector = form.items[2]
    assert str(form.span) == "t:1:1"
    assert str(vector.span) == "t:2:3"
    assert isinstance(vector, Sequence)
    assert [show(item) for item in vector.items] == ["1", "memref<4xf32>"]
    assert show(form) == "(def x [1 memref<4xf32>])"


def test_reading_is_linear_in_hostile_text() -> None:
    for text in ("a<" * 20_000, "a<" + "-" * 100_000, '"' + "\\" * 99_999, "x" * 300_000, "1" * 100_000, ";" * 300_000):
        start = time.process_time()
        with pytest.raises(UserError) if text[0] not in "x;" else pytest.MonkeyPatch.context():
            read(Source("t", text))
        assert time.process_time() - start < 60, "seconds of work, not of the clock: a square of the length takes hours"


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("()[]{}<>\"';:`~@^%!#&|$.,-+*/=?\\ \n01exab\0é"), max_size=40))
def test_any_text_reads_or_is_one_user_error(text: str) -> None:
    try:
        forms = read(Source("t", text))
    except UserError as error:
        assert error.span is not None
        assert error.render().startswith("t:")
        return
    assert all(form.span.end <= len(text) for form in forms)


def placed(form: Form) -> object:
    """A form with the place of each of its parts, and what is read later where it stands."""
    items = getattr(form, "items", ())
    inside = [placed(part) for item in items for part in (item.read() if isinstance(item, Later) else [item])]
    return type(form).__name__, str(form.span), form.span.end, getattr(form, "name", None), inside


def test_a_library_that_is_read_as_it_is_used_is_what_it_is_as_a_whole() -> None:
    later, functions = 0, 0
    for path in sorted(LIBRARY.glob("*.lisp")):
        text = path.read_text(encoding="utf-8")
        found, whole = read_library(path.name, text), read(Source(path.name, text))
        assert [placed(form) for form in found] == [placed(form) for form in whole], path
        functions += sum(text.count(head) for head in ("\n(defn", "\n(defmacro", "\n(defgradient"))
        later += sum(isinstance(item, Later) for form in found for item in getattr(form, "items", ()))
    assert later > 0.8 * functions


@pytest.mark.parametrize(
    "text",
    [
        "(defn f [x] (+ x 1)) ; (one) more\n\n; (and more)\n(defn g [x y & more] (f x) more)\n",
        "(defn f [x]\n  (+ x 1))\n  (defn g [x] x)\n",
        '(defn f [x]\n  "a\n(text" x)\n(defn g [x] x)\n',
        "(defn f [(: x i32)] -> i32 x)\n(defn g [x] -> i32 x)\n(defn h [[a b]] a)\n(defn i [] 1)\n(def j 2)\n",
        "; nothing\n",
    ],
)
def test_files_of_other_layouts_are_read_as_they_are(text: str) -> None:
    assert [placed(f) for f in read_library("t", text)] == [placed(f) for f in read(Source("t", text))]
