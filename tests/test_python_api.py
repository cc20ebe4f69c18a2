"""The package in a long-lived process, as a notebook is: threads, several models, and nothing left behind (but the
checkpoints' files, which their models have mapped)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from test_cli import Call, call, made

import lispgpt
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make

__all__ = ["call", "made"]

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
GPT2 = EXAMPLES / "gpt2_generate.lisp"

NOTEBOOK = """
import json, os, signal, sys, threading, warnings

def kept():
    numbers = [n for n in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{n}")]
    files = sorted(f for f in (os.readlink(f"/proc/self/fd/{n}") for n in numbers) if not f.endswith(".bin"))
    sockets = [f for f in files if f.startswith("socket:")]
    assert len(sockets) <= 1, sockets  # to the process that compiles, which stays
    files = [f for f in files if f not in sockets]
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)]
    return [sys.getrecursionlimit(), dict(os.environ), os.getcwd(), sys.path[:], files, str(handlers),
            os.fstat(2)[:2], sorted(t.name for t in threading.enumerate()), list(warnings.filters)]

def no_fork():
    raise AssertionError("a process with threads was forked")

waiting = threading.Event()
thread = threading.Thread(target=waiting.wait, name="the notebook's own")
thread.start()
os.fork = no_fork
import numpy, lispgpt
lispgpt.load, lispgpt.train
before = kept()
program, first, second = sys.argv[1:]
found = {}
with lispgpt.load(program, first) as one, lispgpt.load(program, second) as other:
    def work(name, model, prompt, **options):
        found[name] = model.generate(prompt, max_new_tokens=12, **options), ""
        found[name] = found[name][0].tokens, "".join(found[name][0])
    threads = [threading.Thread(target=work, args=(f"{m}{p}", model, [p, p + 1]), kwargs=dict(seed=p, temperature=2.0))
               for m, model in enumerate((one, other)) for p in (1, 2, 3)]
    for each in threads: each.start()
    for each in threads: each.join()
    batch = [text.tokens for text in one.generate_batch([[1, 2], [2, 3], [3, 4]], temperature=2.0, seed=1)]
    try:
        one.generate([1], lookup=3)
    except lispgpt.UserError as error:
        said = str(error)
    logits = one.logits([1, 2, 3]).shape
after = kept()
waiting.set()
print(json.dumps({"found": {k: v[0] for k, v in found.items()}, "batch": batch, "said": said, "logits": logits,
                  "changed": [i for i, (a, b) in enumerate(zip(before, after)) if a != b]}))
