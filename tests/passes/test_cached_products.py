"""Products whose kernels put keys and values into the cache: the PTX, run on numpy, against float64."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from compiled_models import compile_text, poison, random_weights
from emulated_cuda.device import EmulatedCuda

from lispgpt.compiler.driver import Observer, Request, compile_request, emit
from lispgpt.passes.targets import GPU_CHIPS, shared_steps, warpgroup_tiles
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

PIPELINE = Path(__file__).parents[2] / "passes" / "pipelines" / "gpu.lisp"
PROGRAM = """
(require nn)
(config context {context} cache-type {cache})
(weights (table [50 {inner}]) (w [{columns} {inner}] bf16) (b [{columns}]))
(state (kv {state} cache-type))
(entry out [tokens positions]
  (let [n (dim tokens 0)
        qkv {made}
        part (fn [i first heads] (slice (reshape qkv [n {outer} {size}]) [0 first 0] [n heads {size}]))
        of-head (fn [i] (slice (reshape qkv [n {heads} 3 {size}]) [0 0 i 0] [n {heads} nil {size}]))]
    (attend {parts} (kv 0))))
"""
LINEAR = "(linear (rows table tokens) w b)"
PACKED = "(part 0 0 {heads}) (part 1 {heads} {groups}) (part 2 (+ {heads} {groups}) {groups})"
BY_HEAD = "(of-head 0) (of-head 1) (of-head 2)"


def text(
    heads: int = 2,
    size: int = 64,
    groups: int | None = None,
    parts: str = PACKED,
    cache: str = "f32",
    batch_first: bool = True,
    inner: int = 64,
    context: int = 80,
    made: str = LINEAR,
) -> str:
    groups = groups or heads
    numbers = {"heads": heads, "size": size, "groups": groups, "inner": inner, "context": context, "cache": cache}
    state = f"[1 {'batch 2' if batch_first else '2 batch'} {groups} context {size}]"
    outer = heads + 2 * groups
    given = {"state": state, "outer": outer, "columns": outer * size, "made": made, "parts": parts.format(**numbers)}
    return PROGRAM.format(**numbers, **given)


def compiled(
    folder: Path,
    program: str,
    positions: int = 64,
    batch: int = 1,
    options: str = "",
    precision: str = "exact",
) -> Artifact:
    sizes = [{"batch": batch, "positions": positions}]
    pipeline = folder / "mine.lisp"
    scheduled = f"schedule-gpu-warpgroups {{{options}}})"
    pipeline.write_text(
        PIPELINE.read_text().replace("(pass choose) ", "").replace("schedule-gpu-warpgroups)", scheduled)
    )
    return compile_text(
        program, folder, target="cuda:sm_90a", sizes=sizes, batch=batch, precision=precision, pipeline=pipeline
    )


def launches(artifact: Artifact) -> list[str]:
    return [launch.kernel for launch in artifact.plan.entries[-1].launches]


@dataclass(frozen=True)
class Heads:
    """What a program's product has in a row.  by_head: of each head its query, key and value.  parts_first: whether the
    cache has all keys ahead of all values.  doubled: whether queries are made from twice as much."""

    heads: int = 2
    size: int = 64
    groups: int = 0
    by_head: bool = False
    parts_first: bool = False
    doubled: bool = False

    def split(self, a: dict[str, np.ndarray], tokens: np.ndarray) -> list[np.ndarray]:
        """Queries, keys and values, each [batch rows heads size]."""
        x, shape = a["table"][tokens], (*tokens.shape, -1, self.size)
        made = (x @ a["w"].T + a["b"]).reshape(shape)
        if self.by_head:
            return list(np.moveaxis(made.reshape(*tokens.shape, self.heads, 3, self.size), 3, 0))
        q, k, v = np.split(made, [self.heads, self.heads + (self.groups or self.heads)], axis=2)
        if self.doubled:
            q = (2 * x @ a["w"].T + a["b"]).reshape(shape)[:, :, : self.heads]
        return [q, k, v]

    def attended(self, q: np.ndarray, cache: np.ndarray, places: np.ndarray) -> np.ndarray:
        """What queries at such positions make of a cache, [batch 2 groups context size]."""
        keys, values = (np.repeat(cache[:, i], self.heads // cache.shape[2], axis=1) for i in (0, 1))
        scores = np.einsum("bqhd,bhtd->bhqt", q, keys) / np.sqrt(self.size)
        scores = np.where(np.arange(keys.shape[2]) <= places[:, None, :, None], scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return np.einsum("bhqt,bhtd->bqhd", weights / weights.sum(-1, keepdims=True), values)

    def batch_first(self, cache: np.ndarray) -> np.ndarray:
        """A layer's cache as [batch 2 groups context size] in float64."""
        cache = (cache.astype(np.uint32) << 16).view(np.float32) if cache.dtype == np.uint16 else cache
        return (np.swapaxes(cache[0], 0, 1) if self.parts_first else cache[0]).astype(np.float64)


