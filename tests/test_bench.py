"""`lispgpt bench`: a tiny model's figures on the CPU, and beside what is predicted on an emulated GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import seeded
from emulated_amd.test_generation import PROGRAM, make_checkpoint
from test_cli import Call, assert_one_error, call, made

__all__ = ["call", "made"]


@pytest.mark.slow
def test_figures_of_a_model_on_the_cpu(tmp_path: Path, call: Call) -> None:
    seed = int(seeded.rng().integers(1 << 30))
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", seed, layers=1, heads=2, context=64)
    options = ["--checkpoint", checkpoint, "--target", "cpu", "--rounds", 1, "--at", 5, "--prompt", 16]
    done = call("bench", PROGRAM, *options, "--batch", 2, "--lookup", 3, "--json", tmp_path / "found.json")
    assert done.code == 0, done
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["target"] == "cpu" and found["whole"]["first_token_s"] > 0 and found["whole"]["peak_bytes"] > 1 << 24
    measures = {measure["what"]: measure for measure in found["measures"]}
    assert [*measures] == [
        *("decode at 5", "decode of 2 sequences at 5", "4 ragged texts, 2 at once", "prompt of 16 tokens"),
        *("a repeating text, one by one", "a repeating text, drafting 3 by look-up"),
    ]
    for what, measure in measures.items():
        assert what in done.out and measure["seconds"] > 0 and measure["rate"] > 0
    assert measures["decode at 5"]["floor"] is None  # caches hold all of it
    batch, ragged = measures["decode of 2 sequences at 5"], measures["4 ragged texts, 2 at once"]
    assert batch["rate"] * batch["seconds"] == pytest.approx(2)
    assert 0 < ragged["floor"] < 1 and ragged["share"] == pytest.approx(ragged["floor"] / ragged["seconds"])


def test_kernels_stand_beside_what_is_predicted_of_them(tmp_path: Path, call: Call) -> None:
    seed = int(seeded.rng().integers(1 << 30))
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", seed, layers=1, heads=2, context=64)
    options = ["--checkpoint", checkpoint, "--target", "cpu", "--rounds", 1, "--at", 5, "--prompt", 16]
    done = call("bench", PROGRAM, *options, "--kernels", "--no-processes", "--format", "json")
    assert done.code == 0, done
    found = json.loads(done.out)
    assert [entry["title"] for entry in found["entries"]] == ["a decode step at position 5", "a prompt of 16 tokens"]
    for entry in found["entries"]:
        assert entry["measured"] > 0 and entry["predicted"] is None
        assert all(line["measured"] > 0 and line["predicted"] is None for line in entry["lines"])


@pytest.mark.slow
def test_an_emulated_gpu_is_predicted_as_a_whole_and_by_its_kernels(tmp_path: Path, call: Call) -> None:
    """Run it after a change of lispgpt/bench/ or of the emulator's counts."""
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", 1, layers=1, heads=2, context=64)
    options = ["--checkpoint", checkpoint, "--target", "emulated:gfx1151", "--rounds", 1, "--at", 5, "--prompt", 16]
    done = call("bench", PROGRAM, *options, "--kernels", "--no-processes", "--json", tmp_path / "found.json")
    assert done.code == 0, done
    decode = json.loads((tmp_path / "found.json").read_text())["entries"][0]
    parts = sum(line["launches"] * line["predicted"] for line in decode["lines"])
    assert decode["predicted"] == pytest.approx(parts, rel=0.2)
    assert "datasheet of Ryzen AI Max+ 395" in done.out and "guesses" in done.out


def test_a_wrong_target_is_one_clear_message(tmp_path: Path, call: Call) -> None:
    checkpoint = make_checkpoint(tmp_path / "tiny.bin", 1, layers=1, heads=2, context=32)
    done = call("bench", PROGRAM, "--checkpoint", checkpoint, "--target", "rocm:gfx000")
    assert_one_error(done, 1, "gfx000")
