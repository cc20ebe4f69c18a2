"""The guide's pages do what they say: their commands run, in order, beside the programs that they show."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from guide_pages import AFTER_README, TEXTS

from lispgpt.cli.main import main

ROOT = Path(__file__).resolve().parent.parent

SHOWN = re.MULTILINE | re.DOTALL


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}[^\n]*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where every command of the guide has run, pages in order, with the programs that they show."""
    folder = tmp_path_factory.mktemp("guide")
    (folder / "examples").symlink_to(ROOT / "examples")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("LISPGPT_CACHE", str(folder / "cache"))
        for text in (TEXTS[name] for name in TEXTS if name not in AFTER_README):
            for block in blocks(text, "lisp"):
                (folder / block.split()[1]).write_text(block)
            for name, written in re.findall(r"^.*Save this as `(\w+\.py)`:\n\n```python\n(.*?)^```$", text, SHOWN):
                (folder / name).write_text(written)
            for line in "".join(blocks(text, "sh")).replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                assert words.pop(0) == "lispgpt", line
                with pytest.raises(SystemExit) as ended:
                    main(words)
                assert ended.value.code == 0, line
    return folder


def test_the_commands_run(place: Path) -> None:
    assert (place / "first.lgpt").is_file() and (place / "lowered.mlir").is_file()
    assert (place / "runs" / "first" / "latest").exists()
    shutil.rmtree(place / "runs")


def test_the_first_pass_counts(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    declared, used = blocks(TEXTS["first-pass"], "python")
    (place / "count_products.py").write_text(declared)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    exec(used, {})
    assert capsys.readouterr().out.strip() == "2 : i64"


def test_the_first_schedule_is_right_on_the_emulator(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(place)
    for used in blocks(TEXTS["first-schedule"], "python"):
        exec(used, {})
    assert capsys.readouterr().out.splitlines() == ["(96, 80) True", "['swiglu'] True"]


def test_pages_begin_with_a_title_and_have_lines_that_can_be_read() -> None:
    for name, text in TEXTS.items():
        assert re.match(r"# \w", text), name
        assert all(len(line) <= 130 or line.startswith("|") for line in text.splitlines()), name


def test_what_pytorch_users_write_is_there() -> None:
    """Every call in the right column is of something that the reference has."""
    from lispgpt.cli.doc import entries

    known = {entry.name for entry in entries()}
    cells = [line.split("|")[2] for line in TEXTS["from-pytorch"].splitlines() if line.startswith("| ")]
    heads = {head for cell in cells for head in re.findall(r"`\(([\w!-]+)", cell)}
    assert len(heads) > 10 and not heads - known - {"w"}
