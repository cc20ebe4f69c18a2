"""The page of `lispgpt explore`: what it says of a program is what the IR's own locations say."""

from __future__ import annotations

import inspect
import itertools
import random
import re
from array import array
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import open_checked, random_weights
from explore_page import CHROMIUM, acted

from lispgpt.base.errors import UserError
from lispgpt.cli.explore import explore
from lispgpt.compiler import present
from lispgpt.compiler.compiled import artifact_of
from lispgpt.compiler.request import Request
from lispgpt.explore import recording
from lispgpt.explore.aligned import aligned
from lispgpt.explore.distant import WINDOW, without_repeats
from lispgpt.explore.document import document
from lispgpt.explore.machine_code import instructions_of
from lispgpt.explore.page import page
from lispgpt.explore.places import Places
from lispgpt.explore.recording import Recording, record
from lispgpt.explore.running import LEVELS, Times, sentence, times

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
(require nn)
(config vocab 32  context 8  layers 2  heads 2  width 32)
(weights (table [vocab width] bf16)  (w [(* 3 width) width] bf16)  (b [(* 3 width)])  (out [width width] bf16))
(state (kv [layers batch 2 heads context (/ width heads)] f32))
(defmacro plus [x more] `(+ ~x ~more))
(defn layer [x l]
  (let [qkv (linear x w b)]
    (plus x (matmul-transposed (attention qkv (kv l) heads) out))))
(entry logits [tokens positions]
  (matmul-transposed (relu (last (fold layer (rows table tokens) (range layers)))) table))
"""
GENERATES = "(generate logits {:max-new-tokens 2})\n"
HIGHEST = 2_000_000
"""Bytes of a page."""

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")


Place = tuple[str, int, int]
Chain = tuple[Place, ...]
Origins = dict[tuple[Chain, ...], int]
"""The number of each op's chains."""


@dataclass
class Kept(Recording):
    """said: what MLIR prints behind each pass.  origins: in it.  assembly: with its lines."""

    said: list[Said] = field(default_factory=list)
    origins: Origins = field(default_factory=lambda: {})
    assembly: str = ""

    def watch(self, module: Any, call: Any, seconds: float) -> None:
        before = self._text
        super().watch(module, call, seconds)
        same = self._text is before and self.said
        self.said.append(self.said[-1] if same else Said(self._text, self.origins))


def recorded_with_texts(request: Request) -> Kept:
    """A compilation with what MLIR and the back end print of it."""
    assemblies: list[str] = []

    def noting(text: str, places: Places) -> Any:
        assemblies.append(text)
        return instructions_of(text, places)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recording, "Recording", Kept)
        patch.setattr(recording, "instructions_of", noting)
        found = recording.record(request)
    assert isinstance(found, Kept)
    found.assembly = assemblies[0]
    return found


@pytest.fixture(scope="module", params=["cpu", "rocm:gfx1151"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kept:
    path = tmp_path_factory.mktemp("explore") / "small.lisp"
    path.write_text(PROGRAM + (GENERATES if request.param == "cpu" else ""))
    return recorded_with_texts(Request(path, request.param, longest=16))


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


def test_what_is_shown_is_machine_code_that_runs(recorded: Kept) -> None:
    assert recorded.artifact is not None and recorded.artifact.code.startswith(b"\x7fELF")


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
def test_a_macro_call_opens_to_what_it_becomes(written: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    script = """
      const button = document.querySelector(".lisp .expand"), form = button.parentElement;
      const shown = () => document.querySelector(".lisp .expansion")?.textContent;
      const found = [form.textContent, shown()];
      button.click(); found.push(shown());
      button.click(); found.push(shown());
      return found;
    """
    form, before, open_, closed = acted(written[1], script, tmp_path)
    assert form.startswith("(plus x") and before is None and closed is None
    assert "".join(open_.split()).startswith("(+x(matmul-transposed(attentionqkv(kvl)heads)out))")


@needs_chromium
def test_a_kernel_says_why_it_has_its_schedule(
    written: tuple[dict[str, Any], Path], recorded: Recording, tmp_path: Path
) -> None:
    """All schedules that a product was offered to stand there with their modelled times or why they leave it, and a
    program by tiles with the lines of the schedule that wrote it."""
    script = """
      const { model, columns } = explore, found = {};
      columns.drawer.show("This kernel");
      columns.machine.tiles = true;
      for (const name of model.kernels) {
        model.choose({ function: name });
        found[name] = { rows: [...document.querySelectorAll(".offers tbody tr")].map((row) => row.textContent),
          lines: [...document.querySelectorAll('[aria-label="machine code"] .wrote')].map((each) => each.textContent),
          tabs: document.querySelectorAll(".tabs:not([hidden]) button").length };
      }
      return found;
    """
    found = acted(written[1], script, tmp_path)
    assert recorded.artifact is not None
    for name, facts in recorded.artifact.kernels.items():
        rows = found[name]["rows"]
        assert len(rows) == len(facts.get("offers", [])), name
        for offer in facts.get("offers", []):
            (row,) = [row for row in rows if row.startswith(offer["schedule"])]
            assert offer["refused"] in row if "refused" in offer else "µs" in row
            assert ("taken" in row) == (offer["schedule"] == facts.get("chosen"))
        written_by = {line.partition(":")[0] for line in found[name]["lines"] if line}
        assert written_by == ({f"{facts['tiles']}.lisp"} if "tiles" in facts else set())
    if recorded.target.kind != "cpu":
        assert any("offers" in facts for facts in recorded.artifact.kernels.values())


@needs_chromium
def test_the_shares_of_a_run_add_up_to_it(recorded: Recording, tmp_path: Path) -> None:
    assert recorded.artifact is not None
    entry = recorded.artifact.plan.entries[0]
    counts = Counter(launch.kernel for launch in entry.launches)
    whole = 3.0 * len(entry.launches) + 7
    data, streams = document(
        recorded, "lispgpt explore", None, [Times(dict.fromkeys(counts, 3.0), dict(counts), whole)]
    )
    path = tmp_path / "timed.html"
    path.write_text(page(data, streams), encoding="utf-8")
    script = """
      explore.columns.drawer.show("Time");
      return [...document.querySelectorAll("[data-share]")].map((row) => [row.textContent, Number(row.dataset.share)]);
    """
    rows = acted(path, script, tmp_path)
    assert len(rows) == len(counts) + 1 and rows[-1][0].startswith("between them")
    assert abs(sum(share for _, share in rows) - 1) < 1e-9 and abs(rows[-1][1] - 7 / whole) < 1e-9


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
            values = re.findall(r'"(?:[^"\\]|\\.)*"|(%[\w$.-]+)', text)
            for ours, theirs in zip(filter(None, values), line.names, strict=True):
                assert known.setdefault(theirs, ours) == ours, (name, text)
        assert len(set(known.values())) == len(known)
    for name, code in recorded.machine.items():
        assert [line.text for line in code] == found[name]["code"]


def test_a_sentences_tensors_are_what_they_are(recorded: Kept, tmp_path: Path) -> None:
    """Attention's weights add up to one, see no later token, and stand on the form of attention; the next token is what
    the program gives."""
    if recorded.target.kind != "cpu":
        pytest.skip("the program of the other target does not generate")
    assert recorded.artifact is not None
    weights = random_weights(recorded.artifact, seed=int(seeded.rng().integers(1 << 30)))
    tokens = [3, 17, 5, 30, 8]
    seen = sentence(recorded, tokens, weights, None)
    shown = [picture for picture in seen.pictures if picture.turned and picture.planes.shape == (2, 5, 5)]
    attention = [picture for picture in shown if picture.low == 0 and 0.3 < picture.high <= 1]
    assert len(attention) == 1  # of the last layer only the last token's row is wanted
    for picture in attention:
        cells = picture.low + picture.planes / LEVELS * (picture.high - picture.low)
        assert np.abs(cells.sum(-1) - 1).max() < 0.02 and not np.triu(picture.planes, 1).any()
        chains = {value: key for key, value in recorded.places.chains.items()}
        places = {value: key for key, value in recorded.places.places.items()}
        numbers = next(key for key, value in recorded.places.locations.items() if value == picture.location)
        own = [places[place] for number in numbers for place in chains[number]]
        lines = {line for file, line, _ in own if file.endswith("small.lisp")}
        assert 1 + PROGRAM[: PROGRAM.index("(attention")].count("\n") in lines
    shapes = {"logits": dict.fromkeys(("tokens", "positions"), (1, 5))}
    request = replace(recorded.request, target="cpu", entries=("logits",), inputs=shapes)
    with open_checked(artifact_of(request), weights) as session:
        logits = session.run("logits", tokens=[tokens], positions=[list(range(5))])["logits"].reshape(-1)
    odds = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    assert seen.probable[0][0] == int(np.argmax(logits))
    assert abs(seen.probable[0][2] - odds.max()) < 1e-4
    written = document(recorded, "lispgpt explore small.lisp", seen)
    assert len(written[1]["pictures"]) == sum(picture.planes.size for picture in seen.pictures)


def test_a_profiles_times_are_of_every_kernel(recorded: Kept) -> None:
    if recorded.target.kind != "cpu":
        pytest.skip("this machine runs CPU kernels")
    assert recorded.artifact is not None
    found = times(recorded.artifact, random_weights(recorded.artifact, seed=1), "cpu")
    for entry, each in zip(recorded.artifact.plan.entries, found, strict=True):
        assert set(each.kernels) == {launch.kernel for launch in entry.launches}
        assert each.whole > 0 and all(value >= 0 for value in each.kernels.values())


@pytest.mark.parametrize(("measured", "target"), [(True, "cuda:sm_90a"), (False, "cuda")])
def test_what_is_measured_is_what_runs_on_the_chip_that_is_there(
    measured: bool, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recorded_request(request: Request) -> Recording:
        raise UserError(f"asked for {request.target}")

    monkeypatch.setattr(present, "_asked", lambda question, *about: f"{about[0]}:sm_90a")
    monkeypatch.setattr(recording, "record", recorded_request)
    path = tmp_path / "small.lisp"
    path.write_text(PROGRAM)
    given = [str(path), "--target", "cuda", *(["--profile"] if measured else [])]
    with pytest.raises(UserError, match=f"asked for {target}$"):
        inspect.unwrap(explore.callback)(**explore.make_context("explore", given).params)


def test_kernels_that_share_a_body_show_its_machine_code(tmp_path: Path) -> None:
    path = tmp_path / "shared.lisp"
    entries = [f"(entry e{rows} [(x [{rows} 4] f32)] (softmax x))" for rows in (4, 8)]
    path.write_text("\n".join(["(require nn)", *entries]))
    shown = recorded_with_texts(Request(path, "cpu:x86-64-v3"))
    assert shown.artifact is not None and {*shown.machine} == {*shown.artifact.kernels} == {"rows_4x4", "rows_8x4"}
    assert shown.machine["rows_4x4"] == shown.machine["rows_8x4"] != ()


def test_what_stood_earlier_is_packed_once() -> None:
    """Each number of the list is one that a reader can go by alone, and repeats far apart take few bytes."""
    rng = seeded.rng()
    known = rng.bytes(100_000)
    pieces = [rng.bytes(int(rng.integers(0, 300))) for _ in range(40)]
    starts = rng.integers(0, 90_000, 40).tolist()
    data = known + b"".join(piece + known[start : start + 9_000] for piece, start in zip(pieces, starts, strict=True))
    for given in (b"", b"a", bytes(500), known[:64] * 3, data):
        numbers, new = without_repeats(given)
        assert joined(numbers, new) == given
    assert len(numbers) + len(new) < len(known) + sum(map(len, pieces)) + 40 * 2 * WINDOW


def joined(numbers: bytes, new: bytes) -> bytes:
    """The bytes that were packed."""
    found, values, value, shift = bytearray(), list[int](), 0, 0
    for byte in numbers:
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            values.append(value)
            value = shift = 0
    for fresh, again, distance in zip(*[iter(values)] * 3, strict=True):
        found += new[:fresh]
        new = new[fresh:]
        assert again <= distance <= len(found)
        found += found[len(found) - distance :][:again]
    assert not new
    return bytes(found)


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
    found = record(Request(path, "cpu", pipeline=pipeline, longest=16))
    assert found.failure is not None and found.artifact is None
    data, _ = document(found, "lispgpt explore wrong.lisp")
    assert data["failure"]["pass"] == len(found.seconds) + 1
    assert "plan-arena" in data["failure"]["message"]
    assert data["passes"][-1]["seconds"] is None


@needs_chromium
def test_a_page_ends_at_the_pass_that_refuses_the_program(tmp_path: Path) -> None:
    """With its message, and the form that it is about; what comes behind it did not run."""
    path = tmp_path / "two.lisp"
    store = "(memref.store (memref.load x (thread-id x)) x (thread-id x))"
    launch = "(launch k [1] [128] x (output (type x)))"
    path.write_text(f"(require-dialect memref)\n(kernel k [x y]\n  {store})\n(entry e [(x [128] f32)] {launch})\n")
    found = record(Request(path, "rocm:gfx1151"))
    target = tmp_path / "two.html"
    target.write_text(page(*document(found, "lispgpt explore two.lisp")), encoding="utf-8")
    script = """
      const text = (selector) => document.querySelector(selector)?.textContent;
      return { said: text("[role=alert]"), form: text(".lisp .form.failed"), pass: text(".pass.failed .name"),
        chosen: text('.pass[aria-selected="true"] .name'),
        folded: [...document.querySelectorAll(".fold")].map((each) => each.textContent) };
    """
    shown = acted(target, script, tmp_path)
    assert "two.lisp:3:3: error: the kernel k stores to a tensor" in shown["said"]
    assert shown["form"] == store
    assert shown["pass"] == shown["chosen"] == f"✗ {found.pipeline.calls[len(found.seconds)].name}"
    assert "passes did not run" in shown["folded"][-1]


def test_a_program_with_a_main_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "main.lisp"
    path.write_text("(defn main [] -> i32 (: 0 i32))")
    with pytest.raises(UserError, match="main"):
        record(Request(path, "cpu"))


FORMS = 30
PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)|"([^":]+):(\d+):(\d+)"\(')
STARTS = re.compile(r"(?:\.visible )?\.(?:entry|func) (?:\([^)]*\) )?(\w+)|([A-Za-z_]\w*):|[0-9a-f]+ <(\w+)>:")
"""Of a function in PTX, in AMD's assembly and in a disassembly."""
FUNCTION = re.compile(r"( +)(?:func\.func|gpu\.func|llvm\.func)\b[^@]*@(\w+)")


class Said:
    """Where MLIR itself says that the ops of each function are from, in what it prints: by nothing but putting the
    texts of its aliases in.

    functions: of each line the number of its chains in `origins`, -1 where no op without a body ends in it.
    """

    def __init__(self, text: str, origins: Origins) -> None:
        self._aliases = {m[1]: m[2] for m in re.finditer(r"^(#loc\d*) = loc\((.*)\)$", text, re.MULTILINE)}
        self._origins = origins
        self._known: dict[str, int] = {}
        self.functions: dict[str, array[int]] = {}
        numbers: array[int] | None = None
        for line in text.splitlines():
            starts = FUNCTION.match(line) if numbers is None else None
            if starts:
                end, name, numbers = f"{starts[1]}}}", starts[2], array("l")
            if numbers is not None:
                numbers.append(self._number(line))
                if line.startswith(end) or (len(numbers) == 1 and not line.endswith("{")):
                    self.functions[name], numbers = numbers, None

    def _number(self, line: str) -> int:
        at = line.rfind(" loc(#loc")
        if at < 0 or " {" in line or line[-1] != ")" or line.lstrip(" ")[0] in "}^":
            return -1
        alias = line[at + 5 : -1]
        if alias not in self._known:
            self._known[alias] = self._origins.setdefault(self._chains(alias), len(self._origins))
        return self._known[alias]

    def _chains(self, alias: str) -> tuple[Chain, ...]:
        text = alias
        while "#loc" in text:
            text = re.sub(r"#loc\d*", lambda found: self._aliases[found[0]], text)
        parts = re.split(r"fused(?:<[^\[]*>)?\[|, ", text)
        places = [[(m[1] or m[4], int(m[2] or m[5]), int(m[3] or m[6])) for m in PLACE.finditer(p)] for p in parts]
        found = (tuple(p for p in chain if p[0] != "-") for chain in places)
        return tuple(chain for chain in found if chain)


def _own(chain: Chain) -> Place:
    return next((place for place in chain if not place[0].startswith("lib/")), chain[0])


def _instructions(assembly: str) -> dict[str, list[Place]]:
    """By function the (file, line, column) of each instruction, column 0 where it is not said."""
    files = dict(re.findall(r'^\s*\.file\s+(\d+)\s+(?:".*" )?"(.*)"', assembly, re.MULTILINE))
    found: dict[str, list[Place]] = {}
    seen = dict(re.findall(r"^([0-9a-f]+) g +F \.text\s+\w+ (\w+)$", assembly, re.M))
    name, place = "", ("", 0, 0)
    for line in assembly.splitlines():
        if starts := STARTS.match(line):
            name, place = starts[1] or starts[2] or seen.get(line.split()[0], starts[3]), ("", 0, 0)
        elif said := re.match(r"\s+\.loc\s+(\d+) (\d+) (\d+)", line):
            place = (files[said[1]], int(said[2]), int(said[3])) if int(said[2]) else ("", 0, 0)
        elif said := re.match(r"(?:; )?(\S+\.lisp|\S*\?\?\S*|-):(\d+)", line):
            place = (said[1], int(said[2]), 0)
        elif re.match(r"\t[a-z]", line) or re.match(r" +[0-9a-f]+:\s+\w", line):
            found.setdefault(name, []).append(place)
        elif line.startswith(".Lfunc_end"):
            name = ""
    return found


@needs_chromium
def test_random_forms_light_up_what_their_places_say(
    recorded: Kept, written: tuple[dict[str, Any], Path], tmp_path: Path
) -> None:
    check_random_forms(recorded, *written, tmp_path)


LLAMA_1B = {"layers": 16, "width": 2048, "heads": 32, "kv-heads": 8, "hidden": 8192, "vocab": 128256, "context": 1024}
STEP = {"sizes": ({"batch": 8, "length": 1024},)}


@needs_chromium
@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "target", "settings", "asks"),
    [
        *(("gpt2_generate.lisp", target, {}, {}) for target in ("cpu", "rocm:gfx1151", "cuda:sm_90a")),
        ("llama_tiny.lisp", "cuda:sm_90a", LLAMA_1B | {"tied-head": True}, {}),
        ("gpt2_train.lisp", "cuda:sm_90a", {"activation-type": "bf16"}, STEP),
    ],
)
def test_random_forms_of_whole_models_light_up_what_their_places_say(
    program: str, target: str, settings: dict[str, Any], asks: dict[str, Any], tmp_path: Path
) -> None:
    """And their pages are small."""
    found = recorded_with_texts(Request(ROOT / "examples" / program, target, settings, **asks))
    data, streams = document(found, f"lispgpt explore {program}")
    path = tmp_path / "whole.html"
    path.write_text(page(data, streams), encoding="utf-8")
    assert path.stat().st_size < HIGHEST
    check_random_forms(found, data, path, tmp_path)


def check_random_forms(recorded: Kept, data: dict[str, Any], path: Path, tmp_path: Path) -> None:
    """In every pass and in machine code: the ops whose own locations name a form, and no others but those of which
    lowering has kept the first place and the model's own alone."""
    own = [(len(file["forms"]), i) for i, file in enumerate(data["files"]) if not file["library"]]
    number = max(own)[1]
    file = data["files"][number]
    forms = [list(file["forms"][i]) for i in seeded.rng().integers(0, len(file["forms"]), FORMS)]
    script = """
      const { model } = explore, locations = (lines) => lines.map((line) => line.location), functions = {};
      for (const name of Object.keys(model.data.functions)) {
        functions[name] = { steps: model.history(name).map((step) => [step.number, locations(step.after)]),
          code: locations(model.machine(name).filter((line) => /^[a-z]/.test(line.text) && !line.text.endsWith(":"))) };
        model.histories.delete(name);
      }
      const lit = %s.map(([start, end]) => {
        model.lightForm(%d, start, end);
        return model.data.locations.flatMap((_, location) => (model.isLit(location) ? [location] : []));
      });
      return { functions, lit };
    """
    found = acted(path, script % (forms, number), tmp_path)
    code = _instructions(recorded.assembly)
    ops, instructions = _shown_ops(recorded, found["functions"]), _shown_instructions(code, found["functions"])
    origins, judged = {number: chains for chains, number in recorded.origins.items()}, 0
    every = {chain for chains in recorded.origins for chain in chains}
    for (start, end), shown in zip(forms, found["lit"], strict=True):
        lit, inside = {*shown}, _inside(file["text"], start, end, file["name"])
        named = {chain for chain in every if inside & {*chain}}
        ends = {(chain[0], _own(chain)) for chain in named}
        says = {}
        for origin, chains in origins.items():
            kept = {(chain[0], _own(chain)) for chain in chains if len(chain) <= 2}
            says[origin] = not named.isdisjoint(chains), not ends.isdisjoint(kept)
        for (origin, location), (count, where) in ops.items():
            assert (location in lit) == any(says[origin]), (where, origins[origin])
            judged += count * says[origin][0]
        at = {(Path(name).name, line, each) for name, line, column in map(_own, named) for each in (0, column)}
        for (place, location), (count, where) in instructions.items():
            wanted = (Path(place[0]).name, *place[1:]) in at
            assert (location in lit) == wanted, (where, place)
            judged += count * wanted
    assert judged > 1000


Shown = dict[str, dict[str, list[Any]]]


def _shown_ops(recorded: Kept, functions: Shown) -> dict[tuple[int, int], tuple[int, Any]]:
    """By an op's origin and the location that the page gives it: how many there are in all passes, and where one is."""
    counts, where = Counter[tuple[int, int]](), dict[tuple[int, int], Any]()
    for name, shown in functions.items():
        for step, locations in shown["steps"]:
            lines = recorded.said[step].functions.get(name, array("l"))
            assert not lines or len(lines) == len(locations), (name, step)
            pairs = Counter(zip(lines, locations, strict=False))
            where |= dict.fromkeys(pairs, (name, step))
            counts.update(pairs)
    return {pair: (count, where[pair]) for pair, count in counts.items() if pair[0] >= 0}


def _shown_instructions(code: dict[str, list[Place]], functions: Shown) -> dict[tuple[Place, int], tuple[int, str]]:
    """By an instruction's place and the location that the page gives it: how many there are, and in which function."""
    counts, where = Counter[tuple[Place, int]](), dict[tuple[Place, int], str]()
    for name, shown in functions.items():
        places = code.get(name, [])
        if len(places) == len(shown["code"]):
            pairs = Counter(zip(places, shown["code"], strict=True))
            where |= dict.fromkeys(pairs, name)
            counts.update(pairs)
        else:
            assert not places or name.startswith("_mlir"), (name, len(places), len(shown["code"]))
    return {pair: (count, where[pair]) for pair, count in counts.items()}


def _inside(text: str, start: int, end: int, file: str) -> set[Place]:
    """All places of a file from start to end."""
    found = set()
    for at in range(start, end):
        line = text.count("\n", 0, at) + 1
        found.add((file, line, at - text.rfind("\n", 0, at)))
    return found
