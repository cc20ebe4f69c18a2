"""Every pass on a small input: what it makes is what its golden file says; `pytest --update-golden` writes it anew."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest
from golden_ir import FOLDER, Golden

from lispgpt.passes.base import FOLDER as PASSES
from lispgpt.passes.base import find_pass

FILES = sorted(FOLDER.glob("*/*.mlir"))


def pass_names() -> list[str]:
    """The passes that are written in Python."""
    names = {path.stem.replace("_", "-") for path in PASSES.glob("*/*.py") if not path.stem.startswith("_")}
    return sorted(name for name in names if find_pass(name) is not None)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_pass_makes_what_its_golden_says(path: Path, update_golden: bool) -> None:
    golden = Golden.read(path)
    made = golden.made()
    if update_golden:
        golden.write(made)
        return
    difference = difflib.unified_diff(golden.after.splitlines(), made.splitlines(), "golden", "made", lineterm="")
    assert made == golden.after, "\n".join(difference) + "\nif that is right: pytest --update-golden"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_golden_shows_its_folders_pass_at_work(path: Path) -> None:
    golden = Golden.read(path)
    assert golden.call.partition("{")[0] == path.parent.name
    assert golden.after and golden.after != golden.before


def test_every_pass_has_a_golden() -> None:
    missing = set(pass_names()) - {path.parent.name for path in FILES}
    assert not missing, f"tests/golden/PASS/*.mlir is missing for {', '.join(sorted(missing))}"
