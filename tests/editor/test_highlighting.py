"""What colours programs: made of the compiler's words, and right on programs."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pygments.token import Comment, Error, Keyword, Name, Number, String

from lispgpt.editor.lexer import LispgptLexer

ROOT = Path(__file__).resolve().parents[2]
EDITORS = ROOT / "tools" / "editors"


def generator() -> Any:
    spec = importlib.util.spec_from_file_location("generate", EDITORS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_words_are_the_compilers() -> None:
    for path, content in generator().files().items():
        assert path.read_text(encoding="utf-8") == content, "run tools/editors/generate.py"


def test_the_lexer_takes_every_program() -> None:
    lexer = LispgptLexer(stripnl=False, ensurenl=False)
    for path in sorted([*ROOT.glob("examples/**/*.lisp"), *ROOT.glob("lispgpt/lib/*.lisp")]):
        text = path.read_text(encoding="utf-8")
        tokens = list(lexer.get_tokens(text))
        assert "".join(value for _, value in tokens) == text
        assert not [value for kind, value in tokens if kind is Error], path


LINE = (
    "(defn f [x] (let [y (linear x 1.5e-3)] "
    '(arith.addi {:k "s"} y tensor<2xf32> !llvm.array<2 x i8> bf16 true ^b))) ; why'
)


def test_kinds_of_tokens() -> None:
    found = {value: kind for kind, value in LispgptLexer().get_tokens(LINE)}
    wanted = {"defn": Keyword.Declaration, "f": Name.Function, "let": Keyword, "1.5e-3": Number, ":k": Name.Attribute}
    wanted |= {
        '"s"': String.Double,
        "arith.addi": Name.Function,
        "tensor<2xf32>": Keyword.Type,
        "!llvm.array<2 x i8>": Keyword.Type,
        "bf16": Keyword.Type,
    }
    wanted |= {"true": Keyword.Constant, "^b": Name.Label, "; why": Comment.Single, "x": Name}
    assert {value: found.get(value) for value in wanted} == wanted
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["pygments.lexers"] == {"lispgpt": "lispgpt.editor.lexer:LispgptLexer"}


def test_the_textmate_grammar_finds_the_same() -> None:
    """Its patterns are tried in turn at each place, as editors do."""
    grammar = json.loads((EDITORS / "vscode" / "syntaxes" / "lispgpt.tmLanguage.json").read_text())
    patterns = [(p, re.compile(p.get("match") or p["begin"])) for p in grammar["patterns"]]
    found: dict[str, str] = {}
    place = 0
    while place < len(LINE):
        hits = [(hit.start(), n, hit) for n, (_, r) in enumerate(patterns) if (hit := r.search(LINE, place))]
        if not hits:
            break
        _, number, hit = min(hits, key=lambda h: h[:2])
        pattern = patterns[number][0]
        for group, captured in pattern.get("captures", {}).items():
            found[hit.group(int(group))] = captured["name"]
        place = hit.end()
        if "begin" in pattern:
            place = LINE.index('"', place) + 1
        found.setdefault(LINE[hit.start() : place], pattern.get("name", ""))
    wanted = {
        "defn": "storage.type",
        "f": "entity.name.function",
        "let": "keyword.control",
        "1.5e-3": "constant.numeric",
    }
    wanted |= {'"s"': "string.quoted.double", "arith.addi": "support.function.op", "tensor<2xf32>": "storage.type.mlir"}
    wanted |= {
        "bf16": "storage.type.primitive",
        "!llvm.array<2 x i8>": "storage.type.mlir",
        "true": "constant.language",
        "; why": "comment.line.semicolon",
    }
    assert {word: found.get(word) for word in wanted} == {word: f"{scope}.lispgpt" for word, scope in wanted.items()}


def test_the_extension_is_whole() -> None:
    folder = EDITORS / "vscode"
    package = json.loads((folder / "package.json").read_text())
    contributes = package["contributes"]
    named = [package["main"], *(g["path"] for g in contributes["grammars"])]
    named += [language["configuration"] for language in contributes["languages"]]
    assert all((folder / name).is_file() for name in named)
    json.loads((folder / "language-configuration.json").read_text())
    assert contributes["configuration"]["properties"]["lispgpt.command"]["default"] == ["lispgpt", "lsp"]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_the_extension_is_javascript() -> None:
    subprocess.run(["node", "--check", str(EDITORS / "vscode" / "extension.js")], check=True, timeout=60)
