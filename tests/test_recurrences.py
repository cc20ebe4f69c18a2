"""The library's recurrences: many positions at once and one by one, against a loop in float64, on a CPU and in PTX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, poison
from emulated_cuda.device import EmulatedCuda

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.devices.emulated import EmulatedDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

Arrays = dict[str, np.ndarray]
SHAPES = "{:shapes [{batch 2 length 7} {batch 2 length 1}]}"
ENTRIES = {
    "convolution": (
        "(state (before [batch 2 5]))",
        "(x [batch length 5] f32) (w [5 1 3] f32)",
        "(causal-convolution x w before)",
    ),
    "columns": (
        "(state (memory [batch 5 3]))",
        """(x [batch length 5] f32) (dt [batch length 5] f32) (rates [5 3] f32) (into [batch length 3] f32)
           (out-of [batch length 3] f32)""",
        "(remember x dt rates into out-of memory)",
    ),
    "heads": (
        "(state (memory [batch 24 5]))",
        """(x [batch length 24] f32) (dt [batch length 6] f32) (rate [6] f32) (into [batch length 2 5] f32)
           (out-of [batch length 2 5] f32)""",
        "(remember-heads x dt rate into out-of memory)",
    ),
    "differences": (
        "(state (memory [batch 24 5]))",
        """(x [batch length 24] f32) (query [batch length 2 5] f32) (seen [batch length 2 5] f32)
           (keep [batch length 6] f32) (share [batch length 6] f32)""",
        "(remember-differences x query seen keep share memory)",
    ),
    "fading": (
        "(state (memory [batch 5 3]))",
        "(key [batch length 5] f32) (value [batch length 5] f32) (decay [5] f32) (own [5] f32)",
        "(decaying-mean key value decay own memory)",
    ),
}
SIZES = {
    "convolution": {"x": (5,), "w": (5, 1, 3)},
    "columns": {"x": (5,), "dt": (5,), "rates": (5, 3), "into": (3,), "out-of": (3,)},
    "heads": {"x": (24,), "dt": (6,), "rate": (6,), "into": (2, 5), "out-of": (2, 5)},
    "differences": {"x": (24,), "query": (2, 5), "seen": (2, 5), "keep": (6,), "share": (6,)},
    "fading": {"key": (5,), "value": (5,), "decay": (5,), "own": (5,)},
}
FIXED = ("w", "rate", "rates", "decay", "own")


def convolution(given: Arrays) -> np.ndarray:
    x, w = given["x"], given["w"][:, 0]
    before = np.concatenate([np.zeros((2, 2, 5)), x], 1)
    return sum(before[:, tap : tap + x.shape[1]] * w[:, tap] for tap in range(3))


def columns(given: Arrays) -> np.ndarray:
    state, found = np.zeros((2, 5, 3)), []
    for t in range(given["x"].shape[1]):
        dt = given["dt"][:, t, :, None]
        state = np.exp(given["rates"] * dt) * state + np.einsum(
            "bc,bc,bs->bcs", dt[..., 0], given["x"][:, t], given["into"][:, t]
        )
        found.append(np.einsum("bcs,bs->bc", state, given["out-of"][:, t]))
    return np.stack(found, 1)


def heads(given: Arrays) -> np.ndarray:
    state, found = np.zeros((2, 2, 3, 4, given["into"].shape[-1])), []
    for t in range(given["x"].shape[1]):
        dt, x = given["dt"][:, t].reshape(2, 2, 3), given["x"][:, t].reshape(2, 2, 3, 4)
        kept = np.exp(given["rate"].reshape(2, 3) * dt)[..., None, None]
        state = kept * state + np.einsum("bgh,bghd,bgs->bghds", dt, x, given["into"][:, t])
        found.append(np.einsum("bghds,bgs->bghd", state, given["out-of"][:, t]).reshape(2, 24))
    return np.stack(found, 1)


def differences(given: Arrays) -> np.ndarray:
    state, found = np.zeros((2, 2, 3, 4, given["seen"].shape[-1])), []
    for t in range(given["x"].shape[1]):
        keep, share = (given[name][:, t].reshape(2, 2, 3, 1) for name in ("keep", "share"))
        state = state * keep[..., None]
        missing = given["x"][:, t].reshape(2, 2, 3, 4) - np.einsum("bghds,bgs->bghd", state, given["seen"][:, t])
        state = state + np.einsum("bghd,bgs->bghds", share * missing, given["seen"][:, t])
        found.append(np.einsum("bghds,bgs->bghd", state, given["query"][:, t]).reshape(2, 24))
    return np.stack(found, 1)


def fading(given: Arrays) -> np.ndarray:
    keys, values = given["key"], given["value"]
    found = np.empty_like(values)
    for t in range(keys.shape[1]):
        ago = np.array([t - 1 - k for k in range(t)]).reshape(-1, 1)
        logs = np.concatenate([keys[:, :t] - ago * given["decay"], keys[:, t : t + 1] + given["own"]], 1)
        weights = np.exp(logs - logs.max(1, keepdims=True))
        found[:, t] = (weights * values[:, : t + 1]).sum(1) / weights.sum(1)
    return found


REFERENCES: dict[str, Callable[[Arrays], np.ndarray]] = {
    "convolution": convolution,
    "columns": columns,
    "heads": heads,
    "differences": differences,
    "fading": fading,
}


def random_inputs(name: str, length: int, states: int = 5) -> Arrays:
    """What stands in the entry's inputs, for all positions: shares from 0 to 1, rates below 0, keys far apart, what is
    multiplied with more states smaller."""
    rng, made = seeded.rng(), {}
    for word, size in SIZES[name].items():
        own = (*size[:-1], states) if len(size) == 2 and name != "convolution" and size[-1] == 5 else size
        shape = own if word in FIXED else (2, length, *own)
        made[word] = rng.standard_normal(shape).astype(np.float32)
        if word in ("dt", "decay", "keep", "share"):
            made[word] = rng.random(shape).astype(np.float32)
        elif word.startswith("rate"):
            made[word] = -rng.random(shape).astype(np.float32)
        elif len(own) == 2 and own[-1] == states:
            made[word] *= np.float32((5 / states) ** 0.5)
        elif word == "key":
            made[word] = made[word] * np.float32(40) - np.float32(30)
    return made


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90"])
@pytest.mark.parametrize("name", ENTRIES)
def test_chunks_and_steps_agree_with_a_loop(name: str, target: str, tmp_path: Path) -> None:
    state, inputs, body = ENTRIES[name]
    (tmp_path / "p.lisp").write_text(f"(require delta)\n{state}\n(entry run [{inputs}] {SHAPES} {body})")
    artifact, _ = compile_request(Request(tmp_path / "p.lisp", target), Observer())
    walk(artifact, CpuDevice(2) if target == "cpu" else EmulatedCuda(), name, random_inputs(name, 17), (7, 1, 1, 7, 1))


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["cuda:sm_90", "rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201"])
@pytest.mark.parametrize("name", ["heads", "differences"])
def test_lanes_share_states_that_one_has_no_registers_for(name: str, target: str, tmp_path: Path) -> None:
    """Two of them 128, and four 200; the last block has more lanes than there are columns."""
    states = int(seeded.rng().choice([128, 200]))
    state, inputs, body = (part.replace(" 5]", f" {states}]") for part in ENTRIES[name])
    (tmp_path / "p.lisp").write_text(f"(require delta)\n{state}\n(entry run [{inputs}] {SHAPES} {body})")
    artifact, _ = compile_request(Request(tmp_path / "p.lisp", target), Observer())
    given = random_inputs(name, 8, states)
    if target.startswith("cuda"):
        walk(artifact, EmulatedCuda(), name, given, (7, 1))
        return
    chip = target.partition(":")[2]
    code = CodeObject(artifact.code, chip)
    assert {kernel: code.descriptor(kernel).private_bytes for kernel in artifact.kernels} == dict.fromkeys(
        artifact.kernels, 0
    )
    walk(artifact, EmulatedDevice(chip), name, given, (7, 1))


def walk(artifact: Artifact, device: Device, name: str, given: Arrays, lengths: Sequence[int]) -> None:
    """Chunks of these lengths one after the other give what a loop does."""
    wanted = REFERENCES[name]({key: value.astype(np.float64) for key, value in given.items()})
    with Session(artifact, device, Weights({})) as session:  # type: ignore[arg-type]
        start = 0
        for length in lengths:
            part = {k: v if k in FIXED else v[:, start : start + length] for k, v in given.items()}
            poison(session)
            (found,) = session.run("run", **part).values()
            near = wanted[:, start : start + length]
            np.testing.assert_allclose(found, near, atol=2e-5 * max(1.0, float(np.abs(near).max())), rtol=1e-4)
            start += length


def loss(name: str, given: Arrays, weights: np.ndarray) -> float:
    return float((weights * REFERENCES[name](given)).sum())


@pytest.mark.drawn
@pytest.mark.parametrize("name", list(ENTRIES))
def test_gradients_are_those_of_a_loop(name: str, tmp_path: Path) -> None:
    state, inputs, body = ENTRIES[name]
    given = random_inputs(name, 12)
    if name == "fading":
        given["key"] = given["key"] / np.float32(20)
    weights = seeded.rng().standard_normal(REFERENCES[name](given).shape).astype(np.float32)
    columns = weights.shape[-1]
    (tmp_path / "p.lisp").write_text(
        f"""(require delta) (require gradients) {state}
            (entry run [{inputs} (weights [batch length {columns}] f32)] {{:shapes [{{batch 2 length 12}}]}}
              (let [found (gradients (sum (sum (sum (* weights {body})))) [{" ".join(given)}])]
                {{{" ".join(f":d-{word} (nth found {number})" for number, word in enumerate(given))}}}))"""
    )
    artifact, _ = compile_request(Request(tmp_path / "p.lisp", "cpu"), Observer())
    with Session(artifact, CpuDevice(2), Weights({})) as session:  # type: ignore[arg-type]
        poison(session)
        found = session.run("run", **given, weights=weights)
    for word in given:
        exact = {key: value.astype(np.float64) for key, value in given.items()}
        wanted = np.zeros(given[word].shape)
        for where in np.ndindex(wanted.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = exact | {word: exact[word].copy()}
                moved[word][where] += step
                ends.append(loss(name, moved, weights))
            wanted[where] = (ends[0] - ends[1]) / 2e-6
        atol = 2e-4 * max(1.0, float(np.abs(wanted).max()))
        np.testing.assert_allclose(found[f"d-{word}"], wanted, atol=atol, err_msg=word)
