"""Text to forms: what belongs to a symbol, what a number is, and where each form stands."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.language.reader.forms import Form, Keyword, Literal, Map, Sequence, Symbol, Value, Vector, show
from lispgpt.language.reader.reader import read


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
