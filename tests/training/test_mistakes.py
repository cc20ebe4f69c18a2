"""What a user gets wrong: one clear error each, after which the folder still takes a run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from training.tiny import PROGRAM, losses, program_file, text_file, train

from lispgpt.base.errors import UserError
from lispgpt.runtime.data.shards import write_shard
from lispgpt.runtime.tokenizers.training import train_tokenizer
from lispgpt.runtime.training.loop import Outcome
from lispgpt.runtime.training.snapshot import open_snapshot

pytestmark = pytest.mark.drawn

Given = dict[str, Any]
ENOUGH: Given = {"steps": 2, "batch": 2, "length": 8, "lr": 0.1, "eval_every": 0}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    program_file(folder)
    text_file(folder)
    train_tokenizer([(folder / "text.txt").read_text()], 280, folder / "tokenizer.json")
    write_shard(folder / "tokens.bin", [np.arange(200) % 90], 300)
    write_shard(folder / "large.bin", [np.arange(200) + 200], 500)
    write_shard(folder / "my_val_0.bin", [np.arange(100) % 50], 300)
    (folder / "short.txt").write_text("too")
    (folder / "nothing.txt").write_text("")
    (folder / "empty").mkdir()
    (folder / "binary.txt").write_bytes(b"\xff\xfe\0\0")
    (folder / "cut.bin").write_bytes((folder / "tokens.bin").read_bytes()[:-7])
    program_file(folder / "empty", PROGRAM.replace("(entry train ", "(entry learn "))
    (folder / "empty" / "tiny.lisp").rename(folder / "untrained.lisp")
    (folder / "silent.lisp").write_text(
        PROGRAM.replace("(generate logits", "; (generate logits").replace("; (g", ";(g")
    )
    (folder / "odd.lisp").write_text(
        PROGRAM.replace("(lr [] f32)]\n  (let [loss (f", "(pace [] f32)]\n  (let [lr pace loss (f")
    )
    counts = "{:loss loss :correct (tensor [i 3] (at correct))}"
    (folder / "counts.lisp").write_text(PROGRAM.replace("{:loss loss :correct correct}", counts))
    (folder / "losses.lisp").write_text(PROGRAM.replace("{:loss loss :g", "{:loss (tensor [i 1] (at loss)) :g"))
    (folder / "sizeless.lisp").write_text(PROGRAM.replace("vocab 300", "words 300").replace("vocab", "words"))
    return folder


MISTAKES: dict[str, tuple[Callable[[Path], Given], str]] = {
    "no data": (lambda p: {"data": []}, "nothing to train on: give --data"),
    "no such data": (lambda p: {"data": [p / "none.txt"]}, "there is no file or folder"),
    "an empty folder": (lambda p: {"data": [p / "empty"]}, "has no file to train on"),
    "a file of nothing": (lambda p: {"data": [p / "nothing.txt"]}, "there is no text in the data"),
    "no text": (lambda p: {"data": [p / "binary.txt"]}, "binary.txt is not UTF-8"),
    "a damaged shard": (lambda p: {"data": [p / "cut.bin"], "vocab_size": None}, "cut.bin is cut short"),
    "text and shards": (lambda p: {"data": [p / "text.txt", p / "tokens.bin"]}, "one kind or the other"),
    "too little text": (lambda p: {"data": [p / "short.txt"]}, "has . tokens to train on, and --length 8 needs 9"),
    "only validation": (lambda p: {"data": [p / "my_val_0.bin"], "vocab_size": None}, "nothing to train on"),
    "no tokenizer": (lambda p: {"vocab_size": None}, "text needs a tokenizer"),
    "two tokenizers": (lambda p: {"tokenizer": p / "tokenizer.json"}, "--tokenizer FILE or --vocab-size N, not both"),
    "a tokenizer of nothing": (lambda p: {"data": [p / "tokens.bin"]}, "makes a tokenizer of text"),
    "no such tokenizer": (lambda p: {"vocab_size": None, "tokenizer": p / "no.json"}, "there is no tokenizer at"),
    "a damaged tokenizer": (lambda p: {"vocab_size": None, "tokenizer": p / "text.txt"}, "tokenizer"),
    "a small vocabulary": (lambda p: {"vocab_size": 256}, "at least 257"),
    "a vocabulary beyond the model's": (
        lambda p: {"settings": {"vocab": 260}},
        r"the tokenizer has (2..) tokens, and the model's vocabulary 260: --set vocab=\1 .*, --vocab-size 260 the tok",
    ),
    "tokens beyond the model's": (
        lambda p: {"data": [p / "large.bin"], "vocab_size": None},
        "large.bin has the token 399, and the model's vocabulary has 300",
    ),
    "sequences beyond the context": (
        lambda p: {"settings": {"context": 4}},
        "--length is 8, and the model has 4 positions",
    ),
    "no program": (lambda p: {"program": p / "none.lisp"}, "there is no file"),
    "a program that is no model": (lambda p: {"program": p / "text.txt"}, "text.txt:"),
    "a program that does not train": (lambda p: {"program": p / "untrained.lisp"}, "no entry 'train'.*it has learn"),
    "a program of several losses": (
        lambda p: {"program": p / "losses.lisp"},
        r"'train' gives loss \[1\], not one number",
    ),
    "a program of several counts": (
        lambda p: {"program": p / "counts.lisp", "eval_every": 1},
        r"'evaluate' gives correct \[3\], not one number",
    ),
    "a program that asks for more": (lambda p: {"program": p / "odd.lisp"}, "takes pace, and training gives"),
    "a program without sizes": (lambda p: {"program": p / "sizeless.lisp"}, "has to say its vocab"),
    "samples of a program that has none": (
        lambda p: {"program": p / "silent.lisp", "sample_every": 1},
        "no `generate` form",
    ),
    "an unknown setting": (lambda p: {"settings": {"depth": 3}}, "no config value of this name"),
    "an unknown preset": (lambda p: {"preset": "gpt5"}, "no preset 'gpt5'"),
    "a preset of another kind": (lambda p: {"preset": "llama-tiny"}, "has no config value layers"),
    "no such checkpoint": (lambda p: {"checkpoint": p / "none"}, "there is no checkpoint at"),
    "a checkpoint and a preset": (lambda p: {"checkpoint": p, "preset": "tiny"}, "not both"),
    "no steps": (lambda p: {"steps": 0}, "--steps is 0, which must be at least 1"),
    "half a step": (lambda p: {"steps": 1.5}, "--steps is 1.5, which must be a whole number"),
    "a negative rate": (lambda p: {"lr": -1.0}, "--lr is -1.0"),
    "a rate that is none": (lambda p: {"lr": float("nan")}, "--lr is nan"),
    "a fraction above all": (lambda p: {"val_fraction": 1.0}, "--val-fraction is 1.0"),
    "several devices' kernels": (lambda p: {"devices": 2, "profile": print}, "--profile times the kernels of one"),
    "an unknown target": (lambda p: {"target": "tpu"}, "tpu"),
}


@pytest.fixture(scope="module")
def run(place: Path) -> Path:
    return place / "run"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_error_before_the_first_step(place: Path, run: Path, mistake: str) -> None:
    changes, message = MISTAKES[mistake]
    given = {"program": place / "tiny.lisp", "data": [place / "text.txt"], "vocab_size": 300, **ENOUGH}
    with pytest.raises(UserError, match=message) as found:
        train(run, place / "cache", **(given | changes(place)))
    assert len(found.value.message.splitlines()) == 1
    assert losses(run) == [] and not (run / "latest").exists()


def test_a_folder_of_mistakes_takes_a_run(place: Path, run: Path) -> None:
    given = {"program": place / "tiny.lisp", "data": [place / "text.txt"], "vocab_size": 300, **ENOUGH}
    train(run, place / "cache", **given)
    assert len(losses(run)) == 2 and (run / "latest").is_dir()


def test_a_vocabulary_that_is_set_is_rounded_up_by_the_program(tmp_path: Path) -> None:
    """What a preset, or the tokenizer, would have said of the rounded size does not hold for it."""
    program = Path(__file__).resolve().parents[2] / "examples" / "gpt2_train.lisp"
    sizes = {"vocab": 600, "layers": 1, "heads": 1, "width": 16, "context": 16, "weight-type": "f32"}
    given = {"program": program, "data": text_file(tmp_path), "vocab_size": 280, **ENOUGH, "settings": sizes}
    for name, more in (("set", {}), ("preset", {"preset": "tiny"})):
        train(tmp_path / name, tmp_path / "cache", **given, **more)
        assert open_snapshot(tmp_path / name / "latest").info("wte").shape == (640, 16)


def test_what_has_no_step_left_says_so(place: Path, tmp_path: Path) -> None:
    given = {"program": place / "tiny.lisp", "data": str(place / "text.txt"), "vocab_size": 300, **ENOUGH}
    _, seen = train(tmp_path / "run", place / "cache", **given)
    assert not any("already" in note for note in seen.notes)
    outcome, seen = train(tmp_path / "run", tmp_path / "no cache", resume=True)
    assert outcome == Outcome(2, False, None, None) and not (tmp_path / "no cache").exists()
    assert seen.notes == ["the run has 2 steps already, of 2: --steps N for more"]


def test_a_run_whose_data_changed_or_went_is_refused(place: Path, tmp_path: Path) -> None:
    shard, run = tmp_path / "tokens.bin", tmp_path / "run"
    shard.write_bytes((place / "tokens.bin").read_bytes())
    train(run, place / "cache", program=place / "tiny.lisp", data=[shard], **ENOUGH)
    write_shard(shard, [np.arange(210) % 90], 300)
    with pytest.raises(UserError, match=r"tokens.bin, which the run is trained on, is gone or has changed"):
        train(run, place / "cache", resume=True)


def test_a_damaged_description_is_refused(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(run, place / "cache", program=place / "tiny.lisp", data=[place / "tokens.bin"], **ENOUGH)
    whole = (run / "run.json").read_text()
    for damaged in (whole[:-20], whole.replace('"length": 8', '"length": -8'), whole.replace('"version": 1', '"v": 1')):
        (run / "run.json").write_text(damaged)
        with pytest.raises(UserError):
            train(run, place / "cache", resume=True)
    (run / "run.json").write_text(whole)
    assert train(run, place / "cache", resume=True, steps=3)[0].step == 3


@pytest.mark.parametrize("batch", [10**8, pytest.param(10**6, marks=pytest.mark.slow)])
def test_a_batch_beyond_the_memory_is_refused_before_code_is_made(
    batch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of a loss are taken in a bounded number of parts, and what is planned is held against the machine's
    memory."""
    monkeypatch.setattr("lispgpt.runtime.devices.memory", lambda: 4 << 30)
    monkeypatch.setattr("lispgpt.compiler.driver.make_code", lambda *_: pytest.fail("code was made"))
    text_file(tmp_path)
    program = tmp_path / "large.lisp"
    program.write_text(
        "(require nn training)\n(config vocab 300 width 64 context 32)\n(weights (w [vocab width]) (u [vocab width]))\n"
        "(defn f [tokens targets random]\n"
        "  (let [n (* (dim tokens 0) (dim tokens 1))]\n"
        "    (head-loss (rows w (reshape tokens [n])) u (reshape targets [n]) vocab)))\n(training f)\n"
    )
    given: Given = {**ENOUGH, "batch": batch, "data": [tmp_path / "text.txt"], "vocab_size": 280}
    needs = r"train \(batch 1000+, length 8\) needs [\d,.]+ GiB of memory, and this machine has 4.0 GiB"
    with pytest.raises(UserError, match=needs):
        train(tmp_path / "run", tmp_path / "cache", program=program, **given)