def check(artifact: Artifact, places: np.ndarray, heads: Heads, close: float = 2e-5) -> None:
    """Check an artifact's result and cache, for rows at such positions of each sequence."""
    rng, weights = np.random.default_rng(1), random_weights(artifact, 0.5)
    tokens = np.take_along_axis(rng.integers(0, 50, (len(places), places.max() + 1), np.int32), places, 1)
    with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
        old = rng.normal(size=session.read("kv").shape).astype(np.float32)
        if session.read("kv").dtype == np.uint16:
            old, close = (old.view(np.uint32) >> 16).astype(np.uint16), max(close, 4e-3)
        session.write("kv", old)
        poison(session)
        found = session.run("out", tokens, places.astype(np.int32))["out"].astype(np.float64)
        kept = heads.batch_first(session.read("kv"))
    q, k, v = heads.split(weights.exact(), tokens)
    cache = heads.batch_first(old)
    written = np.zeros(cache.shape, bool)
    for n, rows in enumerate(places):
        cache[n, 0][:, rows], cache[n, 1][:, rows] = np.moveaxis(k[n], 0, 1), np.moveaxis(v[n], 0, 1)
        written[n][:, :, rows] = True
    assert np.array_equal(kept[~written], cache[~written]), "what no row goes to stays"
    assert np.linalg.norm((kept - cache)[written]) <= close * np.linalg.norm(cache[written])
    wanted = heads.attended(q, cache, places).reshape(found.shape)
    assert np.linalg.norm(found - wanted) <= 10 * close * np.linalg.norm(wanted)


def ascending(count: int, start: int) -> np.ndarray:
    return np.arange(start, start + count)[None]


@pytest.mark.parametrize("options", ["", ":splits 2", ":pair 2", ":outputs 16", ":outputs 72", ":outputs 144"])
@pytest.mark.parametrize("cache", ["f32", "bf16"])
def test_keys_and_values_are_stored_by_the_product(tmp_path: Path, options: str, cache: str) -> None:
    artifact = compiled(tmp_path, text(inner=128, cache=cache), 70, options=options)
    assert [name.partition("_")[0] for name in launches(artifact)] == ["rows", "contraction", "attention", "rows"]
    check(artifact, ascending(70, 3), Heads())


def test_tiles_may_be_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GPU_CHIPS["cuda"], "sm_90a", replace(GPU_CHIPS["cuda"]["sm_90a"], cores=10, cluster_cores=0))
    for name, number in {"FEWEST_STEPS": 16, "FEWEST_OF_A_PIECE": 3, "FRAGMENT": 0}.items():
        monkeypatch.setattr(shared_steps, name, number)
    monkeypatch.setattr(warpgroup_tiles, "MOST_STAGES", 3)  # no piece has fewer steps
    program = text(1, inner=1024, context=240)
    artifact = compiled(tmp_path, program, 230, options=":rows 128 :outputs 96 :pair 2", precision="fast")
    product = next(step for step in artifact.plan.entries[0].launches if step.kernel.startswith("contraction"))
    assert any(argument.access == "scratch" for argument in product.arguments), "blocks share out k"
    check(artifact, ascending(230, 3), Heads(1), close=1e-2)


@pytest.mark.parametrize(("heads", "size", "groups"), [(3, 64, 1), (2, 80, 2), (4, 128, 2), (1, 24, 1), (6, 16, 3)])
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_heads_of_any_size(tmp_path: Path, heads: int, size: int, groups: int, precision: str) -> None:
    artifact = compiled(tmp_path, text(heads, size, groups), precision=precision)
    assert not any(name.endswith("_write") for name in launches(artifact))
    check(artifact, ascending(64, 5), Heads(heads, size, groups), close=2e-5 if precision == "exact" else 1e-2)


@pytest.mark.parametrize("batch_first", [True, False])
def test_sequences_have_places_of_their_own(tmp_path: Path, batch_first: bool) -> None:
    artifact = compiled(tmp_path, text(2, 64, batch_first=batch_first), 40, batch=2)
    assert not any(name.endswith("_write") for name in launches(artifact))
    places = np.stack([np.arange(40), np.arange(40) + 31])
    check(artifact, places, Heads(parts_first=not batch_first))


@pytest.mark.parametrize("size", [64, 40])
def test_heads_may_have_their_columns_together(tmp_path: Path, size: int) -> None:
    artifact = compiled(tmp_path, text(3, size, parts=BY_HEAD), 48)
    assert not any(name.endswith("_write") for name in launches(artifact))
    check(artifact, ascending(48, 1), Heads(3, size, by_head=True))


