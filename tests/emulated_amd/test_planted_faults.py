"""Kernels with a fault each that a GPU may let pass: the emulator stops at all of them, and at none without one."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import seeded
from emulated_amd.running import Emulation

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.devices.amd_emulator.races import Order, Shadow
from lispgpt.runtime.plan.artifact import Artifact

pytestmark = pytest.mark.drawn

THREADS, WAVE, BLOCKS = 64, 32, 2
ALL = THREADS * BLOCKS
T = "(thread-id x)"
I = f"(+ {T} (* {THREADS} (block-id x)))"  # noqa: E741
OTHER_WAVE, NEIGHBOUR = f"(arith.xori {T} (: {WAVE} index))", f"(arith.xori {T} (: 1 index))"
X = f"(memref.load x {I})"
COPY = f"(memref.store {X} y {I})"
IN_SHARED = f"(memref.store {X} s {T})"
TO_S0 = f"(when (= {T} 0) (memref.store (: 0.0 f32) s 0)) (gpu.barrier)"
FROM_S0 = f"(gpu.barrier) (memref.store (memref.load s 0) y {I})"


def shuffled(distance: int) -> str:
    return f'(gpu.shuffle {{:mode "xor"}} {X} (: {distance} i32) (: {WAVE} i32))'


def shared(body: str, words: int = THREADS) -> str:
    return f"(let [s (shared [{words}] f32)] {body})"


def halved(body: str, condition: str = f"(< {X} 0.0)") -> str:
    """By the lanes alone of which something holds."""
    return f"(when {condition} {body})"


RACE, NOTHING, UNEVEN = "a race in", "nothing has set it", "not all of a workgroup reach"
FAULTS: dict[str, tuple[str, int, str]] = {
    # name: (body of the kernel k [x y], elements of y, what is said)
    "two blocks store to one element": (f"(memref.store {X} y {T})", THREADS, RACE),
    "all store to the first element": (f"(let [] {COPY} (memref.store {X} y 0))", ALL, RACE),
    "two waves store to one element": (
        f"(memref.store {X} y (+ (* {WAVE} (block-id x)) (arith.remui {T} (: {WAVE} index))))", THREADS, RACE),
    "two lanes store to one element": (f"(memref.store {X} y (arith.divui {I} (: 2 index)))", THREADS, RACE),
    "a load of what another block wrote": (
        f"(let [] {COPY} (memref.store (memref.load y (arith.xori {I} (: {THREADS} index))) y (+ {ALL} {I})))",
        2 * ALL, ""),
    "a load of what another wave wrote": (
        f"(let [] {COPY} (memref.store (memref.load y (arith.xori {I} (: {WAVE} index))) y (+ {ALL} {I})))",
        2 * ALL, ""),
    "a sum of blocks": (f"(memref.store (+ (memref.load y {T}) {X}) y {T})", THREADS, ""),
    "a sum of lanes": (f"(memref.store (+ (memref.load y 0) {X}) y 0)", 1, ""),
    "a count of lanes": ("(memref.store (+ (memref.load y 0) 1.0) y 0)", 1, ""),
    "a sum of blocks behind zeros": (
        f"(let [] (when (= (block-id x) 0) (memref.store (: 0.0 f32) y {T})) "
        f"(memref.store (+ (memref.load y {T}) {X}) y {T}))", THREADS, ""),
    "an output of which half is written": (COPY, 2 * ALL, "512 of 1,024 bytes of"),
    "an output without its last element": (halved(COPY, f"(< {I} {ALL - 1})"), ALL, "4 of 512 bytes of"),
    "an output with a gap": (halved(COPY, f"(!= {I} 70)"), ALL, "the first is byte 280"),
    "an output that is read first": (f"(memref.store (+ (memref.load y {I}) {X}) y {I})", ALL, NOTHING),
    "shared memory that nobody wrote": (
        shared(f"{halved(IN_SHARED, f'(< {T} 40)')} (gpu.barrier) (memref.store (memref.load s {T}) y {I})"),
        ALL, NOTHING),
    "shared memory without a barrier": (
        shared(f"{IN_SHARED} (memref.store (memref.load s {OTHER_WAVE}) y {I})"), ALL, ""),
    "shared memory changed too early": (
        shared(f"{IN_SHARED} (gpu.barrier) (memref.store (+ 1.0 (memref.load s {OTHER_WAVE})) s {T}) (gpu.barrier) "
               f"(memref.store (memref.load s {T}) y {I})"), ALL, RACE),
    "a sum in shared memory": (
        shared(f"{TO_S0} (memref.store (+ (memref.load s 0) {X}) s 0) {FROM_S0}", 1), ALL, RACE),
    "a sum in shared memory by one wave": (
        shared(f"{TO_S0} {halved(f'(memref.store (+ (memref.load s 0) {X}) s 0)', f'(< {T} {WAVE})')} {FROM_S0}", 1),
        ALL, RACE),
    "a count in shared memory by one wave": (
        shared(f"{TO_S0} {halved('(memref.store (+ (memref.load s 0) 1.0) s 0)', f'(< {T} {WAVE})')} {FROM_S0}", 1),
        ALL, RACE),
    "two lanes store to one element of shared memory": (
        shared(f"(memref.store {X} s (arith.divui {T} (: 2 index))) (gpu.barrier) "
               f"(memref.store (memref.load s (arith.divui {T} (: 2 index))) y {I})"), ALL, RACE),
    "a barrier for some lanes": (
        shared(f"{IN_SHARED} {halved('(gpu.barrier)')} (memref.store (memref.load s {T}) y {I})"), ALL, UNEVEN),
    "a barrier for some waves": (
        shared(f"{IN_SHARED} {halved('(gpu.barrier)', f'(< {T} {WAVE})')} (memref.store (memref.load s {T}) y {I})"),
        ALL, UNEVEN),
    "a shuffle for some lanes": (
        f"(let [] {COPY} {halved(f'(memref.store {shuffled(16)} y {I})', f'(< {T} 10)')})", ALL, NOTHING),
    "a shuffle of neighbours for some lanes": (
        f"(let [] {COPY} {halved(f'(memref.store {shuffled(1)} y {I})', f'(< {T} 11)')})", ALL, NOTHING),
    "a store behind the output": (f"(memref.store {X} y (+ 1 {I}))", ALL, "written to"),
    "a load behind the input": (f"(memref.store (memref.load x (+ 1 {I})) y {I})", ALL, "read from"),
}  # fmt: skip
RIGHT: dict[str, tuple[str, int]] = {
    "a copy": (COPY, ALL),
    "halves in turn": (f"(let [] {halved(COPY)} {halved(COPY, f'(>= {X} 0.0)')})", ALL),
    "turned in shared memory": (
        shared(f"{IN_SHARED} (gpu.barrier) (memref.store (memref.load s {OTHER_WAVE}) y {I})"), ALL),
    "shared memory used again": (
        shared(f"{IN_SHARED} (gpu.barrier) (let [a (memref.load s {OTHER_WAVE})] (gpu.barrier) "
               f"(memref.store (+ 1.0 a) s {T}) (gpu.barrier) (memref.store (memref.load s {NEIGHBOUR}) y {I}))"), ALL),
    "through the output, behind a barrier": (
        f"(let [] {COPY} (gpu.barrier) (memref.store (memref.load y (arith.xori {I} (: {WAVE} index))) "
        f"y (+ {ALL} {I})))", 2 * ALL),
    "shuffled": (f"(memref.store (+ {shuffled(16)} {shuffled(1)}) y {I})", ALL),
    "a sum in shared memory by one": (
        shared(f"{TO_S0} {halved(f'(memref.store (+ (memref.load s 0) {X}) s 0)', f'(= {T} 5)')} {FROM_S0}", 1), ALL),
    "all lanes of a wave store the same": (
        halved("(memref.store (memref.load x 3) y 0)", f"(and (< {T} {WAVE}) (= (block-id x) 0))"), 1),
    "a load whose value is dropped": (
        f"(let [beside (memref.load y (arith.xori {I} (: {WAVE} index)))] "
        f"(memref.store (select (< {T} 1000) {X} beside) y {I}))", ALL),
}  # fmt: skip


@pytest.fixture(scope="module", params=["gfx1151", "gfx1201"])
def artifact(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """An entry for each kernel: e0 and so on, first those with faults."""
    kernels = [*((body, words) for body, words, _ in FAULTS.values()), *RIGHT.values()]
    text = "(require nn kernels)\n(require-dialect arith gpu memref scf)\n" + "".join(
        f"(kernel k{n} [x y] {body})\n(entry e{n} [(x [{ALL}] f32)]"
        f" (launch k{n} [{BLOCKS}] [{THREADS}] x (output (tensor-type [{words}] f32))))\n"
        for n, (body, words) in enumerate(kernels)
    )
    program = tmp_path_factory.mktemp("faults") / "faults.lisp"
    program.write_text(text)
    return compile_request(Request(program, target=f"rocm:{request.param}"), Observer())[0]


def run(artifact: Artifact, number: int) -> tuple[np.ndarray, np.ndarray]:
    """(x, y) of an entry."""
    name = f"e{number}"
    x = np.random.default_rng(seeded.fresh_seed()).standard_normal(ALL).astype(np.float32)
    emulation = Emulation(artifact, {"x": x})
    emulation.machine.patience = 1000
    return x, emulation.run(next(e for e in artifact.plan.entries if e.name == name))


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(artifact: Artifact, name: str) -> None:
    with pytest.raises(KernelFault, match=FAULTS[name][2]) as caught:
        run(artifact, list(FAULTS).index(name))
    assert str(caught.value).startswith(f"k{list(FAULTS).index(name)}"), caught.value


@pytest.mark.parametrize("name", RIGHT)
def test_what_is_right_goes_through(artifact: Artifact, name: str) -> None:
    x, y = run(artifact, len(FAULTS) + list(RIGHT).index(name))
    if name in ("a copy", "halves in turn", "a load whose value is dropped"):
        np.testing.assert_array_equal(x, y)
    assert np.isfinite(y).all()


@pytest.mark.parametrize("apart", [True, False])
def test_what_is_read_ahead_of_like_stores_is_doubtful(apart: bool) -> None:
    """Of two workgroups, whose loads are looked at once more with garbage; two lanes of a wave have lost a sum."""
    order = Order(WAVE, THREADS // WAVE)
    waves: Any = SimpleNamespace(n=4, groups=2, group=np.array([0, 0, 1, 1]), member=np.array([0, 1, 0, 1]))
    order.start(waves)
    shadow = Shadow(order, 4, "global memory", own=False)
    shadow.excused = {}
    at, yes = np.array([[3, 3]]), np.array([[True, True]])
    threads = (np.array([0, 2]), np.array([5, 5])) if apart else (np.array([0, 0]), np.array([5, 6]))
    shadow.load(at, *threads)
    with nullcontext() if apart else pytest.raises(KernelFault, match="lane 5, writes what lane 6 has written"):
        shadow.store(at, *threads, lambda: yes, lambda: yes)
    assert (shadow.fault is not None) is apart
    assert not apart or shadow.doubtful(shadow.excused, at, *threads).all()


def test_a_user_hears_of_them(tmp_path: Path) -> None:
    """Through HIP's calls, which know nothing of arguments; and a store to an input is the kernel's fault, not ours."""
    program = tmp_path / "two.lisp"
    kernel = "(require-dialect memref)\n(kernel k [x y]\n  STORE)\n(entry e [(x [128] f32)] LAUNCH)"
    kernel = kernel.replace("LAUNCH", f"(launch k [{BLOCKS}] [{THREADS}] x (output (type x)))")
    stores = {
        f"(memref.store {X} y {T})": r"\(two\.lisp:3\): .*: a race in global memory, workgroup 0: wave 0 writes",
        f"(memref.store {X} x {T})": r"two.lisp:3:3: error: the kernel k stores to a tensor",
    }
    for store, said in stores.items():
        program.write_text(kernel.replace("STORE", store))
        with pytest.raises(UserError, match=said), lispgpt.load(program, target="emulated:gfx1151") as model:
            model.run("e", x=np.arange(ALL, dtype=np.float32))
