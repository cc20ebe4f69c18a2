"""Products of few rows by tiles (lib/kernels/skinny.lisp, direct.lisp): weights in BF16, F32 and blocks, rows as they
are or normed, on the PTX interpreter and on AMD's emulator, against float64."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import rounded_to_bf16
from emulated_amd.running import Emulation
from emulated_cuda.entries import run
from few_rows import CHIPS, agrees, in_blocks, rms
from real_sizes import models

from lispgpt.base.dtypes import BLOCK_DTYPES, find_dtype
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.compiler.kernel_report import kernel_table
from lispgpt.language.core.library import LIBRARY
from lispgpt.pipelines.pipeline_file import pipeline_path
from lispgpt.runtime.checkpoints.blocks import widened
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject

pytestmark = pytest.mark.drawn

CHOICE = '(pass choose-tiles {{:use "{}" :copies "async"}})'


def layer(x: np.ndarray, g: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * g


FORMS: dict[str, tuple[str, Callable[..., np.ndarray]]] = {
    "plain": ("(* (linear x w) 1.0)", lambda v: v["x"] @ v["w"].T),
    "with what follows": ("(* (+ (linear x w) r) r)", lambda v: (v["x"] @ v["w"].T + v["r"]) * v["r"]),
    "of an rms norm": ("(+ (linear (rms-norm x g 1e-5) w) r)", lambda v: rms(v["x"], v["g"]) @ v["w"].T + v["r"]),
    "of a layer norm": (
        "(* (linear (layer-norm x g (* g 0.0) 1e-5) w) 1.0)",
        lambda v: layer(v["x"], v["g"]) @ v["w"].T,
    ),
    "of elements": ("(+ (linear (* x x) w) r)", lambda v: v["x"] ** 2 @ v["w"].T + v["r"]),
}


def values_of(rng: np.random.Generator, sizes: tuple[int, int, int], dtypes: tuple[str, str]) -> tuple[dict, dict]:
    """What is in memory, and what it stands for in float64."""
    rows, outputs, inner = sizes
    shapes = {"x": (rows, inner), "w": (outputs, inner), "g": (inner,), "r": (rows, outputs)}
    exact = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    stored = {}
    for name, values in exact.items():
        kind = dict(zip("xw", dtypes, strict=True)).get(name, "f32")
        if kind in BLOCK_DTYPES:
            stored[name] = in_blocks(rng, *shapes[name], kind)
            exact[name] = widened(stored[name].reshape(outputs, -1).view(find_dtype(kind).numpy), kind)
        elif kind == "bf16":
            exact[name] = rounded_to_bf16(values)
            stored[name] = (exact[name].view(np.uint32) >> 16).astype(np.uint16)
        else:
            stored[name] = values
    return stored, {name: np.asarray(values, np.float64) for name, values in exact.items()}


def made(
    folder: Path, form: str, sizes: tuple[int, int, int], dtypes: tuple[str, str], chip: str, choice: str
) -> tuple[Request, dict[str, np.ndarray], np.ndarray]:
    """The program's request, what its weights are in memory, and its result in float64."""
    rows, outputs, inner = sizes
    text, reference = FORMS[form]
    stored, exact = values_of(seeded.rng(), sizes, dtypes)
    shapes = {"x": [rows, inner], "w": [outputs, inner], "g": [inner], "r": [rows, outputs]}
    used = [name for name in shapes if f" {name} " in text.replace(")", " ")]
    types = dict(zip("xw", dtypes, strict=True))
    weights = " ".join(f"({n} [{' '.join(map(str, shapes[n]))}] {types.get(n, 'f32')})" for n in used)
    (folder / "p.lisp").write_text(
        f"(require nn)(config context 1)(weights {weights})(entry out [tokens positions] {text})"
    )
    (folder / "pipe.lisp").write_text(pipeline_path("gpu").read_text().replace("(pass choose-tiles)", choice, 1))
    request = Request(folder / "p.lisp", chip, pipeline=folder / "pipe.lisp")
    return request, {name: stored[name] for name in used}, reference(exact)


def check(
    chip: str, form: str, sizes: tuple[int, int, int], dtypes: tuple[str, str], folder: Path, use: str = "skinny"
) -> None:
    request, given, expected = made(folder, form, sizes, dtypes, chip, CHOICE.format(use))
    artifact, _ = compile_request(request, Observer())
    (entry,) = artifact.plan.entries
    # Where skinny.lisp's steps find no room, direct.lisp takes them.
    assert artifact.kernels[entry.launches[-1].kernel].get("tiles") in (use, "direct")
    found = run(artifact, entry, given) if chip.startswith("cuda") else Emulation(artifact, given).run(entry)
    agrees(found, expected, (chip, form, sizes, dtypes))