"""


def test_a_notebook_feels_nothing_of_it(made: Path) -> None:
    make(made / "second.bin", Gpt2Shape.unpadded(vocab=300, context=20, layers=1, heads=3, width=12), "llmc", "bf16", 9)
    words = [sys.executable, "-W", "error", "-c", NOTEBOOK, str(GPT2), "small.bin", "second.bin"]
    done = subprocess.run(words, cwd=made, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(done.stdout)
    assert not done.stderr and result["changed"] == [], result
    assert result["logits"] == [3, 300] and "most probable tokens" in result["said"]
    for name, checkpoint in (("0", "small.bin"), ("1", "second.bin")):
        with lispgpt.load(GPT2, made / checkpoint) as model:
            for prompt in (1, 2, 3):
                alone = model.generate([prompt, prompt + 1], max_new_tokens=12, temperature=2.0, seed=prompt)
                assert "".join(alone) and alone.tokens == result["found"][f"{name}{prompt}"]
                if name == "0":
                    assert result["batch"][prompt - 1][:12] == alone.tokens


def test_a_folder_of_the_same_name_where_it_works_is_none_of_its_business(tmp_path: Path) -> None:
    """Interpreters that a process with threads starts import what that process has imported."""
    (tmp_path / "lispgpt").mkdir()
    (tmp_path / "lispgpt" / "__init__.py").write_text("raise SystemExit('the wrong one')")
    (tmp_path / "twice.lisp").write_text("(require nn)\n(entry twice [(x [4] f32)] {:y (* x 2.0)})")
    code = (
        f"import sys, os, threading\nsys.path.insert(0, {str(EXAMPLES.parent)!r})\nimport lispgpt\n"
        "lispgpt.compile, sys.path.insert(0, '')\nos.chdir(sys.argv[1])\n"
        "waiting = threading.Event()\nthreading.Thread(target=waiting.wait).start()\n"
        "try: print(lispgpt.load('twice.lisp').run('twice', x=[1, 2, 3, 4])['y'].tolist())\nfinally: waiting.set()"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.stdout == "[2.0, 4.0, 6.0, 8.0]\n", done.stderr


def test_logits_are_those_of_every_position(made: Path) -> None:
    tokens = [5, 9, 200, 17, 3, 3, 250, 1, 0, 7, 8, 9, 10, 11, 12, 13, 14, 15, 299]
    with lispgpt.load(GPT2, made / "small.bin") as model:
        found = model.logits(tokens)
        assert found.shape == (len(tokens), 300)
        for count in (7, len(tokens)):
            last = model.run("logits", tokens=[tokens[:count]], positions=[range(count)])["logits"][0, :300]
            np.testing.assert_allclose(found[count - 1], last, atol=1e-4)
        for wrong in ([], [300], [-1], [1] * 21):
            with pytest.raises(lispgpt.UserError, match="logits are of 1 to 20 tokens"):
                model.logits(wrong)


def test_embeddings_are_what_the_head_takes(made: Path) -> None:
    """The head's products with them are the logits, but for the length that they are brought to."""
    tokens = [5, 9, 200, 17, 3, 3, 250, 1, 0, 7, 8, 9, 10, 11, 12, 13, 14, 15, 299]
    with lispgpt.load(GPT2, made / "small.bin") as model:
        assert model.session.checkpoint is not None
        head = np.empty(model.session.checkpoint.info("wte").shape, np.float32)
        model.session.checkpoint.read_into("wte", head, "f32")
        head = head[:300]
        logits, found = model.logits(tokens), model.embedding(tokens)
        assert np.linalg.norm(found) == pytest.approx(1, abs=1e-6)
        length = logits[-1] @ (head @ found) / np.square(head @ found).sum()
        np.testing.assert_allclose(length * (head @ found), logits[-1], atol=2e-3 * abs(logits).max())
        mean = model.embedding(tokens, "mean")
        wanted = logits.mean(axis=0)
        length = wanted @ (head @ mean) / np.square(head @ mean).sum()
        np.testing.assert_allclose(length * (head @ mean), wanted, atol=2e-3 * abs(logits).max())
        for wrong in ([], [300], [1] * 21):
            with pytest.raises(lispgpt.UserError, match="embeddings are of 1 to 20 tokens"):
                model.embedding(wrong)
        with pytest.raises(lispgpt.UserError, match="pooling"):
            model.embedding(tokens, "median")


def test_programs_that_generate_and_that_train_have_the_same_losses(made: Path) -> None:
    (made / "data.txt").write_text("Once upon a time, a harbour was full of ships; then it was not. " * 3)
    data, settings = [made / "data.txt"], {"weight-type": "bf16"}
    found = lispgpt.evaluate(GPT2, made / "small.bin", data, batch=2, length=16)
    wanted = lispgpt.evaluate(EXAMPLES / "gpt2_train.lisp", made / "small.bin", data, settings=settings, length=16)
    assert found.targets == wanted.targets > 40 and found.loss == pytest.approx(wanted.loss, rel=1e-3)
    assert abs(found.correct - wanted.correct) <= 1


@pytest.mark.slow
def test_the_script_that_uses_all_of_it(tmp_path: Path, call: Call) -> None:
    """Run it after a change of lispgpt/api.py, lispgpt/execution/ or lispgpt/training/."""
    script = EXAMPLES / "python_api.py"
    assert len(script.read_text().splitlines()) < 40
    sizes = ["--layers", 1, "--heads", 2, "--width", 32, "--vocab", 300, "--context", 64]
    assert call("checkpoint", "make", tmp_path / "small.bin", *sizes).code == 0
    words = [sys.executable, str(script), "small.bin"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "small.lgpt").is_file() and done.stdout.count("perplexity") == 2
