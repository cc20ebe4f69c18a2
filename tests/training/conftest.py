"""A folder that runs of the tiny program begin in."""

from __future__ import annotations

from pathlib import Path

import pytest
from training.tiny import begun_folder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program, a text, and what was compiled."""
    return begun_folder(tmp_path_factory.mktemp("tiny"))
