"""Notebooks: cells of Lisp, models and errors as they are shown there, training's bar; a real kernel with --slow."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from training.tiny import STEPS, begun_folder

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.cli.main import main
from lispgpt.compiler import compiled
from lispgpt.notebook import cells
from lispgpt.notebook.magics import LispMagics, _parts
from lispgpt.training import runs

MINE = """(require nn)
(config vocab 16  context 8  width 32)
(weights (table [vocab width] bf16) (w [width width] bf16) (b [width]))
(entry logits [tokens positions]
  (matmul-transposed (relu (linear (last (rows table tokens)) w b)) table))
(generate logits {:max-new-tokens 4})
"""


@pytest.fixture(scope="module")
def shell() -> Iterator[InteractiveShell]:
    shell = InteractiveShell.instance()
    before = list(runs._WATCHING)
    assert "error" not in str(shell.run_line_magic("load_ext", "lispgpt") or "")
    yield shell
    runs._WATCHING[:] = before
    magics = shell.magics_manager.registry["LispMagics"]
    assert isinstance(magics, LispMagics)
    magics.cells.close()
    InteractiveShell.clear_instance()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def shown(shell: InteractiveShell, cell: str) -> Any:
    """What a cell prints and shows."""
    with capture_output() as found:
        shell.run_cell(cell)
    return found


def test_cells_share_a_session_and_errors_have_carets(shell: InteractiveShell) -> None:
    assert shown(shell, "%lisp (map (fn [x] (* x x)) (range 4))").stdout == "[0 1 4 9]\n"
    program = '%%lisp\n(def base 40)\n(defn main [] -> i64\n  (println "hello")\n  (: 2 i64))\n,run\n'
    assert "hello\n" in shown(shell, program).stdout
    assert shown(shell, "%lisp (+ base 2)").stdout == "42\n"
    wrong = shown(shell, "%%lisp\n(def more 1)\n(+ base\n   mor)\n").stdout
    assert re.fullmatch(
        r"In\[\d\]:4:4: error: `mor` is not defined; did .* `more` .*\n     mor\)\n     \^\^\^\n", wrong
    )
    assert "(rms-norm x weight epsilon)" in shown(shell, "%lisp (doc rms-norm)").stdout
    late = shown(shell, "%%lisp\n(def first 1)\n,names\n(def second missing)\n").stdout
    assert "first: " in late and "]:4:13: error" in late


def test_lines_that_ask_stand_apart_from_forms() -> None:
    assert list(_parts("(a\n b)\n,ir\n,run\n(c)\n")) == ["(a\n b)\n", ",ir\n", ",run\n", "\n\n\n\n(c)\n"]


def test_a_cell_becomes_a_model(shell: InteractiveShell, place: Path) -> None:
    page = shell.run_cell(f"%%lisp mine.lisp --as mine\n{MINE}").result._repr_html_()
    assert (place / "mine.lisp").read_text() == MINE
    assert "logits" in page and "vocab 16" in page and "3, 1,568 parameters" in page
    with pytest.raises(SystemExit):
        main(["checkpoint", "make", "mine.safetensors", "--for", "mine.lisp"])
    again = shell.run_cell(f"%%lisp mine.lisp --as mine --checkpoint mine.safetensors\n{MINE}").result
    assert "mine.safetensors" in again._repr_html_()
    text = shown(shell, "display(mine.generate([3], greedy=True))").stdout
    assert len(text.split()) == 4
    model = shell.user_ns["mine"]
    assert "f32[1, 16]" in model._repr_html_() and len(model._repr_html_()) < 5000
    model.close()
    broken = shown(shell, f"%%lisp mine.lisp\n{MINE.replace('relu', 'rele')}").stdout
    assert "mine.lisp:5:23: error" in broken and "did you mean `relu`?" in broken and "Traceback" not in broken
    assert "ends in .lisp" in shown(shell, "%%lisp mine.txt\n1").stdout


def test_errors_of_the_api_say_where_in_ones_own_code(shell: InteractiveShell, place: Path) -> None:
    said = shown(shell, "import lispgpt\nx = 1\nlispgpt.load('nowhere.lisp')").stdout
    assert "line 3: lispgpt.load('nowhere.lisp')" in said and "error: there is no file nowhere.lisp" in said
    assert "Traceback" not in said and len(said.splitlines()) < 5


@pytest.mark.parametrize("before", [False, True])
def test_what_ends_the_cells_leaves_the_notebook(shell: InteractiveShell, before: bool) -> None:
    """In a cell, and where it has ended before the next one."""
    shown(shell, "%lisp (def kept 7)")
    found = shell.magics_manager.registry["LispMagics"].cells
    os.kill(found._process.pid, signal.SIGABRT)
    if before:
        found._process.wait()
    assert "ended by signal SIGABRT; what cells had defined is gone" in shown(shell, "%lisp kept").stdout
    assert "`kept` is not defined" in shown(shell, "%lisp kept").stdout
    assert shown(shell, "%lisp (+ 1 2)").stdout == "3\n"


def test_an_interrupt_ends_a_cell_and_keeps_what_is_defined(monkeypatch: pytest.MonkeyPatch) -> None:
    made, wait, asked = cells.Cells(lambda _: None), cells.wait, []

    def interrupted(what: list[Any], patience: float | None) -> Any:
        asked.append(patience)
        if len(asked) == 1:
            time.sleep(0.2)
            raise KeyboardInterrupt
        return wait(what, patience)

    try:
        assert made.evaluate("In[1]", "(def kept 5)") == []
        monkeypatch.setattr(cells, "wait", interrupted)
        with pytest.raises(UserError, match="interrupted"):
            made.evaluate("In[2]", "(fold + 0 (map (fn [x] (fold + 0 (range 1000))) (range 1000000)))")
        assert made.evaluate("In[3]", "kept") == ["5"]
    finally:
        made.close()


def test_training_moves_a_bar(shell: InteractiveShell, tmp_path: Path) -> None:
    folder = begun_folder(tmp_path)
    words = f"program={str(folder / 'tiny.lisp')!r}, run={str(tmp_path / 'run')!r}, data={str(folder / 'text.txt')!r}"
    found = shown(shell, f"import lispgpt\nlispgpt.train({words}, steps=3, batch=2, length=8, vocab_size=257);")
    pages = [output.data.get("text/html", "") for output in found.outputs]
    assert any("<progress" in page for page in pages), found.stdout
    assert any('value="3" max="3"' in page and "step 3/3  loss" in page for page in pages)


def test_reprs_are_short(place: Path) -> None:
    (place / "mine.lisp").write_text(MINE)
    artifact = lispgpt.compile("mine.lisp")
    assert repr(artifact).startswith("<Artifact for cpu") and "decode" in repr(artifact)
    every = [artifact, artifact.plan, *artifact.plan.entries]
    assert all(len(repr(each)) < 250 for each in every)
    assert "<td" in artifact._repr_html_() and len(artifact._repr_html_()) < 5000
    entry = artifact.plan.entries[0]
    kernel = entry.launches[0]
    assert kernel.label in entry._repr_html_() and len(entry._repr_html_()) < 9000
    assert kernel.forms[0] in kernel._repr_html_() and kernel.arguments[0].buffer in kernel._repr_html_()
    artifact.save("mine.lgpt")
    with lispgpt.load("mine.lgpt") as model:
        assert len(repr(model)) < 100 and "vocab 16" in model._repr_html_()


def test_a_program_is_checked_when_it_is_loaded(place: Path) -> None:
    """Its entries too; one whose sizes nobody knows waits for them."""
    Path("mine.lisp").write_text(MINE.replace("relu", "rele"))
    with pytest.raises(UserError, match=r"mine.lisp:5:23: error: .* did you mean `relu`"):
        lispgpt.load("mine.lisp")
    Path("main.lisp").write_text("(defn main [] -> i64 (: 0 i64))")
    with pytest.raises(UserError, match="lispgpt run runs it"):
        lispgpt.load("main.lisp")
    Path("none.lisp").write_text("(def x 1)")
    with pytest.raises(UserError, match="neither a `main` to run nor an `entry`"):
        lispgpt.load("none.lisp")
    Path("later.lisp").write_text("(require nn)\n(entry twice [(x [n] f32)] {:y (* x 2.0)})")
    with lispgpt.load("later.lisp") as model:
        np.testing.assert_allclose(model.run("twice", x=[1.0, 2.0])["y"], [2, 4])


def test_compilations_are_kept_as_the_command_keeps_them(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISPGPT_CACHE", str(place / "kept"))
    Path("twice.lisp").write_text("(require nn)\n(entry twice [(x [4] f32)] {:y (* x 2.0)})")

    def twice(**given: Any) -> None:
        with lispgpt.load("twice.lisp", **given) as model:
            np.testing.assert_allclose(model.run("twice", x=np.ones(4))["y"], 2)

    twice(cache=None)
    assert not Path("kept").exists()
    twice()
    kept = list(Path("kept").glob("*/artifact.lgpt"))
    assert len(kept) == 1

    def no_compiler(*_: Any) -> None:
        raise AssertionError("it was compiled again")

    monkeypatch.setattr(compiled, "compile_in_child", no_compiler)
    monkeypatch.setattr(compiled, "declared", lambda *_, **__: None)
    twice()


@pytest.mark.slow
def test_a_notebook_runs_in_a_real_kernel(tmp_path: Path) -> None:
    """Run it after a change of lispgpt/notebook/."""
    import nbclient
    from nbformat.v4 import new_code_cell, new_notebook

    folder = begun_folder(tmp_path)
    given = {"run": "run", "data": str(folder / "text.txt"), "vocab_size": 300, "steps": 3, **STEPS}
    texts = [
        "%load_ext lispgpt\nimport lispgpt",
        '%%lisp\n(defn main [] -> i64 (println "printed") (: 0 i64))\n,run',
        f"%%lisp mine.lisp\n{MINE}",
        f"!{sys.executable} -m lispgpt checkpoint make mine.safetensors --for mine.lisp",
        "with lispgpt.load('mine.lisp', 'mine.safetensors') as model:\n    display(model.generate([3], greedy=True))",
        f"lispgpt.train({str(folder / 'tiny.lisp')!r}, **{given!r});",
        "%lisp (+ 1 nothing)",
    ]
    book = new_notebook(cells=[new_code_cell(text) for text in texts])
    client = nbclient.NotebookClient(book, timeout=120, allow_errors=True, resources={"metadata": {"path": tmp_path}})
    client.execute()
    outputs = [str(cell["outputs"]) for cell in book.cells]
    assert "printed" in outputs[1] and "1,568 parameters" in outputs[2] and "text/html" in outputs[2]
    failed = [text for text in outputs[:6] if "'output_type': 'error'" in text]
    assert not failed, failed
    assert "<progress" in outputs[5] and "`nothing` is not defined" in outputs[6] and "^^^" in outputs[6]