@pytest.mark.parametrize("kind", ["bf16", "f32", *BLOCK_DTYPES])
@pytest.mark.parametrize("chip", CHIPS)
def test_few_rows_of_every_kind_of_weights(chip: str, kind: str, tmp_path: Path) -> None:
    """Rows, weights' rows and sums that fill no tile."""
    rng = seeded.rng()
    inner = int(rng.integers(1, 7)) * max(32, find_dtype(kind).block)
    sizes = int(rng.integers(2, 17)), int(rng.integers(16, 120)), inner
    check(chip, str(rng.choice(list(FORMS))), sizes, (str(rng.choice(["f32", "f32", "bf16"])), kind), tmp_path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chip", [CHIPS[0], CHIPS[3]])
def test_rows_of_every_form(chip: str, form: str, tmp_path: Path) -> None:
    rng = seeded.rng()
    sizes = int(rng.integers(2, 17)), int(rng.integers(16, 100)), 32 * int(rng.integers(3, 40))
    check(chip, form, sizes, ("f32", "bf16"), tmp_path)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip != "rocm:gfx942"])
def test_rows_whose_weights_lanes_load(chip: str, form: str, tmp_path: Path) -> None:
    """By lib/kernels/direct.lisp: of one to many steps, which end anywhere but within what a lane loads at once."""
    rng = seeded.rng()
    inner = {"cuda": 8, "rocm": 16}[chip[:4]] * int(rng.integers(40, 160))
    sizes = int(rng.integers(2, 17)), int(rng.integers(16, 100)), inner
    kinds = str(rng.choice(["f32", "bf16"])), str(rng.choice(["f32", "bf16"]))
    check(chip, form, sizes, kinds, tmp_path, "direct")


@pytest.mark.parametrize("kind", BLOCK_DTYPES)
@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip != "rocm:gfx942"])
def test_blocks_that_lanes_load(chip: str, kind: str, tmp_path: Path) -> None:
    """Weights in blocks, in whole steps of which each member has some."""
    if chip.startswith("rocm") and kind in ("q4_k", "q5_k", "k_mix"):
        pytest.skip("skinny.lisp takes these on RDNA, whose scales leave lanes too few registers")
    rng = seeded.rng()
    sizes = int(rng.integers(2, 17)), int(rng.integers(16, 100)), 2048 * int(rng.integers(1, 3))
    check(chip, str(rng.choice(list(FORMS))), sizes, (str(rng.choice(["f32", "bf16"])), kind), tmp_path, "direct")


@pytest.mark.parametrize("kind", ["q6_k", "int8"])
def test_steps_are_of_whole_words(kind: str, tmp_path: Path) -> None:
    """Also where one block is none: a step that began within a word would load from where none begins."""
    rng = seeded.rng()
    text = (LIBRARY / "kernels" / "direct.lisp").read_text()
    tilings = text[text.index("(def tilings") : text.index("; [rows sharing]")]
    short = f"(def tilings [[16 1 {find_dtype(kind).block // 32} 1 1]])\n"
    (tmp_path / "mine.lisp").write_text(text.replace(tilings, short).replace("(schedule direct", "(schedule mine"))
    sizes = int(rng.integers(2, 9)), int(rng.integers(16, 60)), 2048
    request, given, expected = made(tmp_path, "plain", sizes, ("f32", kind), "cuda:sm_90a", CHOICE.format("direct"))
    request = replace(request, schedules=[tmp_path / "mine.lisp"])
    artifact, _ = compile_request(request, Observer())
    (entry,) = artifact.plan.entries
    assert (artifact.kernels[entry.launches[-1].kernel].get("tiles") == "mine") == (kind == "int8")
    agrees(run(artifact, entry, given), expected, (kind, sizes))


@pytest.mark.parametrize("form", ["plain", "with what follows"])
@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip != "rocm:gfx942"])
def test_a_short_k_is_loaded_at_once(chip: str, form: str, tmp_path: Path) -> None:
    """All of it ahead of the first instruction, also where subgroups have no equal parts of it."""
    rng = seeded.rng()
    sizes = int(rng.integers(2, 17)), int(rng.integers(16, 100)), 64 * int(rng.integers(4, 12))
    request, given, expected = made(tmp_path, form, sizes, ("f32", "bf16"), chip, CHOICE.format("direct"))
    stages: list[str] = []
    artifact, _ = compile_request(request, Observer(print_after=["choose-tiles"], show=stages.append))
    assert '"tile.operand"' in stages[0] and "scf.for" not in stages[0]
    (entry,) = artifact.plan.entries
    found = run(artifact, entry, given) if chip.startswith("cuda") else Emulation(artifact, given).run(entry)
    agrees(found, expected, (chip, form, sizes))


