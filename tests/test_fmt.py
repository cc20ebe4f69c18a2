"""`lispgpt fmt`: the layout, that it changes nothing but spaces, and that it is a fixed point."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.cli.fmt import fmt, format_source
from lispgpt.language.reader.forms import Form, Sequence
from lispgpt.language.reader.reader import read

ROOT = Path(__file__).parent.parent
PROGRAMS = sorted([*ROOT.glob("examples/**/*.lisp"), *ROOT.glob("lispgpt/lib/*.lisp")])


def formatted(text: str) -> str:
    return format_source(Source("test.lisp", text))


def atoms(form: Form) -> object:
    """A form without places: nested tuples of the atoms' texts."""
    if isinstance(form, Sequence):
        return (type(form).__name__, *(atoms(item) for item in form.items))
    return form.span.source.text[form.span.start : form.span.end]


def meaning(text: str) -> list[object]:
    return [atoms(form) for form in read(Source("test.lisp", text))]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("( f  1\n2 )", "(f  1\n    2)\n"),
        ("(defn f [x]\n(g x\n y))", "(defn f [x]\n  (g x\n     y))\n"),
        ("(let [a 1\nb 2]\na)", "(let [a 1\n      b 2]\n  a)\n"),
        ("(linalg.fill {:ins 1\n:outs 1}\n a b)", "(linalg.fill {:ins 1\n              :outs 1}\n  a b)\n"),
        ("; one\n\n\n\n(f) ; two   \n", "; one\n\n(f) ; two\n"),
        ('(print "a\n  b"\n1)', '(print "a\n  b"\n       1)\n'),
        ("'( a\n ~@b )", "'(a\n   ~@b)\n"),
        ("(f a ; why\n)", "(f a ; why\n   )\n"),
    ],
)
def test_layout(before: str, after: str) -> None:
    assert formatted(before) == after


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_programs_keep_their_meaning(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    once = formatted(text)
    assert meaning(once) == meaning(text)
    assert formatted(once) == once
    assert [line for line in once.splitlines() if line != line.rstrip() and '"' not in line] == []


FORMS = st.recursive(
    st.sampled_from(["x", "1", ":k", '"s\n t"', "arith.addi", "memref<4x4xf32>", "^b"]),
    lambda inner: st.builds(
        lambda items, brackets, gaps: (
            brackets[0] + "".join(i + g for i, g in zip(items, gaps, strict=False)) + brackets[1]
        ),
        st.lists(inner, max_size=4),
        st.sampled_from(["()", "[]", "{}"]),
        st.lists(st.sampled_from([" ", "\n", "  ", "\n\n\n", " ; c\n", "\t"]), min_size=4, max_size=4),
    ),
    max_leaves=12,
)


@given(FORMS)
@settings(max_examples=150, deadline=None)
def test_any_form_keeps_its_meaning(text: str) -> None:
    once = formatted(text)
    assert meaning(once) == meaning(text)
    assert formatted(once) == once


def test_command_rewrites_and_checks(tmp_path: Path) -> None:
    path = tmp_path / "a.lisp"
    path.write_text("( f )\n")
    checked = CliRunner().invoke(fmt, ["--check", str(path)])
    assert (checked.exit_code, path.read_text()) == (1, "( f )\n")
    assert "+(f)" in checked.output
    assert CliRunner().invoke(fmt, [str(path)]).exit_code == 0
    assert path.read_text() == "(f)\n"
    assert CliRunner().invoke(fmt, ["--check", str(path)]).exit_code == 0


def test_text_that_does_not_read_is_an_error() -> None:
    with pytest.raises(UserError, match="never closed"):
        formatted("(f")
