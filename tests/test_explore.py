"""The page of `lispgpt explore`: what it says of a program is what the IR's own locations say."""

from __future__ import annotations

import itertools
import random
import re
from pathlib import Path
from typing import Any

import pytest
from explore_page import CHROMIUM, acted

from lispgpt.base.errors import UserError
from lispgpt.compiler.request import Request
from lispgpt.explore.aligned import aligned
from lispgpt.explore.document import document
from lispgpt.explore.page import page
from lispgpt.explore.recording import Recording, record

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
(require nn)
(config vocab 32  context 8  layers 2  heads 2  width 32)
(weights (table [vocab width] bf16)  (w [(* 3 width) width] bf16)  (b [(* 3 width)])  (out [width width] bf16))
(state (kv [layers batch 2 heads context (/ width heads)] f32))
(defn layer [x l]
  (let [qkv (linear (layer-norm x b b) w b)]
    (+ x (matmul-transposed (attention qkv (kv l) heads) out))))
(entry logits [tokens positions]
  (matmul-transposed (relu (last (fold layer (rows table tokens) (range layers)))) table))
""".replace("(layer-norm x b b)", "x")
HIGHEST = 2_000_000
"""Bytes of a page."""

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


@pytest.fixture(scope="module", params=["cpu", "rocm:gfx1151"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recording:
    path = tmp_path_factory.mktemp("explore") / "small.lisp"
    path.write_text(PROGRAM)
    return record(Request(path, request.param, longest=16))


@pytest.fixture(scope="module")
def written(recorded: Recording, tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    data, streams = document(recorded, "lispgpt explore small.lisp")
    path = tmp_path_factory.mktemp("page") / "small.html"
    path.write_text(page(data, streams), encoding="utf-8")
    return data, path


def test_a_page_is_small_and_names_nothing_outside(written: tuple[dict[str, Any], Path]) -> None:
    text = written[1].read_text()
    assert len(text) < HIGHEST / 4
    assert not re.findall(
        r"""(?:src|href)=["'](?!data:)|url\((?!["']?data:)|@import""", text.partition('<script id="data"')[0]
    )


@needs_chromium
def test_a_form_lights_up_what_it_became(written: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    script = """
      const { model } = explore;
      const head = [...document.querySelectorAll(".lisp .form .head")].find((each) => each.textContent === "attention");
      head.parentElement.click();
      const lit = [...document.querySelectorAll("tr.lit")].map((row) => row.dataset.kernel);
      document.querySelector(`tr[data-kernel="${lit.find((name) => name.startsWith("attention"))}"]`).click();
      return { lit, form: document.querySelectorAll(".lisp .form.lit").length,
        code: document.querySelectorAll('[aria-label="before and after"] .row.lit').length,
        instructions: document.querySelectorAll('[aria-label="machine code"] .row.lit').length };
    """
    found = acted(written[1], script, tmp_path)
    assert any(name.startswith("attention") for name in found["lit"])
    assert not any("x32x32" in name for name in found["lit"])
    assert found["form"] == 1 and found["code"] > 0 and found["instructions"] > 0


@needs_chromium
def test_a_search_finds_kernels_passes_and_text(written: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    script = """
      const input = document.querySelector(".search input");
      const look = (text) => { input.value = text; input.dispatchEvent(new Event("input"));
        return [...document.querySelectorAll(".found .kind")].map((each) => each.textContent); };
      const kinds = look("attention");
      const passes = look("canonicalize");
      input.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
      return { kinds, passes, pass: explore.model.chosen.pass, none: look("no such thing") };
    """
    found = acted(written[1], script, tmp_path)
    assert {"kernel", "small.lisp", "pass"} <= {*found["kinds"]}
    assert "pass" in found["passes"] and found["none"] == []
    assert written[0]["passes"][found["pass"] - 1]["name"] == "canonicalize"


@needs_chromium
def test_the_page_unpacks_what_the_passes_left(
    written: tuple[dict[str, Any], Path], recorded: Recording, tmp_path: Path
) -> None:
    """Every function's last version and code, but for values' names, are those that were recorded."""
    script = """
      const { textOf } = await import("explore/unpack.js");
      const { model } = explore, found = {};
      for (const name of Object.keys(model.data.functions)) {
        const steps = model.history(name), last = steps[steps.length - 1];
        const lines = last.after.map((line) => [textOf(line), line.location]);
        found[name] = { lines, code: model.machine(name).map((line) => line.text) };
      }
      return found;
    """
    found = acted(written[1], script, tmp_path)
    for name, lines in recorded.history.now.items():
        shown = found[name]["lines"]
        assert [location for _, location in shown] == [line.location for line in lines]
        known: dict[str, str] = {}
        for (text, _), line in zip(shown, lines, strict=True):
            values = re.findall(r'"(?:[^"\\]|\\.)*"|(%[\w$.]+)', text)
            for ours, theirs in zip(filter(None, values), line.names, strict=True):
                assert known.setdefault(theirs, ours) == ours, (name, text)
        assert len(set(known.values())) == len(known)
    for name, code in recorded.machine.items():
        assert [line.text for line in code] == found[name]["code"][: len(code)] or name.endswith("_body")


def test_lines_are_aligned_in_order() -> None:
    rng = random.Random(7)
    for _ in range(50):
        before = [rng.randrange(12) for _ in range(rng.randrange(120))]
        after = [each for each in before if rng.random() < 0.8] + [rng.randrange(12) for _ in range(rng.randrange(20))]
        found = aligned(before, after)
        assert all(before[i] == after[j] for i, j in found)
        assert all(a[0] < b[0] and a[1] < b[1] for a, b in itertools.pairwise(found))
        assert not before or not after or before[0] != after[0] or (0, 0) in found


def test_a_failed_pass_ends_the_page(tmp_path: Path) -> None:
    """The message and the form stand in it, and the passes behind it are there without a time."""
    path = tmp_path / "wrong.lisp"
    path.write_text(PROGRAM)
    pipeline = tmp_path / "pipeline.lisp"
    whole = (ROOT / "passes/pipelines/cpu.lisp").read_text()
    pipeline.write_text(whole.replace("(pass plan-arena)", "(pass emit-plan)", 1))
    recording = record(Request(path, "cpu", pipeline=pipeline, longest=16))
    assert recording.failure is not None and recording.artifact is None
    data, _ = document(recording, "lispgpt explore wrong.lisp")
    assert data["failure"]["pass"] == len(recording.seconds) + 1
    assert "plan-arena" in data["failure"]["message"]
    assert data["passes"][-1]["seconds"] is None


def test_a_program_with_a_main_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "main.lisp"
    path.write_text("(defn main [] -> i32 (: 0 i32))")
    with pytest.raises(UserError, match="main"):
        record(Request(path, "cpu"))
