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
