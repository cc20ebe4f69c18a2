"""Kernels written in Lisp, beside the library's layers: run on the CPU, and compiled for GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import recorded
import seeded
from compiled_models import Weights, compile_model, open_poisoned, random_weights, step

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.artifact import Artifact

VOCAB, WIDTH, OUT = 50, 37, 21
PROGRAM = f"""
(require nn kernels)
(require-dialect arith gpu memref vector)
(config context 16)
(weights (table [{VOCAB} {WIDTH}]) (scale [{WIDTH}]) (shift [{WIDTH}]) (w [{OUT} {WIDTH}] bf16)
         (wide [{VOCAB} 64]) (narrow [64] bf16))
(kernel add-four [x b y]
  (let [row (block-id x)
        column (* (thread-id x) 4)
        four (vector.load {{:result vector<4xf32>}} x row column)
        more (arith.extf {{:result vector<4xf32>}} (vector.load {{:result vector<4xbf16>}} b column))]
    (vector.store (exp (+ four more)) y row column)))
(entry vectors-by-hand [tokens positions]
  (let [x (rows wide tokens)]
    (launch add-four [(dim x 0)] [16] x narrow (output (type x)))))
(entry vectors-by-library [tokens positions] (elementwise exp (+ (rows wide tokens) narrow)))
(entry softmax-by-hand [tokens positions] (hand-softmax (rows table tokens)))
(entry softmax-by-library [tokens positions] (softmax (rows table tokens)))
(entry norm-by-hand [tokens positions] (hand-layer-norm (rows table tokens) scale shift))
(entry norm-by-library [tokens positions] (layer-norm (rows table tokens) scale shift))
(entry linear-by-hand [tokens positions] (hand-linear (rows table tokens) w))
(entry linear-by-library [tokens positions] (linear (rows table tokens) w))
(entry chain [tokens positions]
  (let [x (rows table tokens)
        part (slice x [0 3] [(dim x 0) 30])
        y (+ (hand-softmax part) part)]
    (hand-softmax (* (hand-layer-norm y (slice scale [2] [30]) (slice shift [3] [30]) 1e-5) 2.0))))
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("kernels") / "layers.lisp"
    path.write_text(PROGRAM)
    return path


@pytest.fixture(scope="module")
def artifact(program: Path) -> Artifact:
    return compile_model(program)


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def expected(weights: Weights, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Each entry's value in float64."""
    w = weights.exact()
    x = w["table"][tokens]
    part = x[:, 3:33]
    inner = layer_norm(softmax(part) + part, w["scale"][2:32], w["shift"][3:33])
    return {
        "softmax": softmax(x),
        "norm": layer_norm(x, w["scale"], w["shift"]),
        "linear": x @ w["w"].T,
        "vectors": np.exp(w["wide"][tokens] + w["narrow"]),
        "chain": softmax(inner * 2.0),
    }


@pytest.mark.parametrize("rows", [1, 16])
def test_values_on_the_cpu(artifact: Artifact, rows: int) -> None:
    weights = random_weights(artifact)
    tokens = seeded.rng().integers(0, VOCAB, rows)
    wanted = expected(weights, tokens)
    names = [f"{name}-by-{how}" for name in ("softmax", "norm", "linear", "vectors") for how in ("hand", "library")]
    with open_poisoned(artifact, weights) as session:
        for entry in [*names, "chain"]:
            (found,) = (v for k, v in step(session, tokens, np.arange(rows), entry).items() if k.endswith(entry))
            right = wanted[entry.partition("-by-")[0]]
            np.testing.assert_allclose(found.reshape(right.shape), right, rtol=2e-5, atol=2e-5, err_msg=entry)


def test_kernels_are_launches_of_their_own(artifact: Artifact) -> None:
    entry = next(e for e in artifact.plan.entries if e.name == "norm-by-hand" and e.sizes.get("positions") == 16)
    assert [launch.kernel.startswith("row_layer_norm") for launch in entry.launches] == [False, True]
    assert entry.launches[-1].grid[0] == 16


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["rocm:gfx1151", "rocm:gfx942", "cuda:sm_90"])
def test_compiles_for_gpus(program: Path, target: str) -> None:
    made, _ = compile_request(Request(program, target=target), Observer())
    entry = next(e for e in made.plan.entries if e.name == "norm-by-hand" and e.sizes.get("positions") == 16)
    launch = entry.launches[-1]
    assert (tuple(launch.grid), tuple(launch.block)) == ((16, 1, 1), (64 if target == "rocm:gfx942" else 32, 1, 1))
    entry = next(e for e in made.plan.entries if e.name == "linear-by-hand" and e.sizes.get("positions") == 16)
    assert (tuple(entry.launches[-1].grid), tuple(entry.launches[-1].block)) == ((2, 1, 1), (16, 16, 1))
    assert b"row_softmax" in made.code