@pytest.mark.parametrize("chip", [chip for chip in CHIPS if chip != "cuda:sm_90a"])
def test_pipelines_give_few_rows_to_tiles(chip: str, tmp_path: Path) -> None:
    """Where none is chosen by time: of two dimensions of k, batches, rows that are normed, results that are turned."""
    rng = seeded.rng()
    rows, outputs, inner = int(rng.integers(4, 17)), 16 * int(rng.integers(20, 40)), 128 * int(rng.integers(4, 9))
    half, norm = inner // 2, "(rms-norm x g 1e-5)"
    shapes = {
        "a": f"[(x [{rows} {inner}] f32) (w [{outputs} {inner}] bf16)] (linear x w)",
        "b": f"[(x [{rows} 2 {half}] f32) (w [{outputs} 2 {half}] bf16)] (contract [n o] x [n a i] w [o a i])",
        "c": f"[(x [2 {rows} {inner}] bf16) (w [2 {outputs} {inner}] bf16)] (contract [g n o] x [g n i] w [g o i])",
        "d": f"[(g [{inner}] f32) (x [{rows} {inner}] f32) (w [{outputs} {inner}] bf16)] (linear {norm} w)",
        "e": f"[(x [{rows} {inner}] f32) (w [{outputs} {inner}] bf16)] (contract [o n] x [n i] w [o i])",
    }
    program = tmp_path / "p.lisp"
    program.write_text("\n".join(["(require nn)", *(f"(entry {name} {form})" for name, form in shapes.items())]))
    artifact, _ = compile_request(Request(program, chip), Observer())
    last = {entry.name: artifact.kernels[entry.launches[-1].kernel].get("tiles") for entry in artifact.plan.entries}
    assert set(last.values()) <= {"direct", "skinny", "matmul"} and set(last) == set(shapes), str(last)


@pytest.mark.parametrize("kind", ["bf16", *BLOCK_DTYPES])
@pytest.mark.parametrize("chip", ["gfx942", "gfx1151", "gfx1201"])
def test_lanes_keep_to_their_registers(chip: str, kind: str, tmp_path: Path) -> None:
    """At widths of models that people run; behind norms, too, where what norms multiply by is on its way as well."""
    block, rng = find_dtype(kind).block, seeded.rng()
    known = sorted({each["width"] for each in models.sizes().values() if each["width"] % block == 0})
    widths = {1536, 3072, int(rng.choice(known))} if block > 1 else {1600, 3072, int(rng.choice(known))}
    shapes = [(rows, width, columns) for width in widths for rows, columns in ((8, 1600), (16, width), (2, 8192))]
    given = {2: "(rms-norm x g 1e-5)", 8: "x", 16: "(* x g)"}
    weights = [f"(weights (w{n} [{o} {k}] {kind}))" for n, (_, k, o) in enumerate(shapes)]
    forms = [
        f"(entry e{n} [(x [{r} {k}] f32) (g [{k}] f32)] (linear {given[r]} w{n}))" for n, (r, k, _) in enumerate(shapes)
    ]
    program = tmp_path / "products.lisp"
    program.write_text("\n".join(["(require nn)", *weights, *forms]))
    artifact, _ = compile_request(Request(program, f"rocm:{chip}"), Observer())
    code = CodeObject(artifact.code, chip)
    kernels = {launch.kernel for entry in artifact.plan.entries for launch in entry.launches}
    assert {name: code.descriptor(name).private_bytes for name in kernels} == dict.fromkeys(kernels, 0)


@pytest.mark.parametrize("chip", CHIPS)
def test_blocks_of_fewer_rows_than_there_are_to_multiply(chip: str, tmp_path: Path) -> None:
    """As where a prompt is sent to eight experts: what there are few of is in blocks."""
    rng = seeded.rng()
    sizes = int(rng.integers(16, 40)), int(rng.integers(2, 9)), 256 * int(rng.integers(1, 3))
    kind = str(rng.choice(BLOCK_DTYPES))
    request, given, expected = made(tmp_path, "plain", sizes, ("f32", kind), chip, "(pass choose-tiles)")
    artifact, _ = compile_request(request, Observer())
    (entry,) = artifact.plan.entries
    found = run(artifact, entry, given) if chip.startswith("cuda") else Emulation(artifact, given).run(entry)
    agrees(found, expected, (chip, sizes, kind))


