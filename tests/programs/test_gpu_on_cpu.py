"""GPU kernels on the CPU: ids, shared memory, barriers in loops and branches, subgroup operations."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import seeded

DECLARATIONS = "func.func private @printMemrefF32(memref<*xf32>)"


def constant(name: str, values: np.ndarray) -> str:
    shape = "x".join(str(n) for n in values.shape)
    return f"memref.global constant @{name} : memref<{shape}xf32> = dense<{values.tolist()}>"


def program(kernel: str, grid: int, block: int, shape: str, setup: str = "", attributions: str = "") -> str:
    """A launch of `grid` blocks of `block` threads with %x (block), %t (thread) and a poisoned result %out."""
    sizes = "blocks(%x, %by, %bz) in (%gx = %grid, %gy = %c1, %gz = %c1) threads(%t, %ty, %tz) in "
    sizes += "(%bx = %block, %hy = %c1, %hz = %c1)"
    return f"""
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %grid = arith.constant {grid} : index
      %block = arith.constant {block} : index
      %nan = arith.constant 0x7FC00000 : f32
      %out = memref.alloc() : memref<{shape}xf32>
      linalg.fill ins(%nan : f32) outs(%out : memref<{shape}xf32>)
      {setup}
      gpu.launch {sizes} {attributions} {{
        {kernel}
        gpu.terminator
      }}
      %u = memref.cast %out : memref<{shape}xf32> to memref<*xf32>
      func.call @printMemrefF32(%u) : (memref<*xf32>) -> ()
      %r = arith.constant 0 : i32"""


def printed(output: str) -> np.ndarray:
    """The numbers of the one memref that a program printed, flat."""
    data = output.split("data = ")[1].rsplit("]", 1)[0]
    return np.array([float(n) for n in re.findall(r"-?(?:nan|inf|[\d.]+(?:e[+-]?\d+)?)", data)])


def shuffled(values: np.ndarray, mode: str, offset: int, width: int, subgroup: int = 32) -> np.ndarray:
    """What gpu.shuffle gives each thread of one block; NaN where the result is not defined."""
    result = np.full(len(values), np.nan)
    for thread in range(len(values)):
        lane = thread % subgroup
        segment = lane - lane % width
        source = {"xor": lane ^ offset, "up": lane - offset, "down": lane + offset, "idx": segment + offset}[mode]
        if segment <= source < segment + width and thread - lane + source < len(values):
            result[thread] = values[thread - lane + source]
    return result


@pytest.mark.drawn
@pytest.mark.parametrize(("mode", "offset", "width"), [("xor", 5, 32), ("up", 3, 16), ("down", 2, 32), ("idx", 7, 8)])
def test_shuffles(run_main: Callable[..., Any], mode: str, offset: int, width: int) -> None:
    values = seeded.rng().integers(-100, 100, 40).astype(np.float64)
    kernel = f"""%o = arith.constant {offset} : i32
        %w = arith.constant {width} : i32
        %v = memref.load %in[%t] : memref<40xf32>
        %s, %ok = gpu.shuffle {mode} %v, %o, %w : f32
        scf.if %ok {{ memref.store %s, %out[%t] : memref<40xf32> }}"""
    setup = "%in = memref.get_global @in : memref<40xf32>"
    ran = run_main(program(kernel, 1, 40, "40", setup), "i32", f"{DECLARATIONS}\n{constant('in', values)}")
    np.testing.assert_array_equal(printed(ran.output), shuffled(values, mode, offset, width))


def test_tiled_product_with_barriers_in_a_loop(run_main: Callable[..., Any]) -> None:
    generator = seeded.rng()
    a, b = (generator.integers(-4, 5, (16, 16)).astype(np.float64) for _ in range(2))
    kernel = """
      %c4 = arith.constant 4 : index
      %zero = arith.constant 0.0 : f32
      %rb = arith.divui %x, %c4 : index
      %cb = arith.remui %x, %c4 : index
      %i = arith.divui %t, %c4 : index
      %j = arith.remui %t, %c4 : index
      %row0 = arith.muli %rb, %c4 : index
      %row = arith.addi %row0, %i : index
      %col0 = arith.muli %cb, %c4 : index
      %col = arith.addi %col0, %j : index
      %sum = scf.for %k0 = %c0 to %c16 step %c4 iter_args(%acc = %zero) -> (f32) {
        %ka = arith.addi %k0, %j : index
        %kb = arith.addi %k0, %i : index
        %va = memref.load %a[%row, %ka] : memref<16x16xf32>
        %vb = memref.load %b[%kb, %col] : memref<16x16xf32>
        memref.store %va, %sa[%i, %j] : memref<4x4xf32, #gpu.address_space<workgroup>>
        memref.store %vb, %sb[%i, %j] : memref<4x4xf32, #gpu.address_space<workgroup>>
        gpu.barrier
        %part = scf.for %k = %c0 to %c4 step %c1 iter_args(%p = %acc) -> (f32) {
          %l = memref.load %sa[%i, %k] : memref<4x4xf32, #gpu.address_space<workgroup>>
          %r2 = memref.load %sb[%k, %j] : memref<4x4xf32, #gpu.address_space<workgroup>>
          %m = arith.mulf %l, %r2 : f32
          %q = arith.addf %p, %m : f32
          scf.yield %q : f32
        }
        gpu.barrier
        scf.yield %part : f32
      }
      memref.store %sum, %out[%row, %col] : memref<16x16xf32>"""
    shared = "memref<4x4xf32, #gpu.address_space<workgroup>>"
    setup = """%c16 = arith.constant 16 : index
      %a = memref.get_global @a : memref<16x16xf32>
      %b = memref.get_global @b : memref<16x16xf32>"""
    body = program(kernel, 16, 16, "16x16", setup, f"workgroup(%sa : {shared}, %sb : {shared})")
    ran = run_main(body, "i32", "\n".join([DECLARATIONS, constant("a", a), constant("b", b)]))
    np.testing.assert_array_equal(printed(ran.output).reshape(16, 16), a @ b)


def test_subgroups_may_take_different_ways_to_a_barrier(run_main: Callable[..., Any]) -> None:
    values = seeded.rng().integers(-100, 100, 64).astype(np.float64)
    kernel = """
      %c32 = arith.constant 32 : index
      %w = arith.constant 32 : i32
      %o = arith.constant 1 : i32
      %v = memref.load %in[%t] : memref<64xf32>
      %low = arith.cmpi ult, %t, %c32 : index
      %y = scf.if %low -> (f32) {
        %s, %ok = gpu.shuffle xor %v, %o, %w : f32
        %s2, %ok2 = gpu.shuffle xor %s, %o, %w : f32
        %s3, %ok3 = gpu.shuffle xor %s2, %o, %w : f32
        scf.yield %s3 : f32
      } else {
        scf.yield %v : f32
      }
      memref.store %y, %s0[%t] : memref<64xf32, #gpu.address_space<workgroup>>
      gpu.barrier
      %last = arith.constant 63 : index
      %mirror = arith.subi %last, %t : index
      %z = memref.load %s0[%mirror] : memref<64xf32, #gpu.address_space<workgroup>>
      memref.store %z, %out[%t] : memref<64xf32>"""
    attributions = "workgroup(%s0 : memref<64xf32, #gpu.address_space<workgroup>>)"
    body = program(kernel, 1, 64, "64", "%in = memref.get_global @in : memref<64xf32>", attributions)
    ran = run_main(body, "i32", f"{DECLARATIONS}\n{constant('in', values)}")
    swapped = np.concatenate([values[:32].reshape(16, 2)[:, ::-1].ravel(), values[32:]])
    np.testing.assert_array_equal(printed(ran.output), swapped[::-1])


def test_reductions_over_clusters_subgroups_and_blocks(run_main: Callable[..., Any]) -> None:
    values = seeded.rng().integers(-100, 100, 2 * 72).astype(np.float64).reshape(2, 72)
    kernel = """
      %c2 = arith.constant 2 : index
      %v = memref.load %in[%x, %t] : memref<2x72xf32>
      %q = gpu.subgroup_reduce add %v cluster(size = 8) : (f32) -> f32
      %s = gpu.subgroup_reduce maximumf %v : (f32) -> f32
      %b = gpu.all_reduce minimumf %v {} : (f32) -> f32
      memref.store %q, %out[%x, %t, %c0] : memref<2x72x3xf32>
      memref.store %s, %out[%x, %t, %c1] : memref<2x72x3xf32>
      memref.store %b, %out[%x, %t, %c2] : memref<2x72x3xf32>"""
    body = program(kernel, 2, 72, "2x72x3", "%in = memref.get_global @in : memref<2x72xf32>")
    ran = run_main(body, "i32", f"{DECLARATIONS}\n{constant('in', values)}")
    expected = np.empty((2, 72, 3))
    for i, row in enumerate(values):
        for t in range(72):
            expected[i, t, 0] = row[t - t % 8 : t - t % 8 + 8].sum()
            expected[i, t, 1] = row[t - t % 32 : t - t % 32 + 32].max()
            expected[i, t, 2] = row.min()
    np.testing.assert_array_equal(printed(ran.output).reshape(2, 72, 3), expected)


def test_threads_may_leave_before_a_barrier(run_mlir: Callable[..., Any]) -> None:
    text = """module attributes {gpu.container_module} {
      gpu.module @kernels {
        gpu.func @k(%out: memref<4xi32>) workgroup(%s: memref<4xi32, 3>) private(%p: memref<1xi32, 5>) kernel {
          %t = gpu.thread_id x
          %c0 = arith.constant 0 : index
          %c3 = arith.constant 3 : index
          %leaves = arith.cmpi eq, %t, %c3 : index
          cf.cond_br %leaves, ^end, ^stay
        ^stay:
          %n = arith.index_cast %t : index to i32
          memref.store %n, %p[%c0] : memref<1xi32, 5>
          memref.store %n, %s[%t] : memref<4xi32, 3>
          gpu.barrier
          %c2 = arith.constant 2 : index
          %m = arith.subi %c2, %t : index
          %o = memref.load %s[%m] : memref<4xi32, 3>
          %q = memref.load %p[%c0] : memref<1xi32, 5>
          %ten = arith.constant 10 : i32
          %a = arith.muli %o, %ten : i32
          %b = arith.addi %a, %q : i32
          memref.store %b, %out[%t] : memref<4xi32>
          gpu.printf "%d ", %b : i32
          gpu.return
        ^end:
          gpu.return
        }
      }
      func.func @main() -> i32 {
        %c1 = arith.constant 1 : index
        %c2 = arith.constant 2 : index
        %c4 = arith.constant 4 : index
        %m = memref.alloc() : memref<4xi32>
        gpu.launch_func @kernels::@k blocks in (%c1, %c1, %c1) threads in (%c4, %c1, %c1) args(%m : memref<4xi32>)
        %r = memref.load %m[%c2] : memref<4xi32>
        return %r : i32 } }"""
    assert run_mlir(text).output == "20 11 2 2\n"


def test_dynamic_shared_memory_and_device_buffers(run_main: Callable[..., Any]) -> None:
    body = """
      %c0 = arith.constant 0 : index
      %c1 = arith.constant 1 : index
      %c8 = arith.constant 8 : index
      %bytes = arith.constant 32 : i32
      %one = arith.constant 1.5 : f32
      %host = memref.alloc() : memref<8xf32>
      linalg.fill ins(%one : f32) outs(%host : memref<8xf32>)
      %t0 = gpu.wait async
      %d, %t1 = gpu.alloc async [%t0] () : memref<8xf32, 1>
      %t2 = gpu.memcpy async [%t1] %d, %host : memref<8xf32, 1>, memref<8xf32>
      %t3 = gpu.launch async [%t2] blocks(%x, %y, %z) in (%gx = %c1, %gy = %c1, %gz = %c1)
          threads(%t, %ty, %tz) in (%bx = %c8, %by = %c1, %bz = %c1) dynamic_shared_memory_size %bytes {
        %raw = gpu.dynamic_shared_memory : memref<?xi8, #gpu.address_space<workgroup>>
        %s = memref.view %raw[%c0][] : memref<?xi8, #gpu.address_space<workgroup>>
             to memref<8xf32, #gpu.address_space<workgroup>>
        %v = memref.load %d[%t] : memref<8xf32, 1>
        %i = arith.index_cast %t : index to i32
        %f = arith.sitofp %i : i32 to f32
        %w = arith.addf %v, %f : f32
        memref.store %w, %s[%t] : memref<8xf32, #gpu.address_space<workgroup>>
        gpu.barrier
        %c7 = arith.constant 7 : index
        %m = arith.subi %c7, %t : index
        %g = memref.load %s[%m] : memref<8xf32, #gpu.address_space<workgroup>>
        memref.store %g, %d[%t] : memref<8xf32, 1>
        gpu.terminator
      }
      %t4 = gpu.memcpy async [%t3] %host, %d : memref<8xf32>, memref<8xf32, 1>
      %t5 = gpu.dealloc async [%t4] %d : memref<8xf32, 1>
      gpu.wait [%t5]
      %r = memref.load %host[%c0] : memref<8xf32>"""
    assert run_main(body, "f32").output == "8.5\n"
