"""Temporary files of processes that make code: they go with the process, however it ends."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from lispgpt.base import scratch
from lispgpt.base.asked import Ended, ending_in_order
from lispgpt.base.child import Reporter, in_children, run_in_child
from lispgpt.base.errors import UserError
from lispgpt.base.fresh import call_fresh


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(scratch, "_own", scratch._Scratch())
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
    assert list(scratch.folder().iterdir()) == []
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


def test_those_of_a_fresh_interpreter_go(place: Path, interpreters: None) -> None:
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


def keeps_to_it(reporter: Reporter) -> int:
    litter(reporter)
    run_in_child(lambda inner: litter(inner))
    reporter.give(sorted(map(str, scratch._levels(scratch._own.chosen or Path())[-1].parent.iterdir())))
    return 0


def test_a_folder_is_there_no_longer_than_it_is_used(place: Path) -> None:
    assert run_in_child(keeps_to_it).value == []
    with scratch.used() as own, scratch.used():
        assert own.parent == place and own.stat().st_mode & 0o777 == 0o700
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("several", [False, True])
def test_an_interrupted_child_ends_and_its_files_go(several: bool, place: Path) -> None:
    def waits(reporter: Reporter) -> int:
        with scratch.kept_to():
            (scratch.folder() / "kernel.o").write_bytes(b"half")
            os.kill(os.getppid(), signal.SIGTERM)
            time.sleep(60)
        return 0

    def interrupted(reporter: Reporter) -> int:
        with pytest.raises(KeyboardInterrupt), ending_in_order():
            try:
                in_children([waits, waits]) if several else run_in_child(waits)
            except Ended as error:
                raise KeyboardInterrupt from error
        reporter.give([path.name for path in place.rglob("*.o")])
        return 0

    began = time.monotonic()
    assert run_in_child(interrupted).value == [] and time.monotonic() - began < 30
    assert list(place.iterdir()) == []


def test_a_folder_that_goes_while_it_is_looked_at_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mkdir, failures = Path.mkdir, [FileNotFoundError(), FileExistsError()]

    def make(path: Path, mode: int = 0o777, **how: bool) -> None:
        if failures:
            raise failures.pop()
        mkdir(path, mode, **how)

    monkeypatch.setattr(Path, "mkdir", make)
    scratch._make(place := tmp_path / f"{scratch.PREFIX}{'0' * 16}")
    assert place.is_dir() and not failures
