"""What is computed of weights alone: kernels of its own, launched once, whose results entries read; against float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, random_weights
from emulated_cuda.device import EmulatedCuda
from golden_ir import FOLDER, Golden
from made_weights import Mark, compile_marked, everything, products

from lispgpt.ir.mlir import ir, new_context
from lispgpt.ir.structure import kernel_functions
from lispgpt.passes.kernels.kernel import constant_arguments
from lispgpt.runtime.devices.checked import CheckedCpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

LAYERS = """(require nn)
(config layers 3  width 96  outputs 40)
(weights (per layers (w [outputs width] bf16) (v [width]) (b [outputs])) (scale [outputs]))
(entry out [(x [batch outputs] f32)] {{:shapes [{{batch 2}} {{batch 33}}]}}
  (fold (fn [x l] (* (sin (+ x (+ {folded} (b l)))) scale)) x (range layers)))
"""
VECTOR = "(contract [a] (w l) [a k] (v l) [k])"
ROW = "(reshape (contract [z a] (reshape (v l) [1 width]) [z k] (w l) [a k]) [outputs])"


def layers(x: np.ndarray, a: dict[str, np.ndarray]) -> np.ndarray:
    for w, v, b in zip(a["w"], a["v"], a["b"], strict=True):
        x = np.sin(x + (w @ v + b)) * a["scale"]
    return x


def check(artifact: Artifact, weights: Weights, session: Session) -> None:
    rng, seed = seeded.named_rng()
    with session:
        for batch in (2, 33, 2):
            x = rng.normal(size=(batch, 40))
            found = session.run("out", x)["out"]
            np.testing.assert_allclose(found, layers(x, weights.exact()), rtol=1e-5, atol=1e-5, err_msg=seed)


@pytest.mark.parametrize("mark", [products, everything])
@pytest.mark.parametrize("folded", [VECTOR, ROW])
def test_layers_on_the_cpu(folded: str, mark: Mark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = compile_marked(LAYERS.format(folded=folded), tmp_path, monkeypatch, mark=mark)
    weights, device = random_weights(artifact), CheckedCpuDevice(2)
    check(artifact, weights, Session(artifact, device, weights))  # type: ignore[arg-type]
    making = artifact.plan.making
    assert making is not None
    assert device.checked == len(making.launches) + sum(len(e.launches) * n for e, n in counted(artifact))


def counted(artifact: Artifact) -> list[tuple[object, int]]:
    return [(entry, 2 if entry.sizes["batch"] == 2 else 1) for entry in artifact.plan.entries]


@pytest.mark.parametrize("folded", [VECTOR, ROW])
def test_layers_on_a_gpu(folded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = compile_marked(LAYERS.format(folded=folded), tmp_path, monkeypatch, "cuda:sm_90a")
    assert {len(entry.launches) for entry in artifact.plan.entries} == {4}
    assert artifact.plan.making is not None and len(artifact.plan.making.launches) == 3
    weights = random_weights(artifact)
    check(artifact, weights, Session(artifact, EmulatedCuda(), weights))  # type: ignore[arg-type]


def test_all_layers_are_made_by_one_kernel_in_one_buffer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in ("cuda:sm_90a", "rocm:gfx942", "cpu"):
        artifact = compile_marked(LAYERS.format(folded=VECTOR), tmp_path, monkeypatch, target, everything)
        (made,) = (buffer for buffer in artifact.plan.buffers if buffer.kind == "made")
        assert (made.shape, made.dtype) == ((3, 40), "f32") and made.name.startswith("made/w+v+b.")
        making = artifact.plan.making
        assert making is not None
        assert len(making.launches) == 3 and len({launch.kernel for launch in making.launches}) == 1
        assert "schedule" not in artifact.kernels[making.launches[0].kernel], "a special schedule takes it"
        for entry in artifact.plan.entries:
            read = {a.buffer for launch in entry.launches for a in launch.arguments}
            assert made.name in read and not read & {"w", "v", "b"}


def test_what_is_made_is_constant_to_those_who_read_it() -> None:
    """Entries may read it ahead of their own launches' ends, though a launch of what makes it has written it."""
    golden = Golden.read(FOLDER / "emit-plan" / "making.mlir")
    with new_context() as context, ir.Location.unknown():
        module = ir.Module.parse(golden.before, context)
        (kernel,) = kernel_functions(module)
        first, _ = kernel.regions[0].blocks[0].arguments
        assert constant_arguments(module)(kernel) == {first}


def test_names_say_what_is_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Alike in artifacts of one program, and different where something else is computed."""

    def names(text: str, mark: Mark) -> set[str]:
        artifact = compile_marked(text, tmp_path, monkeypatch, mark=mark)
        return {buffer.name for buffer in artifact.plan.buffers if buffer.kind == "made"}

    program = LAYERS.format(folded=VECTOR)
    first = names(program, products)
    assert first == names(program.replace("{batch 2} {batch 33}", "{batch 7}"), products)
    others = [names(program, everything), names(program.replace("layers 3", "layers 2"), products)]
    others.append(names(LAYERS.format(folded=ROW), products))
    assert not first & set().union(*others)


LEFT = """(require nn)
(weights (w [6 8]) (v [8]) (u [8]) (table [4 8]))
(entry grow [] (do (update! v (* v 2.0)) {:grow (contract [a] w [a k] v [k])}))
(entry out [(i [1] i32)]
  {:changing (contract [a] w [a k] v [k])
   :given (contract [z a] (rows table i) [z k] w [a k])
   :apart (contract [a] w [a k] u [k])
   :twice (contract [a] w [a k] (elementwise (fn [x] (* x x)) u) [k])})
"""


@pytest.mark.parametrize("mark", [products, everything])
def test_what_reads_inputs_or_weights_that_change_stays(
    mark: Mark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = compile_marked(LEFT, tmp_path, monkeypatch, mark=mark)
    made = [buffer for buffer in artifact.plan.buffers if buffer.kind == "made"]
    assert len(made) == (1 if mark is products else 2)
    weights = random_weights(artifact)
    a = weights.exact()
    with Session(artifact, CheckedCpuDevice(2), weights) as session:  # type: ignore[arg-type]
        for scale in (1, 2, 4):
            found = session.run("out", np.array([2]))
            wanted = {
                "changing": a["w"] @ a["v"] * scale,
                "given": (a["w"] @ a["table"][2])[None],
                "apart": a["w"] @ a["u"],
                "twice": a["w"] @ a["u"] ** 2,
            }
            for name, values in wanted.items():
                np.testing.assert_allclose(found[name], values, rtol=1e-5, atol=1e-5, err_msg=name)
            session.run("grow")
