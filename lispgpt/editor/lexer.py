"""A Pygments lexer for the language, found by the name `lispgpt` wherever Pygments is asked."""

from __future__ import annotations

from pygments.lexer import RegexLexer, bygroups, words
from pygments.token import Comment, Keyword, Name, Number, Operator, Punctuation, String, Text

from lispgpt.editor.words import BUILTINS, CONSTANTS, CORE, DEFINING, SPECIALS, TYPES

ENDS = r"(?![\w\-!?*+=<>@%./&#|$])"
"""What a name ends before."""

NAME = r"(?:[^\W\d]|[!?*+=<>@%./&#|$]|-(?![0-9]))(?:[\w\-!?*+=>@%./&#|$]|::|<[^()\s]*>)*"
NUMBER = r"-?(?:0[xX][0-9a-fA-F]+|[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)"
OP = r"[a-z_][\w]*\.[\w.]+"
TYPE = r"(?:memref|tensor|vector|tuple|array|dense|affine_map)<[^\n]*?>(?=[\s()\[\]{}]|$)|![\w.]+(?:<[^\n]*?>)?"


class LispgptLexer(RegexLexer):
    """Programs of lispgpt: forms, the library's core, ops of MLIR, types."""

    name = "lispgpt"
    aliases = ("lispgpt",)
    filenames = ("*.lisp",)
    priority = 0.05  # Common Lisp's own lexer comes first where nobody names one
    url = "https://pypi.org/project/lispgpt"

    tokens = {  # noqa: RUF012
        "root": [
            (r"[\s\ufeff]+", Text),
            (r";[^\n]*", Comment.Single),
            (r'"(?:[^"\\]|\\.)*"', String.Double),
            (NUMBER + ENDS, Number),
            (r":[A-Za-z_][\w.\-!?*+=<>@%/]*", Name.Attribute),
            (r"\^[A-Za-z_][\w.\-]*", Name.Label),
            (r"~@|[`'~]", Operator),
            (
                rf"(\()((?:{'|'.join(DEFINING)}){ENDS})(\s+)({NAME})",
                bygroups(Punctuation, Keyword.Declaration, Text, Name.Function),
            ),
            (words(SPECIALS, suffix=ENDS), Keyword),
            (words(CONSTANTS, suffix=ENDS), Keyword.Constant),
            (words(TYPES, suffix=ENDS), Keyword.Type),
            (TYPE, Keyword.Type),
            (words((*BUILTINS, *CORE), suffix=ENDS), Name.Builtin),
            (OP, Name.Function),
            (r"[()\[\]{}]", Punctuation),
            (NAME, Name),
            (r":", Operator),
            (r".", Text),
        ]
    }
