"""Temporary files of processes that make code: they go with the process, however it ends."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path

import pytest

from lispgpt.base import scratch
from lispgpt.base.child import Reporter, in_children, run_in_child
from lispgpt.base.errors import UserError
from lispgpt.base.fresh import call_fresh


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_made", None)
    return tmp_path


def litter(_: Reporter) -> int:
    with scratch.kept_to():
        assert tempfile.gettempdir() == os.environ["TMPDIR"] == str(scratch.folder())
        (Path(tempfile.gettempdir()) / "kernel.o").write_bytes(b"half")
    return 0


def killed(reporter: Reporter) -> int:
    litter(reporter)
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def exits(reporter: Reporter) -> int:
    litter(reporter)
    os._exit(1)


def fails(reporter: Reporter) -> int:
    litter(reporter)
    raise UserError("no")


def with_children(reporter: Reporter) -> int:
    litter(reporter)
    run_in_child(killed)
    assert len(list(scratch.folder().iterdir())) == 1, "its own file"
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def littered() -> str:
    with scratch.kept_to():
        (scratch.folder() / "kernel.o").write_bytes(b"half")
        return str(scratch.folder())


@pytest.mark.parametrize("work", [litter, killed, exits, with_children])
def test_a_childs_files_go_with_it(work: object, place: Path) -> None:
    run_in_child(work)  # type: ignore[arg-type]
    assert list(place.iterdir()) == []


def test_those_of_several_that_fail_go(place: Path) -> None:
    with pytest.raises(UserError, match="no"):
        in_children([fails, litter, fails])
    assert list(place.iterdir()) == []


def test_those_of_a_fresh_interpreter_go(place: Path) -> None:
    assert Path(call_fresh(littered)).parent == place
    assert list(place.iterdir()) == []


def test_the_environment_is_as_before(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ("/elsewhere", None):
        monkeypatch.setenv("TMPDIR", before) if before else monkeypatch.delenv("TMPDIR")
        with scratch.kept_to(wanted=False):
            assert os.environ.get("TMPDIR") == before
        with scratch.kept_to():
            assert Path(os.environ["TMPDIR"]).parent == place
        assert (os.environ.get("TMPDIR"), tempfile.gettempdir()) == (before, str(place))
