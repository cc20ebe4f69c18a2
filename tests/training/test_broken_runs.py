"""Runs that are killed, diverge, or find their checkpoints damaged or the disk full: what is left of them, and said."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
import seeded
from training.tiny import PROGRAM, STEPS, begun, losses, program_file, train

from lispgpt.base.errors import UserError
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints import sealed
from lispgpt.runtime.training.run_folder import RunFolder
from lispgpt.training.runs import train as train_program

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("kills", [4, pytest.param(10, marks=pytest.mark.slow)])
def test_a_run_that_is_killed_often_loses_nothing_before_its_last_checkpoint(
    place: Path, tmp_path: Path, kills: int
) -> None:
    whole, run, rng = tmp_path / "whole", tmp_path / "run", seeded.rng()
    given = {"steps": 120 * kills, "checkpoint_every": 40, "seed": seeded.fresh_seed()}
    begun(place, whole, **given)
    begin = {"program": place / "tiny.lisp", "data": [place / "text.txt"], "vocab_size": 300, **STEPS, **given}
    last = 0
    for kill in range(kills):
        child = os.fork()
        if child == 0:
            stepped = (run / "metrics.jsonl").exists()
            try:
                train_program(run=run, cache=place / "cache", **({"resume": True} if stepped else begin))
            except BaseException:
                traceback.print_exc()
            os._exit(0)
        os.setpgid(child, child)
        late = kill % 3 < 2  # the others are killed as they start
        steps, until = _steps(run) + int(rng.integers(1, 80)), time.monotonic() + rng.uniform(0, 0.6)
        while _steps(run) < steps and (late or time.monotonic() < until):
            assert os.waitpid(child, os.WNOHANG) == (0, 0), "the run ended before it was killed"
            time.sleep(0.001)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        if (run / "latest").exists():
            step = int((run / "latest").resolve().name.removeprefix("step-"))
            assert step >= last
            assert checkpoints.open(run).config["vocab"] == checkpoints.open(whole).config["vocab"]
            last = step
    assert 0 < last < 120 * kills, "killed in the middle"
    train(run, place / "cache", resume=True)
    assert losses(run) == losses(whole)
    assert not list((run / "checkpoints").glob(".*")), "nothing unfinished is left"


def _steps(run: Path) -> int:
    """How many steps the run has noted; a resumed one goes back to its last checkpoint's first."""
    return (run / "metrics.jsonl").read_bytes().count(b"\n") if (run / "metrics.jsonl").exists() else 0


@pytest.mark.parametrize(
    "file",
    [
        "training.safetensors",
        "tokenizer.json",
        *(pytest.param(n, marks=pytest.mark.slow) for n in ("model.safetensors", "checkpoint.json")),
    ],
)
def test_a_damaged_checkpoint_never_loads(place: Path, tmp_path: Path, file: str) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    begun(place, whole, steps=30, checkpoint_every=10, seed=5)
    shutil.copytree(whole, run, symlinks=True)
    damaged = run / "latest" / file
    data = bytearray(damaged.read_bytes())
    data[int(seeded.rng().integers(len(data)))] ^= 1 << int(seeded.rng().integers(8))
    damaged.write_bytes(data)
    damaged_then = data
    opened = run / "latest" / (file if file == "training.safetensors" else "")
    with pytest.raises(UserError, match="damaged"):
        checkpoints.open(opened)
    _, seen = train(run, place / "cache", resume=True)
    assert seen.about["done"] == 20 and "damaged" in seen.notes[0]
    assert losses(run) == losses(whole)
    assert (run / "checkpoints" / "step-00000030.damaged" / file).read_bytes() == bytes(damaged_then)


def test_a_run_without_a_whole_checkpoint_does_not_begin_anew(place: Path, tmp_path: Path) -> None:
    """What cannot be verified is set aside, and is all there still; what cannot be read stops the run."""
    run = tmp_path / "run"
    begun(place, run, steps=30, checkpoint_every=10, seed=5)
    kept = [path / "training.safetensors" for path in sorted((run / "checkpoints").iterdir())]
    before = [path.read_bytes() for path in kept]
    changed = [bytes([data[0] ^ 1]) + data[1:] for data in before]
    for path, data in zip(kept, changed, strict=True):
        path.write_bytes(data)
    for _ in range(2):
        with pytest.raises(UserError, match="had checkpoints, and none of them is whole"):
            train(run, place / "cache", resume=True)
        aside = [path.parent.with_name(f"{path.parent.name}.damaged") / path.name for path in kept]
        assert [path.read_bytes() for path in aside] == changed
        assert len(losses(run)) == 30
    with pytest.raises(UserError, match="has a run already"):
        begun(place, run, steps=30)
    aside[-1].write_bytes(before[-1])
    aside[-1].parent.rename(kept[-1].parent)
    outcome, _ = train(run, place / "cache", resume=True)
    assert outcome.step == 30


