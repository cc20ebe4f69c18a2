"""The commands around training: train, evaluate, plot and tokenizer, as people and scripts call them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path
from xml.etree import ElementTree

import forked
import numpy as np
import pytest
from rich.console import Console
from training.tiny import program_file, text_file

from lispgpt.cli.progress import Progress
from lispgpt.runtime import tokenizers
from lispgpt.runtime.data.shards import read_shard
from lispgpt.runtime.training.run_folder import read_metrics

ROOT = Path(__file__).resolve().parents[2]
TRAIN = ["train", "tiny.lisp", "--data", "text.txt", "--vocab-size", "300", "--batch", "4", "--length", "8"]
TRAIN += ["--lr", "0.3", "--run"]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("commands")
    program_file(folder)
    text_file(folder)
    return folder


def start(place: Path, *words: object) -> subprocess.Popen[str]:
    environment = os.environ | {"LISPGPT_CACHE": str(place / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "lispgpt", *map(str, words)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=place, env=environment, stdout=pipe, stderr=pipe, text=True)


def call(place: Path, *words: object, code: int = 0, given: str | None = None) -> tuple[str, str]:
    """What a command prints to standard output and standard error; given: what it reads from standard input."""
    done = forked.lispgpt(*words, cwd=place, env=os.environ | {"LISPGPT_CACHE": str(place / "cache")}, input=given)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def test_train_evaluate_and_generate(place: Path) -> None:
    out, err = call(place, *TRAIN, "runs/first", "--steps", 60, "--eval-every", 30, "--sample-every", 60)
    assert out == "" and "training 9," in err and "step 60/60  loss " in err and "step 60 writes: " in err
    assert (
        "val " in err
        and "grad norm " in err
        and "tokens/s" in err
        and "wrote runs/first/checkpoints/step-00000060" in err
    )
    out, _ = call(place, "evaluate", "tiny.lisp", "--checkpoint", "runs/first/latest", "--data", "text.txt")
    words = out.split()
    assert words[0] == "loss" and words[2] == "perplexity" and words[4] == "accuracy"
    loss = float(words[1])
    assert abs(float(words[3]) - np.exp(loss)) < 0.02 and 0 < loss < 2
    data = ["--data", "runs/first/tokens/train-000.bin", "--batch", 3, "--format", "json"]
    out, _ = call(place, "evaluate", "tiny.lisp", "--checkpoint", "runs/first", *data)
    assert abs(json.loads(out)["loss"] - loss) < 1e-3
    out, _ = call(place, "run", "tiny.lisp", "--checkpoint", "runs/first/latest", "--prompt", "the cat", "--greedy")
    assert out.startswith("the cat sat down")
    _, err = call(place, "explore", "runs/first", "-o", "said.html", "--prompt", "the", "--target", "rocm:gfx1151")
    assert "said.html: rocm:gfx1151, " in err
    _, err = call(place, *TRAIN, "runs/first", "--resume", code=2)
    assert "it takes no data and no settings" in err
    _, err = call(place, "train", "--run", "runs/none", code=2)
    assert "give a PROGRAM" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_asked_to_end_does_so_and_goes_on(place: Path, number: int) -> None:
    run = place / "runs" / f"asked-{number}"
    process = start(place, *TRAIN, run, "--steps", 100_000, "--checkpoint-every", 0, "--eval-every", 0)
    while process.poll() is None and len(read_metrics(run)) < 20:
        time.sleep(0.02)
    process.send_signal(number)
    _, err = process.communicate()
    assert process.returncode == 130, err
    step = read_metrics(run)[-1]["step"]
    assert f"interrupted at step {step}, which is kept; `lispgpt train --run {run} --resume` goes on" in err
    assert (run / "latest").resolve().name == f"step-{step:08}"
    _, err = call(place, "train", "--run", run, "--resume", "--steps", step + 2, "--profile")
    assert f"going on after step {step}" in err and "kernel by kernel; floors are known for GPUs alone" in err
    assert [record["step"] for record in read_metrics(run)] == list(range(1, step + 3))


def test_a_mistake_is_one_line(place: Path) -> None:
    _, err = call(place, *TRAIN, "runs/wrong", "--set", "vocab=100", code=1)
    assert err.count("error") == 1 and err.splitlines()[-1].startswith("error: the tokenizer has")
    _, err = call(place, "evaluate", "tiny.lisp", "--checkpoint", "runs", "--data", "text.txt", code=1)
    assert err.count("\n") == 1 and err.startswith("error: ")


def test_a_runs_folder_is_known_as_one(place: Path, tmp_path: Path) -> None:
    run = tmp_path / "first"
    run.mkdir()
    (run / "run.json").write_text("{}")
    _, err = call(place, "train", run, code=2)
    assert f"is a run's folder: `lispgpt train --run {run} --resume` goes on with it" in err.replace("\n", " ")
    _, err = call(place, "train", run, "--run", tmp_path / "other", "--data", "text.txt", code=1)
    assert f"`lispgpt train --run {run} --resume` goes on with it" in err and "begins anew from its weights" in err
    _, err = call(place, "train", run, "--resume", code=1)  # it is gone on with, and has nothing to go on with
    assert "was begun by another lispgpt, and cannot be gone on with" in err
    _, err = call(place, "train", "tiny.lisp", "text.txt", code=2)
    assert "give --run FOLDER" in err


def test_curves_of_runs_are_drawn(place: Path) -> None:
    for seed in (1, 2):
        call(place, *TRAIN, f"drawn/{seed}", "--steps", 500, "--seed", seed, "--eval-every", 100)
    call(place, "plot", "drawn/1", "drawn/2", "-o", "both.png")
    assert (place / "both.png").read_bytes().startswith(b"\x89PNG\r\n")
    call(place, "plot", "drawn/1", "-o", "one.svg")
    root = ElementTree.parse(place / "one.svg").getroot()
    assert root.tag.endswith("svg") and len(list(root.iter())) > 50
    _, err = call(place, "plot", "drawn", code=1)
    assert "drawn has no metrics to draw" in err
    _, err = call(place, "plot", "drawn/1", "-o", "one.gif", code=1)
    assert "pictures are .png, .svg, .pdf" in err


def test_vocabularies_are_made_and_used(place: Path) -> None:
    _, err = call(place, "tokenizer", "train", "text.txt", "--vocab-size", 270, "-o", "t.json")
    assert "wrote t.json: 270 tokens" in err
    opened, text = tokenizers.open(place / "t.json"), (place / "text.txt").read_text()
    call(place, "tokenizer", "encode", "text.txt", "--tokenizer", "t.json", "-o", "t.bin")
    tokens = read_shard(place / "t.bin").tokens
    assert tokens.tolist() == [opened.end_of_text, *opened.encode(text)]
    out, _ = call(place, "tokenizer", "decode", "t.bin", "--tokenizer", "t.json")
    assert out == f"<|endoftext|>{text}\n"
    (place / "one.txt").write_text("the cat")
    out, _ = call(place, "tokenizer", "encode", "one.txt", "--tokenizer", "t.json")
    assert [int(word) for word in out.split()] == opened.encode("the cat")
    assert call(place, "tokenizer", "encode", "-", "--tokenizer", "t.json", given="the cat")[0] == out
    _, err = call(place, "tokenizer", "encode", "-", "one.txt", "--tokenizer", "t.json", code=2, given="")
    assert "standard input (-) is one text" in err
    out, _ = call(place, "tokenizer", "decode", *out.split(), "--tokenizer", "t.json")
    assert out == "the cat\n"
    _, err = call(place, "tokenizer", "decode", "cat", "--tokenizer", "t.json", code=1)
    assert "neither a token's number nor a token shard" in err
    _, err = call(place, "tokenizer", "decode", 1, 10**30, "--tokenizer", "t.json", code=1)
    assert f"there is no token {10**30}: t.json has 270 (0 to 269)" in err
    _, err = call(place, "tokenizer", "train", "text.txt", "--vocab-size", 10**11, "-o", "t.json", code=1)
    assert "a vocabulary of 100,000,000,000 is larger than any" in err


def progress(terminal: bool) -> str:
    """What is printed of 200 steps of a run."""
    text = StringIO()
    with Progress(Console(file=text, force_terminal=terminal, width=200)) as shown:
        facts = {
            "device": "a chip",
            "parameters": 1234567,
            "steps": 200,
            "done": 0,
            "amount": 64,
            "unit": "tokens",
            "windows": 9,
        }
        shown.begin({**facts, "floor_s": 64 / 4000})
        for step in range(1, 201):
            record = {"step": step, "loss": 3.25, "grad_norm": 0.5, "lr": 1e-3, "tokens_per_s": 1000.0}
            more = {"val_loss": 3.5, "perplexity": 33.1, "accuracy": 0.25} if step == 100 else {}
            shown.stepped(record | more)
        shown.note("done")
    return text.getvalue()


def test_progress_is_a_few_plain_lines_or_one_live_one() -> None:
    plain = progress(terminal=False)
    assert "training 1,234,567 parameters on a chip: 200 steps of 64 tokens, an epoch of 9 sequences" in plain
    assert "\x1b" not in plain and plain.count("loss 3.25") < 8
    line = next(line for line in plain.splitlines() if line.startswith("step 100/200"))
    for part in (
        "loss 3.2500",
        "val 3.5000 (perplexity 33.1, 25.0% right)",
        "grad norm 0.5",
        "lr 0.001",
        "1,000 tokens/s",
    ):
        assert part in line
    assert "25% of the floor" in line and line.endswith("0:06 left")
    live = progress(terminal=True)
    assert "step 200/200" in live and "\x1b[" in live and "done" in live
