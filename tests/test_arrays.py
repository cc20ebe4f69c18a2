"""Arrays on the command line that are packed into much less than they are."""

from __future__ import annotations

import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from lispgpt.base.errors import UserError
from lispgpt.cli import arrays
from lispgpt.cli.arrays import read_inputs


def test_an_array_that_its_file_is_too_small_for_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LARGEST", 1 << 20)
    head = BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (1 << 22,)})
    with zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", head.getvalue() + bytes(1 << 24))
    with pytest.raises(UserError, match="which the file is too small for"):
        read_inputs((f"x={tmp_path / 'x.npz'}",))
    np.savez_compressed(tmp_path / "y.npz", y=np.zeros(1000))
    assert read_inputs((f"y={tmp_path / 'y.npz'}",))["y"].size == 1000