def test_a_checkpoint_that_cannot_be_read_stops_the_run(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    begun(place, run, steps=20, checkpoint_every=10, seed=5)

    def fails(path: Path) -> dict[str, object]:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as broken:
        broken.setattr(sealed, "_sums", fails)
        with pytest.raises(UserError, match=r"cannot read .*step-00000020.*Input/output error"):
            train(run, place / "cache", resume=True)
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000010", "step-00000020"]
    assert len(losses(run)) == 20


def test_a_run_that_diverges_says_where_and_keeps_its_last_checkpoint(place: Path, tmp_path: Path) -> None:
    nan = PROGRAM.replace("{:loss loss :grad", "{:loss (+ loss (* 0.0 (log (cast (- 25 step) f32)))) :grad")
    program = program_file(tmp_path, nan)
    with pytest.raises(UserError, match=r"diverged at step 2[56]: the loss is (nan|inf).*step 20 is kept"):
        begun(place, tmp_path / "run", program=program, steps=60, checkpoint_every=10)
    assert len(losses(tmp_path / "run")) in (24, 25)
    assert (tmp_path / "run" / "latest").resolve().name == "step-00000020"
    checkpoints.open(tmp_path / "run" / "latest").check_finite()
    rising = PROGRAM.replace("{:loss loss :grad", "{:loss (* loss (exp (* 0.02 (cast step f32)))) :grad")
    program = program_file(tmp_path, rising)
    with pytest.raises(UserError, match=r"diverged at step \d+: the mean loss of 20 steps is .*no checkpoint"):
        begun(place, tmp_path / "other", program=program, steps=400, lr=1e-3)


def test_a_full_disk_is_one_error_and_leaves_the_run_usable(place: Path, tmp_path: Path) -> None:
    """Files may not grow beyond a size that checkpoints reach, then the metrics go to a device that is full."""
    whole, run = tmp_path / "whole", tmp_path / "run"
    given = {"steps": 60, "checkpoint_every": 20, "seed": 3, "settings": {"width": 64}}
    begun(place, whole, **given)
    code = (
        "import resource, sys; import lispgpt\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (250_000,) * 2)\n"
        "try: lispgpt.train(run=sys.argv[1], cache=sys.argv[2], resume=True)\n"
        "except lispgpt.UserError as error: print(error); sys.exit(1)\n"
    )
    begun(place, run, **(given | {"steps": 20}))
    train(run, place / "cache", resume=True, steps=20)
    facts = json.loads((run / "run.json").read_text())
    facts["options"]["steps"] = 60
    (run / "run.json").write_text(json.dumps(facts))
    command = [sys.executable, "-c", code, str(run), str(place / "cache")]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 1 and done.stdout.count("\n") == 1, done.stderr
    assert "cannot write" in done.stdout and "too large" in done.stdout
    assert (run / "latest").resolve().name == "step-00000020"
    with open("/dev/full", "ab", buffering=0) as full, RunFolder(run) as folder:
        folder._metrics = full  # type: ignore[assignment]
        with pytest.raises(UserError, match=r"cannot write .*metrics\.jsonl: No space left"):
            folder.record({"step": 21})
    train(run, place / "cache", resume=True)
    assert losses(run) == losses(whole)


def test_a_file_of_another_size_is_not_read_to_find_it_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "step-00000001"
    with sealed.sealing(path, {"step": 1}) as folder:
        (folder / "model.safetensors").write_bytes(b"weights")
    assert sealed.sealed_facts(path)["step"] == 1
    os.truncate(path / "model.safetensors", 1 << 40)
    monkeypatch.setattr(sealed.hashlib, "file_digest", lambda *_: pytest.fail("a terabyte is read"))
    with pytest.raises(sealed.Damaged, match=r"model\.safetensors is not what was written"):
        sealed.sealed_facts(path)
