"""`lispgpt tune`: schedules of a GPU's kernels are measured, and what is compiled from then on has the fastest."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tile_programs import plain

from lispgpt.base.errors import UserError
from lispgpt.bench.candidates import measure
from lispgpt.cli.main import main
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import artifact_of
from lispgpt.compiler.driver import Observer, Request, emit
from lispgpt.compiler.kernel_report import kernel_table
from lispgpt.compiler.tuning import Measured, keep_tuning, tuned, tuning_file

CHIP = "rocm:gfx1151"


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> Request:
    return Request(plain(32, 32, 64).write(tmp_path_factory.mktemp("plain")), CHIP)


def test_what_was_measured_is_chosen(request_: Request, tmp_path: Path) -> None:
    """Not the least by the model, nor the first in the pipeline's order; no chip of this kind was ever timed."""
    before = emit(request_, "schedule", Observer())
    (identity,), last = (
        re.findall(r'identity = "(\w+)"', before),
        re.findall(r'nanoseconds.*?schedule = "([\w-]+)"', before)[-1],
    )
    assert "chosen" not in before and f'tiles = "{last}"' not in before
    keep_tuning(tmp_path, CHIP, {identity: Measured({"matmul": 2.0, last: 1.0}, "here")})
    after = emit(tuned(request_, tmp_path), "schedule", Observer())
    assert f'chosen = "{last}"' in after and "tuned" in after and f'identity = "{identity}"' in after
    assert 'tiles = "matmul"' in before and "tiles" not in after


def test_what_was_measured_otherwise_is_ignored_and_said(
    request_: Request, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = keep_tuning(tmp_path, CHIP, {"0" * 16: Measured({"matmul": 1.0}, "here")})
    assert tuned(request_, tmp_path).tuned == {"0" * 16: "matmul"} and not capsys.readouterr().err
    assert not tuned(replace(request_, quick=True), tmp_path).tuned
    facts = json.loads(path.read_text())
    for change, said in (
        ({"version": "another"}, "it was measured with other schedules than these"),
        ({"target": "rocm:gfx942"}, f"it was measured on rocm:gfx942, not on {CHIP}"),
        ({"kernels": {"0" * 16: {"schedules": {}, "device": "here"}}}, "it is damaged"),
        ({"kernels": 3}, "it is damaged"),
    ):
        path.write_text(json.dumps({**facts, **change}))
        assert not tuned(request_, tmp_path).tuned
        assert capsys.readouterr().err == f"warning: {path} is ignored: {said}; lispgpt tune writes it anew\n"
    keep_tuning(tmp_path, CHIP, {"1" * 16: Measured({"direct": 1.0}, "here")})
    assert tuned(request_, tmp_path).tuned == {"1" * 16: "direct"}


@pytest.mark.slow
def test_programs_without_a_choice_are_refused(request_: Request) -> None:
    with pytest.raises(UserError, match="could be by several schedules, which products and attention have on GPUs"):
        measure(lambda tuned: artifact_of(replace(request_, target="cpu", tuned=tuned)), "cpu", print)


@pytest.mark.slow
def test_an_emulated_chip_is_tuned_by_what_is_counted(
    request_: Request, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LISPGPT_CACHE", str(tmp_path / "cache"))
    words = ["tune", str(request_.program), "--target", "emulated:gfx1151"]
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 0
    said = capfd.readouterr()
    path = tuning_file(tmp_path / "cache", CHIP)
    (found,) = json.loads(path.read_text())["kernels"].values()
    assert len(found["schedules"]) > 1 and found["device"] == "emulated:gfx1151" and f"kept in {path}" in said.err
    artifact = artifact_of(request_, cache=Cache(tmp_path / "cache"))
    (kernel,) = artifact.kernels.values()
    assert kernel["chosen"] == min(found["schedules"], key=found["schedules"].__getitem__)
    assert "chosen by times that lispgpt tune measured" in kernel_table(artifact, "")
    assert "tuned" not in next(iter(artifact_of(request_).kernels.values())), "it is the cache's folder that has it"
