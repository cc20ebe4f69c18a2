"""Folders that somebody else has prepared, or that hold files of another's: a run writes over nothing of theirs."""

from __future__ import annotations

import secrets
from pathlib import Path

import pytest
from training.tiny import begun, losses, train

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("dear diary")
    return path


@pytest.mark.parametrize("name", ["lock", "metrics.jsonl"])
def test_links_in_a_run_are_not_written_through(place: Path, tmp_path: Path, victim: Path, name: str) -> None:
    run = tmp_path / "run"
    begun(place, run, steps=10, checkpoint_every=10)
    (run / name).unlink()
    (run / name).symlink_to(victim)
    if name == "lock":
        with pytest.raises(UserError, match="lock there is a link"):
            train(run, place / "cache", resume=True, steps=12)
    else:
        train(run, place / "cache", resume=True, steps=12)
        assert not (run / name).is_symlink() and len(losses(run)) == 2
    assert victim.read_text() == "dear diary"


@pytest.mark.parametrize("name", ["checkpoints", "tokens"])
def test_folders_of_a_run_that_lead_elsewhere_are_refused(place: Path, tmp_path: Path, name: str) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    for each in (run, other):
        begun(place, each, steps=4, checkpoint_every=1, keep=4)
    (run / name).rename(tmp_path / "away")
    (run / name).symlink_to(other / name)
    before = sorted(other.rglob("*"))
    with pytest.raises(UserError, match=f"{name} there is a link"):
        train(run, place / "cache", resume=True, steps=12)
    assert sorted(other.rglob("*")) == before


def test_names_of_unfinished_files_cannot_be_planted(
    tmp_path: Path, victim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = iter(["known", "unknown"])
    monkeypatch.setattr(secrets, "token_hex", lambda _: next(names))
    planted = tmp_path / ".out.known.unfinished"
    planted.symlink_to(victim)
    with pytest.raises(UserError, match="File exists"), replacing(tmp_path / "out") as file:
        file.write(b"gone")
    with replacing(tmp_path / "out") as file:
        file.write(b"there")
    assert victim.read_text() == "dear diary" and (tmp_path / "out").read_text() == "there"


def test_a_run_begins_in_a_folder_of_its_own(place: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    (model / "tokenizer.json").write_text("mine")
    with pytest.raises(UserError, match=r"tokenizer\.json is there already, and no run has made it"):
        begun(place, model, steps=2)
    assert (model / "tokenizer.json").read_text() == "mine"
