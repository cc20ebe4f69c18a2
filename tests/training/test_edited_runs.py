"""Runs whose files somebody has edited: each edit is one error about the file, and changes nothing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from training.tiny import begun, train

from lispgpt.base.errors import UserError

Facts = dict[str, Any]


@pytest.fixture(scope="module")
def whole(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("edited") / "run"
    begun(place, run, steps=4, checkpoint_every=2)
    return run


KEYS = ("program", "settings", "header", "checkpoint", "tokenizer", "target", "options", "data")
EDITS: dict[str, Callable[[Facts], Any]] = {f"no {key}": lambda facts, key=key: facts.pop(key) for key in KEYS}
EDITS |= {f"{key} is a number": lambda facts, key=key: facts.update({key: 5}) for key in KEYS}
EDITS |= {
    "a list": lambda facts: [],
    "deep settings": lambda facts: facts.update(settings=json.loads('{"a": ' * 90 + "1" + "}" * 90)),
    "a setting that is a list": lambda facts: facts.update(settings={"width": [1]}),
    "a huge number": lambda facts: facts["header"].update(vocab=10**400),
    "a program with a zero": lambda facts: facts.update(program="a\0b"),
    "a tokenizer elsewhere": lambda facts: facts.update(tokenizer="../../etc/passwd"),
    "a tokenizer that is gone": lambda facts: facts.update(tokenizer="gone.json"),
    "no steps": lambda facts: facts["options"].pop("steps"),
    "steps that are words": lambda facts: facts["options"].update(steps="many"),
    "steps beyond counting": lambda facts: facts["options"].update(steps=1 << 40),
    "a sample that is a number": lambda facts: facts["options"].update(sample=7),
    "a rate of null": lambda facts: facts["options"].update(lr=None),
    "shards without sizes": lambda facts: facts["data"].update(training=["a"]),
    "shards of floats": lambda facts: facts["data"].update(training=[["a", 1.5]]),
    "a share of NaN": lambda facts: facts["data"].update(fraction=float("nan")),
    "a target that is none": lambda facts: facts.update(target="abacus"),
    "a precision that is none": lambda facts: facts.update(precision="rough"),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_run_is_one_error(place: Path, whole: Path, tmp_path: Path, edit: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run, symlinks=True)
    facts = json.loads((run / "run.json").read_text())
    changed = EDITS[edit](facts)
    (run / "run.json").write_text(json.dumps(changed if edit == "a list" else facts))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    with pytest.raises(UserError):
        train(run, place / "cache", resume=True, steps=6)
    assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_a_folder_in_place_of_the_link_to_the_newest_is_one_error(place: Path, whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run, symlinks=True)
    (run / "latest").unlink()
    (run / "latest").mkdir()
    with pytest.raises(UserError, match=r"cannot write .*latest: Is a directory"):
        train(run, place / "cache", resume=True, steps=6)
    assert sorted(path.name for path in run.iterdir() if path.name.startswith((".", "latest"))) == ["latest"]
