"""`lispgpt repl`: values, errors that change nothing, redefinition, commands."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
from pathlib import Path

import pytest

from lispgpt.cli.repl import HELP, Session, is_complete
from lispgpt.cli.repl_line import COMMANDS
from lispgpt.ir.mlir import ir, new_context


def answers(text: str) -> list[str]:
    """What the repl writes for an input of several lines."""
    done = subprocess.run(
        [sys.executable, "-m", "lispgpt", "repl"], input=text, capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_values_errors_and_redefinition() -> None:
    told = answers("""(map (fn [x] (* x x)) (range 4))
        '(a "b" :c [1 nil])
        (require-dialect arith)
        (defn twice [(: x i64)] -> i64
          (arith.muli x y))
        (defn twice [(: x i64)] -> i64
          (arith.muli x 2))
        (twice (: 21 i64))
        (defn twice [(: x i64)] -> i64
          (arith.addi x unknown))
        (defn twice [(: x i64)] -> i64
          (arith.muli x 3))
        (println "thrice")
        (twice (: 5 i64))
        ,run
        ,names
        ,nonsense
        ,quit
        (never reached)
    """)
    assert told[:2] == ["[0 1 4 9]", '(a "b" :c [1 nil])']
    assert told[2] == "input 4:2:25: error: `y` is not defined"
    assert "^" in told[4]
    assert told[5] == "%0 = func.call @twice(%c21_i64) : (i64) -> i64"
    assert told[6].startswith("input 7:2:25: error: `unknown` is not defined")
    assert told[9].startswith("%") and "func.call @twice" in told[9]
    assert told[10:] == ["thrice", "15", "twice: the function twice", "there is no command ,nonsense; ,help lists them"]


def test_the_module_so_far_and_a_main() -> None:
    told = answers("""(require-dialect arith)
        (arith.addi (: 1 i64)
                    (: "no number" i64))
        (def four (arith.addi (: 1 i64) (: 3 i64)))
        ,ir
        (defn main [] -> i64 (: 7 i64))
        ,ir main
        ,run
        ,reset
        ,ir
        ,help""")
    text = "\n".join(told)
    assert told[0].startswith("input 2:2:")
    assert text.count("arith.addi") == 1  # what a failing form emitted is gone
    assert "func.func @main() -> i64" in text
    assert "\n7\n" in text
    assert "\nmodule {\n}\n" in text
    assert told[-1].startswith("A form may take several lines")


def test_entries() -> None:
    told = answers("""(require nn kernels) (weights (table [9 4]))
        (entry e [tokens positions]
          (hand-softmax (rows table tokens)))
        (entry wrong [tokens] unknown)
        ,entry e 3
        ,entry wrong
        ,entry f
        ,ir""")
    assert told[0].startswith("func.func @e_batch1_positions3(%arg0: tensor<3xi32>")
    assert any("call @row_softmax" in line for line in told)
    assert any("error: `unknown` is not defined" in line for line in told)
    assert told[-3:] == ["there is no entry 'f'; there are: e, wrong", "module {", "}"]


@pytest.mark.parametrize(
    ("text", "complete"),
    [
        ("(f", False),
        ("(f)", True),
        ('(f "(")', True),
        ('"(', False),
        ("(f ; )", False),
        ("[1 {", False),
        ("(f))", True),
        ("'", False),
        (r'"\""', True),
        (r'"\"', False),
        ("affine_map<(d0) -> (d0)>", True),
    ],
)
def test_inputs_end_where_their_brackets_close(text: str, complete: bool) -> None:
    assert is_complete(text) is complete


def test_a_warning_is_shown_once() -> None:
    told = answers("""(require-dialect llvm)
        (defn f [] -> i64 (print "a" (: 1 i64)) 3)
        (+ 1 1)""")
    assert told[0] == "input 2:1:27: warning: the format asks for 0 arguments and gets 1; the last are not printed"
    assert told[-1] == "2" and "\n".join(told).count("warning") == 1


def test_names_are_explained_and_an_entry_is_shown_beside_loose_ops() -> None:
    told = "\n".join(
        answers("""(doc contract)
        (defn f [x] (* 2 x))
        (doc f)
        ,source relu
        (apropos "arena" "bytes")
        (doc nosuchname)
        (cast 3 f32)
        (entry e [(x [4] f32)] (f x))
        ,entry e
        (def doc 3)
        doc
    """)
    )
    assert told.startswith("(contract [n o] x [n k] w [o k])    (form)")
    assert "(defn f [x] (* 2 x))" in told and "(defn relu [x]" in told
    assert "plan-arena" in told and "the reference has no `nosuchname`" in told
    assert "func.func @e" in told and told.endswith("\n3")


def test_names_commands_libraries_and_ops_complete() -> None:
    with new_context(), ir.Location.unknown():
        session = Session(Path(), lambda text: None)
        for text in ("(require-dialect [arith :as a])", "(defn twice [(: x i64)] -> i64 (a.muli x 2))"):
            session.enter(text)
        session.enter("(entry scores [(x [4] f32)] x)")
        assert "contract" in session.completions("(+ 1 (contr")
        assert session.completions("(twi") == ["twice"] and session.completions("(") == []
        assert session.completions(",d") == [",doc"] and "layer-norm" in session.completions(",doc layer-")
        assert session.completions(",ir tw") == ["twice"] and session.completions(",entry ") == ["scores"]
        assert session.completions("(require nn rot") == ["rotary"]
        assert "a.addf" in session.completions("(a.add")
        assert session.completions("(arith.addf") == ["arith.addf"]


def test_commands_that_complete_are_those_there_are() -> None:
    said: list[str] = []
    with new_context(), ir.Location.unknown():
        session = Session(Path(), said.append)
        for command in COMMANDS:
            session.enter(f",{command}")
    assert not [text for text in said if "there is no command" in text]
    assert all(f",{command}" in HELP for command in COMMANDS)


def test_the_tab_key_completes(tmp_path: Path) -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        environment = {**os.environ, "LISPGPT_CACHE": str(tmp_path), "TERM": "dumb"}
        os.execve(sys.executable, [sys.executable, "-m", "lispgpt", "repl"], environment)
    seen, sent = b"", [b"(lay\t", b" 1 2)\n", b",qu\t\n"]
    try:
        for awaited in (b"lisp> ", b"layered", b"lisp> "):
            seen = b""
            while awaited not in seen:
                assert select.select([terminal], [], [], 60)[0], seen
                seen += os.read(terminal, 4096)
            os.write(terminal, sent.pop(0))
    finally:
        os.waitpid(pid, 0)
        os.close(terminal)
