"""Writes what editors highlight by from the compiler's own tables: run it when a form or a core function is new.

    .venv/bin/python tools/editors/generate.py

The word lists go to lispgpt/editor/words.py, for the Pygments lexer; from the same words come the TextMate grammar of
the VS Code extension, Vim's syntax file and the words of the Emacs mode.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import Path

from lispgpt.editor.files import CORE, File
from lispgpt.editor.knowledge import CONSTANTS, TYPES
from lispgpt.language.core.values import Special
from lispgpt.language.program import LANGUAGE

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAME_ENDS = r"(?![\w\-!?*+=<>@%./&#|$])"
NAME = r"[^\s()\[\]{}'`~\",;:]+"


def tables() -> dict[str, tuple[str, ...]]:
    """The words by their kinds."""
    special = {name for name, value in LANGUAGE.names.items() if isinstance(value, Special) and name[0].isalpha()}
    defining = {name for name in special if name.startswith("def") and name != "defgradient"} | {
        "entry",
        "extern-fn",
        "kernel",
        "schedule",
    }
    core = File(CORE, CORE.read_text(encoding="utf-8")).index.top.names
    found = {
        "DEFINING": defining,
        "SPECIALS": special,
        "BUILTINS": set(LANGUAGE.names) - special,
        "CORE": {d.name for d in core.values() if d.spans and d.kind in ("function", "macro", "value")},
        "TYPES": set(TYPES),
        "CONSTANTS": set(CONSTANTS),
    }
    return {kind: tuple(sorted(names)) for kind, names in found.items()}


def words_module(kinds: dict[str, tuple[str, ...]]) -> str:
    """lispgpt/editor/words.py"""
    lines = [
        '"""The words of the language by their kinds, as tools/editors/generate.py finds them in the compiler."""',
        "",
    ]
    for kind, names in kinds.items():
        lines += [
            f"{kind} = (",
            *_wrapped((json.dumps(name) + "," for name in names), "    ", 118),
            ")  # fmt: skip",
            "",
        ]
    return "\n".join(lines).rstrip() + "\n"


def _wrapped(words: Iterable[str], indent: str, width: int) -> list[str]:
    lines = [indent.rstrip(" ")]
    for word in words:
        if lines[-1] == "" or len(lines[-1]) + len(word) + 1 > width:
            lines.append(indent + word)
        else:
            lines[-1] += " " + word
    return [line for line in lines if line]


def _any(names: Iterable[str]) -> str:
    """A pattern of any of some names, longer ones first."""
    return "|".join(re.escape(name).replace("/", "\\/") for name in sorted(names, key=lambda n: (-len(n), n)))


def textmate(kinds: dict[str, tuple[str, ...]]) -> str:
    """vscode/syntaxes/lispgpt.tmLanguage.json"""
    begins = r"(?<![\w\-!?*+=<>@%./&#|$:])"

    def pattern(scope: str, match: str, **more: object) -> dict[str, object]:
        return {"name": f"{scope}.lispgpt", "match": match, **more}

    defining = {
        "match": rf"(?<=\()({_any(kinds['DEFINING'])}){NAME_ENDS}\s+({NAME})",
        "captures": {"1": {"name": "storage.type.lispgpt"}, "2": {"name": "entity.name.function.lispgpt"}},
    }
    string = {
        "name": "string.quoted.double.lispgpt",
        "begin": '"',
        "end": '"',
        "patterns": [pattern("constant.character.escape", r"\\.")],
    }
    patterns = [
        pattern("comment.line.semicolon", r";.*$"),
        string,
        defining,
        pattern("constant.numeric", rf"{begins}-?(0[xX][0-9a-fA-F]+|\d+(\.\d+)?([eE][+-]?\d+)?){NAME_ENDS}"),
        pattern("entity.other.attribute-name", r":[A-Za-z_][\w.\-!?*+=<>@%/]*"),
        pattern("entity.name.label", r"\^[A-Za-z_][\w.\-]*"),
        pattern("keyword.operator.quote", r"~@|[`'~]"),
        pattern("keyword.control", rf"{begins}({_any(kinds['SPECIALS'])}){NAME_ENDS}"),
        pattern("constant.language", rf"{begins}({_any(kinds['CONSTANTS'])}){NAME_ENDS}"),
        pattern("storage.type.primitive", rf"{begins}({_any(kinds['TYPES'])}){NAME_ENDS}"),
        pattern(
            "storage.type.mlir",
            rf"{begins}((memref|tensor|vector|tuple|array|dense|affine_map)<[^\n]*?>|![\w.]+(<[^\n]*?>)?)"
            r"(?=[\s()\[\]{}]|$)",
        ),
        pattern("support.function", rf"{begins}({_any((*kinds['BUILTINS'], *kinds['CORE']))}){NAME_ENDS}"),
        pattern("support.function.op", rf"{begins}[a-z_]\w*\.[\w.]+"),
    ]
    grammar = {"name": "lispgpt", "scopeName": "source.lispgpt", "fileTypes": ["lisp"], "patterns": patterns}
    return json.dumps(grammar, indent=2) + "\n"


def vim(kinds: dict[str, tuple[str, ...]]) -> str:
    """vim/syntax/lispgpt.vim"""
    named = {"Special": "SPECIALS", "Constant": "CONSTANTS", "Type": "TYPES", "Builtin": "BUILTINS", "Core": "CORE"}
    lines = [
        '" The language of lispgpt; tools/editors/generate.py writes this.',
        'if exists("b:current_syntax") | finish | endif',
        "syntax iskeyword @,48-57,_,-,!,?,*,+,=,<,>,%,.,/,&,#,|,$,192-255",
    ]
    for group, kind in named.items():
        plain = (name for name in kinds[kind] if not name.startswith("|"))
        lines += _wrapped(plain, f"syntax keyword lispgpt{group} ", 200)
    lines += [
        r"syntax match lispgptNumber /\v<-?(0[xX][0-9a-fA-F]+|\d+(\.\d+)?([eE][+-]?\d+)?)>/",
        r"syntax match lispgptKeyword /:[A-Za-z_][A-Za-z0-9_.\-!?*+=<>@%\/]*/",
        r"syntax match lispgptLabel /\^[A-Za-z_][A-Za-z0-9_.\-]*/",
        'syntax region lispgptString start=/"/ skip=/\\\\./ end=/"/',
        "syntax match lispgptComment /;.*$/",
    ]
    links = {"Special": "Statement", "Constant": "Constant", "Type": "Type", "Builtin": "Function", "Core": "Function"}
    links |= {"Number": "Number", "Keyword": "Identifier", "Label": "Label", "String": "String", "Comment": "Comment"}
    lines += [f"highlight default link lispgpt{group} {linked}" for group, linked in links.items()]
    return "\n".join([*lines, 'let b:current_syntax = "lispgpt"', ""])


def emacs(kinds: dict[str, tuple[str, ...]]) -> str:
    """emacs/lispgpt-words.el"""
    lines = [
        ";;; lispgpt-words.el --- words of lispgpt, written by tools/editors/generate.py  -*- lexical-binding: t -*-"
    ]
    for kind in ("DEFINING", "SPECIALS", "BUILTINS", "CORE", "TYPES", "CONSTANTS"):
        lines += [f"(defconst lispgpt-{kind.lower()} '(", *_wrapped(map(json.dumps, kinds[kind]), "  ", 118), "))"]
    return "\n".join([*lines, "(provide 'lispgpt-words)", ";;; lispgpt-words.el ends here", ""])


def files() -> dict[Path, str]:
    """All that is written, by its path."""
    kinds = tables()
    return {
        ROOT / "lispgpt" / "editor" / "words.py": words_module(kinds),
        HERE / "vscode" / "syntaxes" / "lispgpt.tmLanguage.json": textmate(kinds),
        HERE / "vim" / "syntax" / "lispgpt.vim": vim(kinds),
        HERE / "emacs" / "lispgpt-words.el": emacs(kinds),
    }


if __name__ == "__main__":
    for written, content in files().items():
        written.write_text(content, encoding="utf-8")
        print(written.relative_to(ROOT))