def test_layers_have_caches_of_their_own(tmp_path: Path) -> None:
    sizes = {"layers": 2, "heads": 1, "width": 64, "vocab": 50, "context": 40}
    program, shape = PIPELINE.parents[2] / "examples" / "gpt2.lisp", [{"batch": 1, "positions": 32}]
    artifacts = [
        compile_request(Request(program, target, overrides=sizes, entries=("logits",), sizes=shape), Observer())[0]
        for target in ("cuda:sm_90a", "cpu")
    ]
    assert not any(name.endswith("_write") for name in launches(artifacts[0]))
    weights, found = random_weights(artifacts[0]), []
    for artifact, device in zip(artifacts, (EmulatedCuda(), CpuDevice()), strict=True):
        with Session(artifact, device, weights) as session:  # type: ignore[arg-type]
            poison(session)
            logits = session.run("logits", np.arange(32)[None], np.arange(5, 37)[None])["logits"]
            found.append((logits, session.read("kv")))
    for one, other in zip(*found, strict=True):
        assert np.linalg.norm(one - other) <= 5e-5 * np.linalg.norm(other)


def test_rows_that_pad_a_chunk_are_at_one_place(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, text())
    check(artifact, np.maximum(np.arange(64) - 40, 0)[None] + 7, Heads())


@pytest.mark.parametrize("inner", [60, 64])
def test_operands_that_copies_do_not_bring_leave_writes_to_attention(tmp_path: Path, inner: int) -> None:
    assert moved(tmp_path, text(inner=inner)) == (inner == 64)


def test_queries_may_come_from_another_product(tmp_path: Path) -> None:
    queries = "(slice (reshape (linear (* 2.0 (rows table tokens)) w b) [n 6 64]) [0 0 0] [n 2 64])"
    artifact = compiled(tmp_path, text(parts=f"{queries} (part 1 2 2) (part 2 4 2)"))
    assert not any(name.endswith("_write") for name in launches(artifact))
    check(artifact, ascending(64, 3), Heads(doubled=True))


def test_a_product_that_the_schedule_leaves_is_divided(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, text(cache="bf16"), options=":least-rows 100")
    assert sum("part" in name for name in launches(artifact)) >= 3
    check(artifact, ascending(64, 3), Heads())


def moved(folder: Path, program: str, target: str = "cuda:sm_90a", positions: int = 64, batch: int = 1) -> bool:
    """Whether attention's kernel for so many positions has no writes."""
    path = folder / "program.lisp"
    path.write_text(program)
    sizes = [{"batch": batch, "positions": positions}]
    return 'role = "keys"' not in emit(Request(path, target=target, sizes=sizes, batch=batch), "kernels", Observer())


PARTS = "(part 0 0 2) {key} (part 2 4 2)"


@pytest.mark.parametrize(
    ("key", "whether"),
    [
        ("(part 1 2 2)", True),
        ("(* 2.0 (part 1 2 2))", True),
        ("(at-most-one (part 1 2 2))", True),
        ("(+ (part 1 2 2) (part 2 4 2))", False),  # made of other columns, too
        ("(other (linear (rows table tokens) w))", True),  # the same product without a bias
        ("(other (linear (* 2.0 (rows table tokens)) w))", False),
        ("(turned (part 1 2 2))", False),
    ],
)
def test_only_columns_are_stored_by_the_product(tmp_path: Path, key: str, whether: bool) -> None:
    helpers = """
(defn at-most-one [x] (min x 1.0))
(defn other [x] (slice (reshape x [(dim x 0) 6 64]) [0 2 0] [(dim x 0) 2 64]))
(defn turned [x] (let [[n h d] (shape x)] (tensor [i n j h k d] (at x i j (- (- d 1) k)))))
"""
    program = text(parts=PARTS.format(key=key)).replace("(entry", helpers + "(entry")
    assert moved(tmp_path, program) == whether


@pytest.mark.parametrize(
    ("target", "positions", "batch", "weights", "whether"),
    [
        ("cuda:sm_90a", 32, 1, "bf16", True),
        ("cuda:sm_90a", 16, 2, "bf16", True),
        ("cuda:sm_90a", 31, 1, "bf16", False),
        ("cuda:sm_90a", 1, 40, "bf16", False),  # each row is the last of a sequence, and written by its attention
        ("cuda:sm_90a", 64, 1, "f32", False),
        ("cuda:sm_90a", 64, 1, "q8_0", False),  # weights in blocks, which no copy brings as they are multiplied
        ("cuda:sm_90", 64, 1, "bf16", False),
        ("rocm:gfx942", 64, 1, "bf16", False),
    ],
)
def test_where_nothing_gains_attention_writes(
    tmp_path: Path, target: str, positions: int, batch: int, weights: str, whether: bool
) -> None:
    program = text().replace("] bf16)", f"] {weights})")
    assert moved(tmp_path, program, target, positions, batch) == whether
