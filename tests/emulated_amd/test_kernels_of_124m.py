"""Each kernel of GPT-2 124M at its real shape, some workgroups of it, on emulated AMD GPUs, against float64.

A launch gets what float64 makes of everything before it; what its workgroups write has to be what comes next of the
model's values that has the kernel's size.  What they do not write is filled in for the launches behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import reference_gpt2 as reference
import seeded
from compiled_models import rounded_to_bf16
from emulated_amd.running import CHIPS, Emulation
from emulated_amd.test_gpt2_124m import CONTEXT, HEADS, VOCAB, artifact

from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Argument, Launch
from lispgpt.runtime.samplers.weighted import Weighted

pytestmark = pytest.mark.drawn

SIZED = re.compile(r"(?:rows|contraction|attention)_([\dx]*\d)(?:_\d+|_write)?$")
"""Names of the kernels that make values of the model; the others choose the next token from the logits."""
TOLERANCE = 2e-4


class Model:
    """Random weights, as float64 and as they are stored, and all values that they make of random tokens.

    values: [position, …] each; kv: the cache [layer, 1, 2, head, position, depth].
    """

    def __init__(self, shapes: tuple[tuple[str, tuple[int, ...], str], ...], seed: int) -> None:
        random, self.stored, self.seed = np.random.default_rng(seed), {}, seed
        w: dict[str, np.ndarray] = {}
        for name, shape, dtype in shapes:
            weight = random.standard_normal(shape, np.float32) * np.float32(0.05)
            weight = rounded_to_bf16(weight) if dtype == "bf16" else weight
            self.stored[name] = (weight.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bf16" else weight
            w[name] = weight if name == "wte" else weight.astype(np.float64)
        self.tokens = random.integers(0, VOCAB, CONTEXT).astype(np.int32)
        self.sampling = Weighted(0.9, 40, 0.95, seed)
        x = w["wte"][self.tokens].astype(np.float64) + w["wpe"]
        self.values, caches = [x], []
        for i in range(len(w["ln1-w"])):
            first = reference.layer_norm(x, w["ln1-w"][i], w["ln1-b"][i])
            qkv = first @ w["qkv-w"][i].T + w["qkv-b"][i]
            attended = reference.attention(qkv, HEADS)
            x = x + attended @ w["proj-w"][i].T + w["proj-b"][i]
            second = reference.layer_norm(x, w["ln2-w"][i], w["ln2-b"][i])
            hidden = reference.gelu(second @ w["fc-w"][i].T + w["fc-b"][i])
            self.values += [first, qkv, attended, x, second, hidden]
            x = x + hidden @ w["out-w"][i].T + w["out-b"][i]
            self.values.append(x)
            caches.append(np.stack([part.reshape(CONTEXT, HEADS, -1) for part in np.split(qkv, 3, axis=1)[1:]]))
        self.kv = np.stack(caches).transpose(0, 1, 3, 2, 4)[:, None].astype(np.float32)
        self.last = reference.layer_norm(x, w["lnf-w"], w["lnf-b"]).astype(np.float32)
        self.head = w["wte"]

    @cache  # noqa: B019 (a model lives as long as its tests)
    def logits(self, length: int) -> np.ndarray:
        """After the last of so many tokens."""
        return self.head @ self.last[length - 1]


@cache
def model(shapes: tuple[tuple[str, tuple[int, ...], str], ...]) -> Model:
    """One for all chips: they keep weights in the same shapes."""
    return Model(shapes, seeded.fresh_seed())


class Checked:
    """An entry's launches on a chip, one after the other.  done: the kernels that ran before."""

    def __init__(self, emulation: Emulation, model: Model, entry: Entry, done: set[str]) -> None:
        self.emulation, self.entry, self.done, self.model = emulation, entry, done, model
        self.chip, count = emulation.machine.code.chip, entry.sizes["positions"]
        # Decoding goes on at the end of the context.
        self.end = count if entry.name == "prefill" else CONTEXT
        self.rows, self.random = slice(self.end - count, self.end), np.random.default_rng(self.model.seed)
        self.coming = iter(self.model.values)
        positions = np.arange(CONTEXT, dtype=np.int32)[self.rows]
        sampling = self.model.sampling.settings(self.end - 1)
        given = {"tokens": self.model.tokens[self.rows], "positions": positions, "sampling": sampling}
        for name, place in entry.inputs.items():
            emulation.buffers[place][:] = np.ascontiguousarray(given[name]).view(np.uint8).reshape(-1)
        emulation.buffers["kv"][:] = self.model.kv.reshape(-1).view(np.uint8)

    def run(self) -> None:
        for launch in self.entry.launches:
            if match := SIZED.match(launch.kernel):
                size = int(np.prod([int(extent) for extent in match[1].split("x")]))
                self.compare(launch, [self.written(a, size) for a in launch.arguments if a.access != "read"])
            else:
                self.emulation.launch(launch)
                self.done.add(launch.kernel)
        logits, place = self.model.logits(self.end)[:VOCAB], self.entry.results["next"]
        wanted = self.model.sampling(logits) if self.entry.name == "decode-drawn" else logits.argmax()
        found = self.emulation.buffers[place].view(np.int32)[0]
        assert found == wanted, f"{self.entry.label} on {self.chip}, seed {self.model.seed}"

    def written(self, argument: Argument, size: int) -> tuple[np.ndarray, np.ndarray]:
        """(a view of the memory that a launch writes, what comes to stand there)."""
        place = self.emulation.buffers[argument.buffer][argument.offset :].view(np.float32)
        if argument.buffer == "kv":
            shape = self.model.kv.shape[1:]
            layer = argument.offset // (4 * int(np.prod(shape)))
            cache = place[: int(np.prod(shape))].reshape(shape)
            return cache[..., self.rows, :], self.model.kv[layer][..., self.rows, :]
        if argument.buffer == self.entry.results["logits"]:
            return place, self.model.logits(self.end)
        mine = (v[self.rows] for v in self.coming)
        value = next(part for v in mine for part in (v, v[-1:]) if part.size == size)  # of all rows, or of the last
        return place[:size].reshape(value.shape), value

    def compare(self, launch: Launch, written: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Run the last workgroup and one other, where the kernel did not run before; fill in what all of them write."""
        if launch.kernel not in self.done:
            self.done.add(launch.kernel)
            for found, _ in written:
                found[...] = np.nan
            last = tuple(extent - 1 for extent in launch.grid)
            other = tuple(int(self.random.integers(extent)) for extent in launch.grid)
            self.emulation.launch(launch, sorted({last, other}))
            for found, right in written:
                there = ~np.isnan(found)
                about = f"{launch.kernel} on {self.chip}, workgroups {last} and {other}, seed {self.model.seed}"
                assert there.any(), about
                atol = TOLERANCE * float(np.abs(right).max())
                np.testing.assert_allclose(found[there], right[there], rtol=0, atol=atol, err_msg=about)
        for found, right in written:
            found[...] = right


@pytest.fixture(autouse=True, scope="module")
def gives_back() -> Iterator[None]:
    """The models' 700 MB, of which every child that the process starts later on would be a copy."""
    yield
    for cached in (artifact, model, Model.logits):
        cached.cache_clear()


@pytest.mark.parametrize("chip", ["drawn", *(pytest.param(chip, marks=pytest.mark.slow) for chip in CHIPS)])
def test_values(chip: str) -> None:
    """By default on one chip, another one each time."""
    chip = str(seeded.rng().choice(CHIPS)) if chip == "drawn" else chip
    plan = artifact(chip).plan
    weights = model(tuple((b.name, b.shape, b.dtype) for b in plan.buffers if b.kind == "weight"))
    emulation, done = Emulation(artifact(chip), weights.stored), set[str]()
    for entry in plan.entries:
        Checked(emulation, weights, entry, done).run()
    assert done == set(artifact(chip).kernels)
