"""A model so small that a step takes a millisecond, made of what any program may use, and runs of it."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lispgpt.runtime.training.loop import Outcome
from lispgpt.runtime.training.run_folder import read_metrics
from lispgpt.training.runs import train as train_program

STEPS: dict[str, Any] = {"batch": 4, "length": 8, "lr": 0.3, "eval_every": 0}

PROGRAM = """; Two layers over one token, trained by gradient descent with momentum.
(require nn)
(require gradients)

(config vocab 300  context 16  width 16  momentum 0.5)

(weights (table [vocab width] {:init (normal 0.3)}) (head [vocab width] {:init (normal 0.3)}) (bias [vocab]))
(state (table-m [vocab width]) (head-m [vocab width]) (bias-m [vocab]) (table-g [vocab width]) (head-g [vocab width])
       (bias-g [vocab]) (none [batch 1]))       ; a state that names its batch, so that no other gets one

(defn scores-of [tokens] (linear (gelu (rows table tokens)) head bias))

(defn losses [tokens targets]
  (let [[batch length] (shape tokens)
        n (* batch length)
        targets (reshape targets [n])
        scores (scores-of (reshape tokens [n]))
        peak (maximum scores)
        powers (tensor [r n c vocab] (exp (- (at scores r c) (at peak r))))
        real (tensor [r n] (select (>= (at targets r) 0) 1.0 0.0))
        own (tensor [r n] (at scores r (max 0 (at targets r))))
        total (+ (log (sum powers)) peak)]
    [(/ (sum (* real (- total own))) (sum real))
     (sum (tensor [r n] (select (= (at peak r) (at own r)) (at real r) 0.0)))]))

(defn norm-of [all] (sqrt (fold + 0.0 (map (fn [g] (sum (reshape (square g) [(fold * 1 (shape g))]))) all))))

(defn moved [m g] (+ (* momentum m) g))

(defmacro descend [w m g lr]
  `(do (update! ~m (moved (read-state ~m) ~g)) (update! ~w (- ~w (* ~lr (read-state ~m))))))

(entry train [(tokens [batch length] i32) (targets [batch length] i32) (step [] i32) (seed [] i32) (lr [] f32)]
  (let [loss (first (losses tokens targets))
        [a b c] (gradients loss [table head bias])]
    (descend table table-m a lr)
    (descend head head-m b lr)
    (descend bias bias-m c lr)
    {:loss loss :grad-norm (norm-of [a b c]) :lr lr :numbers (+ (* 1000 seed) step)}))

(entry accumulate [(tokens [batch length] i32) (targets [batch length] i32) (accumulate [] f32)]
  (let [loss (first (losses tokens targets))
        [a b c] (gradients loss [table head bias])]
    (update! table-g (+ (read-state table-g) (/ a accumulate)))
    (update! head-g (+ (read-state head-g) (/ b accumulate)))
    (update! bias-g (+ (read-state bias-g) (/ c accumulate)))
    {:loss loss}))

(entry apply [(lr [] f32)]
  (let [[a b c] [(read-state table-g) (read-state head-g) (read-state bias-g)]
        norm (norm-of [a b c])]
    (descend table table-m a lr)
    (descend head head-m b lr)
    (descend bias bias-m c lr)
    (update! table-g (* 0.0 a))
    (update! head-g (* 0.0 b))
    (update! bias-g (* 0.0 c))
    {:grad-norm norm :lr lr}))

(entry evaluate [(tokens [batch length] i32) (targets [batch length] i32)]
  (let [[loss correct] (losses tokens targets)] {:loss loss :correct correct}))

(entry logits [tokens positions] (scores-of (slice tokens [(- (* (batch) (/ (dim tokens 0) (batch))) 1)] [1])))
(generate logits {:max-new-tokens 8 :greedy true})
"""


class Seen:
    """A watcher that keeps what it is told."""

    def __init__(self) -> None:
        self.about: Mapping[str, Any] = {}
        self.records: list[Mapping[str, Any]] = []
        self.samples: list[str] = []
        self.steps_saved: list[int] = []
        self.notes: list[str] = []

    def begin(self, facts: Mapping[str, Any]) -> None:
        self.about = facts

    def stepped(self, record: Mapping[str, Any]) -> None:
        self.records.append(record)

    def sampled(self, step: int, text: str) -> None:
        self.samples.append(text)

    def saved(self, step: int, path: Path) -> None:
        self.steps_saved.append(step)

    def note(self, text: str) -> None:
        self.notes.append(text)


class StopsAt(Seen):
    """Ctrl-C, when a step is done."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self._step = step

    def stepped(self, record: Mapping[str, Any]) -> None:
        super().stepped(record)
        if record["step"] == self._step:
            os.kill(os.getpid(), signal.SIGINT)


def text_file(folder: Path, words: int = 3000) -> Path:
    """Sentences of four words each, so that the next word is mostly known."""
    path = folder / "text.txt"
    path.write_text("".join(f"{'the cat sat down' if n % 3 else 'a dog ran off'}.\n" for n in range(words // 4)))
    return path


def program_file(folder: Path, text: str = PROGRAM) -> Path:
    path = folder / "tiny.lisp"
    path.write_text(text)
    return path


def begun_folder(folder: Path) -> Path:
    """The folder, with the tiny program and a text."""
    program_file(folder)
    text_file(folder)
    return folder


def train(run: Path, cache: Path, **given: Any) -> tuple[Outcome, Seen]:
    """Begin a run, or go on with it."""
    seen = Seen()
    return train_program(run=run, cache=cache, watcher=seen, **given), seen


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in read_metrics(run)]


def begun(place: Path, run: Path, **given: Any) -> Seen:
    """A run of the tiny program on its text."""
    start = {"program": place / "tiny.lisp", "data": [place / "text.txt"], "vocab_size": 300}
    return train(run, place / "cache", **(start | STEPS | given))[1]
