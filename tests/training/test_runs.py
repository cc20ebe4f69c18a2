"""Runs of training steps: what they write, and that one which was interrupted goes on as if it had not been."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import seeded
from safetensors.numpy import load_file
from training.tiny import STEPS, Seen, StopsAt, begun, losses, program_file, train

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.runtime.training.run_folder import RunFolder, read_metrics
from lispgpt.runtime.training.trainer import Trainer
from lispgpt.training.runs import train as train_program

ROOT = Path(__file__).resolve().parents[2]


def weights_of(run: Path) -> dict[str, np.ndarray]:
    return load_file(run / "latest" / "training.safetensors")


def test_a_run_learns_and_writes_all_that_it_should(place: Path, tmp_path: Path) -> None:
    run, seed = tmp_path / "run", seeded.fresh_seed() % 1000
    seen = begun(place, run, steps=80, eval_every=30, checkpoint_every=20, keep=2, seed=seed, sample_every=80)
    records = read_metrics(run)
    assert [record["step"] for record in records] == list(range(1, 81)) and records == seen.records
    assert [record["numbers"] for record in records] == [1000 * seed + step for step in range(1, 81)]
    assert np.mean(losses(run)[-5:]) < 0.3 * np.mean(losses(run)[:5])
    assert all(record["lr"] == np.float32(0.3) and record["tokens_per_s"] > 0 for record in records)
    evaluated = {record["step"]: record for record in records if "val_loss" in record}
    assert list(evaluated) == [30, 60, 80]
    assert evaluated[80]["val_loss"] < evaluated[30]["val_loss"]
    for record in evaluated.values():
        assert abs(record["perplexity"] - np.exp(record["val_loss"])) < 1e-6 * record["perplexity"]
    assert 0.5 < evaluated[80]["accuracy"] <= 1
    assert seen.steps_saved == [20, 40, 60, 80] and len(seen.samples) == 1
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000060", "step-00000080"]
    assert (run / "latest").resolve().name == "step-00000080"
    assert seen.about["steps"] == 80 and seen.about["amount"] == 32 and seen.about["floor_s"] is None


def test_a_checkpoint_generates_and_is_evaluated_as_the_run_did(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    seen = begun(place, run, steps=60, eval_every=60, eval_batches=1000, sample_every=60, sample="the cat")
    with lispgpt.load(place / "tiny.lisp", run / "latest", cache=place / "cache") as model:
        text = "".join(model.generate("the cat", max_new_tokens=64))
        assert "the cat" + text == seen.samples[0] and "sat down" in text
    weights = weights_of(run)
    table, head, bias = (weights[f"weight/{name}"].astype(np.float64) for name in ("table", "head", "bias"))
    tokens = np.fromfile(run / "tokens" / "train-000.bin", "<u2", offset=1024)
    held = tokens[len(tokens) - int(len(tokens) * 0.05) :].astype(int)
    x = table[held[:-1]]
    hidden = 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))
    scores = hidden @ head.T + bias
    totals = np.log(np.exp(scores - scores.max(1, keepdims=True)).sum(1)) + scores.max(1)
    expected = (totals - scores[np.arange(len(x)), held[1:]]).mean()
    last = read_metrics(run)[-1]
    assert abs(last["val_loss"] - expected) < 1e-4 * expected
    assert abs(last["accuracy"] - (scores.argmax(1) == held[1:]).mean()) < 1e-9
    found = lispgpt.evaluate(
        place / "tiny.lisp", run, [run / "tokens" / "train-000.bin"], batch=3, length=8, cache=place / "cache"
    )
    assert found.targets == len(tokens) - 1 and 0 < found.loss < 1
    text_found = lispgpt.evaluate(
        place / "tiny.lisp", run, [place / "text.txt"], batch=3, length=8, cache=place / "cache"
    )
    assert abs(text_found.loss - found.loss) < 1e-5


@pytest.mark.parametrize("accumulate", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_run_that_is_interrupted_goes_on_bit_for_bit(place: Path, tmp_path: Path, accumulate: int) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    given = {"steps": 50, "checkpoint_every": 0, "accumulate": accumulate, "seed": seeded.fresh_seed()}
    begun(place, whole, **given)
    begin = {"program": place / "tiny.lisp", "data": [place / "text.txt"], "vocab_size": 300}
    watcher, cache, handler = StopsAt(17), place / "cache", signal.getsignal(signal.SIGINT)
    outcome = train_program(run=run, cache=cache, watcher=watcher, **begin, **STEPS, **given)
    assert outcome.interrupted and outcome.step in (17, 18) and watcher.steps_saved == [outcome.step]
    assert signal.getsignal(signal.SIGINT) is handler
    for stop in (31, 100):
        watcher = StopsAt(stop)
        outcome = train_program(run=run, cache=cache, watcher=watcher, resume=True)
        assert watcher.about["done"] > 0
    assert not outcome.interrupted and outcome.step == 50
    assert losses(run) == losses(whole)
    ours, theirs = weights_of(run), weights_of(whole)
    assert ours.keys() == theirs.keys() and any(name.startswith("state/") for name in ours)
    for name in ours:
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_one_process_trains_in_a_folder(place: Path, tmp_path: Path) -> None:
    begun(place, tmp_path / "run", steps=3)
    with RunFolder(tmp_path / "run"), pytest.raises(UserError, match="another process is training"):
        train(tmp_path / "run", place / "cache", resume=True)


def test_a_run_goes_on_with_more_steps_but_not_with_other_ones(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    begun(place, run, steps=10)
    with pytest.raises(UserError, match=r"--lr belongs to a new run: this one has 0\.3"):
        train(run, place / "cache", resume=True, lr=0.1)
    train(run, place / "cache", resume=True, steps=15)
    assert len(losses(run)) == 15
    assert train(run, place / "cache", resume=True)[0].step == 15
    with pytest.raises(UserError, match="has a run already"):
        begun(place, run, steps=3)
    with pytest.raises(UserError, match="there is no run at"):
        train(tmp_path / "none", place / "cache", resume=True)


def test_a_run_and_its_program_can_be_moved(place: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    program = program_file(tmp_path / "here")
    begun(place, tmp_path / "whole", steps=8, seed=2)
    begun(place, tmp_path / "here" / "run", steps=4, seed=2, program=program)
    (tmp_path / "here").rename(tmp_path / "there")
    run = tmp_path / "there" / "run"
    with pytest.raises(UserError, match=r"there is no file .*here.*: name the program"):
        train(run, place / "cache", resume=True, steps=8)
    train(run, place / "cache", resume=True, steps=8, program=tmp_path / "there" / "tiny.lisp")
    assert losses(run) == losses(tmp_path / "whole")


def test_weights_to_begin_with_and_their_sizes(place: Path, tmp_path: Path) -> None:
    begun(place, tmp_path / "first", steps=60)
    before = losses(tmp_path / "first")
    start = {"checkpoint": tmp_path / "first" / "latest", "vocab_size": None, "settings": {"momentum": 0.0}}
    begun(place, tmp_path / "second", steps=5, lr=0.01, **start)
    assert max(losses(tmp_path / "second")) < 0.5 * before[0]
    assert (tmp_path / "second" / "tokenizer.json").read_bytes() == (tmp_path / "first" / "tokenizer.json").read_bytes()


def test_metrics_that_were_cut_short_are_mended(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    begun(place, run, steps=20, checkpoint_every=10)
    before = losses(run)
    shutil.rmtree((run / "latest").resolve())
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 21, "lo')
    train(run, place / "cache", resume=True)
    assert losses(run) == before and all(json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())


def test_shards_train_as_their_text_does_and_need_no_tokenizer_library(place: Path, tmp_path: Path) -> None:
    begun(place, tmp_path / "text", steps=12, seed=4)
    shards = tmp_path / "text" / "tokens" / "train-000.bin"
    code = (
        "import sys; sys.modules['tokenizers'] = None\n"
        "import lispgpt\n"
        "program, shards, tokenizer, run, cache = sys.argv[1:]\n"
        "lispgpt.train(program, data=[shards], tokenizer=tokenizer, run=run, cache=cache, steps=12, seed=4, batch=4,\n"
        "              length=8, lr=0.3, eval_every=0)\n"
    )
    words = [place / "tiny.lisp", shards, tmp_path / "text" / "tokenizer.json", tmp_path / "run", place / "cache"]
    subprocess.run([sys.executable, "-c", code, *map(str, words)], cwd=ROOT, check=True)
    assert losses(tmp_path / "run") == losses(tmp_path / "text")


@pytest.mark.slow
def test_an_emulated_gpu_trains_as_the_cpu_does(place: Path, tmp_path: Path) -> None:
    found = {}
    for target in ("cpu", "emulated:gfx1151"):
        begun(place, tmp_path / target, steps=4, batch=2, length=4, eval_every=4, eval_batches=2, target=target)
        found[target] = read_metrics(tmp_path / target)
    ours, theirs = found.values()
    for record, other in zip(ours, theirs, strict=True):
        for name in ("loss", "grad_norm", "lr"):
            assert abs(record[name] - other[name]) < 1e-5 * max(1, abs(record[name])), (record, other)
    assert abs(ours[-1]["val_loss"] - theirs[-1]["val_loss"]) < 1e-5
    weights, others = weights_of(tmp_path / "cpu"), weights_of(tmp_path / "emulated:gfx1151")
    for name in weights:
        np.testing.assert_allclose(weights[name], others[name], atol=1e-5)
    train(tmp_path / "emulated:gfx1151", place / "cache", resume=True, steps=5, target="cpu")
    assert len(losses(tmp_path / "emulated:gfx1151")) == 5


@pytest.mark.slow
def test_steps_that_start_ahead_of_others_numbers_change_nothing(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Losses, weights, and what checkpoints hold, are those of steps one by one; an interrupt ends with the step that
    has begun."""
    started: list[int] = []
    begin = Trainer._begin
    monkeypatch.setattr(Trainer, "_begin", lambda self, number, run: (started.append(number), begin(self, number, run)))
    given = {"batch": 2, "length": 4, "steps": 7, "checkpoint_every": 4, "keep": 9, "seed": seeded.fresh_seed()}
    found, order = {}, {}
    for name, ahead in (("ahead", True), ("alone", False)):
        monkeypatch.setattr(Trainer, "runs_ahead", property(lambda self, ahead=ahead: ahead))
        seen, started[:] = Seen(), []
        words = {"program": place / "tiny.lisp", "data": [place / "text.txt"], "vocab_size": 300, "watcher": seen}
        monkeypatch.setattr(seen, "stepped", lambda record: started.append(-record["step"]))
        train_program(run=tmp_path / name, cache=place / "cache", **words, **STEPS | given, target="emulated:gfx1151")
        found[name], order[name] = tmp_path / name / "checkpoints", list(started)
    assert order["ahead"] == [1, 2, -1, 3, -2, 4, -3, -4, 5, 6, -5, 7, -6, -7]
    assert order["alone"] == [1, -1, 2, -2, 3, -3, 4, -4, 5, -5, 6, -6, 7, -7]
    assert losses(tmp_path / "ahead") == losses(tmp_path / "alone")
    for step in ("step-00000004", "step-00000007"):
        ours, theirs = (load_file(folder / step / "training.safetensors") for folder in found.values())
        assert ours.keys() == theirs.keys()
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs[name])
    monkeypatch.setattr(Trainer, "runs_ahead", True)
    watcher, words = StopsAt(2), {"program": place / "tiny.lisp", "data": [place / "text.txt"], "vocab_size": 300}
    outcome = train_program(
        run=tmp_path / "cut",
        cache=place / "cache",
        watcher=watcher,
        **words,
        **STEPS | given,
        target="emulated:gfx1151",
    )
    assert outcome.interrupted and watcher.steps_saved == [outcome.step] and outcome.step in (2, 3)
    train(tmp_path / "cut", place / "cache", resume=True)
    assert losses(tmp_path / "cut") == losses(tmp_path / "alone")
