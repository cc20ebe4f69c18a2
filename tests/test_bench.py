"""`tools/bench`: measured times beside predicted ones, of a tiny model on the CPU and on an emulated GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import seeded
from emulated_amd.test_generation import PROGRAM, make_checkpoint

from lispgpt.bench.__main__ import main


@pytest.mark.parametrize(("target", "options"), [("cpu", []), ("emulated:gfx1151", ["--whole", "--rounds", "1"])])
def test_what_is_measured_stands_beside_what_is_predicted(
    target: str, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(seeded.rng().integers(1 << 30))
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", seed, layers=1, heads=2, context=32)
    common = [str(PROGRAM), "--checkpoint", str(checkpoint), "--target", target, "--position", "5", "--prompt", "16"]
    assert main([*common, *options, "--json", str(tmp_path / "found.json")]) == 0
    found, printed = json.loads((tmp_path / "found.json").read_text()), capsys.readouterr().out
    assert [entry["title"] for entry in found["entries"]] == ["a decode step at position 5", "a prompt of 16 tokens"]
    for entry in found["entries"]:
        assert entry["title"] in printed and entry["measured"] > 0
        for line in entry["lines"]:
            assert (line["measured"] is None) == ("--whole" in options)
            assert line["predicted"] is None if target == "cpu" else line["predicted"] is None or line["predicted"] > 0
    decode = found["entries"][0]
    if target == "cpu":
        assert decode["predicted"] is None and "nothing is predicted" in printed
    else:
        parts = sum(line["launches"] * line["predicted"] for line in decode["lines"])
        assert decode["predicted"] == pytest.approx(parts, rel=0.2)
        assert "datasheet of Ryzen AI Max+ 395" in printed and "guesses" in printed


def test_a_wrong_target_is_one_clear_message(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", 1, layers=1, heads=2, context=32)
    assert main([str(PROGRAM), "--checkpoint", str(checkpoint), "--target", "rocm:gfx000"]) == 1
    assert "gfx000" in capsys.readouterr().err
