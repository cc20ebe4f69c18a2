"""Dumps of a pipeline replace those of the time before, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.passes.dumps import make_folder, write_dump


def test_dumps_of_the_time_before_go_and_files_of_others_stay(tmp_path: Path) -> None:
    mine, theirs = tmp_path / "dumps" / "07-notes.mlir", tmp_path / "elsewhere"
    make_folder(mine.parent)
    mine.write_text("my notes")
    for name in ("00-input.mlir", "01-cse.mlir"):
        write_dump(mine.parent, name, "module {}")
    theirs.write_text("not yours")
    (mine.parent / "01-cse.mlir").unlink()
    (mine.parent / "01-cse.mlir").symlink_to(theirs)
    write_dump(mine.parent, "01-cse.mlir", "module {}")
    make_folder(mine.parent)
    assert [path.name for path in mine.parent.glob("*.mlir")] == ["07-notes.mlir"]
    assert mine.read_text() == "my notes" and theirs.read_text() == "not yours"


def test_a_folder_with_a_file_of_a_dumps_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "00-input.mlir").write_text("mine")
    with pytest.raises(UserError, match=r"00-input\.mlir that is no dump"):
        make_folder(tmp_path)
    assert (tmp_path / "00-input.mlir").read_text() == "mine"


def test_the_list_and_files_of_kernels_go_with_the_dumps_and_nothing_elsewhere(tmp_path: Path) -> None:
    folder, theirs = tmp_path / "dumps", tmp_path / "theirs"
    make_folder(folder)
    for name in ("00-input.mlir", "passes.txt", "kernels/f/00-input.mlir", "kernels/g/00-input.mlir", "notes"):
        write_dump(folder, name, "text")
    theirs.mkdir()
    (theirs / "00-input.mlir").write_text("not yours")
    (folder / "kernels" / "g" / "00-input.mlir").unlink()
    (folder / "kernels" / "g").rmdir()
    (folder / "kernels" / "g").symlink_to(theirs)
    with (folder / ".lispgpt-dumps").open("a") as file:
        file.write("../theirs/00-input.mlir\n")
    make_folder(folder)
    assert sorted(path.name for path in folder.rglob("*")) == [".lispgpt-dumps", "g", "kernels", "notes"]
    assert (theirs / "00-input.mlir").read_text() == "not yours"
