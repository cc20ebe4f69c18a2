"""`lispgpt fmt`: the layout, that it changes nothing but spaces, and that it is a fixed point."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.cli.fmt import fmt
from lispgpt.editor.layout import format_source
from lispgpt.language.reader.forms import Form, Sequence
from lispgpt.language.reader.reader import read

ROOT = Path(__file__).parent.parent
FOLDERS = ("examples", "lispgpt/lib", "passes", "tests")
PROGRAMS = sorted(path for folder in FOLDERS for path in ROOT.glob(f"{folder}/**/*.lisp"))


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
        ("( f  1\n2 )", "(f 1\n   2)\n"),
        ("(defn f [x]\n(g x\n y))", "(defn f [x]\n  (g x\n     y))\n"),
        ("(let [a 1\nb 2]\na)", "(let [a 1\n      b 2]\n  a)\n"),
        ("(linalg.fill {:ins 1\n:outs 1}\n a b)", "(linalg.fill {:ins 1\n              :outs 1}\n  a b)\n"),
        ("; one\n\n\n\n(f) ; two   \n", "; one\n\n(f) ; two\n"),
        ('(print "a\n  b"\n1)', '(print "a\n  b"\n       1)\n'),
        ("'( a\n ~@b )", "'(a\n   ~@b)\n"),
        ("(f a ; why\n)", "(f a ; why\n   )\n"),
        ("(f a   b\n\n c  ( g ) )", "(f a b\n\n   c (g))\n"),
        ("(f a)(g)", "(f a) (g)\n"),
        ("' ( a)  ~ b", "'(a)  ~b\n"),
        ("(config  a 1    b  2)", "(config a 1  b 2)\n"),
        ("{ :a   1    :b 2 }", "{:a 1  :b 2}\n"),
        ("(let [a    1    b  2] a)", "(let [a 1  b 2] a)\n"),
        ("(let [a     1\n      bcd  2] a)", "(let [a 1\n      bcd 2] a)\n"),
        ("(let [a   1\n      bcd 2] a)", "(let [a   1\n      bcd 2] a)\n"),
        ("(f [[ 1  -2]\n    [10 333]])", "(f [[ 1  -2]\n    [10 333]])\n"),
        ("(f  [[ 1   2]\n     [10 333]])", "(f [[ 1   2]\n    [10 333]])\n"),
        ("(weights (a [1])   (b [2])\n  (c   [3]))", "(weights (a [1])  (b [2])\n  (c [3]))\n"),
        ("(a     [1])   ; one\n(bcd  [2])   ; two", "(a [1])   ; one\n(bcd [2])   ; two\n"),
        ('(print  "a  b"   "c" )', '(print "a  b" "c")\n'),
        ("(schedule s [p]\n(f))", "(schedule s [p]\n  (f))\n"),
    ],
)
def test_layout(before: str, after: str) -> None:
    assert formatted(before) == after


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_programs_keep_their_meaning(path: Path) -> None:
    """Those of this package are laid out already."""
    text = path.read_text(encoding="utf-8")
    once = formatted(text)
    assert meaning(once) == meaning(text)
    assert formatted(once) == once
    assert [line for line in once.splitlines() if line != line.rstrip() and '"' not in line] == []
    assert once == text or path.is_relative_to(ROOT / "tests")


FORMS = st.recursive(
    st.sampled_from(["x", "1", "-22", "'y", "~@z", ":k", '"s\n t"', "arith.addi", "memref<4x4xf32>", "^b"]),
    lambda inner: st.builds(
        lambda items, brackets, gaps: (
            brackets[0] + "".join(i + g for i, g in zip(items, gaps, strict=False)) + brackets[1]
        ),
        st.lists(inner, max_size=4),
        st.sampled_from(["()", "[]", "{}"]),
        st.lists(st.sampled_from([" ", "\n", "  ", "   ", "\n\n\n", " ; c\n", "\t"]), min_size=4, max_size=4),
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


def test_standard_input_is_laid_out_to_standard_output() -> None:
    """As editors call formatters; --check shows what would change there, too."""
    done = CliRunner().invoke(fmt, ["-"], input="(let [a 1]\na)\n")
    assert done.exit_code == 0 and done.output == "(let [a 1]\n  a)\n"
    done = CliRunner().invoke(fmt, ["--check", "-"], input="(let [a 1]\na)\n")
    assert done.exit_code == 1 and "+  a)" in done.output
    assert isinstance(CliRunner().invoke(fmt, ["-"], input=b"\xff").exception, UserError)


def test_what_is_no_program_is_not_touched(tmp_path: Path) -> None:
    notes = tmp_path / "notes.md"
    notes.write_text("# Some   *text*\n")
    done = CliRunner().invoke(fmt, [str(notes)])
    assert isinstance(done.exception, UserError) and "notes.md is not named .lisp" in str(done.exception)
    assert notes.read_text() == "# Some   *text*\n"