def test_gpt2_by_hand_gives_the_same_tokens(tmp_path: Path, examples: Path) -> None:
    text = (examples / "gpt2.lisp").read_text().replace("(require nn)", "(require nn kernels)")
    for name in ("layer-norm", "linear", "matmul-transposed"):
        text = text.replace(f"({name} ", f"(hand-{name} ")
    text += "(generate logits {:max-new-tokens 5})"
    (tmp_path / "by-hand.lisp").write_text(text)
    shape = Gpt2Shape.unpadded(vocab=131, context=40, layers=2, heads=2, width=24)
    make(tmp_path / "model.bin", shape, "llmc", "bf16", seeded.fresh_seed())
    prompt = [int(t) for t in seeded.rng().integers(0, shape.vocab, 18)]
    logits = []
    for program in (tmp_path / "by-hand.lisp", examples / "gpt2_generate.lisp"):
        with recorded.open_session(program, tmp_path / "model.bin") as session:
            generator = Generator(session, "logits", sampler=lambda row: logits.append(row.copy()) or 7)
            list(generator.generate(prompt, 3))
    by_hand, by_library = logits[: len(logits) // 2], logits[len(logits) // 2 :]
    assert len(by_hand) == len(by_library) == 3
    np.testing.assert_allclose(by_hand, by_library, atol=1e-4)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(launch row-softmax [1] [32] x x 4)", "says what it makes"),
        ("(launch row-softmax [1] [32] x (output 3) 4)", "`output` wants a tensor type"),
        ("(launch row-softmax [1 1 1 1] [32] x (output (type x)) 4)", "where sizes are wanted"),
        ("(launch row-softmax [0] [32] x (output (type x)) 4)", "sizes from 1 to"),
        ("(launch row-softmax [1] [64 64] x (output (type x)) 4)", "at most 1024 threads"),
        ("(launch (fn [x y] (launch row-softmax [1] [32] x y 4)) [1] [32] x (output (type x)))", "no other kernel"),
        ("(launch (fn [x y] y) [1] [32] x (output (type x)))", "writes nothing"),
        ("(output (tensor-type [1e9 4] f32))", "`tensor-type` wants sizes"),
        ("(output (tensor-type [4] memref<4xf32>))", "`tensor-type` wants sizes"),
        ("(launch x [1] [32] x)", "wants a kernel"),
        ("(launch row-softmax [1] [(capability subgroup)] x (output (type x)) 4)", "did you mean `subgroup-size`"),
        ("(let [m (shared [4] f32)] x)", "inside a kernel only"),
        ("(launch (fn [x y] (shared [12000] f32) (shared [600] bf16)) [1] [32] x (output (type x)))", "makes 49200"),
    ],
)
def test_mistakes(tmp_path: Path, body: str, message: str) -> None:
    path = tmp_path / "wrong.lisp"
    path.write_text(
        f"(require nn kernels) (weights (table [9 4])) (entry e [tokens] (let [x (rows table tokens)] {body}))"
    )
    with pytest.raises(UserError, match=message):
        compile_model(path)


PART = """(require-dialect arith gpu memref tensor)
(state (memory [4 40]))
(kernel add-one [m]
  (let [i (thread-id x)]
    (memref.store (+ (memref.load m 0 i) 1.0) m 0 i)))
(entry step [(x [1])]
  (let [old (read-state memory)
        new (launch add-one [1] [8] (in-place (slice old [1 START] [ROWS 8])))]
    (update! memory (tensor.insert_slice
      {:static_offsets array<i64: 1, START> :static_sizes array<i64: ROWS, 8> :static_strides array<i64: 1, 1>
       :operandSegmentSizes array<i32: 1, 1, 0, 0, 0>} new old))
    {:memory new}))
"""


@pytest.mark.parametrize(
    ("start", "rows", "said"),
    [(3, 1, r"starts at element 43 .* for the alignment of vectors .* a multiple of 8"), (8, 2, "lie together")],
)
def test_a_part_that_cannot_change_in_place_is_told_why(start: int, rows: int, said: str, tmp_path: Path) -> None:
    path = tmp_path / "part.lisp"
    path.write_text(PART.replace("START", str(start)).replace("ROWS", str(rows)))
    with pytest.raises(UserError, match=said) as caught:
        compile_model(path)
    assert str(caught.value.span).endswith("part.lisp:8:13")


def test_an_aligned_part_changes_in_place(tmp_path: Path) -> None:
    path = tmp_path / "part.lisp"
    path.write_text(PART.replace("START", "8").replace("ROWS", "1"))
    with open_poisoned(compile_model(path), Weights({})) as session:
        session.forget()
        for count in (1, 2):
            assert (session.run("step", [0])["memory"] == count).all()


def test_long_vectors_wait_where_they_are_aligned(tmp_path: Path) -> None:
    """Threads of a CPU that wait for each other keep them in memory meanwhile, in stores of aligned vectors."""
    path = tmp_path / "waits.lisp"
    path.write_text("""
(require kernels)
(require-dialect arith gpu memref vector)
(kernel turned [x y]
  (let [row (vector.load {:result vector<64xf32>} x (thread-id x) (: 0 index))
        own (memref.load x (thread-id x) (: 1 index))
        all (across-lanes + own)]
    (vector.store (* row (vector.broadcast {:result vector<64xf32>} all)) y (thread-id x) (: 0 index))))
(entry e [(x [32 64] f32)] (launch turned [1] [32] x (output (type x))))
""")
    x = seeded.rng().standard_normal((32, 64)).astype(np.float32)
    artifact, _ = compile_request(Request(path, "cpu"), Observer())
    with open_poisoned(artifact, Weights({})) as session:
        (found,) = session.run("e", x=x).values()
    np.testing.assert_allclose(found, x * x[:, 1].sum(dtype=np.float64), rtol=1e-4, atol=1e-5)