def test_schedules_are_chosen_by_time_and_say_so(tmp_path: Path) -> None:
    """Every schedule says what it would take, or why it takes no part; none is first by its place in a pipeline."""
    request, _, _ = made(tmp_path, "plain", (8, 8192, 2048), ("f32", "int8"), "cuda:sm_90a", "(pass choose-tiles)")
    artifact, _ = compile_request(request, Observer())
    (facts,) = artifact.kernels.values()
    offers = {offer["schedule"]: offer for offer in facts["offers"]}
    times = {name: offer["us"] for name, offer in offers.items() if "us" in offer}
    best = min(times, key=times.__getitem__)
    assert facts["chosen"] == facts["tiles"] == best == "direct" and len(times) > 2
    assert "boxes" in offers["schedule-gpu-warpgroups"]["refused"]
    table = kernel_table(artifact, "")
    assert f"{best} {times[best]:.1f} us (taken)" in table and "schedule-gpu-warpgroups leaves it" in table
    text = pipeline_path("gpu").read_text()
    lines = ['    (pass choose-tiles {:use "direct skinny" :copies "async"})\n', "    (pass schedule-gpu-warpgroups)\n"]
    turned = text.replace("".join(lines), "".join(reversed(lines)))
    assert turned != text
    (tmp_path / "pipe.lisp").write_text(turned)
    again, _ = compile_request(request, Observer())
    assert again.code == artifact.code


def test_short_loops_stay_loops_where_registers_are_few(tmp_path: Path) -> None:
    """Six steps of sixty-four rows were written out, and 25 registers of each lane spilled."""
    request, *_ = made(tmp_path, "plain", (64, 768, 768), ("bf16", "q4_0"), "rocm:gfx1201", "(pass choose-tiles)")
    artifact, _ = compile_request(replace(request, precision="fast"), Observer())
    ((name, facts),) = artifact.kernels.items()
    assert facts["tiles"] == "skinny"
    assert CodeObject(artifact.code, "gfx1201").descriptor(name).private_bytes == 0


CROWDED = """
(defn time [p blocks] (tile.direct-nanoseconds p [32 16] [64 8] 1 blocks))
(schedule crowded [kernel]
  {:takes (let [p (tile.transposed kernel)] (> (time p 2) (* 2 (time p 1))))}
  (let [p (tile.transposed kernel)
        [batch row column] (tile.task p [32 16])]
    (tile.pipeline p 1 (ceil-div (tile.inner p) 512)
      (fn [n] [(tile.direct (tile.box (tile.left p) [batch row (* n 512)] [32 512]) "a")
               (tile.direct (tile.box (tile.right p) [batch column (* n 512)] [16 512]) "b")])
      (fn [] (tile.sums p [32 16] 8 [1 1] "subgroup"))
      (fn [sums [a b]] (tile.mma p sums a b))
      (fn [sums] (tile.store p (tile.add-parts p sums) [batch row column])))))
"""


def test_tiles_without_room_in_registers_are_slow(tmp_path: Path) -> None:
    """16 rows of 4096 numbers took three times as long where lanes had 128 registers for what took 180."""
    request, _, _ = made(tmp_path, "plain", (16, 6144, 4096), ("f32", "bf16"), "cuda:sm_90a", "(pass choose-tiles)")
    (tmp_path / "crowded.lisp").write_text(CROWDED)
    artifact, _ = compile_request(replace(request, schedules=[tmp_path / "crowded.lisp"]), Observer())
    (facts,) = artifact.kernels.values()
    assert facts["tiles"] == "crowded", facts


def test_operands_of_three_tensors_are_not_loaded_at_once(tmp_path: Path) -> None:
    """Of 5120 numbers of each, all on their way together, 1868 bytes of each thread were in memory."""
    program = tmp_path / "products.lisp"
    given = " ".join(f"({name} [8 5120] f32)" for name in "xyz")
    program.write_text(f"""(require nn) (weights (w [2560 5120] bf16))
(entry three [{given}] (linear (* (+ x y) (silu z)) w))""")
    artifact, _ = compile_request(Request(program, "cuda:sm_90a"), Observer())
    (facts,) = artifact.kernels.values()
    loads = re.findall(r"ld\.global(?:\.\w+)*?\.v(\d)\.b32", artifact.code.decode())
    assert facts["tiles"] == "direct" and 0 < sum(map(int, loads)) < 255
